// SPDX-License-Identifier: Apache-2.0
/// Records of keys that were read lately, as they are committed: a read of such a key asks no
/// storage.
///
/// A reader looks, and what it does not find it reads from the storage and gives to keep():
///
///     const auto look = cache.find(key);
///     if (look.record) return look.record->state();
///     auto state = …;                   // from the storage, as it is since the look
///     cache.keep(key, look, state);
///
/// Whoever leads the committer tells of every group, and of every time that the storage may become
/// another:
///
///     cache.begin(batch);             // which lives until the end
///     cache.end(backend.commit(batch));
///
///     cache.stop();
///     …                                 // reopens the storage
///     cache.resume();
///
/// What makes this as good as asking the storage: **at every moment, a record that is in the cache
/// is the one that a read of the storage would find.** For the storage changes only within a commit
/// or a reopening; and
///
/// - before a commit, begin() takes out the keys that it is about. So nobody finds an older record
///   here once anybody can have seen the newer one there;
/// - from then on until end(), nothing is kept for these keys, nor is it ever from a look that was
///   before end(): a look notes how many commits have begun that may be about its key, and keep()
///   takes only what was read while there were none under way and none has begun since. So a reader
///   that read the older record before the commit, or during it, and comes back late, leaves
///   nothing;
/// - end() puts the new record in the place of one that it took out, if it is certainly there. If
///   the outcome is unknown, the storage may come back with the group or without: nothing is kept,
///   of any key, before it has;
/// - stop() and resume() are begin() and end() of all keys.
///
/// A read is then at one point in time: that of its look, or that of its read of the storage. Of
/// several keys, all are looked for while nothing can be taken out or put in; records that are
/// there together at one moment are the committed ones of that moment.
///
/// Keys without a record are not kept (PlaceFilter knows them), nor are long values, which cost
/// more to copy than to find.
///
/// Bounded by two generations, as FenceCache; in many shards, so that readers seldom meet and no
/// lock is held for long: under it, nothing is copied and hardly anything freed.

#pragma once

#include "engine/core/backend.h"
#include "engine/core/shard_count.h"
#include "fencekv/types.h"

#include <boost/unordered/unordered_flat_set.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::core {

/// A record and its key in one piece of memory. Never changes; lives as long as somebody has it.
class CachedRecord {
 public:
  /// A share in a record, or none. It counts in the record: that is one piece of memory less, and
  /// half the size, of what a std::shared_ptr needs.
  class Ref {
   public:
    Ref() = default;
    explicit Ref(const CachedRecord* record) : record_(record) {
      if (record_ != nullptr) record_->references_.fetch_add(1, std::memory_order_relaxed);
    }
    Ref(const Ref& other) : Ref(other.record_) {}
    Ref(Ref&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
    Ref& operator=(Ref other) noexcept {
      std::swap(record_, other.record_);
      return *this;
    }
    ~Ref() {
      if (record_ != nullptr) record_->let_go();
    }

    explicit operator bool() const { return record_ != nullptr; }
    const CachedRecord* operator->() const { return record_; }
    const CachedRecord& operator*() const { return *record_; }

   private:
    const CachedRecord* record_ = nullptr;
  };

  /// None: there is no memory for it.
  static Ref make(std::size_t hash, std::string_view key, const KeyState& state);

  std::size_t hash() const { return hash_; }
  std::string_view key() const { return {bytes(), key_size_}; }
  KeyState state() const;
  /// Of the key, the value and the names.
  std::size_t size() const { return key_size_ + value_size_ + guard_size_ + request_size_; }

  CachedRecord(const CachedRecord&) = delete;
  CachedRecord& operator=(const CachedRecord&) = delete;

 private:
  CachedRecord(std::size_t hash, std::string_view key, const KeyState& state);

  /// Key, value, guard and request, one behind the other, come behind this object.
  const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }

  void let_go() const;

  mutable std::atomic<std::uint32_t> references_ = 0;
  bool has_value_;
  bool has_guard_;
  bool has_request_;
  std::uint32_t key_size_;
  std::uint32_t value_size_;
  std::uint32_t guard_size_;
  std::uint32_t request_size_;
  std::size_t hash_;
  Token fence_;
  std::uint64_t version_;
  std::chrono::milliseconds written_;
};

/// Thread safety: find(), find_together(), keep() and size() may be called concurrently with
/// everything; all else by whoever leads the committer.
class ReadCache {
 public:
  /// Longer values are not kept.
  static constexpr std::size_t kLongestValue = std::size_t{64} * 1024;
  /// More keys than that are not looked for at once: the locks are held meanwhile.
  static constexpr std::size_t kMostTogether = 64;
  /// What a record occupies beyond the bytes of its key, value and names, about.
  static constexpr std::size_t kRecordBytes = 96;

  struct Look {
    CachedRecord::Ref record;  ///< None: it is not in the cache.
    std::size_t hash = 0;
    /// How many commits had begun that may be about the key; nullopt: one was under way.
    std::optional<std::uint64_t> begun;
  };

  /// `bytes`: how much it may occupy, about. 0: it knows nothing.
  explicit ReadCache(std::size_t bytes);

  Look find(std::string_view key);
  /// All at one moment. Beyond kMostTogether, nothing is found.
  std::vector<Look> find_together(const std::vector<std::string>& keys);

  /// `state` is of a record, which the storage held at one moment since the `look`.
  void keep(std::string_view key, const Look& look, const KeyState& state);

  /// The batch will now be committed. One at a time: end() follows, and the batch lives until then.
  void begin(const Batch& batch);
  /// It has been, in this way. If that is unknown, stop() has been called.
  void end(Outcome outcome);

  /// The storage may become another from here on: nothing is known any more, or kept. Of no effect
  /// if it has been called already.
  void stop();
  /// The storage is certain again.
  void resume();

  /// Records in it.
  std::size_t size() const;

 private:
  struct Sought {
    std::size_t hash;
    std::string_view key;
  };
  struct RecordHash {
    using is_transparent = void;
    std::size_t operator()(const CachedRecord::Ref& record) const { return record->hash(); }
    std::size_t operator()(const Sought& sought) const { return sought.hash; }
  };
  struct SameKey {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return key_of(a) == key_of(b);
    }
    static std::string_view key_of(const CachedRecord::Ref& record) { return record->key(); }
    static std::string_view key_of(const Sought& sought) { return sought.key; }
  };
  using Generation = boost::unordered_flat_set<CachedRecord::Ref, RecordHash, SameKey>;

  /// The commits that may be about a key. Keys share them: with fewer than there are keys, and more
  /// than there are shards, those that are not written are seldom concerned.
  struct Commits {
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
  };
  static constexpr std::size_t kCommitsOfShard = 64;
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    // All guarded by mutex.
    Generation young;
    Generation old;
    std::size_t bytes = 0;  // of the young one
    std::array<Commits, kCommitsOfShard> commits{};
  };
  /// A key of the group under way.
  struct Written {
    std::size_t hash;
    std::optional<Puts::View> put;  // nullopt: it is not to be put back
  };

  static std::size_t hash_of(std::string_view key) { return std::hash<std::string_view>{}(key); }
  static std::size_t weight(const CachedRecord& record) { return kRecordBytes + record.size(); }
  std::size_t shard_number(std::size_t hash) const { return hash >> shard_shift_; }
  // What is dropped under a lock is freed without it, with `dropped`.
  using Dropped = std::vector<Generation>;
  static Commits& commits_of(Shard& shard, std::size_t hash) {
    return shard.commits[(hash >> 40U) % kCommitsOfShard];
  }
  Look find_locked(Shard& shard, const Sought& sought, Dropped& dropped) const;
  void put_locked(Shard& shard, CachedRecord::Ref record, Dropped& dropped) const;
  static bool take_out_locked(Shard& shard, const Sought& sought);
  CachedRecord::Ref record_of(const Sought& sought, const KeyState& state) const;
  CachedRecord::Ref record_of(std::size_t hash, const Puts::View& put) const;

  const std::size_t shard_count_;  // a power of two
  const unsigned shard_shift_;
  const std::size_t shard_bytes_;
  const std::unique_ptr<Shard[]> shards_;  // nullptr: it knows nothing
  std::vector<Written> written_;           // the leader's
  bool stopped_ = false;                   // the leader's
};

}  // namespace fencekv::core
