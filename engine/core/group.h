// SPDX-License-Identifier: Apache-2.0
/// The state that the commands of one group see: what is committed, under what the group has
/// changed so far. At the end it becomes the one batch that makes all of it true, or is thrown
/// away.

#pragma once

#include "engine/core/backend.h"
#include "engine/core/rejection_log.h"
#include "engine/core/rules.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

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
};

class Group final : public State {
 public:
  /// Tokens are reserved in blocks of this many: a crash leaves a gap of at most one block.
  static constexpr std::uint64_t kReservedTokens = 65536;

  /// `backend` and `rejections` must outlive the group.
  Group(Backend& backend, Meta meta, RejectionLog& rejections)
      : backend_(backend), meta_(std::move(meta)), rejections_(rejections) {}

  /// Says who asks from here on, for the log of refusals.
  void begin(std::string_view client, std::chrono::milliseconds wall) {
    client_ = client;
    wall_ = wall;
  }

  Result<const KeyRecord*> key(std::string_view key) override;
  Result<const LeaseRecord*> lease(std::string_view name) override;
  const KeyRecord& put_key(std::string_view key, KeyRecord record) override;
  const LeaseRecord& put_lease(std::string_view name, LeaseRecord record) override;
  Token newest() const override { return meta_.allocator.newest; }
  Token floor() const override { return meta_.allocator.floor; }
  const Boots& boots() const override { return meta_.identity->boots; }
  Result<Token> draw() override;
  void refused(std::string_view key, const std::optional<std::string>& lease, Token offered,
               const Error& error) override;

  /// Lifts the floor above every token that may ever have been handed out.
  void lift_floor();
  void set_identity(IdentityRecord identity);
  void set_allocator(AllocatorRecord allocator);

  bool is_changed() const { return changed_; }

  /// The batch that moves the store from the committed position to the next one.
  Batch batch(std::uint64_t epoch, std::chrono::nanoseconds clock);

  /// The small records as they are with this group's changes.
  const Meta& meta() const { return meta_; }

 private:
  // Names are looked up as views into the request, without making a string each time.
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>{}(name);
    }
  };
  template <class Record>
  struct Entry {
    std::optional<Record> record;
    bool changed = false;
  };
  template <class Record>
  using Entries = std::unordered_map<std::string, Entry<Record>, NameHash, std::equal_to<>>;

  template <class Record>
  using Decode = Result<Record> (*)(std::string_view place, std::string_view bytes);

  template <class Record>
  Result<Entry<Record>*> entry(Entries<Record>& entries, char prefix, std::string_view name,
                               Decode<Record> decode);

  Backend& backend_;
  Meta meta_;
  RejectionLog& rejections_;
  std::string_view client_;
  std::chrono::milliseconds wall_{0};

  Entries<KeyRecord> keys_;
  Entries<LeaseRecord> leases_;
  bool changed_ = false;
  bool allocator_changed_ = false;
  bool identity_changed_ = false;
};

}  // namespace fencekv::core
