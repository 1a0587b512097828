// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/backup.h"

#include "engine/core/record.h"
#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/record_snapshot.h"
#include "engine/rocksdb/record_tally.h"
#include "engine/rocksdb/record_writer.h"
#include "engine/rocksdb/unfinished.h"

#include <openssl/evp.h>
#include <rocksdb/db.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <set>
#include <utility>

namespace fencekv {
namespace rocks {
namespace {

using std::filesystem::path;

constexpr std::string_view kManifest = "MANIFEST.backup";
constexpr std::string_view kTitle = "fencekv backup";
/// Of the list itself.
constexpr std::uint64_t kLayout = 1;
constexpr std::size_t kChunkBytes = std::size_t{1024} * 1024;
/// How many records pass between two questions whether to go on.
constexpr std::uint64_t kRecordsBetweenQuestions = 256;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    [[maybe_unused]] const int begun = EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
    assert(begun == 1);
  }

  void add(std::string_view bytes) {
    [[maybe_unused]] const int added = EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
    assert(added == 1);
  }

  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    [[maybe_unused]] const int ended = EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    assert(ended == 1);
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      text += kDigits[digest[i] >> 4];
      text += kDigits[digest[i] & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

std::string sha256_of(std::string_view bytes) {
  Sha256 sum;
  sum.add(bytes);
  return sum.hex();
}

Error about(const path& file, const Error& error) {
  return {error.code(), file.string() + ": " + error.detail()};
}

Result<void> go_on(const Interrupt& interrupt) {
  if (!interrupt) return {};
  auto why = interrupt();
  if (why) return *std::move(why);
  return {};
}

/// What the file is now.
Result<BackupFile> measure(FileSystem& files, const path& backup, const std::string& name,
                           const Interrupt& interrupt) {
  Sha256 sum;
  BackupFile file{.name = name, .bytes = 0, .sha256 = {}};
  while (true) {
    if (auto going = go_on(interrupt); !going) return going.error();
    const auto chunk = files.read_at(backup / name, file.bytes, kChunkBytes);
    if (!chunk) return chunk.error();
    sum.add(*chunk);
    file.bytes += chunk->size();
    if (chunk->size() < kChunkBytes) break;
  }
  file.sha256 = sum.hex();
  return file;
}

/// Its database holds whole records, all that its small records count, and nothing else.
Result<core::SmallRecords> check_database(FileSystem& files, const path& backup,
                                          const Interrupt& interrupt, std::uint64_t& records) {
  const auto database = backup / "db";
  RecordTally tally;
  const auto read = read_database(files, database, [&](auto place, auto bytes) -> Result<void> {
    if (tally.records() % kRecordsBetweenQuestions == 0) {
      if (auto going = go_on(interrupt); !going) return going;
    }
    auto added = tally.add(place, bytes);
    return added ? added : Result<void>(about(database, added.error()));
  });
  if (!read) return read.error();
  records = tally.records();
  auto whole = tally.whole();
  if (!whole) return about(database, whole.error());
  return whole;
}

Error line_of(std::string_view line) {
  return {Errc::corrupt, "it is damaged: not a line of it: " + escaped(line)};
}

/// Splits off what is before the next blank or, if there is none, everything.
std::string_view next_word(std::string_view& line) {
  const auto end = std::min(line.find(' '), line.size());
  const auto word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

bool is_sha256(std::string_view word) {
  return word.size() == 64 && word.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Nothing that leads out of the backup.
bool is_file_name(std::string_view name) {
  if (name == "FORMAT") return true;
  if (!name.starts_with("db/")) return false;
  name.remove_prefix(3);
  return !name.empty() && !name.starts_with('.') && name.find('/') == std::string_view::npos;
}

}  // namespace

std::uint64_t BackupManifest::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& file : files) sum += file.bytes;
  return sum;
}

Backup BackupManifest::summary(const std::string& name) const {
  return {.name = name,
          .taken = taken,
          .group = group,
          .newest = newest,
          .records = records,
          .files = files.size(),
          .bytes = bytes()};
}

std::string encode(const BackupManifest& manifest) {
  std::string text(kTitle);
  const auto line = [&text](std::string_view word, std::string_view value) {
    text.append("\n").append(word).append(" ").append(value);
  };
  line("layout", std::to_string(kLayout));
  line("format", std::to_string(manifest.format));
  line("incarnation", manifest.incarnation);
  line("group", std::to_string(manifest.group));
  line("newest", std::to_string(manifest.newest.number()));
  line("records", std::to_string(manifest.records));
  line("taken", std::to_string(manifest.taken.count()));
  for (const auto& file : manifest.files) {
    line("file", file.sha256 + " " + std::to_string(file.bytes) + " " + file.name);
  }
  text += '\n';
  const auto sum = sha256_of(text);
  return text + "sha256 " + sum + "\n";
}

Result<BackupManifest> decode_manifest(std::string_view text) {
  const auto damaged = [](std::string_view why) {
    return Error(Errc::corrupt, "it is damaged: " + std::string(why));
  };
  // The sum first: of what it does not cover nothing is believed.
  constexpr std::string_view kSum = "sha256 ";
  constexpr std::size_t kSumLine = kSum.size() + 64 + 1;
  if (text.size() < kSumLine || !text.ends_with('\n')) return damaged("it is cut short");
  const auto body = text.substr(0, text.size() - kSumLine);
  const auto sum = text.substr(body.size(), kSumLine - 1);
  if (!sum.starts_with(kSum) || sum.substr(kSum.size()) != sha256_of(body)) {
    return damaged("its last line is not the checksum of what is above it");
  }

  BackupManifest manifest;
  std::set<std::string, std::less<>> seen;
  std::set<std::string_view> names;
  auto rest = body;
  bool is_first = true;
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const auto line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (std::exchange(is_first, false)) {
      if (line != kTitle) return damaged("it is no list of a backup");
      continue;
    }
    auto value = line;
    const auto word = next_word(value);
    if (word == "file") {
      BackupFile file;
      file.sha256 = next_word(value);
      const auto bytes = parse_decimal(next_word(value));
      file.name = value;
      if (!bytes || !is_sha256(file.sha256) || !is_file_name(value) ||
          !names.insert(value).second) {
        return line_of(line);
      }
      file.bytes = *bytes;
      manifest.files.push_back(std::move(file));
      continue;
    }
    if (!seen.emplace(word).second) return line_of(line);
    if (word == "incarnation") {
      manifest.incarnation = value;
      continue;
    }
    constexpr std::array<std::string_view, 6> kNumbers{"layout", "format",  "group",
                                                       "newest", "records", "taken"};
    // What a later version adds without a new layout can be passed over.
    if (std::find(kNumbers.begin(), kNumbers.end(), word) == kNumbers.end()) continue;
    const auto number = parse_decimal(value);
    if (!number) return line_of(line);
    if (word == "layout" && *number > kLayout) {
      return Error(Errc::newer_format, "a newer fencekv wrote it: use that one");
    }
    if (word == "format") manifest.format = *number;
    if (word == "group") manifest.group = *number;
    if (word == "newest") manifest.newest = Token{*number};
    if (word == "records") manifest.records = *number;
    if (word == "taken") {
      manifest.taken = std::chrono::milliseconds(static_cast<std::int64_t>(*number));
    }
  }
  for (const auto* word :
       {"layout", "format", "incarnation", "group", "newest", "records", "taken"}) {
    if (!seen.contains(word)) return damaged(std::string(word) + " is missing");
  }
  return manifest;
}

Result<void> read_database(
    FileSystem& files, const path& database,
    const std::function<Result<void>(std::string_view, std::string_view)>& visit) {
  rocksdb::DB* opened = nullptr;
  const auto status =
      rocksdb::DB::OpenForReadOnly(database_options(files.env(), {}), database.string(), &opened);
  const std::unique_ptr<rocksdb::DB> owned(opened);
  if (!status.ok()) return about(database, error_of(status));

  rocksdb::ReadOptions once;
  once.fill_cache = false;
  Result<void> visited;
  const auto scanned = scan_records(*owned, once, {}, [&](auto place, auto bytes) {
    visited = visit(place, bytes);
    return visited.has_value();
  });
  if (!scanned) return about(database, scanned.error());
  return visited;
}

Result<BackupManifest> write_backup(FileSystem& files, core::Snapshot& snapshot, const path& target,
                                    std::chrono::milliseconds taken, const Interrupt& interrupt) {
  auto unfinished = Unfinished::begin(files, target, Unfinished::Target::absent);
  if (!unfinished) return unfinished.error();
  const auto& directory = unfinished->directory();
  if (auto made = files.make_directory(directory.database()); !made) return made.error();

  RecordTally tally;
  RecordWriter writer(files, directory.database());
  Result<void> copied;
  const auto scanned = snapshot.scan({}, [&](auto place, auto bytes) {
    if (tally.records() % kRecordsBetweenQuestions == 0) copied = go_on(interrupt);
    if (copied) copied = tally.add(place, bytes);
    if (copied) copied = writer.add(place, bytes);
    return copied.has_value();
  });
  if (!scanned) return scanned.error();
  if (!copied) return copied.error();
  const auto small = tally.whole();
  if (!small) return small.error();
  if (auto finished = writer.finish(); !finished) return finished.error();
  if (auto stamped = directory.bring_stamp_up_to_date(); !stamped) return stamped.error();

  // What the disk has of it, and not what was meant.
  std::uint64_t records = 0;
  const auto read = check_database(files, directory.path(), interrupt, records);
  if (!read) return read.error();
  if (*read != *small || records != tally.records()) {
    return Error(Errc::corrupt, target.string() + " did not read back as it was written");
  }

  BackupManifest manifest{.format = core::kFormat,
                          .incarnation = core::to_hex(small->identity.incarnation),
                          .group = small->position.n,
                          .newest = small->allocator.newest,
                          .records = records,
                          .taken = taken,
                          .files = {}};
  std::vector<std::string> names{"FORMAT"};
  const auto listed = files.list(directory.database());
  if (!listed) return listed.error();
  for (const auto& name : *listed) names.push_back("db/" + name);
  for (const auto& name : names) {
    auto file = measure(files, directory.path(), name, interrupt);
    if (!file) return file.error();
    manifest.files.push_back(*std::move(file));
  }
  if (auto written = replace_file(files, directory.path() / kManifest, encode(manifest));
      !written) {
    return written.error();
  }
  // Nobody ever opens a backup for writing; what is locked is the store that is made of it.
  if (auto removed = files.remove(directory.path() / "lock"); !removed) return removed.error();
  if (auto published = unfinished->publish(); !published) return published.error();
  return manifest;
}

Result<BackupManifest> read_manifest(FileSystem& files, const path& backup) {
  const auto file = backup / kManifest;
  const auto text = files.read(file);
  if (!text) return text.error();
  if (!*text) {
    return Error(Errc::corrupt, file.string() + " is missing: " + backup.string() +
                                    " is no backup, or not a complete one");
  }
  auto manifest = decode_manifest(**text);
  if (!manifest) return about(file, manifest.error());
  if (manifest->format > core::kFormat) {
    return Error(Errc::newer_format, backup.string() + " has format " +
                                         std::to_string(manifest->format) +
                                         "; this build reads up to " +
                                         std::to_string(core::kFormat) + ". Use a newer fencekv");
  }
  return manifest;
}

Result<VerifiedBackup> verify_backup(FileSystem& files, const path& backup,
                                     const Interrupt& interrupt) {
  auto manifest = read_manifest(files, backup);
  if (!manifest) return manifest.error();

  std::set<std::string> expected;
  for (const auto& file : manifest->files) {
    const auto where = (backup / file.name).string();
    const auto is_there = files.exists(backup / file.name);
    if (!is_there) return is_there.error();
    if (!*is_there) return Error(Errc::corrupt, where + " is missing");
    const auto found = measure(files, backup, file.name, interrupt);
    if (!found) return found.error();
    if (found->bytes != file.bytes) {
      return Error(Errc::corrupt, where + " has " + std::to_string(found->bytes) + " bytes, not " +
                                      std::to_string(file.bytes));
    }
    if (found->sha256 != file.sha256) {
      return Error(Errc::corrupt, where + " is damaged: its SHA-256 is another one");
    }
    expected.insert(file.name);
  }
  // RocksDB would look at files that are there, whoever put them.
  const auto names = files.list(backup / "db");
  if (!names) return names.error();
  for (const auto& name : *names) {
    if (expected.contains("db/" + name)) continue;
    return Error(Errc::corrupt, (backup / "db" / name).string() + " is not part of the backup");
  }

  std::uint64_t records = 0;
  auto small = check_database(files, backup, interrupt, records);
  if (!small) return small.error();
  if (records != manifest->records || small->position.n != manifest->group ||
      small->allocator.newest != manifest->newest ||
      core::to_hex(small->identity.incarnation) != manifest->incarnation) {
    return Error(Errc::corrupt, (backup / "db").string() + " is another store than " +
                                    std::string(kManifest) + " says");
  }
  return VerifiedBackup{.manifest = *std::move(manifest), .small = *std::move(small)};
}

}  // namespace rocks

Result<std::vector<Backup>> list_backups(const std::filesystem::path& root) {
  auto& files = rocks::posix_files();
  const auto names = files.list(root);
  if (!names) return names.error();
  std::vector<Backup> backups;
  for (const auto& name : *names) {
    // What is being made is not there yet.
    if (name.starts_with('.')) continue;
    const auto manifest = rocks::read_manifest(files, root / name);
    if (manifest) backups.push_back(manifest->summary(name));
  }
  return backups;
}

}  // namespace fencekv
