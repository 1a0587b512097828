// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/store_reader.h"

#include "engine/core/rules.h"
#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/record_snapshot.h"

#include <rocksdb/db.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fencekv::rocks {
namespace {

using std::filesystem::path;

/// How often a live store is tried before we give up: it is opened again when the server changed
/// the set of its files meanwhile. With pauses of 20, 40, 60 … ms that is about 4 seconds.
constexpr int kTries = 20;
constexpr std::chrono::milliseconds kPause{20};

/// A torn slot is one that the server is writing at this moment, or one left by a power cut.
constexpr int kSlotTries = 5;

bool is_there(const path& file) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(file, error));
}

/// A new directory for the little that RocksDB wants to have of its own; gone with the object.
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

/// RocksDB's list of its files, as far as it can be seen from outside. While it stays the same, no
/// file that belongs to the database is deleted: only files that the list has dropped already are.
struct FileList {
  std::string current;
  std::uintmax_t size = 0;

  friend bool operator==(const FileList&, const FileList&) = default;
};

Result<FileList> file_list(const path& database) {
  const auto current = read_file(database / "CURRENT");
  if (!current) return current.error();
  if (!*current) return Error(Errc::corrupt, (database / "CURRENT").string() + " is missing");

  FileList list{.current = **current};
  const auto manifest = database / list.current.substr(0, list.current.find('\n'));
  std::error_code error;
  list.size = std::filesystem::file_size(manifest, error);
  if (error) return Error(Errc::corrupt, manifest.string() + ": " + error.message());
  return list;
}

/// How many slots are valid by themselves. The position file answers for its newest valid slot
/// only, so it is shown each slot alone, in memory.
int count_valid_slots(const path& position) {
  const auto content = read_file(position);
  if (!content || !*content || (*content)->size() != 2 * PositionFile::kPageBytes) return 0;

  int valid = 0;
  for (const std::size_t other : {PositionFile::kPageBytes, std::size_t{0}}) {
    auto alone = **content;
    std::fill_n(alone.begin() + static_cast<std::ptrdiff_t>(other), PositionFile::kPageBytes, '\0');
    const File memory(memfd_create("slot", MFD_CLOEXEC));
    const path name = "/proc/self/fd/" + std::to_string(memory.descriptor());
    if (!write_at(memory, name, alone, 0)) continue;
    if (PositionFile::read(name)) ++valid;
  }
  return valid;
}

NotedPosition read_position(const path& position) {
  NotedPosition noted{.newest = PositionFile::read(position), .reserved = {}, .valid_slots = 0};
  for (int i = 0; i < kSlotTries && noted.valid_slots < 2; ++i) {
    noted.valid_slots = count_valid_slots(position);
  }
  return noted;
}

/// After the records were opened: a token that was drawn since noted() may be in them.
void read_reservation(const path& position, NotedPosition& noted) {
  if (!noted.newest) return;
  noted.reserved = noted.newest->reserved;
  const auto later = PositionFile::read(position);
  if (later) noted.reserved = std::max(noted.reserved, later->reserved);
}

/// The stamp of a store that somebody else has locked. As Directory::is_new(), which needs the
/// lock.
Result<void> check_live_stamp(const path& directory) {
  constexpr std::string_view kFront = "fencekv store\nformat ";
  const auto stamp = directory / "FORMAT";
  const auto text = read_file(stamp);
  if (!text) return text.error();
  if (!*text || is_there(directory / "CREATING")) {
    return Error(Errc::in_use, directory.string() + " is being created by a server: try again");
  }
  const std::string_view content(**text);
  const auto end = content.find('\n', std::min(kFront.size(), content.size()));
  const auto format = content.starts_with(kFront) && end != std::string_view::npos
                          ? parse_decimal(content.substr(kFront.size(), end - kFront.size()))
                          : std::nullopt;
  if (!format) {
    return Error(Errc::corrupt, stamp.string() + " is damaged: it is not a format stamp");
  }
  if (*format <= core::kFormat) return {};
  return Error(Errc::newer_format, directory.string() + " has format " + std::to_string(*format) +
                                       "; this build reads up to " + std::to_string(core::kFormat) +
                                       ". Use a newer fencekv");
}

Error about(const path& file, const Error& error) {
  return {error.code(), file.string() + ": " + error.detail()};
}

}  // namespace

/// The records of a database that nobody changes while it is open. RecordSnapshot would ask a
/// secondary for a RocksDB snapshot, which 7.8.3 hands out and then refuses to read from.
class StoreReader::Records final : public core::Snapshot {
 public:
  explicit Records(std::unique_ptr<rocksdb::DB> database) : database_(std::move(database)) {}

  Result<std::optional<std::string>> read(std::string_view place) override {
    return read_record(*database_, {}, place);
  }

  Result<void> scan(
      std::string_view from,
      const std::function<bool(std::string_view place, std::string_view bytes)>& visit) override {
    rocksdb::ReadOptions options;
    // Each block is read once: kept, it would only push out index and filter blocks.
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> cursor(database_->NewIterator(options));
    for (cursor->Seek(rocksdb::Slice(from.data(), from.size())); cursor->Valid(); cursor->Next()) {
      const auto place = cursor->key();
      const auto bytes = cursor->value();
      if (!visit({place.data(), place.size()}, {bytes.data(), bytes.size()})) break;
    }
    if (!cursor->status().ok()) return about(database_->GetName(), error_of(cursor->status()));
    return {};
  }

  rocksdb::DB& database() { return *database_; }

 private:
  const std::unique_ptr<rocksdb::DB> database_;
};

StoreReader::StoreReader(path directory, std::optional<Directory> shared, NotedPosition noted,
                         std::unique_ptr<Records> records)
    : directory_(std::move(directory)),
      shared_(std::move(shared)),
      is_live_(!shared_),
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

  std::optional<Error> last;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause * i);
    auto shared = Directory::share(directory);
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
    // The server may have deleted a file that we were about to open, may be starting or stopping.
    last = std::move(live).error();
  }
  return *std::move(last);
}

Result<std::unique_ptr<StoreReader>> StoreReader::open_stopped(Directory directory,
                                                               const Log& log) {
  const auto is_new = directory.is_new();
  if (!is_new) return is_new.error();
  if (*is_new) return Error(Errc::invalid, directory.path().string() + " holds no store");

  auto noted = read_position(directory.position());
  read_reservation(directory.position(), noted);
  rocksdb::DB* opened = nullptr;
  const auto status =
      rocksdb::DB::OpenForReadOnly(database_options(log), directory.database().string(), &opened);
  std::unique_ptr<rocksdb::DB> database(opened);
  if (!status.ok()) return about(directory.database(), error_of(status));

  auto where = directory.path();
  return std::unique_ptr<StoreReader>(
      new StoreReader(std::move(where), std::move(directory), std::move(noted),
                      std::make_unique<Records>(std::move(database))));
}

Result<std::unique_ptr<StoreReader>> StoreReader::open_live(const path& directory, const Log& log) {
  if (auto stamped = check_live_stamp(directory); !stamped) return stamped.error();
  auto noted = read_position(directory / "position");

  // A secondary of 7.8.3 takes a table file that it does not find (or cannot open) for one that a
  // later entry of the manifest will drop, and settles for the newest older state without such a
  // file: silently older than the log files it then replays. So what it opened counts only if the
  // manifest was the same before and after, since then no file in use was deleted meanwhile.
  const auto before = file_list(directory / "db");
  if (!before) return before.error();

  auto options = database_options(log);
  // Needed, so that the table files stay open and can be read when the server has deleted them.
  options.max_open_files = -1;
  // The secondary finds log files that are in the manifest and deleted already.
  options.track_and_verify_wals_in_manifest = false;
  rocksdb::DB* opened = nullptr;
  rocksdb::Status status;
  {
    // Only for RocksDB's own log, which goes elsewhere: not needed once it is open, so that
    // nothing is left behind when the tool is interrupted.
    auto scratch = ScratchDirectory::make();
    if (!scratch) return std::move(scratch).error();
    status = rocksdb::DB::OpenAsSecondary(options, (directory / "db").string(),
                                          scratch->where().string(), &opened);
  }
  std::unique_ptr<rocksdb::DB> database(opened);
  if (!status.ok()) return about(directory / "db", error_of(status));

  const auto after = file_list(directory / "db");
  if (!after) return after.error();
  if (!(*before == *after)) {
    return Error(Errc::in_use,
                 directory.string() + " changes too fast to be opened: try again in a moment");
  }
  read_reservation(directory / "position", noted);

  std::unique_ptr<StoreReader> reader(new StoreReader(
      directory, std::nullopt, std::move(noted), std::make_unique<Records>(std::move(database))));
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
      problem = Error(Errc::corrupt, "record " + escaped(place) + " is missing");
      return;
    }
    auto decoded = decode(place, **bytes);
    if (decoded) record = *std::move(decoded);
    if (!decoded) problem = std::move(decoded).error();
  };
  load(core::kIdentityKey, meta.identity, core::decode_identity);
  load(core::kAllocatorKey, meta.allocator, core::decode_allocator);
  load(core::kPositionKey, meta.position, core::decode_position);
  if (!problem && meta.identity.boots.all().empty()) {
    problem = Error(Errc::corrupt, "record midentity names no boot");
  }
  if (problem) return about(directory_ / "db", *problem);
  return meta;
}

Result<void> StoreReader::check_position(const StoredMeta& meta) const {
  if (!noted_.newest) return noted_.newest.error();
  const auto& slot = *noted_.newest;
  if (slot.n > 0 && slot.incarnation != meta.identity.incarnation) {
    return Error(Errc::corrupt, (directory_ / "position").string() + " belongs to another store");
  }
  if (meta.position.n >= slot.n || may_have_lost()) return {};
  return Error(Errc::corrupt, (directory_ / "db").string() + " is behind: it ends at group " +
                                  std::to_string(meta.position.n) + ", but group " +
                                  std::to_string(slot.n) +
                                  " was acknowledged. A log file is missing or cut short");
}

bool StoreReader::is_same_boot() const {
  return noted_.newest && noted_.newest->boot_id == clock_->boot_id();
}

bool StoreReader::may_have_lost() const {
  if (!noted_.newest) return false;
  const auto& slot = *noted_.newest;
  return slot.durability == Durability::process && !slot.is_clean && slot.n > 0 && !is_same_boot();
}

LeaseStanding StoreReader::standing(const StoredMeta& meta, const core::LeaseRecord& lease) const {
  auto boots = meta.identity.boots;
  boots.enter(clock_->boot_id(), now_, meta.position.clock);

  switch (core::standing(&lease, meta.allocator.floor, boots, now_)) {
    case core::Standing::held:
      return {.state = "held", .remaining = core::remaining(lease, boots, now_)};
    case core::Standing::never_held:
    case core::Standing::expired:
      return {.state = "expired", .remaining = std::nullopt};
    case core::Standing::fenced_off:
      return {.state = "floor", .remaining = std::nullopt};
    case core::Standing::closed:
      break;
  }
  if (lease.end == core::GrantEnd::revoked) return {.state = "revoked", .remaining = std::nullopt};
  if (lease.end == core::GrantEnd::disconnected) {
    return {.state = "disconnected", .remaining = std::nullopt};
  }
  return {.state = "released", .remaining = std::nullopt};
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
    rocksdb::SstFileReader table(database_options({}));
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
