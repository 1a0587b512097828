// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/salvage.h"

#include "engine/core/byte_codec.h"
#include "engine/core/record.h"

#include <rocksdb/status.h>
#include <rocksdb/write_batch.h>
#include <xxhash.h>

#include <algorithm>
#include <array>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;

// ---- what both kinds of files are made of -----------------------------------------------------

/// RocksDB's integers of variable length, and strings after one. Fails for good beyond the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::uint64_t varint() {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = raw(1);
      if (byte.empty()) return 0;
      const auto part = static_cast<unsigned char>(byte.front());
      number |= std::uint64_t{part & 0x7fU} << shift;
      if (part < 0x80) return number;
    }
    failed_ = true;
    return 0;
  }

  std::string_view raw(std::uint64_t size) {
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      return {};
    }
    const auto front = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return front;
  }

  std::string_view rest() const { return rest_; }
  bool has_failed() const { return failed_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

template <class Integer>
Integer fixed(std::string_view bytes) {
  core::ByteReader reader(bytes);
  return reader.integer<Integer>();
}

// ---- tables -----------------------------------------------------------------------------------

constexpr std::size_t kTrailerBytes = 5;  // how a block is compressed, and its sum
constexpr std::size_t kFooterBytes = 53;
constexpr std::uint64_t kMagic = 0x88e241b785f4cff7;
constexpr std::uint32_t kTableFormat = 5;
constexpr char kXxh3 = 4;
constexpr char kPlain = 0;
constexpr char kLz4 = 4;
constexpr char kLz4Hc = 5;

/// No block without an index is looked for beyond this size: that takes its square in time.
constexpr std::size_t kLongestSearched = std::size_t{64} * 1024;
/// A value, a key and what surrounds them: a longer block is none.
constexpr std::uint64_t kLongestBlock = std::uint64_t{1} << 30;
constexpr std::uint64_t kWindowBytes = std::uint64_t{1024} * 1024;

std::uint32_t sum_of(std::string_view content, char compression) {
  constexpr std::uint32_t kLastByte = 0x6b9083d9;
  return static_cast<std::uint32_t>(XXH3_64bits(content.data(), content.size())) ^
         (static_cast<unsigned char>(compression) * kLastByte);
}

/// The format is that of LZ4's blocks. nullopt: the input is not one of `size` bytes.
std::optional<std::string> decompress_lz4(std::string_view input, std::uint64_t size) {
  std::string output;
  output.reserve(size);
  Reader reader(input);
  const auto length = [&reader](unsigned nibble) {
    std::uint64_t sum = nibble;
    if (nibble < 15) return sum;
    while (true) {
      const auto byte = reader.raw(1);
      if (byte.empty()) return sum;
      const auto more = static_cast<unsigned char>(byte.front());
      sum += more;
      if (more < 255) return sum;
    }
  };
  while (!reader.rest().empty()) {
    const auto token = static_cast<unsigned char>(reader.raw(1).front());
    const auto literals = reader.raw(length(token >> 4U));
    if (reader.has_failed() || output.size() + literals.size() > size) return std::nullopt;
    output += literals;
    if (reader.rest().empty()) break;

    const auto offset = fixed<std::uint16_t>(reader.raw(2));
    const auto bytes = length(token & 15U) + 4;
    if (reader.has_failed() || offset == 0 || offset > output.size()) return std::nullopt;
    if (output.size() + bytes > size) return std::nullopt;
    // What is copied may be what this very loop has appended.
    for (std::uint64_t i = 0; i < bytes; ++i) output += output[output.size() - offset];
  }
  return output.size() == size ? std::optional(std::move(output)) : std::nullopt;
}

std::optional<std::string> uncompressed(std::string_view content, char compression) {
  if (compression == kPlain) return std::string(content);
  if (compression != kLz4 && compression != kLz4Hc) return std::nullopt;
  Reader reader(content);
  const auto size = reader.varint();
  if (reader.has_failed() || size > kLongestBlock) return std::nullopt;
  return decompress_lz4(reader.rest(), size);
}

/// The part of a block that holds entries; nullopt: it is no block.
std::optional<std::string_view> entries_in(std::string_view block) {
  constexpr std::uint32_t kHashIndex = std::uint32_t{1} << 31U;
  if (block.size() < 4) return std::nullopt;
  const auto footer = fixed<std::uint32_t>(block.substr(block.size() - 4));
  std::uint64_t tail = 4 + std::uint64_t{footer & ~kHashIndex} * 4;
  if ((footer & kHashIndex) != 0) {
    if (block.size() < 6) return std::nullopt;
    tail += 2 + fixed<std::uint16_t>(block.substr(block.size() - 6, 2));
  }
  if (tail > block.size()) return std::nullopt;
  return block.substr(0, block.size() - tail);
}

/// The entries of a block of records; nullopt: it is none.
std::optional<std::vector<SalvagedEntry>> parse_records(std::string_view block) {
  const auto bytes = entries_in(block);
  if (!bytes) return std::nullopt;
  std::vector<SalvagedEntry> entries;
  std::string key;
  Reader reader(*bytes);
  while (!reader.rest().empty()) {
    const auto shared = reader.varint();
    const auto more = reader.varint();
    const auto value_bytes = reader.varint();
    const auto end_of_key = reader.raw(more);
    const auto value = reader.raw(value_bytes);
    if (reader.has_failed() || shared > key.size()) return std::nullopt;
    key.resize(shared);
    key += end_of_key;
    if (key.size() < 8) return std::nullopt;

    const auto tail = fixed<std::uint64_t>(std::string_view(key).substr(key.size() - 8));
    const auto type = tail & 0xff;
    if (type > 1) return std::nullopt;
    entries.push_back({.place = key.substr(0, key.size() - 8),
                       .sequence = tail >> 8U,
                       .is_put = type == 1,
                       .bytes = std::string(value)});
  }
  return entries;
}

bool proves_itself(const SalvagedEntry& entry) {
  const std::string_view place = entry.place;
  const std::string_view bytes = entry.bytes;
  switch (place.empty() ? '\0' : place.front()) {
    case core::kKeyPrefix:
      return core::decode_key(place, bytes).has_value();
    case core::kLeasePrefix:
      return core::decode_lease(place, bytes).has_value();
    case core::kGrantPrefix:
      return core::decode_grant(place, bytes).has_value();
    default:
      return core::decode_position(place, bytes).has_value() ||
             core::decode_allocator(place, bytes).has_value() ||
             core::decode_identity(place, bytes).has_value();
  }
}

// ---- logs -------------------------------------------------------------------------------------

constexpr std::uint64_t kLogBlock = 32768;
constexpr std::uint64_t kLogHeader = 7;

enum class Part : std::uint8_t { whole = 1, first = 2, middle = 3, last = 4 };

std::uint32_t masked_crc32c(std::string_view bytes) {
  static const auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
      table[i] = crc;
    }
    return table;
  }();
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffU] ^ (crc >> 8U);
  }
  crc ^= 0xffffffff;
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

struct LogRecord {
  Part part;
  std::string_view payload;
};

/// The record at `at`, if one is there that proves its sum.
std::optional<LogRecord> record_at(std::string_view content, std::uint64_t at) {
  const auto left = std::min(kLogBlock - at % kLogBlock, content.size() - at);
  if (left < kLogHeader) return std::nullopt;
  const auto bytes = content.substr(at, left);
  const auto length = fixed<std::uint16_t>(bytes.substr(4, 2));
  const auto part = static_cast<std::uint8_t>(bytes[6]);
  if (part < 1 || part > 4 || kLogHeader + length > left) return std::nullopt;
  if (fixed<std::uint32_t>(bytes) != masked_crc32c(bytes.substr(6, 1U + length))) {
    return std::nullopt;
  }
  return LogRecord{.part = static_cast<Part>(part), .payload = bytes.substr(kLogHeader, length)};
}

/// Zeros up to the end of the block are what is left when no header fits, or space that was taken
/// in advance.
bool is_padding(std::string_view content, std::uint64_t at) {
  const auto rest = content.substr(at, kLogBlock - at % kLogBlock);
  return rest.find_first_not_of('\0') == std::string_view::npos;
}

/// Collects what a write changes.
class Changes final : public rocksdb::WriteBatch::Handler {
 public:
  explicit Changes(std::uint64_t sequence) : sequence_(sequence) {}

  rocksdb::Status PutCF(std::uint32_t, const rocksdb::Slice& key,
                        const rocksdb::Slice& value) override {
    entries_.push_back({.place = key.ToString(),
                        .sequence = sequence_++,
                        .is_put = true,
                        .bytes = value.ToString()});
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(std::uint32_t, const rocksdb::Slice& key) override {
    entries_.push_back(
        {.place = key.ToString(), .sequence = sequence_++, .is_put = false, .bytes = {}});
    return rocksdb::Status::OK();
  }

  std::vector<SalvagedEntry> take() { return std::move(entries_); }

 private:
  std::uint64_t sequence_;
  std::vector<SalvagedEntry> entries_;
};

/// nullopt: it is no write.
std::optional<SalvagedGroup> parse_write(const std::string& bytes) {
  constexpr std::size_t kHeader = 12;
  if (bytes.size() < kHeader) return std::nullopt;
  Changes changes(fixed<std::uint64_t>(bytes));
  const rocksdb::WriteBatch batch(bytes);
  if (!batch.Iterate(&changes).ok()) return std::nullopt;
  return SalvagedGroup{.entries = changes.take()};
}

}  // namespace

Result<SalvagedTable> SalvagedTable::open(FileSystem& files, const path& path) {
  const auto size = files.size(path);
  if (!size) return size.error();
  SalvagedTable table(files, path, *size);
  if (auto read = table.read_index(); !read) return read.error();
  return table;
}

Result<std::string_view> SalvagedTable::stretch(std::uint64_t offset, std::uint64_t bytes) {
  const bool is_inside = offset >= window_at_ && offset + bytes <= window_at_ + window_.size();
  if (!is_inside) {
    auto read = files_->read_at(path_, offset, std::max(bytes, kWindowBytes));
    if (!read) return read.error();
    window_ = *std::move(read);
    window_at_ = offset;
  }
  return std::string_view(window_).substr(offset - window_at_, bytes);
}

Result<std::optional<std::string>> SalvagedTable::block(Handle handle) {
  const std::optional<std::string> none;
  if (handle.bytes > kLongestBlock || handle.offset > size_ ||
      handle.bytes + kTrailerBytes > size_ - handle.offset) {
    return none;
  }
  const auto bytes = stretch(handle.offset, handle.bytes + kTrailerBytes);
  if (!bytes) return bytes.error();
  if (bytes->size() < handle.bytes + kTrailerBytes) return none;
  const auto content = bytes->substr(0, handle.bytes);
  const char compression = (*bytes)[handle.bytes];
  const auto sum = fixed<std::uint32_t>(bytes->substr(handle.bytes + 1));
  if (sum != sum_of(content, compression)) return none;
  return uncompressed(content, compression);
}

Result<void> SalvagedTable::read_index() {
  if (size_ < kFooterBytes) return {};
  const auto bytes = stretch(size_ - kFooterBytes, kFooterBytes);
  if (!bytes) return bytes.error();
  if (bytes->size() < kFooterBytes) return {};
  const auto version = fixed<std::uint32_t>(bytes->substr(kFooterBytes - 12));
  if (bytes->front() != kXxh3 || version != kTableFormat ||
      fixed<std::uint64_t>(bytes->substr(kFooterBytes - 8)) != kMagic) {
    return {};
  }
  Reader footer(bytes->substr(1));
  footer.varint();  // of other blocks, which no record is in
  footer.varint();
  const auto offset = footer.varint();
  const auto size = footer.varint();
  if (footer.has_failed()) return {};
  const auto index = block({.offset = offset, .bytes = size});
  if (!index) return index.error();
  const auto entries = *index ? entries_in(**index) : std::nullopt;
  if (!entries) return {};

  Reader reader(*entries);
  Handle handle;
  while (!reader.rest().empty()) {
    const auto shared = reader.varint();
    reader.raw(reader.varint());
    if (shared == 0) {
      handle.offset = reader.varint();
      handle.bytes = reader.varint();
    } else {
      // Right behind the one before, and so much longer.
      handle.offset += handle.bytes + kTrailerBytes;
      const auto zigzag = reader.varint();
      handle.bytes += (zigzag >> 1U) ^ (~(zigzag & 1U) + 1);
    }
    if (reader.has_failed()) {
      handles_.clear();
      return {};
    }
    handles_.push_back(handle);
  }
  has_index_ = true;
  return {};
}

void SalvagedTable::skip(Handle handle) {
  unreadable_.push_back(
      {.offset = handle.offset, .bytes = handle.bytes, .after = last_, .before = std::nullopt});
  ++open_ends_;
}

/// nullopt: there are no more.
Result<std::optional<std::string>> SalvagedTable::next_block() {
  if (!has_index_) return find_block();
  while (next_handle_ < handles_.size()) {
    const auto handle = handles_[next_handle_++];
    auto content = block(handle);
    if (!content || *content) return content;
    skip(handle);
  }
  return std::optional<std::string>{};
}

Result<std::optional<std::string>> SalvagedTable::find_block() {
  const auto left = size_ - std::min(offset_, size_);
  const auto bytes = stretch(offset_, std::min<std::uint64_t>(left, kLongestSearched));
  if (!bytes) return bytes.error();
  for (std::size_t size = 4; size + kTrailerBytes <= bytes->size(); ++size) {
    const char compression = (*bytes)[size];
    if (compression != kPlain && compression != kLz4 && compression != kLz4Hc) continue;
    const auto sum = fixed<std::uint32_t>(bytes->substr(size + 1));
    if (sum != sum_of(bytes->substr(0, size), compression)) continue;

    auto content = uncompressed(bytes->substr(0, size), compression);
    const auto entries = content ? parse_records(*content) : std::nullopt;
    // Behind the records are blocks of other kinds; only what proves itself is taken for one.
    const auto is_record = [](const SalvagedEntry& entry) {
      return !entry.is_put || proves_itself(entry);
    };
    const auto is_put = [](const SalvagedEntry& entry) { return entry.is_put; };
    if (!entries || !std::all_of(entries->begin(), entries->end(), is_record) ||
        std::none_of(entries->begin(), entries->end(), is_put)) {
      return std::optional<std::string>{};
    }
    offset_ += size + kTrailerBytes;
    return content;
  }
  if (left > 0 && unreadable_.empty()) skip({.offset = offset_, .bytes = left});
  return std::optional<std::string>{};
}

Result<std::optional<SalvagedEntry>> SalvagedTable::next() {
  while (next_entry_ == entries_.size()) {
    entries_.clear();
    next_entry_ = 0;
    auto content = next_block();
    if (!content) return content.error();
    if (!*content) return std::optional<SalvagedEntry>{};
    auto entries = parse_records(**content);
    if (!entries) {
      // Its sum is right, so somebody wrote it so; it is no block of ours all the same.
      const auto handle = has_index_ ? handles_[next_handle_ - 1] : Handle{};
      skip(handle);
      continue;
    }
    entries_ = *std::move(entries);
  }
  auto entry = std::move(entries_[next_entry_++]);
  last_ = entry.place;
  for (; open_ends_ > 0; --open_ends_) unreadable_[unreadable_.size() - open_ends_].before = last_;
  return std::optional(std::move(entry));
}

Result<SalvagedLog> salvage_log(FileSystem& files, const path& path) {
  const auto read = files.read(path);
  if (!read) return read.error();
  if (!*read) return Error(Errc::corrupt, path.string() + " is missing");
  const std::string_view content(**read);

  SalvagedLog log;
  std::optional<std::string> collected;  // of a write in several parts
  std::uint64_t collected_at = 0;
  const auto lose = [&](std::uint64_t from, std::uint64_t to) {
    if (collected) from = collected_at;
    collected.reset();
    if (!log.unreadable.empty()) {
      auto& [begin, size] = log.unreadable.back();
      if (begin + size == from) {
        size = to - begin;
        return;
      }
    }
    log.unreadable.emplace_back(from, to - from);
  };
  const auto take = [&](const std::string& bytes, std::uint64_t from, std::uint64_t to) {
    auto group = parse_write(bytes);
    if (group) {
      log.groups.push_back(*std::move(group));
    } else {
      lose(from, to);
    }
  };

  std::uint64_t at = 0;
  while (at < content.size()) {
    const auto next_block = at - at % kLogBlock + kLogBlock;
    if (is_padding(content, at)) {
      at = next_block;
      continue;
    }
    const auto record = record_at(content, at);
    if (!record) {
      const auto from = at;
      const auto end = std::min<std::uint64_t>(next_block, content.size());
      do {
        ++at;
      } while (at < end && !record_at(content, at));
      lose(from, at);
      continue;
    }
    const auto from = at;
    at += kLogHeader + record->payload.size();
    const bool continues = record->part == Part::middle || record->part == Part::last;
    // The rest of a write whose beginning is lost.
    if (continues && !collected) {
      lose(from, at);
      continue;
    }
    if (!continues && collected) lose(collected_at, from);
    switch (record->part) {
      case Part::whole:
        take(std::string(record->payload), from, at);
        break;
      case Part::first:
        collected = record->payload;
        collected_at = from;
        break;
      case Part::middle:
        *collected += record->payload;
        break;
      case Part::last: {
        *collected += record->payload;
        const auto whole = *std::exchange(collected, std::nullopt);
        take(whole, collected_at, at);
        break;
      }
    }
  }
  if (collected) lose(collected_at, content.size());
  return log;
}

std::string unreadable_logs(FileSystem& files, const path& database) {
  const auto names = files.list(database);
  if (!names) return {};
  std::string text;
  for (const auto& name : *names) {
    if (!name.ends_with(".log")) continue;
    const auto log = salvage_log(files, database / name);
    if (!log || log->unreadable.empty()) continue;
    text += "; " + (database / name).string() + " cannot be read at " +
            std::to_string(log->unreadable.front().first);
  }
  return text;
}

}  // namespace fencekv::rocks
