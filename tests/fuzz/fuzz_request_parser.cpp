// SPDX-License-Identifier: Apache-2.0
// Any bytes: no fault, the same verdict whole and in pieces, one line of printable text for every
// error, and limits that hold.
#include "server/resp/request_parser.h"
#include "server/resp/request_writer.h"
#include "tests/fuzz/pieces.h"

#include <string>
#include <utility>

namespace {

using fencekv::fuzz::require;
using fencekv::resp::RequestLimits;
using fencekv::resp::RequestParser;

constexpr RequestLimits kLimits{
    .request_bytes = 512, .arguments = 16, .argument_bytes = 128, .inline_bytes = 256};

/// The requests, written in one canonical form, and the error.
std::pair<std::string, std::string> hear(const std::vector<std::string_view>& pieces) {
  RequestParser parser(kLimits);
  std::string requests;
  std::size_t fed = 0;
  for (const auto piece : pieces) {
    parser.feed(piece);
    fed += piece.size();
    for (;;) {
      const auto status = parser.next();
      if (status == RequestParser::Status::need_more) break;
      if (status != RequestParser::Status::request) {
        require(!parser.error().empty(), "an error has words");
        for (const char c : parser.error()) require(c >= ' ' && c <= '~', "errors are printable");
        require(parser.next() == status, "a failure is final");
        return {requests, parser.error()};
      }
      const auto& request = parser.request();
      require(!request.empty() && request.size() <= kLimits.arguments, "1 to `arguments` words");
      for (const auto word : request) {
        require(word.size() <= kLimits.argument_bytes, "no word over `argument_bytes`");
      }
      fencekv::resp::write_request(requests, request);
      require(parser.buffered() <= fed, "no more is buffered than was fed");
    }
  }
  return {requests, ""};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view whole(reinterpret_cast<const char*>(bytes) + 1, size - 1);

  const auto at_once = hear({whole});

  require(hear(fencekv::fuzz::pieces_of(bytes, size)) == at_once, "splits change nothing");
  require(hear({at_once.first}).first == at_once.first, "what was understood reads the same again");
  return 0;
}
