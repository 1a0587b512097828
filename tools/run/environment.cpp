// SPDX-License-Identifier: Apache-2.0
#include "tools/run/environment.h"

#include <algorithm>
#include <array>

namespace fencekv::run {
namespace {

constexpr std::array<std::string_view, 5> kOurs{
    "FENCEKV_TOKEN=", "FENCEKV_LEASE=", "FENCEKV_HOST=", "FENCEKV_PORT=", "FENCEKV_UNIX="};

bool is_ours(std::string_view entry) {
  return std::any_of(kOurs.begin(), kOurs.end(),
                     [&](std::string_view name) { return entry.starts_with(name); });
}

}  // namespace

std::vector<std::string> child_environment(const std::vector<std::string>& inherited,
                                           std::string_view lease, Token token,
                                           const Address& address) {
  std::vector<std::string> entries;
  for (const std::string& entry : inherited) {
    if (!is_ours(entry)) entries.push_back(entry);
  }
  entries.push_back("FENCEKV_TOKEN=" + std::to_string(token.number()));
  entries.push_back("FENCEKV_LEASE=" + std::string(lease));
  if (address.unix_path.empty()) {
    entries.push_back("FENCEKV_HOST=" + address.host);
    entries.push_back("FENCEKV_PORT=" + std::to_string(address.port));
  } else {
    entries.push_back("FENCEKV_UNIX=" + address.unix_path);
  }
  return entries;
}

}  // namespace fencekv::run
