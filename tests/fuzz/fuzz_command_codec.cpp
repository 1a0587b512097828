// SPDX-License-Identifier: Apache-2.0
/// Any reply to any command of the client: no fault; an answer, or an error of one line.
#include "client/command_codec.h"
#include "tests/fuzz/pieces.h"

#include <array>
#include <string>
#include <utility>

namespace {

using namespace fencekv;
using fencekv::fuzz::require;

template <class C>
void decode_as(const resp::Value& value) {
  auto copy = value;
  const auto answer = decode<C>(std::move(copy));
  if (answer) return;
  require(!answer.error().line().empty(), "an error has words");
  require(answer.error().line().find_first_of("\r\n") == std::string::npos, "of one line");
}

using Decoder = void (*)(const resp::Value&);
#define FENCEKV_DECODER(C) decode_as<C>,
constexpr Decoder kDecoders[] = {FENCEKV_FOR_EACH_CLIENT_COMMAND(FENCEKV_DECODER)};
#undef FENCEKV_DECODER

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  resp::ReplyParser parser({.reply_bytes = 65536, .depth = 8});
  parser.feed(stream);

  std::size_t command = bytes[0];
  while (parser.next() == resp::ReplyParser::Status::reply) {
    const auto value = parser.reply();
    kDecoders[command % std::size(kDecoders)](value);
    ++command;
    auto push = value;
    if (const auto event = decode_push(std::move(push))) {
      require(value.parts.size() == 4, "a change has four parts");
      require(event->token.number() <= Token::kMax, "its token is one");
    }
  }
  return 0;
}
