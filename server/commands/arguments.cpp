// SPDX-License-Identifier: Apache-2.0

#include "server/commands/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace fencekv::server {
namespace {

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

char upper(char letter) {
  return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
}

std::string usage_of(const Argument& argument) {
  std::string text;
  if (argument.type == ArgumentType::oneof) {
    for (const Argument& part : argument.parts) {
      if (!text.empty()) text += " | ";
      text += usage_of(part);
    }
  } else if (argument.type == ArgumentType::block) {
    for (const Argument& part : argument.parts) {
      if (!text.empty()) text += ' ';
      text += usage_of(part);
    }
  } else if (argument.type == ArgumentType::pure_token) {
    text = argument.token;
  } else {
    text = argument.token.empty() ? std::string(argument.name)
                                  : fmt::format("{} {}", argument.token, argument.name);
  }
  if (argument.multiple) text = fmt::format("{} [{} ...]", text, text);
  if (argument.optional) text = fmt::format("[{}]", text);
  return text;
}

Result<std::chrono::milliseconds> parse_milliseconds(std::string_view what, std::string_view text,
                                                     std::uint64_t low,
                                                     std::chrono::milliseconds high) {
  const auto number = parse_number(what, text, low, static_cast<std::uint64_t>(high.count()));
  if (!number) return number.error();
  return std::chrono::milliseconds(*number);
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char left, char right) { return lower(left) == lower(right); });
}

Result<Token> parse_token(std::string_view text) {
  const auto number = parse_decimal(text, Token::kMax);
  if (!number || *number == 0) {
    return Error(Errc::invalid,
                 fmt::format("invalid token '{}', expected a decimal number from 1 to {}",
                             escaped(text), Token::kMax));
  }
  return Token(*number);
}

Result<Token> parse_token_or_none(std::string_view text) {
  const auto number = parse_decimal(text, Token::kMax);
  if (!number) {
    return Error(Errc::invalid,
                 fmt::format("invalid token '{}', expected a decimal number from 1 to {}, or 0",
                             escaped(text), Token::kMax));
  }
  return Token(*number);
}

Result<std::chrono::milliseconds> parse_ttl(std::string_view text) {
  return parse_milliseconds("ttl", text, 1, Limits::kMaxTtl);
}

Result<std::chrono::milliseconds> parse_wait(std::string_view what, std::string_view text) {
  return parse_milliseconds(what, text, 0, Limits::kMaxWait);
}

Result<std::chrono::milliseconds> parse_delay(std::string_view text) {
  return parse_milliseconds("delay", text, 0, Limits::kMaxDelay);
}

Result<std::uint64_t> parse_number(std::string_view what, std::string_view text, std::uint64_t low,
                                   std::uint64_t high) {
  const auto number = parse_decimal(text, high);
  if (!number || *number < low) {
    return Error(Errc::invalid,
                 fmt::format("invalid {} '{}', expected a decimal number from {} to {}", what,
                             escaped(text), low, high));
  }
  return *number;
}

std::optional<std::string_view> ParsedOptions::get(std::string_view token) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (given_[i].choice->token == token) return given_[i].value;
  }
  return std::nullopt;
}

Result<ParsedOptions> parse_options(const Call& call, std::size_t from) {
  const resp::Request& words = call.arguments;
  ParsedOptions parsed;
  for (std::size_t at = from; at < words.size(); ++at) {
    ParsedOptions::Given given;
    for (const Argument& option : call.spec.arguments) {
      const auto choices =
          option.type == ArgumentType::oneof ? option.parts : std::span(&option, 1);
      for (const Argument& choice : choices) {
        if (choice.token.empty() || !same_word(choice.token, words[at])) continue;
        given.option = &option;
        given.choice = &choice;
      }
    }
    if (given.choice == nullptr) {
      return syntax_error(fmt::format("unexpected '{}'", escaped(words[at])), call.spec);
    }
    for (std::size_t i = 0; i < parsed.count_; ++i) {
      if (parsed.given_[i].option != given.option) continue;
      return parsed.given_[i].choice == given.choice
                 ? syntax_error(fmt::format("{} is given twice", given.choice->token), call.spec)
                 : syntax_error(fmt::format("{} and {} exclude each other", given.choice->token,
                                            parsed.given_[i].choice->token),
                                call.spec);
    }
    given.value = given.choice->token;
    if (given.choice->type != ArgumentType::pure_token) {
      if (++at == words.size()) {
        return syntax_error(
            fmt::format("{} without its {}", given.choice->token, given.choice->name), call.spec);
      }
      given.value = words[at];
    }
    assert(parsed.count_ < parsed.given_.size() && "a spec has more options than fit");
    parsed.given_[parsed.count_++] = given;
  }
  return parsed;
}

Error syntax_error(std::string_view what, const CommandSpec& spec) {
  return Error(Errc::invalid, fmt::format("syntax error: {}, expected {}", what, usage(spec)));
}

std::string usage(const CommandSpec& spec) {
  std::string text;
  for (const char letter : spec.name) text += letter == '|' ? ' ' : upper(letter);
  for (const Argument& argument : spec.arguments) {
    text += ' ';
    text += usage_of(argument);
  }
  return text;
}

}  // namespace fencekv::server
