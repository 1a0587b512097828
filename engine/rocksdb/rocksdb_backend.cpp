// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/rocksdb_backend.h"

#include "engine/core/make_store.h"
#include "engine/core/memory_shares.h"
#include "engine/rocksdb/backup.h"
#include "engine/rocksdb/counters_off.h"
#include "engine/rocksdb/damage_advice.h"
#include "engine/rocksdb/record_snapshot.h"
#include "fencekv/store.h"

#include <rocksdb/sst_file_reader.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv {
namespace rocks {
namespace {

Error no_database() {
  return {Errc::misconf, "the database cannot be read now"};
}

std::string words_of(const std::string& damage) {
  return "a table is damaged, and tables are not merged any more: " + damage +
         ". Reads slow down with time: keep a copy of the directory, and mend it with "
         "`fencekv-admin repair`, or restore a backup";
}

/// With a sum of each change, that RocksDB verifies on every step to the log and to the memtable.
rocksdb::WriteBatch writes_of(const core::Batch& batch) {
  // Of the batch and of one change: its kind and the lengths, as RocksDB writes them.
  constexpr std::size_t kHeadBytes = 12;
  constexpr std::size_t kChangeBytes = 1 + 5 + 5;
  constexpr std::size_t kSumBytes = 8;

  auto size = kHeadBytes + batch.puts.bytes() + batch.puts.size() * kChangeBytes;
  for (const auto& place : batch.deletes) size += place.size() + kChangeBytes;
  // The sums are made here, not by Write(), which would have to read the batch once more.
  rocksdb::WriteBatch writes(size, 0, kSumBytes, 0);
  for (const auto& put : batch.puts) {
    const auto added = writes.Put(rocksdb::Slice(put.place.data(), put.place.size()),
                                  rocksdb::Slice(put.bytes.data(), put.bytes.size()));
    assert(added.ok());
  }
  for (const auto& place : batch.deletes) {
    const auto added = writes.Delete(place);
    assert(added.ok());
  }
  return writes;
}

/// A snapshot that keeps its database open.
class PinnedSnapshot final : public core::Snapshot {
 public:
  PinnedSnapshot(rocksdb::DB* database, std::shared_lock<std::shared_mutex> open)
      : open_(std::move(open)) {
    if (database != nullptr) records_.emplace(*database);
  }

  Result<std::optional<std::string>> read(std::string_view place) override {
    if (!records_) return no_database();
    return records_->read(place);
  }

  Result<void> scan(std::string_view from,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override {
    if (!records_) return no_database();
    return records_->scan(from, visit);
  }

 private:
  std::shared_lock<std::shared_mutex> open_;
  std::optional<RecordSnapshot> records_;
};

}  // namespace

RocksBackend::RocksBackend(Directory directory, PositionFile position, bool is_new,
                           Durability durability, std::string boot_id, Log log, Adjust adjust,
                           FloorChoice floors, core::DatabaseShares memory)
    : directory_(std::move(directory)),
      position_(std::move(position)),
      durability_(durability),
      boot_id_(std::move(boot_id)),
      log_(std::move(log)),
      adjust_(std::move(adjust)),
      memory_(memory),
      space_(directory_.files(), directory_.database(), floors, log_),
      is_new_(is_new) {}

RocksBackend::~RocksBackend() {
  const std::unique_lock lock(open_mutex_);
  close_database();
}

Result<std::unique_ptr<RocksBackend>> RocksBackend::open(Directory directory, bool is_new,
                                                         Durability durability, std::string boot_id,
                                                         Log log, Adjust adjust, FloorChoice floors,
                                                         core::DatabaseShares memory) {
  if (is_new) {
    if (auto begun = directory.begin_creation(); !begun) return begun.error();
  }
  auto& files = directory.files();
  auto position = is_new ? PositionFile::create(files, directory.position())
                         : PositionFile::open(files, directory.position());
  if (!position) return std::move(position).error();

  std::unique_ptr<RocksBackend> backend(
      new RocksBackend(std::move(directory), *std::move(position), is_new, durability,
                       std::move(boot_id), std::move(log), std::move(adjust), floors, memory));
  const std::unique_lock lock(backend->open_mutex_);
  if (auto opened = backend->open_database(); !opened) return opened.error();
  return backend;
}

Result<void> RocksBackend::open_database() {
  auto options = database_options(directory_.files().env(), log_, memory_);
  if (adjust_) adjust_(options);
  options.listeners.push_back(background_);
  background_->forget_failure();
  if (!is_merging_) options.disable_auto_compactions = true;
  options.create_if_missing = is_new_;
  options.error_if_exists = false;
  const auto path = directory_.database().string();
  const auto about = [&path](const Error& error) {
    return Error(error.code(), path + ": " + error.detail());
  };

  std::uint64_t tables = 0;
  if (!is_new_) {
    // Opening for writing turns the log into a table and deletes it. Of a damaged store nothing may
    // be touched, so what is there is looked at first.
    const auto check = [this](rocksdb::DB& database) {
      return check_records(database, directory_.path(), position_.current(), boot_id_);
    };
    const auto looked = open_replayed(options, path, check, log_);
    if (!looked) return looked.error();
    tables = looked->tables;
    options.wal_recovery_mode = looked->mode;
  }

  rocksdb::DB* database = nullptr;
  replay_ = std::make_unique<LogReplay>(tables);
  options.wal_filter = replay_.get();
  const auto status = rocksdb::DB::Open(options, path, &database);
  database_.reset(database);
  if (status.ok()) {
    read_only_.reset();
    return {};
  }

  const auto error = error_of(status);
  if (is_new_ || error.code() == Errc::corrupt) return about(error);
  // RocksDB wants to write when it opens. What is there can be read all the same; but a group whose
  // sync failed in this boot may only be in the memory of the system, and nobody was told of it.
  const auto& noted = position_.current();
  const bool is_noted = noted.durability == Durability::sync && noted.boot_id == boot_id_;
  replay_ = std::make_unique<LogReplay>(tables, is_noted ? noted.n : UINT64_MAX);
  options.wal_filter = replay_.get();
  const auto reading = rocksdb::DB::OpenForReadOnly(options, path, &database);
  database_.reset(database);
  if (!reading.ok()) return about(error_of(reading));
  read_only_ = Error(Errc::misconf, error.detail());
  return {};
}

void RocksBackend::close_database() {
  if (!database_) return;
  // After a failed write this reports that failure again; the next opening finds out what is there.
  const auto status = database_->Close();
  if (!status.ok() && log_) log_(LogLevel::warning, "closing the database: " + status.ToString());
  database_.reset();
}

Result<core::Claim> RocksBackend::claim() {
  if (read_only_) return *read_only_;
  is_first_group_ = true;
  const auto& noted = position_.current();
  return core::Claim{.reserved = noted.reserved, .may_have_lost = noted.may_have_lost(boot_id_)};
}

Result<std::optional<std::string>> RocksBackend::read(std::string_view place) {
  const std::shared_lock lock(open_mutex_);
  if (!database_) return no_database();
  return read_record(*database_, rocksdb::ReadOptions(), place);
}

std::unique_ptr<core::Snapshot> RocksBackend::snapshot() {
  std::shared_lock lock(open_mutex_);
  auto* database = database_.get();
  return std::make_unique<PinnedSnapshot>(database, std::move(lock));
}

core::Outcome RocksBackend::commit(const core::Batch& batch) {
  assert(database_ && !read_only_);
  const CountersOff counters_off;
  if (is_first_group_ && !is_new_) {
    // Before the first record that an older build could not read: it must find the stamp first.
    if (auto stamped = directory_.bring_stamp_up_to_date(); !stamped) {
      report(stamped.error());
      return core::Outcome::refused;
    }
  }

  auto writes = writes_of(batch);
  space_.wrote(writes.GetDataSize());
  rocksdb::WriteOptions options;
  // The first group after a claim is always synced: what it says (a lifted floor) must be on disk
  // before the position file forgets why it was said.
  options.sync = durability_ == Durability::sync || is_first_group_;

  const auto status = database_->Write(options, &writes);
  if (!status.ok()) {
    report(error_of(status));
    return core::Outcome::unknown;
  }
  auto noted = is_first_group_ ? note_first_group(batch) : note_group(batch);
  if (!noted) {
    report(noted.error());
    return core::Outcome::unknown;
  }
  return core::Outcome::committed;
}

Result<void> RocksBackend::note_first_group(const core::Batch& batch) {
  const auto bytes = read(core::kIdentityKey);
  if (!bytes) return bytes.error();
  const auto identity = core::decode_identity(core::kIdentityKey, bytes->value_or(""));
  if (!identity) return identity.error();

  auto slot = position_.current();
  slot.incarnation = identity->incarnation;
  slot.epoch = batch.position.epoch;
  slot.n = batch.position.n;
  slot.durability = durability_;
  slot.is_clean = false;
  slot.boot_id = boot_id_;
  slot.process = process_ == 0 ? batch.position.epoch : process_;
  if (auto written = position_.write_durably(slot); !written) return written;
  process_ = slot.process;
  is_first_group_ = false;

  if (!is_new_) return {};
  if (auto finished = directory_.finish_creation(); !finished) return finished;
  is_new_ = false;
  return {};
}

Result<void> RocksBackend::note_group(const core::Batch& batch) {
  auto slot = position_.current();
  slot.epoch = batch.position.epoch;
  slot.n = batch.position.n;
  return position_.write(std::move(slot));
}

Result<void> RocksBackend::reserve(Token until) {
  auto slot = position_.current();
  slot.reserved = std::max(slot.reserved, until);
  auto written = position_.write_durably(std::move(slot));
  if (written) return {};
  return Error(Errc::misconf, "tokens cannot be reserved: " + written.error().detail());
}

Result<void> RocksBackend::settle() {
  // The descriptor of the position file may have failed too.
  auto position = PositionFile::open(directory_.files(), directory_.position());
  if (!position) return std::move(position).error();
  position_ = *std::move(position);

  // Closed and open again in one step: a read waits, instead of finding no database.
  is_settling_ = true;
  const std::unique_lock lock(open_mutex_);
  is_settling_ = false;
  close_database();
  if (auto opened = open_database(); !opened) return opened;
  if (read_only_) return *read_only_;
  return {};
}

Result<Backup> RocksBackend::backup(const std::filesystem::path& target,
                                    std::chrono::milliseconds taken,
                                    const core::Interrupt& interrupt) {
  const auto going = [&]() -> std::optional<Error> {
    if (is_settling_) {
      return Error(Errc::misconf, "the storage is being opened anew: make the backup once more");
    }
    return interrupt ? interrupt() : std::nullopt;
  };
  const auto seen = snapshot();
  const auto made = write_backup(directory_.files(), *seen, target, taken, going);
  if (!made) return made.error();
  const auto plain = without_slash(target);
  return made->summary(plain.filename().string());
}

core::Space RocksBackend::space(std::chrono::nanoseconds now) {
  const auto space = space_.look(now);
  if (space_.should_flush()) {
    const std::shared_lock lock(open_mutex_, std::try_to_lock);
    rocksdb::FlushOptions options;
    options.wait = false;
    options.allow_write_stall = true;
    // What fails here, fails behind.
    if (lock && database_) database_->Flush(options).PermitUncheckedError();
  }
  choose_merging();
  return space;
}

std::optional<std::string> RocksBackend::failed_behind() {
  choose_merging();
  return background_->failure();
}

std::optional<std::string> RocksBackend::ailment() {
  choose_merging();
  const auto damage = background_->damage();
  if (!damage) return std::nullopt;
  return words_of(*damage);
}

/// Keeps RocksDB from merging tables where it could only fail: for ever on a damaged one, and time
/// and again without space, of which it would take the last that writes need.
void RocksBackend::choose_merging() {
  // More than one merge needs at once, but on stores with large tables.
  constexpr std::uint64_t kMostForAMerge = std::uint64_t{512} * 1024 * 1024;

  const auto damage = background_->damage();
  const auto space = space_.last();
  const std::unique_lock merging(merging_mutex_, std::try_to_lock);
  if (!merging) return;  // somebody else is at it
  if (background_->take_no_space()) lacks_space_ = true;
  const bool is_near = space.level != SpaceLevel::enough || lacks_space_;
  if (!damage && !is_near && is_merging_) return;

  // While it is being reopened, nobody shall wait for that who only looks.
  const std::shared_lock lock(open_mutex_, std::try_to_lock);
  if (!lock || !database_) return;
  std::uint64_t in_tables = 0;
  database_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &in_tables);
  const auto needed = space.hard_floor + std::min(in_tables, kMostForAMerge);
  const bool is_known = space.free > 0;
  lacks_space_ = is_known && space.room < (lacks_space_ ? needed + needed / 4 : needed);

  const bool shall_merge = !damage && !lacks_space_;
  if (damage && !std::exchange(told_damage_, true) && log_)
    log_(LogLevel::error, words_of(*damage));
  if (shall_merge == is_merging_) return;
  const auto status =
      database_->SetOptions({{"disable_auto_compactions", shall_merge ? "false" : "true"}});
  // Not set: it is tried again at the next look.
  if (!status.ok()) return;
  is_merging_ = shall_merge;
}

void RocksBackend::check_integrity(core::IntegrityListener& listener) {
  auto& files = directory_.files();
  // The writer may be writing one of the slots just now; a damaged one stays.
  constexpr int kTries = 20;
  for (int tried = 1; PositionFile::count_whole_slots(files, directory_.position()) < 2; ++tried) {
    if (tried == kTries) {
      listener.problem(directory_.position().string() +
                       ": one of its two slots is damaged; the other one counts, and the damaged "
                       "one is written anew by one of the next groups");
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!listener.verified(2 * PositionFile::kSlotBytes)) return;

  std::vector<rocksdb::LiveFileMetaData> tables;
  {
    const std::shared_lock lock(open_mutex_);
    if (!database_) return;
    database_->GetLiveFilesMetaData(&tables);
  }
  const auto options = database_options(files.env(), {});
  for (const auto& table : tables) {
    const auto path = directory_.database() / std::filesystem::path(table.relative_filename);
    // A reader of its own: blocks that the database keeps in memory say nothing about the disk.
    rocksdb::SstFileReader reader(options);
    auto status = reader.Open(path.string());
    if (status.ok()) status = reader.VerifyChecksum();
    if (!status.ok()) {
      // Merged away meanwhile.
      const auto is_there = files.exists(path);
      if (is_there && !*is_there && !is_live(table.name)) continue;
      listener.problem(path.string() + ": " + status.ToString());
    }
    if (!listener.verified(table.size)) return;
  }
}

bool RocksBackend::is_live(const std::string& table) {
  const std::shared_lock lock(open_mutex_);
  std::vector<rocksdb::LiveFileMetaData> tables;
  if (database_) database_->GetLiveFilesMetaData(&tables);
  return std::any_of(tables.begin(), tables.end(),
                     [&](const auto& live) { return live.name == table; });
}

void RocksBackend::close(Token newest) {
  if (const auto status = database_->SyncWAL(); !status.ok()) {
    report(error_of(status));
    return;
  }
  auto slot = position_.current();
  slot.reserved = newest;
  slot.is_clean = true;
  if (auto written = position_.write_durably(std::move(slot)); !written) report(written.error());
}

void RocksBackend::report(const Error& error) const {
  if (log_) log_(LogLevel::error, "storage: " + error.line());
}

}  // namespace rocks

namespace {

/// Below this a new store is not begun: it would fail half-way, with a worse message.
constexpr std::uint64_t kSpaceToCreate = std::uint64_t{4} * 1024 * 1024;

Error no_space_for(const std::filesystem::path& directory) {
  return {Errc::no_space, "no space to create a store in " + directory.string()};
}

}  // namespace

Result<std::unique_ptr<Store>> open_rocksdb(const std::filesystem::path& directory,
                                            const Options& options) {
  if (auto checked = core::check_budget(options); !checked) return checked.error();
  auto given = options;
  if (!given.clock) given.clock = system_clock();

  auto& files = rocks::posix_files();
  auto taken = rocks::Directory::take(files, directory);
  if (!taken) return std::move(taken).error();
  const auto is_new = taken->is_new();
  if (!is_new) return rocks::with_advice(files, directory, is_new.error());
  const auto space = files.free_space(directory);
  if (*is_new && space && space->free < kSpaceToCreate) return no_space_for(directory);
  if (taken->is_open_to_others() && given.log) {
    given.log(LogLevel::warning,
              directory.string() + " can be used by other users of this machine: chmod 700");
  }

  auto backend = rocks::RocksBackend::open(
      *std::move(taken), *is_new, given.durability, given.clock->boot_id(), given.log, {},
      {.soft = given.soft_disk_floor, .hard = given.hard_disk_floor},
      core::shares_of(given).database);
  if (!backend) return rocks::with_advice(files, directory, backend.error());
  auto store = core::make_store(*std::move(backend), std::move(given));
  if (!store) return rocks::with_advice(files, directory, store.error());
  return store;
}

}  // namespace fencekv
