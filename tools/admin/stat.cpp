// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/stat.h"

#include "engine/core/record.h"
#include "tools/admin/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace fencekv::admin {
namespace {

std::string_view word(Durability durability) {
  return durability == Durability::sync ? "sync" : "process";
}

void write_json(rocks::StoreReader& reader, const rocks::StoredMeta& meta, Output& output) {
  const auto& slot = *reader.noted().newest;
  const auto sizes = reader.sizes();
  nlohmann::ordered_json json;
  const auto directory = reader.directory().string();
  // A path may hold any bytes, JSON may not.
  json["directory"] = is_text(directory) ? directory : shown(directory);
  json["format"] = core::kFormat;
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

void write_text(rocks::StoreReader& reader, const rocks::StoredMeta& meta, Output& output) {
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
  line("format", std::to_string(core::kFormat));
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
  line("on disk",
       fmt::format("{}: tables {}, logs {}, other {}, position {}", size_words(sizes.total()),
                   size_words(sizes.tables), size_words(sizes.logs), size_words(sizes.other),
                   size_words(sizes.position)));
}

}  // namespace

Result<void> stat(rocks::StoreReader& reader, StatFormat format, Output& output) {
  const auto meta = reader.meta();
  if (!meta) return meta.error();
  if (auto whole = reader.check_position(*meta); !whole) return whole;

  if (format == StatFormat::json) {
    write_json(reader, *meta, output);
  } else {
    write_text(reader, *meta, output);
  }
  return {};
}

}  // namespace fencekv::admin
