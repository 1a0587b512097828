// SPDX-License-Identifier: Apache-2.0
/// Any configuration file and any command line: no fault; either options within their limits, or a
/// reason why not.
#include "server/options.h"
#include "tests/fuzz/pieces.h"

#include <string>
#include <variant>
#include <vector>

namespace {

using fencekv::fuzz::MemoryFile;
using fencekv::fuzz::require;
using fencekv::server::EarlyExit;
using fencekv::server::ExitCode;
using fencekv::server::ServerOptions;

void expect_within_limits(const ServerOptions& options, bool is_whole) {
  require(options.port >= -1 && options.port <= 65535, "a port");
  require(options.io_threads >= 1 && options.io_threads <= 256, "threads");
  require(options.max_connections >= 1 && options.max_connections <= 1'000'000, "connections");
  require(options.idle_timeout.count() >= 0, "times do not overflow");
  require(options.store.max_value_bytes >= 1, "a longest value");
  require(options.store.max_value_bytes <= std::size_t{63} << 20U, "that fits a request");
  require(options.store.fence_retention.count() >= 0, "times do not overflow");
  require(options.store.reclaim_interval.count() >= 0, "times do not overflow");
  if (!is_whole) return;
  require(!options.dir.empty(), "a directory");
  require(options.port >= 0 || !options.unix_path.empty(), "something to listen on");
  const auto is_private = fencekv::server::is_loopback(options.bind);
  require(is_private.has_value(), "an address");
  require(*is_private || options.port < 0 || !options.password_file.empty(),
          "nobody from outside without a password");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static MemoryFile file;
  // Flags, one a line, then a NUL and the file.
  const std::string_view all(reinterpret_cast<const char*>(bytes), size);
  const auto split = all.find('\0');
  auto lines = all.substr(0, split);
  const bool has_file = split != std::string_view::npos;
  const auto path = file.holding(has_file ? all.substr(split + 1) : "");

  std::vector<std::string> words = {"fencekv-server"};
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    // No other file: a device would be read for ever.
    if (!lines.starts_with("--config")) words.emplace_back(lines.substr(0, end));
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
  }
  if (has_file) words.insert(words.begin() + 1, {"--config", path});
  std::vector<const char*> argv;
  for (const auto& word : words) argv.push_back(word.c_str());

  const auto parsed = fencekv::server::parse_options(static_cast<int>(argv.size()), argv.data());
  if (const auto* exit = std::get_if<EarlyExit>(&parsed)) {
    require(exit->code == ExitCode::usage || exit->code == ExitCode::stopped, "a code of its own");
    require(!exit->text.empty(), "a reason");
  } else {
    expect_within_limits(std::get<ServerOptions>(parsed), true);
  }

  ServerOptions options;
  if (const auto read = fencekv::server::read_config(path, options); !read) {
    require(read.error().detail().starts_with(path + ":"), "the line of the file is named");
  }
  expect_within_limits(options, false);
  return 0;
}
