// SPDX-License-Identifier: Apache-2.0
/// The state that the commands of one group see: what is committed, under what the group has
/// changed so far. At the end it becomes the one batch that makes all of it true, or is thrown
/// away.

#pragma once

#include "engine/core/backend.h"
#include "engine/core/fence_cache.h"
#include "engine/core/known_keys.h"
#include "engine/core/lease_cache.h"
#include "engine/core/memory_shares.h"
#include "engine/core/name_hash.h"
#include "engine/core/place_filter.h"
#include "engine/core/rejection_log.h"
#include "engine/core/rules.h"

#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencekv::core {

/// The small records that every group needs, as they are committed.
struct Meta {
  /// Shared, since every group has a copy of this and hardly any changes it.
  std::shared_ptr<const IdentityRecord> identity;
  AllocatorRecord allocator;
  PositionRecord position;
  /// Tokens up to this one are reserved: they may have been handed out by an earlier writer.
  Token reserved;
  /// The newest token that must not be drawn again, though no record knows it as handed out.
  Token skip;
  /// The running process, as in Origin: the epoch in which it first became the writer. 0: not yet.
  std::uint64_t process = 0;
  std::chrono::nanoseconds process_began{0};
};

/// What lives as long as the process, whatever becomes of a group.
struct Memory {
  /// Where no filter is worth its memory, there is one that knows nothing.
  explicit Memory(const Options& options)
      : fences(shares_of(options).fences),
        places(shares_of(options).places),
        fence_retention(options.fence_retention) {}

  Sessions sessions;
  Waiters waiters;
  LeaseCache leases;
  FenceCache fences;
  PlaceFilter places;
  // Of the group that there is. The next one uses their memory again.
  KnownKeys keys;
  Batch batch;
  std::chrono::nanoseconds fence_retention;

  /// The storage may be other than what is remembered of it. What was to be stored is in `places`
  /// since before, so that it still knows of all there may be.
  void forget_records() {
    leases.clear();
    fences.clear();
  }
};

/// The further grants of a lease whose record says that it has `count` of them. Errors: corrupt;
/// misconf.
Result<std::vector<GrantRecord>> read_grants(Snapshot& snapshot, std::string_view name,
                                             std::size_t count);

class Group final : public State {
 public:
  /// Tokens are reserved in blocks of this many: a crash leaves a gap of at most one block.
  static constexpr std::uint64_t kReservedTokens = 65536;

  /// What a group may do.
  enum class Mode {
    change,
    look,  ///< Nothing durable: the storage takes no writes.
  };

  /// `backend`, `memory` and `rejections` must outlive the group. There is one group at a time.
  Group(Backend& backend, Memory& memory, Meta meta, RejectionLog& rejections,
        Mode mode = Mode::change)
      : backend_(backend),
        memory_(memory),
        meta_(std::move(meta)),
        rejections_(rejections),
        mode_(mode),
        keys_(memory.keys) {
    assert(keys_.empty());
  }
  /// What it took from the cache and left as it was goes back.
  ~Group() override;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Says who asks from here on, for the log of refusals.
  void begin(std::string_view client, std::chrono::milliseconds wall) {
    client_ = client;
    wall_ = wall;
  }

  Result<const KeyRecord*> key(std::string_view key) override;
  Result<const KeyRecord*> fence(std::string_view key) override;
  const KeyRecord& put_key(std::string_view key, KeyRecord record) override;
  Result<const Lease*> lease(std::string_view name) override;
  Lease& change_lease(std::string_view name) override;
  void put_lease(std::string_view name, Lease lease) override;

  Token newest() const override { return meta_.allocator.newest; }
  Token floor() const override { return meta_.allocator.floor; }
  const Boots& boots() const override { return meta_.identity->boots; }
  std::uint64_t process() const override { return meta_.process; }
  std::chrono::nanoseconds process_began() const override { return meta_.process_began; }
  std::chrono::nanoseconds fence_retention() const override { return memory_.fence_retention; }
  void lift_floor(Token floor) override;
  void erase_key(std::string_view key) override;
  void erase_lease(std::string_view name) override;
  Result<Token> draw() override;
  bool is_frozen() const override { return mode_ == Mode::look; }

  const Sessions& sessions() const override { return memory_.sessions; }
  Waiters& waiters() override { return memory_.waiters; }
  void answer(Ticket ticket, Result<Reply> reply) override {
    answers_.emplace_back(ticket, std::move(reply));
  }
  void happened(LeaseEvent event) override {
    events_.push_back({.event = std::move(event), .watch = memory_.waiters.newest_watch()});
  }
  void unbind(std::uint64_t session, std::string_view name, Token token) override {
    unbound_.push_back({.session = session, .name = std::string(name), .token = token});
  }
  void refused(std::string_view key, const std::optional<std::string>& lease, Token offered,
               const Error& error) override;

  /// Lifts the floor above every token that may ever have been handed out.
  void lift_floor_over_all();
  void set_identity(IdentityRecord identity);
  void set_allocator(AllocatorRecord allocator);

  bool is_changed() const { return changed_; }

  /// The batch that moves the store from the committed position to the next one. It is in `memory`,
  /// as long as this group lives.
  const Batch& batch(std::uint64_t epoch, std::chrono::nanoseconds clock);

  /// The batch is committed: what the group knows of leases goes into the cache.
  void committed();

  /// The small records as they are with this group's changes.
  const Meta& meta() const { return meta_; }

  /// Answers to commands that waited, in order.
  std::vector<std::pair<Ticket, Result<Reply>>> take_answers() { return std::move(answers_); }
  struct Happened {
    LeaseEvent event;
    std::uint64_t watch;  ///< The newest watch then: later ones are not told.
  };
  /// What those who watch are to be told, in order.
  const std::vector<Happened>& events() const { return events_; }

 private:
  struct LeaseEntry {
    std::optional<Lease> record;
    bool changed = false;
  };

  Result<std::optional<std::string>> read(std::string_view place);
  Result<const KeyRecord*> look_up(const HashedName& key);
  Result<std::optional<KeyRecord>> load_key(std::string_view key);
  Result<Lease> load_lease(std::string_view name, LeaseRecord record);

  struct Unbound {
    std::uint64_t session;
    std::string name;
    Token token;
  };

  Backend& backend_;
  Memory& memory_;
  Meta meta_;
  RejectionLog& rejections_;
  const Mode mode_;
  std::string_view client_;
  std::chrono::milliseconds wall_{0};

  KnownKeys& keys_;  // the memory's, empty at the beginning and in the end
  std::unordered_map<std::string, LeaseEntry, NameHash, std::equal_to<>> leases_;
  std::vector<std::pair<Ticket, Result<Reply>>> answers_;
  std::vector<Happened> events_;
  std::vector<Unbound> unbound_;
  std::vector<std::string> erased_;  // places of further grants whose lease is erased
  bool changed_ = false;
  bool allocator_changed_ = false;
  bool identity_changed_ = false;
};

}  // namespace fencekv::core
