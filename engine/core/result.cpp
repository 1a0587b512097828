// SPDX-License-Identifier: Apache-2.0
#include "fencekv/result.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace fencekv {
namespace {

struct CodeWord {
  Errc code;
  std::string_view word;
};

// The first part are the words of the wire protocol.
constexpr std::array kCodeWords{
    CodeWord{Errc::invalid, "ERR"},
    CodeWord{Errc::too_big, "TOOBIG"},
    CodeWord{Errc::fenced, "FENCED"},
    CodeWord{Errc::unissued, "UNISSUED"},
    CodeWord{Errc::no_lease, "NOLEASE"},
    CodeWord{Errc::wrong_lease, "WRONGLEASE"},
    CodeWord{Errc::expired, "EXPIRED"},
    CodeWord{Errc::version, "VERSION"},
    CodeWord{Errc::lease_lost, "LEASELOST"},
    CodeWord{Errc::overloaded, "OVERLOADED"},
    CodeWord{Errc::in_doubt, "INDOUBT"},
    CodeWord{Errc::misconf, "MISCONF"},
    CodeWord{Errc::corrupt, "CORRUPT"},
    CodeWord{Errc::in_use, "INUSE"},
    CodeWord{Errc::newer_format, "NEWER"},
    CodeWord{Errc::no_space, "NOSPACE"},
    CodeWord{Errc::unreachable, "UNREACHABLE"},
    CodeWord{Errc::denied, "DENIED"},
    CodeWord{Errc::protocol, "PROTOCOL"},
};

/// The words by which a server says no to a caller it does not know.
constexpr std::array<std::string_view, 3> kDeniedWords{"NOAUTH", "WRONGPASS", "NOPERM"};

/// Takes the next blank-separated word off the front of `rest`.
std::string_view take_word(std::string_view& rest) {
  const auto end = rest.find(' ');
  const auto word = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return word;
}

std::string unescaped(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] == 'x') {
      const auto* first = text.data() + i + 2;
      const auto [end, error] = std::from_chars(first, first + 2, value, 16);
      if (error == std::errc{} && end == first + 2) {
        bytes += static_cast<char>(value);
        i += 3;
        continue;
      }
    }
    bytes += text[i];
  }
  return bytes;
}

std::string number(std::uint64_t n) {
  return std::to_string(n);
}

}  // namespace

std::string_view to_string(Errc code) {
  for (const auto& entry : kCodeWords) {
    if (entry.code == code) return entry.word;
  }
  return "ERR";
}

std::string Error::line() const {
  std::string line(to_string(code_));
  if (!detail_.empty()) line.append(" ").append(detail_);
  return line;
}

Error Error::fenced(Token highest, Token offered, std::string_view reason) {
  Error error(Errc::fenced, number(highest.number()) + " " + number(offered.number()) + " " +
                                std::string(reason));
  error.highest_ = highest;
  error.offered_ = offered;
  error.reason_ = reason;
  return error;
}

Error Error::unissued(Token newest, Token offered) {
  Error error(Errc::unissued, number(newest.number()) + " " + number(offered.number()));
  error.highest_ = newest;
  error.offered_ = offered;
  return error;
}

Error Error::no_lease(std::string_view name) {
  Error error(Errc::no_lease, escaped(name));
  error.subject_ = name;
  return error;
}

Error Error::wrong_lease(std::string_view guard) {
  Error error(Errc::wrong_lease, escaped(guard));
  error.subject_ = guard;
  return error;
}

Error Error::expired(std::uint64_t ms_since) {
  return {Errc::expired, number(ms_since)};
}

Error Error::version(std::uint64_t current, std::uint64_t expected) {
  return {Errc::version, number(current) + " " + number(expected)};
}

Error Error::lease_lost(std::string_view reason) {
  Error error(Errc::lease_lost, std::string(reason));
  error.reason_ = reason;
  return error;
}

Error& Error::append(std::string_view more) {
  detail_.append(" ").append(more);
  return *this;
}

Error parse_error_line(std::string_view given) {
  // RESP3 lets an error be of any bytes; ours is one line.
  std::string plain(given);
  std::replace_if(
      plain.begin(), plain.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  const std::string_view line = plain;
  auto rest = line;
  const auto word = take_word(rest);
  for (const auto denied : kDeniedWords) {
    if (word == denied) return {Errc::denied, std::string(line)};
  }

  const CodeWord* found = nullptr;
  for (const auto& entry : kCodeWords) {
    if (entry.code < Errc::in_use && entry.word == word) found = &entry;
  }
  if (found == nullptr) return {Errc::invalid, std::string(line)};

  const auto detail = rest;
  const auto first = take_word(rest);
  const auto second = take_word(rest);
  // What a newer server says behind the known words is kept for people.
  const auto with_whole = [&](Error error) {
    error.detail_ = detail;
    return error;
  };

  const auto highest = parse_decimal(first, Token::kMax);
  const auto offered = parse_decimal(second, Token::kMax);
  switch (found->code) {
    case Errc::fenced:
      if (!highest || !offered) break;
      return with_whole(Error::fenced(Token{*highest}, Token{*offered}, take_word(rest)));
    case Errc::unissued:
      if (!highest || !offered) break;
      return with_whole(Error::unissued(Token{*highest}, Token{*offered}));
    case Errc::no_lease:
      return with_whole(Error::no_lease(unescaped(first)));
    case Errc::wrong_lease:
      return with_whole(Error::wrong_lease(unescaped(first)));
    case Errc::lease_lost:
      return with_whole(Error::lease_lost(first));
    default:
      break;
  }
  return {found->code, std::string(detail)};
}

std::string escaped(std::string_view bytes) {
  constexpr std::size_t kShownBytes = 64;
  constexpr std::string_view kHex = "0123456789abcdef";

  std::string text;
  for (const char c : bytes.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f && byte != '\\') {
      text += c;
    } else {
      text.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    }
  }
  if (bytes.size() > kShownBytes) text += "...";
  return text;
}

}  // namespace fencekv
