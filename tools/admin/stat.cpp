// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/stat.h"

#include "engine/core/record.h"
#include "tools/admin/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencekv::admin {
namespace {

std::string_view word(Durability durability) {
  return durability == Durability::sync ? "sync" : "process";
}

/// What is held at the moment of the reading.
struct HeldLeases {
  std::uint64_t names = 0;  ///< That have a holder.
  std::uint64_t exclusive = 0;
  std::uint64_t shared = 0;
  std::uint64_t permit = 0;
  std::uint64_t bound = 0;    ///< Of all these holders.
  std::uint64_t blocked = 0;  ///< Names that nobody new can be granted for a time.

  std::uint64_t holders() const { return exclusive + shared + permit; }
};

Result<HeldLeases> count_leases(rocks::StoreReader& reader, const rocks::StoredMeta& meta) {
  HeldLeases held;
  std::optional<Error> failure;
  const auto count = [&](const core::GrantRecord& grant) {
    if (!reader.standing(meta, grant).remaining) return false;
    auto& of_mode = grant.mode == LeaseMode::exclusive ? held.exclusive
                    : grant.mode == LeaseMode::shared  ? held.shared
                                                       : held.permit;
    ++of_mode;
    if (grant.bound) ++held.bound;
    return true;
  };
  const auto take = [&](std::string_view place, std::string_view bytes) -> Result<void> {
    auto record = core::decode_lease(place, bytes);
    if (!record) {
      return Error(record.error().code(),
                   (reader.directory() / "db").string() + ": " + record.error().detail());
    }
    const auto lease = reader.lease(place.substr(1), *std::move(record));
    if (!lease) return lease.error();
    bool is_held = count(lease->newest());
    for (const auto& grant : lease->others()) is_held = count(grant) || is_held;
    if (is_held) ++held.names;
    if (reader.blocked(meta, *lease).count() > 0) ++held.blocked;
    return {};
  };
  const auto front = core::lease_place("");
  auto scanned = reader.records().scan(front, [&](std::string_view place, std::string_view bytes) {
    if (!place.starts_with(front)) return false;
    if (auto taken = take(place, bytes); !taken) failure = taken.error();
    return !failure;
  });
  if (failure) return *std::move(failure);
  if (!scanned) return scanned.error();
  return held;
}

void write_json(rocks::StoreReader& reader, const rocks::StoredMeta& meta,
                const std::optional<HeldLeases>& held, Output& output) {
  const auto& slot = *reader.noted().newest;
  const auto sizes = reader.sizes();
  nlohmann::ordered_json json;
  const auto directory = reader.directory().string();
  // A path may hold any bytes, JSON may not.
  json["directory"] = is_text(directory) ? directory : shown(directory);
  json["format"] = reader.format();
  json["incarnation"] = core::to_hex(meta.identity.incarnation);
  json["live"] = reader.is_live();
  json["clean"] = !reader.is_live() && slot.is_clean;
  json["same_boot"] = reader.is_same_boot();
  json["may_have_lost"] = reader.may_have_lost();
  json["durability"] = word(slot.durability);
  json["newest"] = std::to_string(meta.allocator.newest.number());
  json["floor"] = std::to_string(meta.allocator.floor.number());
  json["reserved"] = std::to_string(reader.noted().reserved.number());
  json["epoch"] = std::to_string(meta.position.epoch);
  json["groups"] = std::to_string(meta.position.n);
  json["boots"] = meta.identity.boots.current() + 1;
  json["keys"] = meta.position.live_keys;
  json["tombstones"] = meta.position.tombstones;
  json["leases"] = meta.position.lease_names;
  if (held) {
    json["held"] = {{"names", held->names},         {"holders", held->holders()},
                    {"exclusive", held->exclusive}, {"shared", held->shared},
                    {"permit", held->permit},       {"bound", held->bound},
                    {"blocked", held->blocked}};
  }
  json["bytes"] = {{"tables", sizes.tables},
                   {"logs", sizes.logs},
                   {"other", sizes.other},
                   {"position", sizes.position},
                   {"total", sizes.total()}};
  output.write(json.dump() + "\n");
}

std::string state_words(const rocks::StoreReader& reader, const rocks::PositionSlot& slot) {
  if (reader.is_live()) return "in use by a server";
  if (slot.is_clean) return "stopped cleanly";
  return "stopped without closing: the next start replays the log";
}

void write_text(rocks::StoreReader& reader, const rocks::StoredMeta& meta,
                const std::optional<HeldLeases>& held, Output& output) {
  const auto& slot = *reader.noted().newest;
  const auto sizes = reader.sizes();
  const auto line = [&output](std::string_view name, const std::string& text) {
    output.write(fmt::format("{:<13} {}\n", name, text));
  };
  line("store", shown(reader.directory().string()));
  line("state", state_words(reader, slot));
  if (reader.may_have_lost()) {
    line("", "the machine stopped while durability was `process`: writes may be lost, and the");
    line("", "next start lifts the floor above every token handed out");
  }
  line("format", std::to_string(reader.format()));
  line("incarnation", core::to_hex(meta.identity.incarnation));
  line("newest token",
       fmt::format("{} (up to {} may have been handed out)", meta.allocator.newest.number(),
                   reader.noted().reserved.number()));
  line("floor", std::to_string(meta.allocator.floor.number()));
  line("epoch", fmt::format("{} (how often it was opened)", meta.position.epoch));
  line("groups", std::to_string(meta.position.n));
  line("durability", std::string(word(slot.durability)));
  line("boots", fmt::format("{} ({} one)", meta.identity.boots.current() + 1,
                            reader.is_same_boot() ? "last written in the running"
                                                  : "last written in an earlier"));
  line("keys", fmt::format("{} with a value, {} without", meta.position.live_keys,
                           meta.position.tombstones));
  line("lease names", std::to_string(meta.position.lease_names));
  if (held) {
    line("held now",
         fmt::format("{} names by {} holders ({} exclusive, {} shared, {} permits; {} bound), {} "
                     "names blocked",
                     held->names, held->holders(), held->exclusive, held->shared, held->permit,
                     held->bound, held->blocked));
  }
  line("on disk",
       fmt::format("{}: tables {}, logs {}, other {}, position {}", size_words(sizes.total()),
                   size_words(sizes.tables), size_words(sizes.logs), size_words(sizes.other),
                   size_words(sizes.position)));
}

}  // namespace

Result<void> stat(rocks::StoreReader& reader, const StatOptions& options, Output& output) {
  const auto meta = reader.meta();
  if (!meta) return meta.error();
  if (auto whole = reader.check_position(*meta); !whole) return whole;

  std::optional<HeldLeases> held;
  if (options.leases) {
    const auto counted = count_leases(reader, *meta);
    if (!counted) return counted.error();
    held = *counted;
  }
  if (options.format == StatFormat::json) {
    write_json(reader, *meta, held, output);
  } else {
    write_text(reader, *meta, held, output);
  }
  return {};
}

}  // namespace fencekv::admin
