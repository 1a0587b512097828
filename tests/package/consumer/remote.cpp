// SPDX-License-Identifier: Apache-2.0
// Uses the installed client as a worker would: remote HOST PORT.

#include <chrono>
#include <cstdlib>
#include <fencekv/client.h>
#include <fencekv/lease_guard.h>
#include <fencekv/lease_watcher.h>
#include <iostream>

namespace {

int fail(const char* what, const fencekv::Error& error) {
  std::cerr << what << ": " << error.line() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  if (argc != 3) return 2;

  auto client = fencekv::Client::connect(
      {.host = argv[1], .port = static_cast<std::uint16_t>(std::atoi(argv[2]))});
  if (!client) return fail("connect", client.error());

  const auto watcher =
      fencekv::LeaseWatcher::start(*client, {"job"}, [](const fencekv::LeaseEvent& event) {
        std::cerr << event.name << ": " << to_string(event.change) << "\n";
      });
  if (!watcher) return fail("watch", watcher.error());

  auto lease = fencekv::LeaseGuard::acquire(*client, "job", 5s, {.ttl = 60s});
  if (!lease) return fail("acquire", lease.error());
  if (!*lease) return 1;
  const auto token = (*lease)->token();
  const auto written = client->set("state", "done", token, {.lease = "job"});
  if (!written) return fail("set", written.error());
  if (const auto released = (*lease)->release(); !released) {
    return fail("release", released.error());
  }

  const auto late = client->set("state", "too late", token, {.lease = "job"});
  if (late || late.error().code() != fencekv::Errc::fenced) {
    std::cerr << "the late write was not refused\n";
    return 1;
  }
  std::cout << "refused: " << late.error().line() << "\n";
  return 0;
}
