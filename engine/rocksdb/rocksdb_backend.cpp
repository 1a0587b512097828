// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/rocksdb_backend.h"

#include "engine/core/make_store.h"
#include "engine/rocksdb/record_snapshot.h"
#include "fencekv/store.h"

#include <rocksdb/write_batch.h>

#include <cassert>
#include <mutex>
#include <utility>

namespace fencekv {
namespace rocks {
namespace {

Error no_database() {
  return {Errc::misconf, "the database cannot be read now"};
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
                           Durability durability, std::string boot_id, Log log)
    : directory_(std::move(directory)),
      position_(std::move(position)),
      durability_(durability),
      boot_id_(std::move(boot_id)),
      log_(std::move(log)),
      is_new_(is_new) {}

RocksBackend::~RocksBackend() {
  const std::unique_lock lock(open_mutex_);
  close_database();
}

Result<std::unique_ptr<RocksBackend>> RocksBackend::open(Directory directory, bool is_new,
                                                         Durability durability, std::string boot_id,
                                                         Log log) {
  if (is_new) {
    if (auto begun = directory.begin_creation(); !begun) return begun.error();
  }
  auto position = is_new ? PositionFile::create(directory.position())
                         : PositionFile::open(directory.position());
  if (!position) return std::move(position).error();

  std::unique_ptr<RocksBackend> backend(new RocksBackend(std::move(directory), *std::move(position),
                                                         is_new, durability, std::move(boot_id),
                                                         std::move(log)));
  const std::unique_lock lock(backend->open_mutex_);
  if (auto opened = backend->open_database(); !opened) return opened.error();
  return backend;
}

Result<void> RocksBackend::open_database() {
  auto options = database_options(log_);
  options.create_if_missing = is_new_;
  options.error_if_exists = false;
  const auto path = directory_.database().string();
  const auto about = [&path](const Error& error) {
    return Error(error.code(), path + ": " + error.detail());
  };

  rocksdb::DB* database = nullptr;
  if (!is_new_) {
    // Opening for writing turns the log into a table and deletes it. Of a damaged store nothing may
    // be touched, so what is there is looked at first.
    const auto reading = rocksdb::DB::OpenForReadOnly(options, path, &database);
    const std::unique_ptr<rocksdb::DB> found(database);
    if (!reading.ok()) return about(error_of(reading));
    if (auto whole = check_records(*found); !whole) return whole;
  }

  const auto status = rocksdb::DB::Open(options, path, &database);
  database_.reset(database);
  if (status.ok()) {
    read_only_.reset();
    return {};
  }

  const auto error = error_of(status);
  if (is_new_ || error.code() == Errc::corrupt) return about(error);
  // RocksDB wants to write when it opens. What is there can be read all the same.
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

Result<void> RocksBackend::check_records(rocksdb::DB& database) const {
  core::PositionRecord stored;
  const auto position = read_record(database, {}, core::kPositionKey);
  if (!position) return position.error();
  if (*position) {
    const auto decoded = core::decode_position(core::kPositionKey, **position);
    if (!decoded) return decoded.error();
    stored = *decoded;
  }

  std::optional<core::Incarnation> incarnation;
  if (stored.n > 0) {
    const auto bytes = read_record(database, {}, core::kIdentityKey);
    if (!bytes) return bytes.error();
    if (!*bytes) return Error(Errc::corrupt, "record identity is missing");
    const auto identity = core::decode_identity(core::kIdentityKey, **bytes);
    if (!identity) return identity.error();
    incarnation = identity->incarnation;
  }
  return check_history(directory_.path(), position_.current(), stored, incarnation, boot_id_);
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
  rocksdb::WriteBatch writes;
  for (const auto& put : batch.puts) {
    const auto added = writes.Put(put.place, put.bytes);
    assert(added.ok());
  }
  rocksdb::WriteOptions options;
  // The first group after a claim is always synced: what it says (a lifted floor) must be on disk
  // before the position file forgets why it was said.
  options.sync = durability_ == Durability::sync || is_first_group_;
  options.protection_bytes_per_key = 8;

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
  if (auto written = position_.write_durably(std::move(slot)); !written) return written;
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
  auto position = PositionFile::open(directory_.position());
  if (!position) return std::move(position).error();
  position_ = *std::move(position);

  // Closed and open again in one step: a read waits, instead of finding no database.
  const std::unique_lock lock(open_mutex_);
  close_database();
  if (auto opened = open_database(); !opened) return opened;
  if (read_only_) return *read_only_;
  return {};
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
  auto given = options;
  if (!given.clock) given.clock = system_clock();

  auto taken = rocks::Directory::take(directory);
  if (!taken) return std::move(taken).error();
  const auto is_new = taken->is_new();
  if (!is_new) return is_new.error();
  if (*is_new && rocks::free_bytes(directory) < kSpaceToCreate) return no_space_for(directory);
  if (taken->is_open_to_others() && given.log) {
    given.log(LogLevel::warning,
              directory.string() + " can be used by other users of this machine: chmod 700");
  }

  auto backend = rocks::RocksBackend::open(*std::move(taken), *is_new, given.durability,
                                           given.clock->boot_id(), given.log);
  if (!backend) return std::move(backend).error();
  return core::make_store(*std::move(backend), std::move(given));
}

}  // namespace fencekv
