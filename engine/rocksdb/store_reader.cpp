// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/store_reader.h"

#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/log_replay.h"
#include "engine/rocksdb/record_snapshot.h"

#include <rocksdb/db.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;

/// How long a live store is tried before we give up: a server may be starting or stopping, or may
/// change the set of its files in the milliseconds that we look at it.
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kPause{50};

/// A torn slot is one that the server is writing at this moment, or one left by a power cut.
constexpr int kSlotTries = 5;

bool is_there(const path& file) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(file, error));
}

/// A new directory, gone with the object.
class ScratchDirectory {
 public:
  static Result<ScratchDirectory> make() {
    std::error_code error;
    auto parent = std::filesystem::temp_directory_path(error);
    if (error) parent = "/tmp";
    auto name = (parent / "fencekv-reader-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return file_error("create", name, errno);
    return ScratchDirectory(name);
  }
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  ~ScratchDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }

  const path& where() const { return path_; }

 private:
  explicit ScratchDirectory(path where) : path_(std::move(where)) {}

  path path_;
};

/// RocksDB's list of its files, and its own files of the same moment.
struct FileList {
  std::string current;   ///< The content of CURRENT, which names the manifest.
  std::string manifest;  ///< The manifest's content.

  path manifest_name() const { return current.substr(0, current.find('\n')); }
};

Result<FileList> file_list(const path& database) {
  auto current = posix_files().read(database / "CURRENT");
  if (!current) return std::move(current).error();
  if (!*current) return Error(Errc::corrupt, (database / "CURRENT").string() + " is missing");

  FileList list{.current = **std::move(current), .manifest = {}};
  auto manifest = posix_files().read(database / list.manifest_name());
  if (!manifest) return std::move(manifest).error();
  if (!*manifest) {
    return Error(Errc::corrupt, (database / list.manifest_name()).string() + " is missing");
  }
  list.manifest = **std::move(manifest);
  return list;
}

/// A file that is held open: it can be opened again after it was deleted.
class HeldFile {
 public:
  static Result<HeldFile> open(const path& file) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return file_error("open", file, errno);
    return HeldFile(descriptor);
  }
  HeldFile(HeldFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  HeldFile& operator=(HeldFile&&) = delete;
  ~HeldFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  /// A name for it that outlives its own.
  path name() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  explicit HeldFile(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

Result<void> write_new(const path& file, std::string_view content) {
  const auto created = posix_files().create(file);
  if (!created) return created.error();
  return (*created)->write_at(0, content);
}

Error changes_too_fast(const path& directory) {
  return {Errc::in_use,
          directory.string() + " changes too fast to be opened: try again in a moment"};
}

/// Makes `shadow` a database of the same files: links to the tables and logs, copies of what says
/// which of them belong to it. LOCK is left alone. The links go to descriptors, which the caller
/// keeps while the shadow is used: a file that is deleted meanwhile can be opened all the same.
Result<std::vector<HeldFile>> make_shadow(const path& database, const FileList& list,
                                          const path& shadow) {
  std::error_code error;
  std::filesystem::create_directory(shadow, error);
  if (error) return file_error("create", shadow, error.value());

  std::vector<HeldFile> files;
  std::filesystem::directory_iterator entry(database, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const auto name = entry->path().filename();
    const auto kind = name.extension();
    if (kind != ".sst" && kind != ".log" && name != "IDENTITY") continue;
    auto file = HeldFile::open(entry->path());
    if (!file) return is_there(entry->path()) ? file.error() : changes_too_fast(database);
    std::error_code failed;
    std::filesystem::create_symlink(file->name(), shadow / name, failed);
    if (failed) return file_error("create", shadow / name, failed.value());
    files.push_back(*std::move(file));
  }
  if (error) return file_error("list", database, error.value());
  if (auto made = write_new(shadow / list.manifest_name(), list.manifest); !made) {
    return made.error();
  }
  if (auto made = write_new(shadow / "CURRENT", list.current); !made) return made.error();
  return files;
}

NotedPosition read_position(const path& position) {
  NotedPosition noted{
      .newest = PositionFile::read(posix_files(), position), .reserved = {}, .valid_slots = 0};
  for (int i = 0; i < kSlotTries && noted.valid_slots < 2; ++i) {
    noted.valid_slots = PositionFile::count_whole_slots(posix_files(), position);
  }
  return noted;
}

/// After the records were opened: a token that was drawn since noted() may be in them.
void read_reservation(const path& position, NotedPosition& noted) {
  if (!noted.newest) return;
  noted.reserved = noted.newest->reserved;
  const auto later = PositionFile::read(posix_files(), position);
  if (later) noted.reserved = std::max(noted.reserved, later->reserved);
}

/// The stamp of a store that somebody else has locked.
Result<void> check_live_stamp(const path& directory) {
  const auto is_stamped = Directory::format(posix_files(), directory);
  if (!is_stamped) return is_stamped.error();
  const auto is_unfinished = Directory::is_being_created(posix_files(), directory);
  if (!is_unfinished) return is_unfinished.error();
  if (*is_stamped && !*is_unfinished) return {};
  return Error(Errc::in_use, directory.string() + " is being created by a server: try again");
}

/// As a server would open it: `directory` is the store's, `database` where its database is found.
Result<std::unique_ptr<rocksdb::DB>> open_database(const path& directory, const path& database,
                                                   const NotedPosition& noted,
                                                   const std::string& boot_id, const Log& log) {
  auto options = database_options(posix_files().env(), log);
  // Table files stay open, and can be read when a server has deleted them.
  options.max_open_files = -1;
  if (noted.newest) {
    const auto check = [&](rocksdb::DB& opened) {
      return check_records(opened, directory, *noted.newest, boot_id);
    };
    auto replayed = open_replayed(options, database, check, log);
    if (replayed) return std::move(replayed->database);
  }
  // No server would open it. Who only reads is shown what there is, unless a record is damaged.
  rocksdb::DB* opened = nullptr;
  const auto status = rocksdb::DB::OpenForReadOnly(options, database.string(), &opened);
  std::unique_ptr<rocksdb::DB> owned(opened);
  if (!status.ok()) return error_of(status);
  return owned;
}

Error about(const path& file, const Error& error) {
  return {error.code(), file.string() + ": " + error.detail()};
}

/// RocksDB's words about a file of `opened`, which stands for `database`.
Error about_database(const path& database, const path& opened, const Error& error) {
  auto text = error.detail();
  const auto from = opened.string();
  const auto to = database.string();
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return about(database, {error.code(), text});
}

}  // namespace

/// The records of a database that is opened for reading: nothing changes them.
class StoreReader::Records final : public core::Snapshot {
 public:
  Records(std::unique_ptr<rocksdb::DB> database, path shown)
      : database_(std::move(database)), shown_(std::move(shown)) {}

  Result<std::optional<std::string>> read(std::string_view place) override {
    auto bytes = read_record(*database_, {}, place);
    if (!bytes) return about_database(shown_, database_->GetName(), bytes.error());
    return bytes;
  }

  Result<void> scan(
      std::string_view from,
      const std::function<bool(std::string_view place, std::string_view bytes)>& visit) override {
    rocksdb::ReadOptions options;
    // Each block is read once: kept, it would only push out index and filter blocks.
    options.fill_cache = false;
    auto scanned = scan_records(*database_, options, from, visit);
    if (!scanned) return about_database(shown_, database_->GetName(), scanned.error());
    return scanned;
  }

  rocksdb::DB& database() { return *database_; }

 private:
  const std::unique_ptr<rocksdb::DB> database_;
  const path shown_;  // where the files are, if the database was opened through links
};

StoreReader::StoreReader(path directory, std::optional<Directory> shared, std::uint64_t format,
                         NotedPosition noted, std::unique_ptr<Records> records)
    : directory_(std::move(directory)),
      shared_(std::move(shared)),
      is_live_(!shared_),
      format_(format),
      noted_(std::move(noted)),
      records_(std::move(records)),
      clock_(system_clock()),
      now_(clock_->since_boot()) {}

StoreReader::~StoreReader() = default;

core::Snapshot& StoreReader::records() {
  return *records_;
}

Result<std::unique_ptr<StoreReader>> StoreReader::open(const path& directory, const Log& log) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    if (error && error.value() != ENOENT) return file_error("open", directory, error.value());
    return Error(Errc::invalid, directory.string() + (is_there(directory) ? " is not a directory"
                                                                          : " does not exist"));
  }

  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    auto shared = Directory::share(posix_files(), directory);
    if (shared) return open_stopped(*std::move(shared), log);
    if (shared.error().code() != Errc::in_use) {
      if (is_there(directory / "lock")) return std::move(shared).error();
      if (is_there(directory / "FORMAT") || is_there(directory / "db")) {
        return Error(Errc::invalid, (directory / "lock").string() +
                                        " is missing, so nobody can be kept out: create an empty "
                                        "file of that name, as the user of the server");
      }
      return Error(Errc::invalid, directory.string() + " holds no store");
    }

    auto live = open_live(directory, log);
    if (live || live.error().code() == Errc::newer_format) return live;
    if (std::chrono::steady_clock::now() >= until) return live;
    std::this_thread::sleep_for(kPause);
  }
}

Result<std::unique_ptr<StoreReader>> StoreReader::open_stopped(Directory directory,
                                                               const Log& log) {
  const auto is_new = directory.is_new();
  if (!is_new) return is_new.error();
  if (*is_new) return Error(Errc::invalid, directory.path().string() + " holds no store");

  auto noted = read_position(directory.position());
  read_reservation(directory.position(), noted);
  auto database =
      open_database(directory.path(), directory.database(), noted, system_clock()->boot_id(), log);
  if (!database) return about(directory.database(), database.error());

  auto where = directory.path();
  const auto format = Directory::format(posix_files(), where);
  if (!format) return format.error();
  auto records = std::make_unique<Records>(*std::move(database), directory.database());
  return std::unique_ptr<StoreReader>(new StoreReader(std::move(where), std::move(directory),
                                                      format->value_or(core::kFormat),
                                                      std::move(noted), std::move(records)));
}

Result<std::unique_ptr<StoreReader>> StoreReader::open_live(const path& directory, const Log& log) {
  if (auto stamped = check_live_stamp(directory); !stamped) return stamped.error();
  auto noted = read_position(directory / "position");

  // Not a RocksDB secondary: one of 7.8.3 takes a table file that it does not find, or cannot open,
  // for one that a later entry of the manifest will drop, settles for an older state without it,
  // and replays the log on top. Keys vanish without an error. Opened for reading, a database
  // refuses to open without a file. It is done in a directory of links, so that whatever RocksDB
  // may do there (up to 11.5 such a reader may delete files of a live database) stays there.
  const auto before = file_list(directory / "db");
  if (!before) return before.error();
  auto scratch = ScratchDirectory::make();
  if (!scratch) return std::move(scratch).error();
  const auto shadow = scratch->where() / "db";
  const auto files = make_shadow(directory / "db", *before, shadow);
  if (!files) return files.error();
  // While the manifest stays the same, no file that belongs to the database is deleted. Otherwise
  // one may have been that is missed by nobody: a log file whose records went into a table that the
  // copy of the manifest does not know.
  const auto after = file_list(directory / "db");
  if (!after) return after.error();
  if (before->current != after->current || before->manifest != after->manifest) {
    return changes_too_fast(directory);
  }
  auto database = open_database(directory, shadow, noted, system_clock()->boot_id(), log);
  if (!database) return about_database(directory / "db", shadow, database.error());
  read_reservation(directory / "position", noted);
  // After the records, as they may have layouts of no older format than it says then.
  const auto format = Directory::format(posix_files(), directory);
  if (!format) return format.error();

  std::unique_ptr<StoreReader> reader(
      new StoreReader(directory, std::nullopt, format->value_or(core::kFormat), std::move(noted),
                      std::make_unique<Records>(*std::move(database), directory / "db")));
  // A server that is just starting on a store may not have written its first group yet.
  const auto meta = reader->meta();
  if (!meta) return meta.error();
  if (auto whole = reader->check_position(*meta); !whole && reader->noted().newest) {
    return whole.error();
  }
  return reader;
}

Result<StoredMeta> StoreReader::meta() {
  StoredMeta meta;
  std::optional<Error> problem;
  const auto damaged = [this](const std::string& what) {
    return about(directory_ / "db", {Errc::corrupt, what});
  };
  const auto load = [&]<class Record>(
                        std::string_view place, Record& record,
                        Result<Record> (*decode)(std::string_view, std::string_view)) {
    if (problem) return;
    const auto bytes = records_->read(place);
    if (!bytes) {
      problem = bytes.error();
      return;
    }
    if (!*bytes) {
      problem = damaged("record " + escaped(place) + " is missing");
      return;
    }
    auto decoded = decode(place, **bytes);
    if (!decoded) {
      problem = damaged(decoded.error().detail());
      return;
    }
    record = *std::move(decoded);
  };
  load(core::kIdentityKey, meta.identity, core::decode_identity);
  load(core::kAllocatorKey, meta.allocator, core::decode_allocator);
  load(core::kPositionKey, meta.position, core::decode_position);
  if (!problem && meta.identity.boots.all().empty()) {
    problem = damaged("record midentity names no boot");
  }
  if (problem) return *problem;
  return meta;
}

Result<void> StoreReader::check_position(const StoredMeta& meta) const {
  if (!noted_.newest) return noted_.newest.error();
  return check_history(directory_, *noted_.newest, meta.position, meta.identity.incarnation,
                       clock_->boot_id());
}

bool StoreReader::is_same_boot() const {
  return noted_.newest && noted_.newest->boot_id == clock_->boot_id();
}

bool StoreReader::may_have_lost() const {
  return noted_.newest && noted_.newest->may_have_lost(clock_->boot_id());
}

Result<core::Lease> StoreReader::lease(std::string_view name, core::LeaseRecord record) {
  std::vector<core::GrantRecord> others;
  if (record.others > 0) {
    std::optional<Error> damage;
    const auto prefix = core::grants_prefix(name);
    const auto scanned =
        records_->scan(prefix, [&](std::string_view place, std::string_view bytes) {
          if (!place.starts_with(prefix)) return false;
          auto grant = core::decode_grant(place, bytes);
          if (!grant) {
            damage = about(directory_ / "db", grant.error());
            return false;
          }
          others.push_back(*std::move(grant));
          return true;
        });
    if (damage) return *std::move(damage);
    if (!scanned) return scanned.error();
  }
  if (others.size() != record.others) {
    return about(directory_ / "db",
                 {Errc::corrupt, "record " + escaped(core::lease_place(name)) + " counts " +
                                     std::to_string(record.others) + " further grants, but " +
                                     std::to_string(others.size()) + " are there"});
  }
  return core::Lease(std::move(record), std::move(others));
}

core::Boots StoreReader::boots(const StoredMeta& meta) const {
  auto boots = meta.identity.boots;
  boots.enter(clock_->boot_id(), now_, meta.position.clock);
  return boots;
}

core::GrantEnd StoreReader::end_of(const core::GrantRecord& grant, const StoredMeta& meta,
                                   const core::Boots& boots) const {
  // Only the writer knows its sessions, and it writes down what ends with them.
  auto seen = grant;
  seen.origin.session = 0;
  const core::Sessions no_sessions;
  const bool has_writer = is_live_ && noted_.newest;
  return core::standing(seen, {.floor = meta.allocator.floor,
                               .boots = boots,
                               .sessions = no_sessions,
                               .process = has_writer ? noted_.newest->process : 0,
                               .now = now_});
}

GrantStanding StoreReader::standing(const StoredMeta& meta, const core::GrantRecord& grant) const {
  if (grant.token < meta.allocator.floor) return {.state = "floor", .remaining = std::nullopt};
  const auto boots = this->boots(meta);
  const auto end = end_of(grant, meta, boots);
  if (end != core::GrantEnd::open) {
    return {.state = core::reason_of(end), .remaining = std::nullopt};
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(core::end_of_time(grant, boots) - now_);
  return {.state = "held", .remaining = std::min(left, grant.ttl)};
}

std::chrono::milliseconds StoreReader::blocked(const StoredMeta& meta,
                                               const core::Lease& lease) const {
  if (lease.fence() < meta.allocator.floor) return {};
  const auto boots = this->boots(meta);
  std::chrono::nanoseconds until{0};
  if (lease.block().count() > 0) {
    until = boots.resolve(lease.blocked(), lease.block()).value_or(until);
  }
  // An expiry that nobody noticed yet blocks from the moment at which the time was over.
  const auto add = [&](const core::GrantRecord& grant) {
    const bool is_noticed = grant.end != core::GrantEnd::open;
    if (is_noticed || end_of(grant, meta, boots) != core::GrantEnd::expired) return;
    until = std::max(until, core::end_of_time(grant, boots) + grant.delay);
  };
  for (const auto& grant : lease.others()) add(grant);
  add(lease.newest());
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(until - now_),
                  std::chrono::milliseconds(0));
}

SizesOnDisk StoreReader::sizes() const {
  SizesOnDisk sizes;
  std::error_code error;
  const auto size_of = [](const path& file) -> std::uint64_t {
    std::error_code gone;
    const auto size = std::filesystem::file_size(file, gone);
    return gone ? 0 : size;
  };
  sizes.position = size_of(directory_ / "position");
  std::filesystem::directory_iterator file(directory_ / "db", error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const auto kind = file->path().extension();
    auto& sum = kind == ".sst" ? sizes.tables : kind == ".log" ? sizes.logs : sizes.other;
    sum += size_of(file->path());
  }
  return sizes;
}

StoreReader::TablesChecked StoreReader::check_tables(
    const std::function<void(const Error&)>& problem,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::vector<rocksdb::LiveFileMetaData> files;
  records_->database().GetLiveFilesMetaData(&files);
  std::uint64_t total = 0;
  for (const auto& file : files) total += file.size;

  // DB::VerifyChecksum() would do the same with all files in one call: without progress, and
  // without the name of the damaged one.
  TablesChecked checked;
  std::uint64_t done = 0;
  for (const auto& file : files) {
    const path name = directory_ / "db" / path(file.relative_filename);
    rocksdb::SstFileReader table(database_options(posix_files().env(), {}));
    auto status = table.Open(name.string());
    if (status.ok()) status = table.VerifyChecksum();
    const bool is_gone = is_live_ && !is_there(name);
    if (!status.ok() && !is_gone) problem(about(name, error_of(status)));
    if (!is_gone) {
      ++checked.files;
      checked.bytes += file.size;
    }
    done += file.size;
    progress(done, total);
  }
  return checked;
}

}  // namespace fencekv::rocks
