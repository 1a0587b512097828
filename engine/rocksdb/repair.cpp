// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/repair.h"

#include "engine/core/backend.h"
#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/log_replay.h"
#include "engine/rocksdb/new_store.h"
#include "engine/rocksdb/record_snapshot.h"
#include "engine/rocksdb/record_writer.h"
#include "engine/rocksdb/salvage.h"

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;

constexpr const char* kRepaired = "repaired";
constexpr const char* kComplete = "COMPLETE";
/// How many lost keys are named one by one.
constexpr std::size_t kNamed = 1000;

std::string number(std::uint64_t count) {
  return std::to_string(count);
}

/// A place as a person knows it.
std::string named(std::string_view place) {
  const auto name = place.empty() ? place : place.substr(1);
  switch (place.empty() ? '\0' : place.front()) {
    case core::kKeyPrefix:
      return "key " + escaped(name);
    case core::kLeasePrefix:
      return "lease " + escaped(name);
    case core::kGrantPrefix: {
      const auto grant = core::parse_grant_place(place);
      return grant ? "a grant of lease " + escaped(grant->name) : "a grant";
    }
    default:
      return "record " + escaped(name);
  }
}

// ---- the newest of all that is there ----------------------------------------------------------

/// What one file holds of a place.
struct Candidate {
  SalvagedEntry entry;
  std::size_t source = 0;  // a later one is of a newer file
};

/// How far a record got, as it says itself; nullopt: it does not prove its checksum.
using Rank = std::pair<std::uint64_t, std::uint64_t>;

std::optional<Rank> rank_of(std::string_view place, std::string_view bytes) {
  switch (place.empty() ? '\0' : place.front()) {
    case core::kKeyPrefix: {
      const auto record = core::decode_key(place, bytes);
      if (!record) return std::nullopt;
      return Rank(record->fence.number(), record->version);
    }
    case core::kLeasePrefix: {
      const auto record = core::decode_lease(place, bytes);
      if (!record) return std::nullopt;
      return Rank(record->newest.token.number(), 0);
    }
    case core::kGrantPrefix: {
      const auto record = core::decode_grant(place, bytes);
      if (!record) return std::nullopt;
      return Rank(0, 0);
    }
    default:
      break;
  }
  if (place == core::kPositionKey) {
    const auto record = core::decode_position(place, bytes);
    if (record) return Rank(record->epoch, record->n);
  } else if (place == core::kAllocatorKey) {
    const auto record = core::decode_allocator(place, bytes);
    if (record) return Rank(record->newest.number(), record->floor.number());
  } else if (place == core::kIdentityKey) {
    const auto record = core::decode_identity(place, bytes);
    if (record) return Rank(record->boots.first() + record->boots.all().size(), 0);
  }
  return std::nullopt;
}

/// Whether `a` comes before `b`. RocksDB's numbers say it, but for records of which it has dropped
/// the number because they were the only ones: beside those, what does not belong to the database
/// any more may have a number and be older. Then the records themselves are asked.
bool is_older(const Candidate& a, const Candidate& b, bool is_exact) {
  const auto& [x, from] = a;
  const auto& [y, to] = b;
  const bool are_numbered = is_exact || (x.sequence > 0 && y.sequence > 0);
  if (!are_numbered && x.is_put && y.is_put) {
    const auto rank_x = rank_of(x.place, x.bytes);
    const auto rank_y = rank_of(y.place, y.bytes);
    if (rank_x != rank_y) return rank_x < rank_y;
  }
  if (x.sequence != y.sequence) return x.sequence < y.sequence;
  return from < to;
}

/// Which group it was; nullopt: it does not say.
std::optional<std::uint64_t> group_of(const SalvagedGroup& group) {
  for (const auto& entry : group.entries) {
    if (!entry.is_put || entry.place != core::kPositionKey) continue;
    const auto position = core::decode_position(entry.place, entry.bytes);
    if (position) return position->n;
  }
  return std::nullopt;
}

/// All that tables and logs hold, place by place in their order.
class Merge {
 public:
  Merge(FileSystem& files, bool is_exact) : files_(files), is_exact_(is_exact) {}

  Result<void> add_table(const path& file) {
    auto table = SalvagedTable::open(files_, file);
    if (!table) return table.error();
    auto& source = tables_.emplace_back(Source{.table = *std::move(table), .next = std::nullopt});
    return advance(source);
  }

  /// Groups behind `last` are left out.
  void add_log(SalvagedLog log, std::uint64_t last) {
    for (auto& group : log.groups) {
      if (group_of(group).value_or(0) > last) continue;
      for (auto& entry : group.entries) {
        auto place = entry.place;
        logged_[std::move(place)].push_back({.entry = std::move(entry), .source = SIZE_MAX});
      }
    }
  }

  /// Everything about the next place, the newest last; empty: there are no more.
  Result<std::vector<Candidate>> next() {
    const std::string* lowest = logged_.empty() ? nullptr : &logged_.begin()->first;
    for (const auto& source : tables_) {
      if (!source.next) continue;
      if (lowest == nullptr || source.next->place < *lowest) lowest = &source.next->place;
    }
    std::vector<Candidate> found;
    if (lowest == nullptr) return found;
    const auto place = *lowest;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      auto& source = tables_[i];
      while (source.next && source.next->place == place) {
        found.push_back({.entry = *std::move(source.next), .source = i});
        if (auto advanced = advance(source); !advanced) return advanced.error();
      }
    }
    if (const auto logged = logged_.extract(place); !logged.empty()) {
      std::move(logged.mapped().begin(), logged.mapped().end(), std::back_inserter(found));
    }
    std::stable_sort(found.begin(), found.end(),
                     [this](const auto& a, const auto& b) { return is_older(a, b, is_exact_); });
    return found;
  }

  const SalvagedTable& table(std::size_t i) const { return tables_[i].table; }

 private:
  struct Source {
    SalvagedTable table;
    std::optional<SalvagedEntry> next;
  };

  static Result<void> advance(Source& source) {
    auto entry = source.table.next();
    if (!entry) return entry.error();
    source.next = *std::move(entry);
    return {};
  }

  FileSystem& files_;
  const bool is_exact_;
  std::vector<Source> tables_;
  std::map<std::string, std::vector<Candidate>, std::less<>> logged_;
};

/// What is kept of a place.
struct Kept {
  std::optional<std::string> bytes;  ///< nullopt: it was deleted, or nothing of it can be read.
  bool is_newest_damaged = false;
};

Kept newest_of(const std::vector<Candidate>& candidates) {
  Kept kept;
  for (auto at = candidates.rbegin(); at != candidates.rend(); ++at) {
    const auto& entry = at->entry;
    if (!entry.is_put) return kept;
    if (rank_of(entry.place, entry.bytes)) {
      kept.bytes = entry.bytes;
      return kept;
    }
    kept.is_newest_damaged = true;
  }
  return kept;
}

/// A lease as a new history has it: all grants are below the floor, so the further ones, of which
/// some may be lost, go.
std::string without_further_grants(std::string_view place, std::string_view bytes) {
  auto record = core::decode_lease(place, bytes);
  if (!record || record->others == 0) return std::string(bytes);
  record->others = 0;
  return core::encode(place, *record);
}

// ---- the files --------------------------------------------------------------------------------

/// 12 of `000012.sst`.
std::uint64_t number_of(std::string_view name) {
  name = name.substr(0, name.find('.'));
  name.remove_prefix(std::min(name.find_first_not_of('0'), name.size()));
  return parse_decimal(name).value_or(0);
}

/// The tables that a manifest names; nullopt: it cannot be read. It is read on a disk in memory,
/// so that it does not matter what else is damaged.
std::optional<std::vector<rocksdb::LiveFileMetaData>> live_tables(const std::string& name,
                                                                  const std::string& manifest) {
  const std::unique_ptr<rocksdb::Env> memory(rocksdb::NewMemEnv(rocksdb::Env::Default()));
  const auto put = [&memory](const std::string& file, const std::string& content) {
    return rocksdb::WriteStringToFile(memory.get(), content, file).ok();
  };
  if (!memory->CreateDirIfMissing("/db").ok() || !put("/db/" + name, manifest) ||
      !put("/db/CURRENT", name + "\n")) {
    return std::nullopt;
  }
  auto options = database_options(memory.get(), {});
  options.paranoid_checks = false;
  options.skip_checking_sst_file_sizes_on_db_open = true;
  options.track_and_verify_wals_in_manifest = false;
  options.disable_auto_compactions = true;
  rocksdb::DB* opened = nullptr;
  // Not for reading only: a manifest that knows a log which is not here has to be written anew, and
  // read-only RocksDB 7.8 ends the process over that (assertion `recovery_ctx != nullptr`).
  const auto status = rocksdb::DB::Open(options, "/db", &opened);
  const std::unique_ptr<rocksdb::DB> database(opened);
  if (!status.ok()) return std::nullopt;
  std::vector<rocksdb::LiveFileMetaData> tables;
  database->GetLiveFilesMetaData(&tables);
  return tables;
}

}  // namespace

class Examination {
 public:
  Examination(FileSystem& files, path directory, std::unique_ptr<FileLock> lock,
              std::string boot_id)
      : files_(files),
        boot_id_(std::move(boot_id)),
        found_(files, std::move(directory), std::move(lock)) {}

  Result<Examined> run() {
    if (auto looked = look_at_stamp(); !looked) return looked.error();
    if (auto looked = look_at_position(); !looked) return looked.error();
    if (auto looked = look_at_names(); !looked) return looked.error();
    look_at_opening();
    if (auto looked = look_at_logs(); !looked) return looked.error();

    if (live_) {
      found_.is_exact_ = true;
      for (const auto& table : *live_) look_at_live_table(table);
      if (auto looked = look_at_records(); !looked) return looked.error();
      if (found_.losses_.empty()) return end();
    } else {
      lost("which tables belong to the database is not known, so some may be missing");
    }
    // What no list names any more may hold what is lost.
    found_.is_exact_ = false;
    found_.tables_ = tables_;
    found_.kept_ = {};
    known_losses_.clear();
    if (auto looked = look_at_records(); !looked) return looked.error();
    return end();
  }

 private:
  const path& directory() const { return found_.directory_; }
  path database() const { return directory() / "db"; }

  void damaged(std::string text) {
    if (std::find(found_.damage_.begin(), found_.damage_.end(), text) == found_.damage_.end()) {
      found_.damage_.push_back(std::move(text));
    }
  }
  void lost(std::string text) {
    if (std::find(found_.losses_.begin(), found_.losses_.end(), text) == found_.losses_.end()) {
      found_.losses_.push_back(std::move(text));
    }
  }

  Result<void> look_at_stamp() {
    const auto format = Directory::format(files_, directory());
    if (format) {
      if (!*format) damaged((directory() / "FORMAT").string() + " is missing");
      return {};
    }
    if (format.error().code() != Errc::corrupt) return format.error();
    damaged(format.error().detail());
    return {};
  }

  Result<void> look_at_position() {
    auto noted = PositionFile::read(files_, directory() / "position");
    if (noted) {
      noted_ = *std::move(noted);
      highest_ = noted_->reserved;
      return {};
    }
    if (noted.error().code() != Errc::corrupt) return noted.error();
    damaged(noted.error().detail());
    return {};
  }

  Result<void> look_at_names() {
    const auto is_there = files_.is_directory(database());
    if (!is_there) return is_there.error();
    if (!*is_there) {
      damaged(database().string() + " is missing");
      return {};
    }
    auto names = files_.list(database());
    if (!names) return names.error();
    std::vector<std::string> manifests;
    std::map<std::uint64_t, path> tables;
    std::map<std::uint64_t, path> logs;
    for (const auto& name : *names) {
      if (name.ends_with(".sst")) tables[number_of(name)] = database() / name;
      if (name.ends_with(".log")) logs[number_of(name)] = database() / name;
      if (name.starts_with("MANIFEST-")) manifests.push_back(name);
    }
    for (auto& [n, file] : tables) tables_.push_back(std::move(file));
    for (auto& [n, file] : logs) found_.logs_.push_back(std::move(file));
    return look_at_manifests(std::move(manifests));
  }

  Result<void> look_at_manifests(std::vector<std::string> manifests) {
    const auto current = files_.read(database() / "CURRENT");
    if (!current) return current.error();
    const auto said = *current ? (*current)->substr(0, (*current)->find('\n')) : std::string();
    const bool is_known = std::find(manifests.begin(), manifests.end(), said) != manifests.end();
    if (!*current) {
      damaged((database() / "CURRENT").string() + " is missing");
    } else if (!is_known) {
      damaged((database() / "CURRENT").string() + " names no manifest that is there");
    }
    // The one that it names, or else the newest that can be read.
    if (is_known) manifests = {said};
    std::sort(manifests.begin(), manifests.end(), std::greater<>());
    for (const auto& name : manifests) {
      const auto content = files_.read(database() / name);
      if (!content) return content.error();
      live_ = live_tables(name, content->value_or(""));
      if (live_) return {};
      damaged((database() / name).string() + " cannot be read");
    }
    if (manifests.empty()) damaged(database().string() + " has no manifest");
    return {};
  }

  /// What any opening says to all of it.
  void look_at_opening() {
    const auto check = [this](rocksdb::DB& opened) -> Result<void> {
      const auto position = stored_position(opened);
      if (!position) return position.error();
      if (noted_ && position->n < noted_->n && !noted_->may_have_lost(boot_id_)) {
        return Error(Errc::corrupt, "it ends at group " + number(position->n));
      }
      return {};
    };
    const auto opened = open_replayed(database_options(files_.env(), {}), database(), check, {});
    if (!opened) refusal_ = opened.error().detail();
  }

  Result<void> look_at_logs() {
    for (const auto& file : found_.logs_) {
      const auto log = salvage_log(files_, file);
      if (!log) return log.error();
      for (const auto& [offset, bytes] : log->unreadable) {
        log_damage_.push_back(file.string() + ": " + number(bytes) + " bytes at " + number(offset) +
                              " cannot be read");
      }
      for (const auto& group : log->groups) {
        if (const auto n = group_of(group)) logged_groups_.insert(*n);
      }
    }
    return look_for_end();
  }

  /// Behind a hole in what was not acknowledged nothing counts, as at any opening: it was never
  /// durable.
  Result<void> look_for_end() {
    if (!noted_ || logged_groups_.empty()) return {};
    const auto end_from = [this](std::uint64_t n) {
      while (logged_groups_.contains(n + 1)) ++n;
      return n;
    };
    const auto newest = *logged_groups_.rbegin();
    auto end = end_from(noted_->n);
    if (end >= newest) return {};
    // The position file may be behind the tables.
    for (const auto& file : tables_) {
      auto table = SalvagedTable::open(files_, file);
      if (!table) return table.error();
      while (true) {
        const auto entry = table->next();
        if (!entry) return entry.error();
        if (!*entry) break;
        if (!(*entry)->is_put || (*entry)->place != core::kPositionKey) continue;
        const auto position = core::decode_position((*entry)->place, (*entry)->bytes);
        if (position) end = std::max(end, end_from(position->n));
      }
    }
    found_.last_group_ = end;
    return {};
  }

  void look_at_live_table(const rocksdb::LiveFileMetaData& table) {
    const auto file = database() / path(table.relative_filename);
    const auto range =
        " It held what is from " + named(table.smallestkey) + " to " + named(table.largestkey);
    if (std::find(tables_.begin(), tables_.end(), file) == tables_.end()) {
      damaged(file.string() + " is missing");
      lost(file.string() + " is missing." + range);
      return;
    }
    found_.tables_.push_back(file);
    rocksdb::SstFileReader reader(database_options(files_.env(), {}));
    auto status = reader.Open(file.string());
    if (status.ok()) status = reader.VerifyChecksum();
    if (!status.ok()) damaged(file.string() + ": " + error_of(status).detail());
  }

  /// All records, as they would be kept.
  Result<void> look_at_records() {
    Merge merge(files_, found_.is_exact_);
    for (const auto& file : found_.tables_) {
      if (auto added = merge.add_table(file); !added) return added;
    }
    for (const auto& file : found_.logs_) {
      auto log = salvage_log(files_, file);
      if (!log) return log.error();
      merge.add_log(*std::move(log), found_.last_group_);
    }
    std::uint64_t in_tables = 0;
    while (true) {
      const auto candidates = merge.next();
      if (!candidates) return candidates.error();
      if (candidates->empty()) break;
      in_tables = std::max(in_tables, see(*candidates));
      keep(*candidates);
    }
    for (std::size_t i = 0; i < found_.tables_.size(); ++i) report(merge.table(i), i);
    look_at_groups(in_tables);
    look_at_whole();
    for (auto& loss : known_losses_) lost(std::move(loss));
    known_losses_.clear();
    return {};
  }

  /// Every token of every version counts as handed out. Returns the last group that is in a table.
  std::uint64_t see(const std::vector<Candidate>& candidates) {
    std::uint64_t group = 0;
    RecordTally tokens;
    for (const auto& [entry, source] : candidates) {
      if (!entry.is_put || !tokens.add(entry.place, entry.bytes)) continue;
      if (source != SIZE_MAX && entry.place == core::kPositionKey) {
        group = std::max(group, tokens.position()->n);
      }
      if (tokens.allocator()) {
        highest_ = std::max({highest_, tokens.allocator()->newest, tokens.allocator()->floor});
      }
    }
    highest_ = std::max(highest_, tokens.highest_of_leases());
    highest_of_keys_ = std::max(highest_of_keys_, tokens.highest_of_keys());
    return group;
  }

  void keep(const std::vector<Candidate>& candidates) {
    const auto& place = candidates.front().entry.place;
    const auto kept = newest_of(candidates);
    if (kept.bytes) {
      const auto added = found_.kept_.add(place, *kept.bytes);
      static_cast<void>(added);  // it was proven already
    }
    if (!kept.is_newest_damaged) return;
    damaged(named(place) + ": its record is damaged");
    if (known_losses_.size() < kNamed) {
      known_losses_.push_back(named(place) + (kept.bytes ? ": an older record is kept"
                                                         : ": nothing of it can be read"));
    }
  }

  void report(const SalvagedTable& table, std::size_t i) {
    const auto file = found_.tables_[i].string();
    if (!table.has_index()) {
      damaged(file + ": its index cannot be read");
      lost(file + ": its index cannot be read, so some of its blocks may be missing");
    }
    for (const auto& block : table.unreadable()) {
      damaged(file + ": " + number(block.bytes) + " bytes at " + number(block.offset) +
              " cannot be read");
      lost(file + ": what is between " +
           (block.after.empty() ? "the beginning" : named(block.after)) + " and " +
           (block.before ? named(*block.before) : "the end") +
           " is gone, or may be older than it was");
    }
  }

  /// Which groups are missing between what the tables have and what was acknowledged.
  void look_at_groups(std::uint64_t in_tables) {
    const auto last_read =
        std::max(in_tables, logged_groups_.empty() ? 0 : *logged_groups_.rbegin());
    const auto acknowledged = noted_ ? noted_->n : last_read;
    if (!noted_) {
      lost(
          "how far the acknowledged history went is not known: the last group that can be read "
          "is " +
          number(last_read));
    }
    bool is_complete = true;
    for (auto n = in_tables + 1; n <= acknowledged; ++n) {
      if (logged_groups_.contains(n)) continue;
      auto last = n;
      while (last < acknowledged && !logged_groups_.contains(last + 1)) ++last;
      is_complete = false;
      const auto which = n == last ? "group " + number(n) + " was"
                                   : "groups " + number(n) + " to " + number(last) + " were";
      missing_.push_back(which +
                         " acknowledged and cannot be read (the last one acknowledged was " +
                         number(acknowledged) + ")");
      n = last;
    }
    const bool is_explained = noted_ && noted_->may_have_lost(boot_id_) && !refusal_;
    if (!is_complete && !(is_explained && found_.damage_.empty())) {
      for (const auto& text : missing_) {
        damaged(database().string() + " is behind: " + text);
        lost(text);
      }
    }
    missing_.clear();
    // A write that was being appended when the process stopped is no damage.
    if (refusal_ || !is_complete) {
      for (const auto& text : log_damage_) damaged(text);
    }
    if (refusal_ && found_.damage_.empty()) damaged(database().string() + ": " + *refusal_);
  }

  void look_at_whole() {
    const auto& kept = found_.kept_;
    if (noted_ && kept.identity() && noted_->n > 0 &&
        kept.identity()->incarnation != noted_->incarnation) {
      damaged((directory() / "position").string() + " belongs to another store");
      lost(
          "how far the acknowledged history went is not known: the position file belongs to "
          "another store");
    }
    const auto whole = kept.whole();
    if (whole || found_.kept_.records() == 0) return;
    damaged(database().string() + ": " + whole.error().detail());
    lost(whole.error().detail());
  }

  Result<Examined> end() {
    const auto& kept = found_.kept_;
    if (found_.losses_.empty()) {
      const auto whole = kept.whole();
      if (!whole) return whole.error();
      found_.small_ = *whole;
      found_.noted_ = *noted_;
      return std::move(found_);
    }

    core::SmallRecords known;
    if (kept.allocator()) known.allocator = *kept.allocator();
    if (kept.position()) known.position = *kept.position();
    if (kept.identity()) {
      known.identity = *kept.identity();
    } else {
      // Deadlines of boots that are not known any more must not be taken for ones of a later boot.
      known.identity.boots = core::Boots(kept.highest_boot() + 1, {});
      known.position.clock = {};
    }
    auto& position = known.position;
    if (noted_) {
      position.n = std::max(position.n, noted_->n);
      position.epoch = std::max(position.epoch, noted_->epoch);
    }
    position.epoch = std::max(position.epoch, kept.highest_process());
    position.live_keys = kept.live_keys();
    position.tombstones = kept.tombstones();
    position.lease_names = kept.lease_names();
    // Of an external allocator there may be tokens near the end of the space: those leave no room.
    const bool has_room =
        highest_of_keys_.number() < Token::kMax - 2 * core::kTokensBetweenHistories;
    found_.small_ =
        core::new_history(known, has_room ? std::max(highest_, highest_of_keys_) : highest_);
    found_.noted_ = first_position(found_.small_);
    return std::move(found_);
  }

  FileSystem& files_;
  const std::string boot_id_;
  Examined found_;
  std::optional<PositionSlot> noted_;
  std::optional<std::vector<rocksdb::LiveFileMetaData>> live_;
  std::vector<path> tables_;  // all that are there
  std::optional<std::string> refusal_;
  std::vector<std::string> log_damage_;
  std::set<std::uint64_t> logged_groups_;
  std::vector<std::string> missing_;
  std::vector<std::string> known_losses_;
  Token highest_;
  Token highest_of_keys_;
};

namespace {

/// Moves the parts of a repaired store to where they belong. Whatever was moved already stays.
Result<path> finish_moving(FileSystem& files, const path& directory) {
  const auto repaired = directory / kRepaired;
  const auto plan = files.read(repaired / kComplete);
  if (!plan) return plan.error();
  if (!*plan) return Error(Errc::invalid, "no repair of " + directory.string() + " was begun");
  const auto aside = directory / (*plan)->substr(0, (*plan)->find('\n'));

  // The new stamp is moved last: as long as it waits, the parts may be on their way.
  const auto is_moving = files.exists(repaired / "FORMAT");
  if (!is_moving) return is_moving.error();
  if (*is_moving) {
    const auto sync = [&]() -> Result<void> {
      for (const auto& folder : {aside, repaired, directory}) {
        if (auto synced = files.sync_directory(folder); !synced) return synced;
      }
      return {};
    };
    const auto move = [&](const path& from, const path& to) -> Result<void> {
      const auto is_there = files.exists(from);
      if (!is_there) return is_there.error();
      return *is_there ? files.rename(from, to) : Result<void>();
    };
    // Without a stamp nobody takes what is there for a store, whatever parts of it there are.
    if (auto moved = move(directory / "FORMAT", aside / "FORMAT"); !moved) return moved.error();
    if (auto synced = sync(); !synced) return synced.error();
    for (const auto* part : {"db", "position"}) {
      const auto waits = files.exists(repaired / part);
      if (!waits) return waits.error();
      if (!*waits) continue;
      if (auto moved = move(directory / part, aside / part); !moved) return moved.error();
      if (auto synced = sync(); !synced) return synced.error();
      if (auto moved = move(repaired / part, directory / part); !moved) return moved.error();
      if (auto synced = sync(); !synced) return synced.error();
    }
    if (auto moved = move(repaired / "FORMAT", directory / "FORMAT"); !moved) {
      return moved.error();
    }
    if (auto synced = sync(); !synced) return synced.error();
  }
  if (auto removed = remove_tree(files, repaired); !removed) return removed.error();
  if (auto synced = files.sync_directory(directory); !synced) return synced.error();
  return aside;
}

Error in_use(const path& directory) {
  return {Errc::in_use, directory.string() + " is in use by another process: stop it first"};
}

}  // namespace

Result<Examined> examine(FileSystem& files, const path& given, const std::string& boot_id,
                         LockMode mode) {
  const auto directory = without_slash(given);
  bool is_store = false;
  for (const auto* part : {"FORMAT", "db", "position"}) {
    const auto found = files.exists(directory / part);
    if (!found) return found.error();
    is_store = is_store || *found;
  }
  const auto is_unfinished = Directory::is_being_created(files, directory);
  if (!is_unfinished) return is_unfinished.error();
  if (*is_unfinished) {
    return Error(Errc::invalid, directory.string() +
                                    " was never completed, and nobody was given an answer from "
                                    "it: the next server that is started makes it anew");
  }
  const auto is_backup = files.exists(directory / "MANIFEST.backup");
  if (!is_backup) return is_backup.error();
  if (*is_backup) {
    return Error(Errc::invalid, directory.string() +
                                    " is a backup: `fencekv-admin verify-backup` and `restore` "
                                    "are for it");
  }
  if (!is_store) return Error(Errc::invalid, "there is no store in " + directory.string());

  std::unique_ptr<FileLock> held;
  const auto has_lock = files.exists(directory / "lock");
  if (!has_lock) return has_lock.error();
  if (*has_lock || mode == LockMode::exclusive) {
    auto lock = files.lock(directory / "lock", mode);
    if (!lock) return lock.error();
    if (!*lock) return in_use(directory);
    held = *std::move(lock);
  }
  return Examination(files, directory, std::move(held), boot_id).run();
}

Result<void> Examined::each_record(
    const std::function<Result<void>(std::string_view, std::string_view)>& visit) const {
  Merge merge(*files_, is_exact_);
  for (const auto& file : tables_) {
    if (auto added = merge.add_table(file); !added) return added;
  }
  for (const auto& file : logs_) {
    auto log = salvage_log(*files_, file);
    if (!log) return log.error();
    merge.add_log(*std::move(log), last_group_);
  }
  RecordTally tally;
  while (true) {
    const auto candidates = merge.next();
    if (!candidates) return candidates.error();
    if (candidates->empty()) break;
    auto kept = newest_of(*candidates).bytes;
    if (!kept) continue;
    const auto& place = candidates->front().entry.place;
    if (auto added = tally.add(place, *kept); !added) return added;
    if (place.front() == core::kMetaPrefix) continue;
    if (may_have_lost()) {
      if (place.front() == core::kGrantPrefix) continue;
      if (place.front() == core::kLeasePrefix) kept = without_further_grants(place, *kept);
    }
    if (auto visited = visit(place, *kept); !visited) return visited;
  }
  if (tally.records() == kept_.records()) return {};
  return Error(Errc::corrupt, directory_.string() + " has changed while it was being repaired");
}

Result<void> Examined::write_copy(const path& target) const {
  auto store = NewStore::begin(*files_, target);
  if (!store) return store.error();
  const auto written = each_record(
      [&store](auto place, auto bytes) -> Result<void> { return store->add(place, bytes); });
  if (!written) return written;
  return store->finish(small_, noted_);
}

Result<path> Examined::write_in_place() const {
  const auto repaired = directory_ / kRepaired;
  if (auto removed = remove_tree(*files_, repaired); !removed) return removed.error();
  for (const auto& part : {repaired, repaired / "db"}) {
    if (auto made = files_->make_directory(part); !made) return made.error();
  }
  RecordWriter writer(*files_, repaired / "db");
  const auto written = each_record(
      [&writer](auto place, auto bytes) -> Result<void> { return writer.add(place, bytes); });
  if (!written) return written.error();
  for (const auto& put : core::puts_of(small_)) {
    if (auto added = writer.add(put.place, put.bytes); !added) return added.error();
  }
  if (auto finished = writer.finish(); !finished) return finished.error();
  auto position = PositionFile::create(*files_, repaired / "position");
  if (!position) return position.error();
  if (auto noted = position->write_durably(noted_); !noted) return noted.error();
  {
    const auto stamped = Directory::take(*files_, repaired);
    if (!stamped) return stamped.error();
    if (auto done = stamped->bring_stamp_up_to_date(); !done) return done.error();
  }
  if (auto removed = files_->remove(repaired / "lock"); !removed) return removed.error();

  std::string aside = "damaged";
  for (int i = 2;; ++i) {
    const auto is_taken = files_->exists(directory_ / aside);
    if (!is_taken) return is_taken.error();
    if (!*is_taken) break;
    aside = "damaged-" + std::to_string(i);
  }
  if (auto made = files_->make_directory(directory_ / aside); !made) return made.error();
  if (auto synced = files_->sync_directory(directory_); !synced) return synced.error();
  // From here on the repaired store is the one that counts: is_new() refuses the other.
  if (auto done = replace_file(*files_, repaired / kComplete, aside + "\n"); !done) {
    return done.error();
  }
  return finish_moving(*files_, directory_);
}

Result<bool> is_half_repaired(FileSystem& files, const path& directory) {
  return files.exists(without_slash(directory) / kRepaired / kComplete);
}

Result<path> finish_repair(FileSystem& files, const path& given) {
  const auto directory = without_slash(given);
  const auto lock = files.lock(directory / "lock", LockMode::exclusive);
  if (!lock) return lock.error();
  if (!*lock) return in_use(directory);
  return finish_moving(files, directory);
}

}  // namespace fencekv::rocks
