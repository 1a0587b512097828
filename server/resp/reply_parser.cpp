// SPDX-License-Identifier: Apache-2.0
#include "server/resp/reply_parser.h"

#include "server/resp/decimal.h"

#include <algorithm>
#include <utility>

namespace fencekv::resp {
namespace {

constexpr std::size_t kKeptBytes = std::size_t{64} * 1024;

}  // namespace

const Value* Value::at(std::string_view key) const {
  if (kind != Kind::map && kind != Kind::array) return nullptr;
  for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
    const bool is_text = parts[i].kind == Kind::bulk || parts[i].kind == Kind::simple;
    if (is_text && parts[i].text == key) return &parts[i + 1];
  }
  return nullptr;
}

void ReplyParser::feed(std::string_view bytes) {
  if (failed_) return;
  if (scan_ == buffer_.size()) {
    buffer_.clear();
    if (buffer_.capacity() > kKeptBytes) std::string().swap(buffer_);
    scan_ = searched_ = 0;
  } else if (scan_ >= buffer_.size() - scan_) {
    // Moves less than was consumed since the last move, so that all moves together are linear.
    buffer_.erase(0, scan_);
    searched_ -= std::min(searched_, scan_);
    scan_ = 0;
  }
  buffer_.append(bytes);
}

ReplyParser::Status ReplyParser::next() {
  if (failed_) return Status::protocol_error;
  for (;;) {
    if (const auto status = step()) {
      if (*status == Status::reply) charged_ = 0;
      return *status;
    }
  }
}

std::optional<ReplyParser::Status> ReplyParser::step() {
  if (blob_) return read_blob();

  const std::size_t cr = buffer_.find('\r', std::max(scan_, searched_));
  searched_ = std::min(cr, buffer_.size());
  if (searched_ - scan_ > limits_.reply_bytes) return fail("a reply over the limit");
  if (searched_ + 1 >= buffer_.size()) return Status::need_more;
  if (buffer_[cr + 1] != '\n') return fail("a CR without LF");

  const auto line = std::string_view(buffer_).substr(scan_, cr - scan_);
  scan_ = cr + 2;
  if (line.empty()) return fail("an empty line");
  return read_header(line);
}

std::optional<ReplyParser::Status> ReplyParser::read_header(std::string_view line) {
  using Kind = Value::Kind;
  const char type = line.front();
  const auto rest = line.substr(1);
  if (!charge(sizeof(Value))) return fail("a reply over the limit");

  switch (type) {
    case '+':
    case '-':
    case ',':
    case '(': {
      if (rest.find('\n') != std::string_view::npos) return fail("an LF without CR");
      const Kind kind = type == '+' ? Kind::simple : type == '-' ? Kind::error : Kind::real;
      if (kind == Kind::real && rest.empty()) return fail("an empty number");
      if (!charge(rest.size())) return fail("a reply over the limit");
      return place({.kind = kind, .text = std::string(rest)});
    }
    case ':': {
      const auto number = read_decimal(rest.starts_with('+') ? rest.substr(1) : rest);
      if (!number) return fail("an invalid integer");
      return place({.kind = Kind::integer, .integer = *number});
    }
    case '#':
      if (rest != "t" && rest != "f") return fail("an invalid boolean");
      return place({.kind = Kind::boolean, .integer = rest == "t" ? 1 : 0});
    case '_':
      if (!rest.empty()) return fail("an invalid null");
      return place({});
    case '$':
    case '!':
    case '=': {
      if (type == '$' && rest == "-1") return place({});
      const auto size = read_decimal(rest);
      if (!size || *size < 0) return fail("an invalid length");
      if (!charge(static_cast<std::size_t>(*size))) return fail("a reply over the limit");
      blob_ = static_cast<std::size_t>(*size);
      blob_type_ = type;
      return std::nullopt;
    }
    case '*':
    case '%':
    case '~':
    case '>':
    case '|':
      if (type == '*' && rest == "-1") return place({});
      return open(type, rest);
    default:
      return fail("an unknown type of reply");
  }
}

std::optional<ReplyParser::Status> ReplyParser::read_blob() {
  if (buffer_.size() - scan_ < *blob_ + 2) return Status::need_more;

  auto bytes = std::string_view(buffer_).substr(scan_, *blob_);
  const auto end = std::string_view(buffer_).substr(scan_ + *blob_, 2);
  scan_ += *blob_ + 2;
  blob_.reset();
  if (end != "\r\n") return fail("a string that is longer than announced");
  if (blob_type_ == '=') {
    if (bytes.size() < 4 || bytes[3] != ':') return fail("a verbatim string without a format");
    bytes.remove_prefix(4);
  }
  return place({.kind = blob_type_ == '!' ? Value::Kind::error : Value::Kind::bulk,
                .text = std::string(bytes)});
}

std::optional<ReplyParser::Status> ReplyParser::open(char type, std::string_view count) {
  using Kind = Value::Kind;
  const auto number = read_decimal(count);
  if (!number || *number < 0) return fail("an invalid number of parts");
  if (type == '>' && !open_.empty()) return fail("a push within a reply");

  const bool in_pairs = type == '%' || type == '|';
  const auto parts = static_cast<std::size_t>(*number);
  if (parts > (limits_.reply_bytes - charged_) / sizeof(Value))
    return fail("a reply over the limit");
  const Kind kind = in_pairs      ? Kind::map
                    : type == '~' ? Kind::set
                    : type == '>' ? Kind::push
                                  : Kind::array;
  if (parts == 0) return type == '|' ? std::nullopt : place({.kind = kind});

  if (open_.size() >= limits_.depth) return fail("a reply that is nested too deep");
  open_.push_back({{.kind = kind}, in_pairs ? 2 * parts : parts, type == '|'});
  return std::nullopt;
}

std::optional<ReplyParser::Status> ReplyParser::place(Value value) {
  for (;;) {
    if (open_.empty()) {
      reply_ = std::move(value);
      return Status::reply;
    }
    Open& parent = open_.back();
    // Parts of an attribute are counted, not kept.
    if (!parent.attribute) parent.value.parts.push_back(std::move(value));
    if (--parent.awaited > 0) return std::nullopt;

    value = std::move(parent.value);
    const bool dropped = parent.attribute;
    open_.pop_back();
    if (dropped) return std::nullopt;
  }
}

bool ReplyParser::charge(std::size_t bytes) {
  if (bytes > limits_.reply_bytes - charged_) return false;
  charged_ += bytes;
  return true;
}

ReplyParser::Status ReplyParser::fail(std::string_view why) {
  error_ = "the peer sent " + std::string(why);
  failed_ = true;
  std::string().swap(buffer_);
  std::vector<Open>().swap(open_);
  scan_ = searched_ = 0;
  return Status::protocol_error;
}

}  // namespace fencekv::resp
