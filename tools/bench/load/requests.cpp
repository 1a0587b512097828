// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace fencekv::bench {

namespace {

constexpr std::string_view kOwner = "bench-owner-0001";
constexpr std::string_view kTtlMs = "60000";
constexpr std::string_view kNil = "$-1\r\n";

std::string bulk(std::string_view text) {
  return fmt::format("${}\r\n{}\r\n", text.size(), text);
}

/// The header of an array of `count` arguments, the given ones, and the header of the key.
std::string up_to_key(std::size_t count, const std::vector<std::string_view>& arguments) {
  std::string out = fmt::format("*{}\r\n", count);
  for (const auto argument : arguments) out += bulk(argument);
  return out + fmt::format("${}\r\n", KeyText::kBytes);
}

std::string value_header(std::size_t bytes) {
  return fmt::format("${}\r\n", bytes);
}

/// Random, so that no engine and no file system gains by compressing what applications might not
/// be able to compress either.
std::string random_bytes(std::size_t count, std::uint64_t seed) {
  std::string bytes(count, '\0');
  std::mt19937_64 random(seed);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random() >> 56); });
  return bytes;
}

}  // namespace

std::string_view granted_token(std::string_view reply) {
  const auto header = reply.find('\n');
  const auto begin = reply.find('\n', header + 1) + 1;
  return reply.substr(begin, reply.find('\r', begin) - begin);
}

std::string to_request(const std::vector<std::string_view>& arguments) {
  std::string out = fmt::format("*{}\r\n", arguments.size());
  for (const auto argument : arguments) out += bulk(argument);
  return out;
}

Requests::Requests(const RequestOptions& options, const Preparation& preparation)
    : options_(options), picker_(options.distribution, options.keys, options.seed) {
  constexpr std::size_t kPoolBytes = std::size_t{1} << 20;
  values_ = random_bytes(kPoolBytes + options.value_bytes, options.seed);

  const auto header = value_header(options.value_bytes);
  switch (options.workload) {
    case Workload::write:
      main_ = write_shape(preparation);
      read_ = read_shape();
      break;
    case Workload::stale:
      main_ = write_shape(preparation);
      main_.expected = "-FENCED ";
      break;
    case Workload::set:
      main_ = {.before_key = up_to_key(3, {"SET"}),
               .after_key = "\r\n" + header,
               .has_value = true,
               .expected = "+OK\r\n"};
      break;
    case Workload::get:
    case Workload::fenced_get:
      main_ = read_shape();
      break;
    case Workload::lease:
      break;
  }
  if (options.target == Target::fencekv) {
    acquire_ = {.before_key = up_to_key(4, {"LEASE.ACQUIRE"}),
                .after_key = "\r\n" + bulk(kOwner) + bulk(kTtlMs),
                .expected = "*2\r\n$"};
    release_ = {.before_key = up_to_key(4, {"LEASE.RELEASE"}),
                .after_key = "\r\n" + bulk(kOwner),
                .expected = "+OK\r\n"};
  } else {
    acquire_ = {.before_key = up_to_key(6, {"SET"}),
                .after_key = "\r\n" + bulk(kOwner) + bulk("NX") + bulk("PX") + bulk(kTtlMs),
                .expected = "+OK\r\n"};
    release_ = {.before_key = up_to_key(5, {"EVALSHA", preparation.release_script, "1"}),
                .after_key = "\r\n" + bulk(kOwner),
                .expected = ":1\r\n"};
  }
}

Requests::Shape Requests::write_shape(const Preparation& preparation) const {
  const bool is_stale = options_.workload == Workload::stale;
  const auto& token = is_stale ? preparation.older_token : preparation.token;
  const auto after = "\r\n" + bulk(token) + value_header(options_.value_bytes);
  if (options_.target == Target::fencekv) {
    return {.before_key = up_to_key(4, {"FENCE.SET"}),
            .after_key = after,
            .has_value = true,
            .expected = ":"};
  }
  return {.before_key = up_to_key(6, {"EVALSHA", preparation.write_script, "1"}),
          .after_key = after,
          .has_value = true,
          .expected = ":1\r\n"};
}

Requests::Shape Requests::read_shape() const {
  const auto value = value_header(options_.value_bytes);
  const auto missing = options_.allows_missing ? std::string(kNil) : std::string();
  const bool is_fenced = options_.workload == Workload::fenced_get;
  if (options_.target == Target::fencekv && is_fenced) {
    const std::string map = "*8\r\n" + bulk("value");
    return {.before_key = up_to_key(2, {"FENCE.GET"}),
            .after_key = "\r\n",
            .expected = map + value,
            .or_expected = missing.empty() ? missing : map + missing};
  }
  const bool is_hash = options_.target == Target::redis && options_.workload != Workload::get;
  return {.before_key = is_hash ? up_to_key(3, {"HGET"}) : up_to_key(2, {"GET"}),
          .after_key = is_hash ? "\r\n" + bulk("v") : "\r\n",
          .expected = value,
          .or_expected = missing};
}

Requests::Expected Requests::append(std::string& out) {
  return append(out, next_is_read() ? read_ : main_);
}

Requests::Expected Requests::append(std::string& out, const Shape& shape) {
  out += shape.before_key;
  out += KeyText(kKeyKind, picker_.next()).view();
  out += shape.after_key;
  if (shape.has_value) {
    out += next_value();
    out += "\r\n";
  }
  return {shape.expected, shape.or_expected};
}

std::string_view Requests::next_value() {
  const auto begin = picker_.below(values_.size() - options_.value_bytes);
  return std::string_view(values_).substr(begin, options_.value_bytes);
}

std::uint64_t Requests::lease_number(std::size_t slot, std::size_t slots) {
  const auto rows = std::max<std::uint64_t>(options_.keys / slots, 1);
  return picker_.below(rows) * slots + slot;
}

Requests::Expected Requests::append_acquire(std::string& out, std::uint64_t lease) const {
  out += acquire_.before_key;
  out += KeyText(kLeaseKind, lease).view();
  out += acquire_.after_key;
  return {acquire_.expected, {}};
}

Requests::Expected Requests::append_release(std::string& out, std::uint64_t lease,
                                            std::string_view granted) const {
  out += release_.before_key;
  out += KeyText(kLeaseKind, lease).view();
  out += release_.after_key;
  if (options_.target == Target::fencekv) out += bulk(granted_token(granted));
  return {release_.expected, {}};
}

}  // namespace fencekv::bench
