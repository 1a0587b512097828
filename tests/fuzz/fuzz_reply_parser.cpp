// SPDX-License-Identifier: Apache-2.0
// Any bytes: no fault, the same replies whole and in pieces, and limits that hold.
#include "server/resp/reply_parser.h"
#include "tests/fuzz/pieces.h"

#include <string>
#include <utility>

namespace {

using fencekv::fuzz::require;
using fencekv::resp::ReplyLimits;
using fencekv::resp::ReplyParser;
using fencekv::resp::Value;

constexpr ReplyLimits kLimits{.reply_bytes = 4096, .depth = 5};

std::size_t memory_of(const Value& value, std::size_t depth) {
  require(depth <= kLimits.depth, "no deeper than `depth`");
  std::size_t bytes = sizeof(Value) + value.text.size();
  for (const auto& part : value.parts) bytes += memory_of(part, depth + 1);
  return bytes;
}

std::pair<std::vector<Value>, std::string> hear(const std::vector<std::string_view>& pieces) {
  ReplyParser parser(kLimits);
  std::vector<Value> replies;
  for (const auto piece : pieces) {
    parser.feed(piece);
    for (;;) {
      const auto status = parser.next();
      if (status == ReplyParser::Status::need_more) break;
      if (status == ReplyParser::Status::protocol_error) {
        require(!parser.error().empty(), "an error has words");
        require(parser.next() == status, "a failure is final");
        return {replies, parser.error()};
      }
      require(memory_of(parser.reply(), 0) <= kLimits.reply_bytes, "no reply over `reply_bytes`");
      replies.push_back(std::move(parser.reply()));
    }
  }
  return {replies, ""};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view whole(reinterpret_cast<const char*>(bytes) + 1, size - 1);

  const auto at_once = hear({whole});

  require(hear(fencekv::fuzz::pieces_of(bytes, size)) == at_once, "splits change nothing");
  return 0;
}
