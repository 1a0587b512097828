// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/dump_reader.h"

#include "tools/admin/load.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace fencekv::admin {
namespace {

// No line of a dump has more.
constexpr std::size_t kDepth = 4;
constexpr std::size_t kFields = 64;

using Json = nlohmann::json;

std::string system_words(int number) {
  return std::generic_category().message(number);
}

/// Hears of the pieces of a line as they are read, and keeps what is flat. So an array of a hundred
/// million arrays costs nothing.
class Flattener final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return keep({}); }
  bool boolean(bool value) override {
    return keep({.kind = DumpField::Kind::boolean, .number = value ? 1U : 0U, .text = {}});
  }
  bool number_integer(number_integer_t value) override {
    if (value < 0) return keep({.kind = DumpField::Kind::other, .number = 0, .text = {}});
    return number_unsigned(static_cast<number_unsigned_t>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return keep({.kind = DumpField::Kind::integer, .number = value, .text = {}});
  }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return keep({.kind = DumpField::Kind::other, .number = 0, .text = {}});
  }
  bool string(string_t& value) override {
    return keep({.kind = DumpField::Kind::text, .number = 0, .text = std::move(value)});
  }
  bool binary(binary_t& /*value*/) override { return refuse("it is no text"); }

  bool start_object(std::size_t /*elements*/) override {
    if (lists_ > 0) return enter_in_list();
    if (depth_ == 1) prefix_ = name_ + ".";
    if (depth_ >= 2) return refuse("it is nested too deeply");
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (lists_ > 0) return leave_in_list();
    --depth_;
    prefix_.clear();
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    if (lists_ > 0) return enter_in_list();
    if (depth_ == 0) return refuse("it is not an object");
    if (!keep({.kind = DumpField::Kind::list, .number = 0, .text = {}})) return false;
    list_ = prefix_ + name_;
    lists_ = 1;
    return true;
  }
  bool end_array() override { return leave_in_list(); }
  bool key(string_t& value) override {
    if (lists_ == 0) name_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return refuse(fmt::format("it is not JSON at byte {}", position));
  }

  Result<DumpFields> take() {
    if (!fault_.empty()) return Error(Errc::invalid, fault_);
    return std::move(fields_);
  }

 private:
  bool refuse(std::string why) {
    if (fault_.empty()) fault_ = std::move(why);
    return false;
  }
  bool keep(DumpField field) {
    if (lists_ > 0) {
      if (lists_ == 1) ++fields_[list_].number;
      return true;
    }
    if (depth_ == 0) return refuse("it is not an object");
    if (fields_.size() == kFields) return refuse("it has too many fields");
    if (!fields_.try_emplace(prefix_ + name_, std::move(field)).second) {
      return refuse("it names a field twice");
    }
    return true;
  }
  bool enter_in_list() {
    if (lists_ == 1) ++fields_[list_].number;
    if (++lists_ > kDepth) return refuse("it is nested too deeply");
    return true;
  }
  bool leave_in_list() {
    --lists_;
    return true;
  }

  DumpFields fields_;
  std::string fault_;
  std::string prefix_;     // of the object that is open in the line's own
  std::string name_;       // of the next value
  std::string list_;       // the field that holds the open list
  std::size_t depth_ = 0;  // of objects outside lists
  std::size_t lists_ = 0;  // arrays and objects that are open from the outermost array on
};

}  // namespace

Result<DumpFields> parse_dump_line(std::string_view line) {
  Flattener flattener;
  Json::sax_parse(line.begin(), line.end(), &flattener);
  return flattener.take();
}

DumpReader::DumpReader(DumpReader&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      total_bytes_(other.total_bytes_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      end_(other.end_),
      is_at_end_(other.is_at_end_),
      line_number_(other.line_number_),
      bytes_(other.bytes_),
      digest_(std::move(other.digest_)) {}

DumpReader::~DumpReader() {
  if (file_ > STDIN_FILENO) ::close(file_);
}

Result<DumpReader> DumpReader::open(const std::string& path) {
  const int file = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (file < 0 || ::fstat(file, &about) != 0 || S_ISDIR(about.st_mode)) {
    const auto number = file < 0 ? errno : EISDIR;
    if (file > STDIN_FILENO) ::close(file);
    return Error(Errc::invalid, fmt::format("cannot read {}: {}", path, system_words(number)));
  }
  return DumpReader(file, S_ISREG(about.st_mode) ? static_cast<std::uint64_t>(about.st_size) : 0);
}

Result<std::optional<std::string_view>> DumpReader::next() {
  digest_.add(std::string_view(buffer_).substr(begin_, end_ - begin_));
  begin_ = end_;
  ++line_number_;

  for (auto seen = begin_;;) {
    const auto end = buffer_.find('\n', seen);
    if (end != std::string::npos) {
      end_ = end + 1;
      return std::optional(std::string_view(buffer_).substr(begin_, end - begin_));
    }
    if (buffer_.size() - begin_ > kDumpLineBytes) {
      return Error(Errc::invalid, fmt::format("it has more than {} bytes", kDumpLineBytes));
    }
    if (is_at_end_) break;
    buffer_.erase(0, std::exchange(begin_, 0));
    seen = buffer_.size();
    if (auto filled = fill(); !filled) return filled.error();
  }
  end_ = buffer_.size();
  if (begin_ == end_) return std::optional<std::string_view>{};
  return std::optional(std::string_view(buffer_).substr(begin_));
}

Result<void> DumpReader::fill() {
  constexpr std::size_t kChunk = std::size_t{256} * 1024;
  const auto before = buffer_.size();
  buffer_.resize(before + kChunk);
  ssize_t size = 0;
  do {
    size = ::read(file_, buffer_.data() + before, kChunk);
  } while (size < 0 && errno == EINTR);
  buffer_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (size < 0) {
    return Error(Errc::misconf, fmt::format("the dump cannot be read: {}", system_words(errno)));
  }
  is_at_end_ = size == 0;
  bytes_ += static_cast<std::uint64_t>(size);
  return {};
}

}  // namespace fencekv::admin
