// SPDX-License-Identifier: Apache-2.0
/// Driver for hiredis, as run_conformance.py describes it. Debian's hiredis 0.14 speaks RESP2 only.

#include <hiredis/hiredis.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

constexpr int kSkipped = 77;

/// Bytes as the characters U+0000 to U+00FF in UTF-8, and back.
std::string to_text(const char* bytes, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < 0x80) {
      text += static_cast<char>(byte);
    } else {
      text += static_cast<char>(0xC0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return text;
}

std::string to_bytes(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else {
      const auto next = static_cast<unsigned char>(text.at(++i));
      bytes += static_cast<char>(((lead & 0x03) << 6) | (next & 0x3F));
    }
  }
  return bytes;
}

json to_json(const redisReply& reply) {
  switch (reply.type) {
    case REDIS_REPLY_INTEGER:
      return reply.integer;
    case REDIS_REPLY_NIL:
      return nullptr;
    case REDIS_REPLY_ARRAY: {
      auto parts = json::array();
      for (std::size_t i = 0; i < reply.elements; ++i) parts.push_back(to_json(*reply.element[i]));
      return parts;
    }
    case REDIS_REPLY_ERROR:
      return "error:" + to_text(reply.str, reply.len);
    default:
      return to_text(reply.str, reply.len);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  if (std::string(argv[3]) != "2") {
    std::cout << "hiredis " << HIREDIS_MAJOR << "." << HIREDIS_MINOR << " speaks RESP2 only\n";
    return kSkipped;
  }
  const std::unique_ptr<redisContext, void (*)(redisContext*)> context(
      redisConnect(argv[1], std::atoi(argv[2])), redisFree);
  if (!context || context->err != 0) {
    std::cout << "hiredis cannot connect: " << (context ? context->errstr : "no memory") << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> words;
    for (const auto& word : json::parse(line)) words.push_back(to_bytes(word.get<std::string>()));
    std::vector<const char*> pointers;
    std::vector<std::size_t> sizes;
    for (const auto& word : words) {
      pointers.push_back(word.data());
      sizes.push_back(word.size());
    }
    const std::unique_ptr<void, void (*)(void*)> reply(
        redisCommandArgv(context.get(), static_cast<int>(words.size()), pointers.data(),
                         sizes.data()),
        freeReplyObject);
    if (!reply) {
      std::cout << "hiredis lost its connection: " << context->errstr << "\n";
      return 1;
    }
    const auto& answer = *static_cast<const redisReply*>(reply.get());
    const auto line_back = answer.type == REDIS_REPLY_ERROR
                               ? json{{"error", to_text(answer.str, answer.len)}}
                               : json{{"reply", to_json(answer)}};
    std::cout << line_back.dump() << std::endl;
  }
  return 0;
}
