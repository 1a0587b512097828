// SPDX-License-Identifier: Apache-2.0
#include "server/resp/reply_writer.h"

#include "server/resp/decimal.h"

#include <cassert>

namespace fencekv::resp {
namespace {

/// A line break in a line would start another reply, of the sender's choice.
void append_line(std::string& out, char type, std::string_view text) {
  out.push_back(type);
  const auto begin = out.size();
  out.append(text);
  for (auto at = begin; at < out.size(); ++at) {
    if (out[at] == '\r' || out[at] == '\n') out[at] = ' ';
  }
  out.append("\r\n");
}

void append_blob(std::string& out, char type, std::string_view prefix, std::string_view bytes) {
  append_header(out, type, prefix.size() + bytes.size());
  out.append(prefix).append(bytes).append("\r\n");
}

}  // namespace

void ReplyWriter::simple(std::string_view text) {
  append_line(out_, '+', text);
}

void ReplyWriter::error(std::string_view line) {
  append_line(out_, '-', line);
}

void ReplyWriter::integer(std::int64_t number) {
  append_header(out_, ':', number);
}

void ReplyWriter::bulk(std::string_view bytes) {
  append_blob(out_, '$', "", bytes);
}

void ReplyWriter::number_as_bulk(std::uint64_t number) {
  std::string digits;
  append_decimal(digits, number);
  bulk(digits);
}

void ReplyWriter::verbatim(std::string_view text) {
  if (protocol_ == Protocol::resp2) return bulk(text);
  append_blob(out_, '=', "txt:", text);
}

void ReplyWriter::boolean(bool yes) {
  if (protocol_ == Protocol::resp2) return integer(yes ? 1 : 0);
  out_.append(yes ? "#t\r\n" : "#f\r\n");
}

void ReplyWriter::null() {
  out_.append(protocol_ == Protocol::resp2 ? "$-1\r\n" : "_\r\n");
}

void ReplyWriter::null_array() {
  out_.append(protocol_ == Protocol::resp2 ? "*-1\r\n" : "_\r\n");
}

void ReplyWriter::array(std::size_t parts) {
  append_header(out_, '*', parts);
}

void ReplyWriter::map(std::size_t pairs) {
  if (protocol_ == Protocol::resp2) return append_header(out_, '*', 2 * pairs);
  append_header(out_, '%', pairs);
}

void ReplyWriter::set(std::size_t parts) {
  append_header(out_, protocol_ == Protocol::resp2 ? '*' : '~', parts);
}

void ReplyWriter::push(std::size_t parts) {
  assert(protocol_ == Protocol::resp3);
  append_header(out_, '>', parts);
}

}  // namespace fencekv::resp
