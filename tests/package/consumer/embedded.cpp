// SPDX-License-Identifier: Apache-2.0
// Uses the installed engine as an application would: embedded DIRECTORY.

#include <chrono>
#include <fencekv/store.h>
#include <iostream>

namespace {

int fail(const char* what, const fencekv::Error& error) {
  std::cerr << what << ": " << error.line() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  if (argc != 2) return 2;

  auto opened = fencekv::open_rocksdb(argv[1], {});
  if (!opened) return fail("open", opened.error());
  auto& store = **opened;

  const auto first = store.acquire("job", fencekv::new_owner(), 1ms);
  if (!first) return fail("acquire", first.error());
  const auto old_token = (*first)->token;
  // The first holder's time runs out by itself; ask until it has.
  auto second = store.acquire("job", fencekv::new_owner(), 60s);
  while (second && !*second) second = store.acquire("job", fencekv::new_owner(), 60s);
  if (!second) return fail("acquire", second.error());

  const auto written = store.set("state", "by the successor", (*second)->token, {.lease = "job"});
  if (!written) return fail("set", written.error());
  const auto late = store.set("state", "by the sleeper", old_token, {.lease = "job"});
  if (late || late.error().code() != fencekv::Errc::fenced) {
    std::cerr << "the late write was not refused\n";
    return 1;
  }
  const auto value = store.get("state");
  if (!value) return fail("get", value.error());
  if (*value != "by the successor") {
    std::cerr << "the value is wrong\n";
    return 1;
  }
  std::cout << "refused: " << late.error().line() << "\n";
  return 0;
}
