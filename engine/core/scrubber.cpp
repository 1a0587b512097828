// SPDX-License-Identifier: Apache-2.0
#include "engine/core/scrubber.h"

#include "engine/core/group.h"
#include "engine/core/record.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fencekv::core {
namespace {

// A page ends at either: a snapshot lives no longer than reading so much takes.
constexpr std::size_t kPageRecords = 1024;
constexpr std::size_t kPageBytes = std::size_t{1024} * 1024;

// The first pass comes after this part of the interval: a process that is restarted every day is
// looked through all the same.
constexpr int kFirstPart = 24;

// How often the own thread looks how the storage is.
constexpr std::chrono::milliseconds kTick{1000};

Error closing() {
  return {Errc::unreachable, "the store is being closed"};
}

std::string subject(std::string_view kind, std::string_view name) {
  return std::string(kind) + " " + escaped(name) + ": ";
}

std::optional<std::string> fault_of_grant(const std::string& lease, const GrantRecord& grant,
                                          Token newest) {
  if (grant.token <= newest) return std::nullopt;
  return lease + "its token " + std::to_string(grant.token.number()) +
         " is above the newest one, " + std::to_string(newest.number());
}

std::optional<std::string> fault_of_lease(Snapshot& snapshot, Token newest, std::string_view place,
                                          std::string_view bytes) {
  const auto record = decode_lease(place, bytes);
  if (!record) return record.error().detail();
  const auto name = place.substr(1);
  if (record->others > 0) {
    const auto grants = read_grants(snapshot, name, record->others);
    if (!grants && grants.error().code() == Errc::corrupt) return grants.error().detail();
  }
  return fault_of_grant(subject("lease", name), record->newest, newest);
}

std::optional<std::string> fault_of_further_grant(Snapshot& snapshot, std::string_view place,
                                                  std::string_view bytes) {
  const auto record = decode_grant(place, bytes);
  if (!record) return record.error().detail();
  const auto where = parse_grant_place(place);
  if (!where) return "record " + escaped(place) + ": unknown kind";
  const auto lease_at = lease_place(where->name);
  const auto bytes_of_lease = snapshot.read(lease_at);
  if (!bytes_of_lease) return std::nullopt;  // a finding of its own
  if (!*bytes_of_lease) {
    return subject("lease", where->name) + "it was never granted, but has further grants";
  }
  const auto lease = decode_lease(lease_at, **bytes_of_lease);
  if (!lease) return std::nullopt;  // found where it stands
  if (record->token < lease->newest.token) return std::nullopt;
  return subject("lease", where->name) + "its fence is not above the token of an older grant";
}

/// The newest token that a snapshot knows; none if that cannot be read, which is found elsewhere.
Result<Token> newest_token(Snapshot& snapshot) {
  const auto bytes = snapshot.read(kAllocatorKey);
  if (!bytes) return bytes.error();
  const auto allocator = decode_allocator(kAllocatorKey, bytes->value_or(""));
  return allocator ? allocator->newest : Token(Token::kMax);
}

}  // namespace

std::optional<std::string> fault_of_record(Snapshot& snapshot, Token newest, std::string_view place,
                                           std::string_view bytes) {
  const auto detail_of = [](const auto& decoded) {
    return decoded ? std::nullopt : std::optional(decoded.error().detail());
  };
  switch (place.empty() ? '\0' : place.front()) {
    case kKeyPrefix: {
      const auto record = decode_key(place, bytes);
      if (!record) return record.error().detail();
      const bool was_written = record->value || record->request || !record->written_by.is_none();
      if (record->version == 0 && was_written) {
        return subject("key", place.substr(1)) + "it was written, but its version is 0";
      }
      return std::nullopt;
    }
    case kLeasePrefix:
      return fault_of_lease(snapshot, newest, place, bytes);
    case kGrantPrefix:
      return fault_of_further_grant(snapshot, place, bytes);
    case kMetaPrefix:
      if (place == kPositionKey) return detail_of(decode_position(place, bytes));
      if (place == kAllocatorKey) return detail_of(decode_allocator(place, bytes));
      if (place == kIdentityKey) return detail_of(decode_identity(place, bytes));
      break;
    default:
      break;
  }
  return "record " + escaped(place) + ": unknown kind";
}

/// The files of the storage, at the pace of the pass.
class Scrubber::Files final : public IntegrityListener {
 public:
  Files(Scrubber& scrubber, Scrubbed& sum, Pace pace)
      : scrubber_(scrubber), sum_(sum), pace_(pace) {}

  bool verified(std::uint64_t bytes) override {
    sum_.bytes += bytes;
    is_going_on_ = scrubber_.rest(bytes, pace_);
    return is_going_on_;
  }
  void problem(const std::string& what) override { scrubber_.found(sum_, what); }

  bool is_going_on() const { return is_going_on_; }

 private:
  Scrubber& scrubber_;
  Scrubbed& sum_;
  const Pace pace_;
  bool is_going_on_ = true;
};

Scrubber::Scrubber(Backend& backend, const Options& options, bool own_thread)
    : backend_(backend), options_(options) {
  const bool is_on = options.scrub_interval.count() > 0 && options.scrub_bytes_per_second > 0;
  if (own_thread && is_on) thread_ = std::thread([this] { work(); });
}

Scrubber::~Scrubber() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<Scrubbed> Scrubber::scrub() {
  return scrub(Pace::fast);
}

Scrubber::Last Scrubber::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

Result<Scrubbed> Scrubber::scrub(Pace pace) {
  const std::lock_guard one(one_at_a_time_);
  Scrubbed sum;
  if (auto files = scrub_files(sum, pace); !files) return files.error();
  if (auto records = scrub_records(sum, pace); !records) return records.error();
  if (sum.problems > sum.findings.size() && options_.log) {
    options_.log(LogLevel::error,
                 "scrub: " + std::to_string(sum.problems - sum.findings.size()) + " more problems");
  }
  const std::lock_guard lock(mutex_);
  last_ = {.ended = options_.clock->wall(), .found = sum};
  return sum;
}

Result<void> Scrubber::scrub_files(Scrubbed& sum, Pace pace) {
  Files files(*this, sum, pace);
  backend_.check_integrity(files);
  if (!files.is_going_on()) return closing();
  return {};
}

Result<void> Scrubber::scrub_records(Scrubbed& sum, Pace pace) {
  constexpr std::array kPrefixes{kGrantPrefix, kKeyPrefix, kLeasePrefix, kMetaPrefix};
  static_assert(kPrefixes[0] < kPrefixes[1] && kPrefixes[1] < kPrefixes[2] &&
                kPrefixes[2] < kPrefixes[3]);

  std::string from;
  for (bool is_done = false; !is_done;) {
    std::size_t records = 0;
    std::size_t bytes_read = 0;
    {
      const auto snapshot = backend_.snapshot();
      const auto newest = newest_token(*snapshot);
      if (!newest && newest.error().code() != Errc::corrupt) return newest.error();
      is_done = true;
      std::string last;
      const auto scanned =
          snapshot->scan(from, [&](std::string_view place, std::string_view bytes) {
            if (records == kPageRecords || bytes_read >= kPageBytes) {
              from = place;
              is_done = false;
              return false;
            }
            ++records;
            bytes_read += place.size() + bytes.size();
            last = place;
            const auto fault =
                fault_of_record(*snapshot, newest ? *newest : Token(Token::kMax), place, bytes);
            if (fault) found(sum, *fault);
            return true;
          });
      if (!scanned) {
        if (scanned.error().code() != Errc::corrupt) return scanned;
        found(sum, "records after " + (last.empty() ? "the first" : escaped(last)) +
                       " cannot be read: " + scanned.error().detail());
        // A scan does not get past a damaged block, and nothing says where the next one begins. So
        // it goes on with the next kind of record; the blocks themselves are all verified.
        const auto seen = last.empty() ? from : last;
        const auto* next = std::find_if(kPrefixes.begin(), kPrefixes.end(), [&](char prefix) {
          return seen.empty() ||
                 prefix > std::max(seen.front(), from.empty() ? '\0' : from.front());
        });
        is_done = next == kPrefixes.end();
        if (!is_done) from = std::string(1, *next);
      }
    }
    sum.records += records;
    sum.bytes += bytes_read;
    if (!rest(bytes_read, pace)) return closing();
  }
  return {};
}

void Scrubber::found(Scrubbed& sum, const std::string& what) const {
  if (sum.problems++ >= kFindings) return;
  sum.findings.push_back(what);
  if (!options_.log) return;
  options_.log(
      LogLevel::error,
      "scrub: " + what +
          ". Keep a copy of the directory; `fencekv-admin verify` lists all that is wrong, "
          "and `fencekv-admin restore` or `fencekv-admin repair` mends it");
}

bool Scrubber::rest(std::uint64_t bytes, Pace pace) {
  std::unique_lock lock(mutex_);
  const auto is_stopping = [this] { return stopping_; };
  if (pace == Pace::fast) return !stopping_;
  const auto pause = std::chrono::duration<double>(
      static_cast<double>(bytes) / static_cast<double>(options_.scrub_bytes_per_second));
  return !stop_.wait_for(lock, std::chrono::duration_cast<std::chrono::nanoseconds>(pause),
                         is_stopping);
}

void Scrubber::work() {
  const auto log = [this](LogLevel level, const std::string& line) {
    if (options_.log) options_.log(level, line);
  };
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  auto due = clock() + options_.scrub_interval / kFirstPart;
  std::unique_lock lock(mutex_);
  while (true) {
    const auto wait = std::min<std::chrono::nanoseconds>(kTick, due - clock());
    if (stop_.wait_for(lock, wait, [this] { return stopping_; })) return;
    lock.unlock();
    // In a store that nobody uses nobody else would notice, and RocksDB tries again and again.
    backend_.space(options_.clock->since_boot());
    backend_.ailment();
    if (clock() >= due) {
      const auto found = scrub(Pace::slow);
      if (!found && found.error().code() != Errc::unreachable) {
        log(LogLevel::warning, "scrub: not completed: " + found.error().line());
      } else if (found) {
        log(found->problems > 0 ? LogLevel::error : LogLevel::note,
            "scrub: " + std::to_string(found->records) + " records and " +
                std::to_string(found->bytes) + " bytes read, " + std::to_string(found->problems) +
                " problems");
      }
      due = clock() + options_.scrub_interval;
    }
    lock.lock();
  }
}

}  // namespace fencekv::core
