// SPDX-License-Identifier: Apache-2.0
#include "server/resp/request_parser.h"

#include "server/resp/decimal.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <utility>

namespace fencekv::resp {
namespace {

// Redis' limits of a header line and of an argument (PROTO_INLINE_MAX_SIZE, proto-max-bulk-len).
constexpr std::size_t kHeaderBytes = std::size_t{64} * 1024;
constexpr std::size_t kRedisArgumentBytes = std::size_t{512} * 1024 * 1024;
// `$0`, CRLF, CRLF: no argument takes less.
constexpr std::size_t kSmallestArgument = 6;
// Kept between requests; what a longer request needed is given back.
constexpr std::size_t kKeptBytes = std::size_t{64} * 1024;
constexpr std::size_t kKeptArguments = 1024;

constexpr std::string_view kPrefix = "ERR Protocol error: ";

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r';
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

/// `c` for an error line: as it is if it is printable.
std::string shown(char c) {
  if (c == '\r' || c == '\n') return " ";  // as Redis does
  if (c >= ' ' && c <= '~') return {c};
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  return {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
}

/// Reads one word of an inline command at `in`, and writes what it stands for to `out`, which never
/// overtakes `in`. False: quotes that do not close, or that something follows at once.
bool read_word(const char*& in, const char* end, char*& out) {
  const auto peek = [&](std::ptrdiff_t ahead) {
    return ahead < end - in ? std::optional<char>(in[ahead]) : std::nullopt;
  };
  char quote = 0;
  for (;; ++in) {
    if (in == end) return quote == 0;
    const char c = *in;
    if (quote == 0) {
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return true;
      if (c == '"' || c == '\'') {
        quote = c;
      } else {
        *out++ = c;
      }
      continue;
    }
    if (c == quote) {
      ++in;
      return in == end || is_blank(*in);
    }
    if (c != '\\' || !peek(1)) {
      *out++ = c;
      continue;
    }
    const char escape = *peek(1);
    if (quote == '\'') {
      *out++ = escape == '\'' ? *++in : c;
      continue;
    }
    const auto high = escape == 'x' && peek(2) ? hex_digit(*peek(2)) : std::nullopt;
    const auto low = high && peek(3) ? hex_digit(*peek(3)) : std::nullopt;
    if (low) {
      *out++ = static_cast<char>(*high * 16 + *low);
      in += 3;
      continue;
    }
    constexpr std::string_view kNames = "nrtba";
    constexpr std::string_view kBytes = "\n\r\t\b\a";
    const auto known = kNames.find(escape);
    *out++ = known == std::string_view::npos ? escape : kBytes[known];
    ++in;
  }
}

}  // namespace

void RequestParser::feed(std::string_view bytes) {
  if (failed_) return;
  // Moves less than was consumed since the last move, so that all moves together are linear.
  if (start_ > 0 && start_ >= buffer_.size() - start_) {
    buffer_.erase(0, start_);
    scan_ -= start_;
    searched_ -= std::min(searched_, start_);
    for (auto& span : spans_) span.begin -= start_;
    start_ = 0;
  }
  buffer_.append(bytes);
}

std::size_t RequestParser::buffered() const {
  return buffer_.size() - start_;
}

RequestParser::Status RequestParser::next() {
  if (failed_) return *failed_;
  request_.clear();
  consume_previous();
  for (;;) {
    if (const auto status = step()) return *status;
  }
}

void RequestParser::consume_previous() {
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = scan_ = searched_ = 0;
    if (buffer_.capacity() > kKeptBytes) std::string().swap(buffer_);
  }
  if (request_.capacity() > kKeptArguments && awaited_ == 0) {
    Request().swap(request_);
    std::vector<Span>().swap(spans_);
  }
}

std::optional<RequestParser::Status> RequestParser::step() {
  if (awaited_ > 0) return argument_ ? read_argument() : read_count();
  if (scan_ == buffer_.size()) return Status::need_more;
  return buffer_[scan_] == '*' ? read_count() : read_line();
}

/// An inline command.
std::optional<RequestParser::Status> RequestParser::read_line() {
  const auto newline = find('\n', "too big inline request");
  if (failed_) return failed_;
  if (!newline) return Status::need_more;

  const bool has_cr = *newline > start_ && buffer_[*newline - 1] == '\r';
  if (!split_line(*newline - (has_cr ? 1 : 0))) {
    return fail(Status::protocol_error, std::string(kPrefix) + "unbalanced quotes in request");
  }
  scan_ = *newline + 1;
  if (spans_.empty()) {
    start_ = scan_;
    return std::nullopt;
  }
  if (spans_.size() > limits_.arguments) {
    return fail(Status::too_big,
                "TOOBIG request of more than " + std::to_string(limits_.arguments) + " arguments");
  }
  for (const auto& span : spans_) {
    if (span.size > limits_.argument_bytes) {
      return fail(Status::too_big, "TOOBIG argument of more than " +
                                       std::to_string(limits_.argument_bytes) + " bytes");
    }
  }
  return finish();
}

/// The header of an array, or of an argument in it.
std::optional<RequestParser::Status> RequestParser::read_count() {
  const bool of_array = awaited_ == 0;
  const auto cr = find('\r', of_array ? "too big mbulk count string" : "too big bulk count string");
  if (failed_) return failed_;
  // The byte after the CR is part of the header, whatever it is.
  if (!cr || *cr + 1 == buffer_.size()) return Status::need_more;

  const char type = buffer_[scan_];
  if (!of_array && type != '$') {
    return fail(Status::protocol_error,
                std::string(kPrefix) + "expected '$', got '" + shown(type) + "'");
  }
  const auto number = read_decimal(std::string_view(buffer_).substr(scan_ + 1, *cr - scan_ - 1));
  scan_ = *cr + 2;

  if (of_array) {
    if (!number || *number > INT_MAX) {
      return fail(Status::protocol_error, std::string(kPrefix) + "invalid multibulk length");
    }
    if (*number <= 0) {
      start_ = scan_;
      return std::nullopt;
    }
    const auto count = static_cast<std::size_t>(*number);
    if (count > limits_.arguments) {
      return fail(Status::too_big, "TOOBIG request of more than " +
                                       std::to_string(limits_.arguments) + " arguments");
    }
    if (scan_ - start_ + count * kSmallestArgument > limits_.request_bytes) {
      return fail_request_bytes();
    }
    awaited_ = count;
    return std::nullopt;
  }

  const std::size_t longest = std::max(kRedisArgumentBytes, limits_.argument_bytes);
  if (!number || *number < 0 || static_cast<std::uint64_t>(*number) > longest) {
    return fail(Status::protocol_error, std::string(kPrefix) + "invalid bulk length");
  }
  const auto size = static_cast<std::size_t>(*number);
  if (size > limits_.argument_bytes) {
    return fail(Status::too_big, "TOOBIG argument of more than " +
                                     std::to_string(limits_.argument_bytes) + " bytes");
  }
  const std::size_t rest = size + 2 + (awaited_ - 1) * kSmallestArgument;
  if (scan_ - start_ + rest > limits_.request_bytes) return fail_request_bytes();
  argument_ = size;
  return std::nullopt;
}

std::optional<RequestParser::Status> RequestParser::read_argument() {
  if (buffer_.size() - scan_ < *argument_ + 2) return Status::need_more;

  spans_.push_back({scan_, *argument_});
  scan_ += *argument_ + 2;
  argument_.reset();
  if (--awaited_ > 0) return std::nullopt;
  return finish();
}

std::optional<std::size_t> RequestParser::find(char end, std::string_view too_long) {
  const std::size_t from = std::max(scan_, searched_);
  const std::size_t at = buffer_.find(end, from);
  searched_ = at == std::string::npos ? buffer_.size() : at;

  // The limit that would trip first if the bytes arrived one by one.
  const std::size_t line_bytes = end == '\n' ? limits_.inline_bytes : kHeaderBytes;
  const std::size_t room = limits_.request_bytes - std::min(limits_.request_bytes, scan_ - start_);
  if (searched_ - scan_ > std::min(line_bytes, room)) {
    if (room < line_bytes) {
      fail_request_bytes();
    } else {
      fail(Status::protocol_error, std::string(kPrefix) + std::string(too_long));
    }
    return std::nullopt;
  }
  if (at == std::string::npos) return std::nullopt;
  return at;
}

/// The words of the line in [start_, end) go to spans_, unquoted in place.
bool RequestParser::split_line(std::size_t end) {
  const char* in = buffer_.data() + start_;
  const char* const stop = buffer_.data() + end;
  for (;;) {
    while (in != stop && is_blank(*in)) ++in;
    if (in == stop) return true;
    char* const word = buffer_.data() + (in - buffer_.data());
    char* out = word;
    if (!read_word(in, stop, out)) return false;
    spans_.push_back(
        {static_cast<std::size_t>(word - buffer_.data()), static_cast<std::size_t>(out - word)});
  }
}

RequestParser::Status RequestParser::finish() {
  request_.reserve(spans_.size());
  for (const auto& span : spans_) {
    request_.push_back(std::string_view(buffer_).substr(span.begin, span.size));
  }
  spans_.clear();
  start_ = scan_;
  return Status::request;
}

RequestParser::Status RequestParser::fail(Status status, std::string line) {
  error_ = std::move(line);
  failed_ = status;
  // Nobody can use these any more, and the session may wait for its peer to close.
  start_ = scan_ = searched_ = 0;
  std::string().swap(buffer_);
  std::vector<Span>().swap(spans_);
  return status;
}

RequestParser::Status RequestParser::fail_request_bytes() {
  return fail(Status::too_big, "TOOBIG request of more than " +
                                   std::to_string(limits_.request_bytes) +
                                   " bytes; split it, or raise the limit");
}

}  // namespace fencekv::resp
