// SPDX-License-Identifier: Apache-2.0
#include "server/resp/request_writer.h"

#include "server/resp/decimal.h"

#include <cstddef>

namespace fencekv::resp {

void write_request(std::string& out, std::span<const std::string_view> arguments) {
  append_header(out, '*', arguments.size());
  for (const std::string_view argument : arguments) {
    append_header(out, '$', argument.size());
    out.append(argument).append("\r\n");
  }
}

}  // namespace fencekv::resp
