// SPDX-License-Identifier: Apache-2.0

#include "server/commands/printable.h"

#include <cstddef>

namespace fencekv::server {

std::string printable(std::string_view bytes) {
  constexpr std::size_t kShownBytes = 64;
  constexpr char kDigits[] = "0123456789abcdef";

  std::string text;
  for (const char byte : bytes.substr(0, kShownBytes)) {
    const auto code = static_cast<unsigned char>(byte);
    if (code > 0x20 && code < 0x7f && byte != '\\') {
      text += byte;
    } else {
      text += "\\x";
      text += kDigits[code >> 4];
      text += kDigits[code & 0xf];
    }
  }
  if (bytes.size() > kShownBytes) text += "...";
  return text;
}

}  // namespace fencekv::server
