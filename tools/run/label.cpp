// SPDX-License-Identifier: Apache-2.0
#include "tools/run/label.h"

#include "fencekv/types.h"

#include <array>
#include <pwd.h>
#include <unistd.h>
#include <vector>

namespace fencekv::run {
namespace {

std::string user_name() {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(std::size_t{16} * 1024);
  if (getpwuid_r(geteuid(), &entry, text.data(), text.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return std::to_string(geteuid());
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

/// Cut before the character, not in the middle of it.
std::string cut(std::string text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  text.resize(bytes);
  return text;
}

}  // namespace

std::string default_label(std::string_view command) {
  return cut(
      user_name() + "@" + host_name() + " " + std::to_string(getpid()) + " " + std::string(command),
      Limits::kPayloadBytes);
}

}  // namespace fencekv::run
