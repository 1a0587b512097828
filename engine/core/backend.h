// SPDX-License-Identifier: Apache-2.0
/// The narrow waist: an ordered byte map that belongs to one writer at a time. Everything above
/// this seam is the same for every place where bytes can live.
///
/// Every group moves the store's position from (epoch, n) to (epoch, n + 1), in the same atomic
/// step as its puts and deletes. That one compare orders the groups and shuts out a writer that was
/// deposed. Exactly one group is in flight per store, so commit() may block its caller: nothing
/// else could be done meanwhile, and commands go on arriving in the committer's queue.

#pragma once

#include "engine/core/record.h"
#include "fencekv/result.h"
#include "fencekv/store.h"
#include "fencekv/types.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::core {

/// A record and where it stands.
struct Put {
  std::string place;
  std::string bytes;
};

/// Records and where they stand, one behind the other in two buffers: they take no memory one by
/// one, and none at all where that of what was cleared is enough.
class Puts {
 public:
  /// Valid until the next change.
  struct View {
    std::string_view place;
    std::string_view bytes;
  };
  class Iterator {
   public:
    Iterator(const Puts& puts, std::size_t index) : puts_(puts), index_(index) {}
    View operator*() const { return puts_[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const Puts& puts_;
    std::size_t index_;
  };

  /// Its place is both parts together. Returns the place, as in View.
  template <class Record>
  std::string_view add(std::string_view prefix, std::string_view rest, const Record& record) {
    const auto begin = places_.size();
    places_.append(prefix).append(rest);
    const auto place = std::string_view(places_).substr(begin);
    encode(place, record, bytes_);
    ends_.push_back({.place = places_.size(), .bytes = bytes_.size()});
    return place;
  }
  void add(std::string_view place, std::string_view bytes) {
    places_ += place;
    bytes_ += bytes;
    ends_.push_back({.place = places_.size(), .bytes = bytes_.size()});
  }

  /// Keeps the memory, unless there was much more than most groups need.
  void clear() {
    constexpr std::size_t kKeptBytes = std::size_t{1} << 20U;
    if (places_.capacity() + bytes_.capacity() > kKeptBytes) {
      *this = {};
      return;
    }
    places_.clear();
    bytes_.clear();
    ends_.clear();
  }

  std::size_t size() const { return ends_.size(); }
  /// Of all places and records together.
  std::size_t bytes() const { return places_.size() + bytes_.size(); }
  View operator[](std::size_t index) const {
    const auto begin = index == 0 ? End{} : ends_[index - 1];
    const auto end = ends_[index];
    return {.place = std::string_view(places_).substr(begin.place, end.place - begin.place),
            .bytes = std::string_view(bytes_).substr(begin.bytes, end.bytes - begin.bytes)};
  }
  View back() const { return (*this)[size() - 1]; }
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  struct End {
    std::size_t place = 0;
    std::size_t bytes = 0;
  };

  std::string places_;
  std::string bytes_;
  std::vector<End> ends_;
};

/// What one group changes. The last put of `puts` is the position record, moved to `position`.
struct Batch {
  Puts puts;
  /// Places that hold no record afterwards; whether they held one before does not matter. None is
  /// also put.
  std::vector<std::string> deletes;
  PositionRecord position;
};

/// How a commit ended.
enum class Outcome {
  committed,  ///< In full, and as durable as promised.
  refused,    ///< Certainly nothing happened.
  unknown,    ///< In full or not at all; nobody knows. No further group until settle().
};

/// What a new writer must know beyond the records.
struct Claim {
  /// Tokens up to this one may have been handed out, even if no record says so.
  Token reserved;
  /// Acknowledged groups may be missing, as the promise of Durability::process allows.
  bool may_have_lost = false;
};

/// How much more the storage can take. Bytes.
struct Space {
  SpaceLevel level = SpaceLevel::enough;
  std::uint64_t free = 0;        ///< On the disk.
  std::uint64_t room = 0;        ///< Of that, what is not needed for what is written already.
  std::uint64_t soft_floor = 0;  ///< 0: none.
  std::uint64_t hard_floor = 0;  ///< 0: none.
};

/// `40 MiB of room are left (52 MiB free), below the soft floor of 51 MiB: …`
std::string describe(const Space& space);

/// What long work asks now and then: an Error to stop with.
using Interrupt = std::function<std::optional<Error>()>;

/// A view of one point in time. Thread safety: one thread at a time.
class Snapshot {
 public:
  virtual ~Snapshot() = default;

  /// nullopt: no record. Errors: corrupt; misconf when the storage cannot be read at all.
  virtual Result<std::optional<std::string>> read(std::string_view place) = 0;

  /// Visits records in the order of their places, from the first that is not below `from`, until
  /// `visit` returns false or there are no more.
  virtual Result<void> scan(
      std::string_view from,
      const std::function<bool(std::string_view place, std::string_view bytes)>& visit) = 0;
};

/// What an integrity check of the storage itself hears and answers.
class IntegrityListener {
 public:
  virtual ~IntegrityListener() = default;
  /// So many bytes of one piece were verified. False: the check shall end at once.
  virtual bool verified(std::uint64_t bytes) = 0;
  /// One sentence that names the file.
  virtual void problem(const std::string& what) = 0;
};

/// Thread safety: read(), snapshot(), backup(), space(), failed_behind(), ailment() and
/// check_integrity() may be called at any time; all else by the one writer.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Becomes the writer. Changes nothing itself: the first group that is committed after it carries
  /// a new epoch, and from then on no group of an older writer lands.
  ///
  /// Errors: corrupt, acknowledged groups are missing that should be there; misconf, the storage
  /// takes no writes now.
  virtual Result<Claim> claim() = 0;

  /// As Snapshot::read(), from what is committed now.
  virtual Result<std::optional<std::string>> read(std::string_view place) = 0;

  virtual std::unique_ptr<Snapshot> snapshot() = 0;

  /// Applies the batch, all or nothing.
  virtual Outcome commit(const Batch& batch) = 0;

  /// Promises, durably and independently of every batch, that no later writer hands out a token up
  /// to `until`. Errors: misconf, nothing was promised.
  virtual Result<void> reserve(Token until) = 0;

  /// After Outcome::unknown, or a claim() that failed with misconf: makes the state certain again,
  /// so that claim() can be tried. Errors: misconf, try again later; corrupt.
  virtual Result<void> settle() = 0;

  /// How much it can still take. Cheap: asks the disk now and then only. `now` is the clock's
  /// since_boot().
  virtual Space space(std::chrono::nanoseconds /*now*/) { return {}; }

  /// What failed without a group: commit() could not succeed, and settle() is due. Cheap.
  virtual std::optional<std::string> failed_behind() { return std::nullopt; }

  /// What is wrong with the storage though every group can be committed, and what to do about it.
  virtual std::optional<std::string> ailment() { return std::nullopt; }

  /// Verifies what lies below the records, piece by piece, no longer than one piece at a time.
  virtual void check_integrity(IntegrityListener& /*listener*/) {}

  /// As Store::backup(); `taken` is the wall clock. At any time. `interrupt` is asked now and then:
  /// an Error ends it.
  virtual Result<Backup> backup(const std::filesystem::path& /*target*/,
                                std::chrono::milliseconds /*taken*/,
                                const Interrupt& /*interrupt*/) {
    return Error(Errc::invalid, "a store in memory is gone with its process: it has no backup");
  }

  /// A clean end: everything is durable from here on, `newest` is all that was handed out.
  virtual void close(Token newest) = 0;
};

}  // namespace fencekv::core
