// SPDX-License-Identifier: Apache-2.0
#include "tests/history/written_history.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using Value = resp::Value;

Value number(const std::string& text) {
  return {.kind = Value::Kind::integer, .text = {}, .integer = std::stoll(text), .parts = {}};
}

Value text_or_nil(const std::string& text) {
  if (text == "_") return {};
  return {.kind = Value::Kind::bulk, .text = text, .integer = 0, .parts = {}};
}

Value array(std::vector<Value> parts) {
  return {.kind = Value::Kind::array, .text = {}, .integer = 0, .parts = std::move(parts)};
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// The words between the brackets.
std::vector<std::string> inside(const std::string& reply) {
  return split(reply.substr(1, reply.size() - 2));
}

Value reply_of(const std::string& text) {
  switch (text[0]) {
    case ':':
      return number(text.substr(1));
    case '$':
      return text_or_nil(text.substr(1));
    case '-':
      return {.kind = Value::Kind::error, .text = text.substr(1), .integer = 0, .parts = {}};
    case '[': {
      const auto words = inside(text);
      std::vector<Value> parts;
      if (words.size() == 2 && words[0][0] != ':' && words[0][0] != '$') {
        return array({text_or_nil(words[0]), number(words[1])});
      }
      for (const auto& word : words) parts.push_back(reply_of(word));
      return array(std::move(parts));
    }
    case '{': {
      const auto words = inside(text);
      return array({text_or_nil("value"), text_or_nil(words.at(0)), text_or_nil("version"),
                    number(words.at(1)), text_or_nil("fence"), text_or_nil(words.at(2)),
                    text_or_nil("guard"), text_or_nil(words.at(3))});
    }
    case '<': {
      const auto words = inside(text);
      std::vector<Value> holders;
      if (words.at(1) != "0") {
        holders.push_back(array({text_or_nil("token"), text_or_nil(words.at(1)),
                                 text_or_nil("remaining"), number(words.at(2))}));
      }
      return array({text_or_nil("fence"), text_or_nil(words.at(0)), text_or_nil("holders"),
                    array(std::move(holders))});
    }
    case '_':
      return {};
    default:
      return {.kind = Value::Kind::simple, .text = text, .integer = 0, .parts = {}};
  }
}

bool is_time(const std::string& word) {
  return std::all_of(word.begin(), word.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

Time ms(const std::string& word) {
  return std::chrono::milliseconds(std::stoll(word));
}

Operation operation_of_words(std::vector<std::string> words) {
  const auto joined_from = [&](std::size_t i) {
    std::string text;
    for (; i < words.size(); ++i) text += (text.empty() ? "" : " ") + words[i];
    return text;
  };
  // The request ends where its reply begins: behind the last number before a reply.
  for (std::size_t i = words.size() - 1; i > 2; --i) {
    const auto reply = joined_from(i);
    const bool begins_reply =
        std::string_view(":$-[{<_?").find(reply[0]) != std::string_view::npos || reply == "OK";
    if (!begins_reply || !is_time(words[i - 1])) continue;
    const auto operation =
        operation_of({words.begin() + 2, words.begin() + static_cast<long>(i) - 1});
    if (!operation) continue;
    auto made = *operation;
    made.client = std::stoi(words[0]);
    made.invoked = ms(words[1]);
    if (reply[0] == '?') {
      if (reply.starts_with("? until ")) made.latest = ms(words.back());
    } else {
      made.returned = ms(words[i - 1]);
      take_reply(made, reply_of(reply));
    }
    return made;
  }
  throw std::invalid_argument("no operation: " + joined_from(0));
}

}  // namespace

History written_history(std::string_view text) {
  History history;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (auto words = split(line); !words.empty()) {
      history.push_back(operation_of_words(std::move(words)));
    }
  }
  return history;
}

}  // namespace fencekv::testing
