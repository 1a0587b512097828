// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/dump.h"

#include "engine/core/record.h"
#include "fencekv/store.h"
#include "tools/admin/digest.h"
#include "tools/admin/table.h"
#include "tools/admin/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::admin {
namespace {

using Json = nlohmann::ordered_json;

struct Counts {
  std::uint64_t keys = 0;
  std::uint64_t tombstones = 0;
  std::uint64_t leases = 0;
  std::uint64_t holders = 0;
};

struct Grant {
  const core::GrantRecord& record;
  rocks::GrantStanding standing;

  bool is_held() const { return standing.remaining.has_value(); }
};

/// A lease as the moment of the dump finds it.
struct SeenLease {
  std::string_view name;
  Grant newest;
  std::vector<Grant> others;  ///< Further grants, in the order of their tokens.
  std::uint64_t permits = 0;
  std::chrono::milliseconds blocked{0};

  std::vector<Grant> holders() const {
    std::vector<Grant> held;
    const auto is_held = [](const Grant& grant) { return grant.is_held(); };
    std::copy_if(others.begin(), others.end(), std::back_inserter(held), is_held);
    if (newest.is_held()) held.push_back(newest);
    return held;
  }
};

/// What a dump looks like.
class Form {
 public:
  virtual ~Form() = default;
  virtual void begin() = 0;
  virtual void key(std::string_view key, const core::KeyRecord& record) = 0;
  virtual void lease(const SeenLease& lease) = 0;
  virtual void end(const Counts& counts) = 0;
};

std::string decimal(Token token) {
  return std::to_string(token.number());
}

void add_bytes(Json& object, const std::string& name, std::string_view bytes) {
  if (is_text(bytes)) {
    object[name] = bytes;
  } else {
    object[name + "_base64"] = base64(bytes);
  }
}

class JsonLines final : public Form {
 public:
  JsonLines(const rocks::StoreReader& reader, const rocks::StoredMeta& meta,
            const DumpOptions& options, Output& output)
      : reader_(reader), meta_(meta), options_(options), output_(output) {}

  void begin() override {
    constexpr std::array kWhat{"keys", "leases", "all"};
    Json line;
    line["dump"] = "fencekv";
    line["dump_format"] = kDumpFormat;
    line["format"] = reader_.format();
    line["incarnation"] = core::to_hex(meta_.identity.incarnation);
    line["newest"] = decimal(meta_.allocator.newest);
    line["floor"] = decimal(meta_.allocator.floor);
    line["reserved"] = decimal(reader_.noted().reserved);
    line["epoch"] = std::to_string(meta_.position.epoch);
    line["position"] = std::to_string(meta_.position.n);
    line["created"] = system_clock()->wall().count();
    line["live"] = reader_.is_live();
    line["what"] = kWhat[static_cast<std::size_t>(options_.what)];
    add_bytes(line, "prefix", options_.prefix);
    // Said here, too, so that a last line that lost it is noticed.
    line["digest"] = kDigest;
    write(line);
  }

  void key(std::string_view key, const core::KeyRecord& record) override {
    Json line;
    line["kind"] = "key";
    add_bytes(line, "key", key);
    line["fence"] = decimal(record.fence);
    line["version"] = std::to_string(record.version);
    line["written_by"] = decimal(record.written_by);
    line["written"] = record.written.count();
    if (record.guard) add_bytes(line, "guard", *record.guard);
    if (record.request) add_bytes(line, "request", *record.request);
    line["value"] = record.value ? value(*record.value) : Json(nullptr);
    write(line);
  }

  void lease(const SeenLease& lease) override {
    const auto& newest = lease.newest;
    Json line;
    line["kind"] = "lease";
    add_bytes(line, "name", lease.name);
    line["fence"] = decimal(newest.record.token);
    line["mode"] = to_string(newest.record.mode);
    if (lease.permits > 0) line["permits"] = lease.permits;
    line["state"] = newest.standing.state;
    line["remaining"] = newest.is_held() ? Json(newest.standing.remaining->count()) : Json(nullptr);
    add_grant(line, newest.record);
    line["blocked"] = lease.blocked.count();
    line["holders"] = Json::array();
    for (const auto& grant : lease.holders()) {
      Json holder;
      holder["token"] = decimal(grant.record.token);
      holder["mode"] = to_string(grant.record.mode);
      holder["remaining"] = grant.standing.remaining->count();
      add_grant(holder, grant.record);
      line["holders"].push_back(std::move(holder));
    }
    write(line);
  }

  void end(const Counts& counts) override {
    Json line;
    line["kind"] = "end";
    line["keys"] = counts.keys;
    line["tombstones"] = counts.tombstones;
    line["leases"] = counts.leases;
    line["holders"] = counts.holders;
    line[kDigest] = digest_.hex();
    write(line);
  }

 private:
  static void add_grant(Json& object, const core::GrantRecord& grant) {
    object["ttl"] = grant.ttl.count();
    object["owner"] = owner_fingerprint(grant.owner);
    add_bytes(object, "client", grant.client);
    object["bound"] = grant.bound;
    object["delay"] = grant.delay.count();
    if (grant.payload) add_bytes(object, "payload", *grant.payload);
  }

  Json value(const std::string& bytes) const {
    if (options_.values == DumpValues::none) return {{"bytes", bytes.size()}};
    if (options_.values == DumpValues::text && is_text(bytes)) return {{"text", bytes}};
    return {{"base64", base64(bytes)}};
  }

  void write(const Json& line) {
    const auto text = line.dump() + "\n";
    digest_.add(text);
    output_.write(text);
  }

  const rocks::StoreReader& reader_;
  const rocks::StoredMeta& meta_;
  const DumpOptions& options_;
  Output& output_;
  Digest digest_;  // of what was written so far
};

class Tables final : public Form {
 public:
  Tables(const DumpOptions& options, Output& output) : options_(options), output_(output) {}

  void begin() override {}

  void key(std::string_view key, const core::KeyRecord& record) override {
    if (!keys_) {
      keys_.emplace(output_, std::vector<std::string>{"KEY", "FENCE", "VERSION", "WRITTEN (UTC)",
                                                      "GUARD", "VALUE"});
    }
    keys_->add({shown(key, kNameColumns), decimal(record.fence), std::to_string(record.version),
                time_words(record.written), record.guard ? shown(*record.guard, kNameColumns) : "-",
                value(record)});
  }

  void lease(const SeenLease& lease) override {
    if (!leases_) {
      finish_keys();
      leases_.emplace(output_,
                      std::vector<std::string>{"LEASE", "TOKEN", "MODE", "STATE", "REMAINING",
                                               "BLOCKED", "OWNER", "CLIENT", "DELAY", "PAYLOAD"});
    }
    add_grant(lease, lease.newest);
    for (auto grant = lease.others.rbegin(); grant != lease.others.rend(); ++grant) {
      if (grant->is_held()) add_grant(lease, *grant);
    }
  }

  void end(const Counts& counts) override {
    finish_keys();
    if (leases_) {
      leases_->finish();
      output_.write("\n");
    }
    output_.write(fmt::format("{} keys with a value, {} without, {} lease names, {} holders\n",
                              counts.keys, counts.tombstones, counts.leases, counts.holders));
  }

 private:
  static constexpr std::size_t kNameColumns = 40;
  static constexpr std::size_t kValueColumns = 60;

  void add_grant(const SeenLease& lease, const Grant& grant) {
    const auto& record = grant.record;
    const auto time = [](std::chrono::milliseconds length) {
      return length.count() > 0 ? fmt::format("{} ms", length.count()) : "-";
    };
    auto mode = std::string(to_string(record.mode));
    if (lease.permits > 0) mode += fmt::format(" of {}", lease.permits);
    if (record.bound) mode += ", bound";
    leases_->add({shown(lease.name, kNameColumns), decimal(record.token), std::move(mode),
                  std::string(grant.standing.state),
                  time(grant.standing.remaining.value_or(std::chrono::milliseconds(0))),
                  time(lease.blocked), owner_fingerprint(record.owner),
                  shown(record.client, kNameColumns), time(record.delay),
                  record.payload ? shown(*record.payload, kNameColumns) : "-"});
  }

  std::string value(const core::KeyRecord& record) const {
    if (!record.value) return record.version == 0 ? "(never written)" : "(deleted)";
    switch (options_.values) {
      case DumpValues::none:
        return fmt::format("({} bytes)", record.value->size());
      case DumpValues::base64:
        // So much of it that what is left after the cut is right.
        return shown(base64(std::string_view(*record.value).substr(0, 3 * kValueColumns)),
                     kValueColumns);
      case DumpValues::text:
        break;
    }
    return shown(*record.value, kValueColumns);
  }

  void finish_keys() {
    if (!keys_) return;
    keys_->finish();
    output_.write("\n");
    keys_.reset();
  }

  const DumpOptions& options_;
  Output& output_;
  std::optional<Table> keys_;
  std::optional<Table> leases_;
};

/// Shows every record of one kind under the prefix to `take`, which answers an error to stop.
template <class Take>
Result<void> each(rocks::StoreReader& reader, const Output& output, const std::string& front,
                  Take take) {
  std::optional<Error> failure;
  auto scanned = reader.records().scan(front, [&](std::string_view place, std::string_view bytes) {
    if (!place.starts_with(front) || output.is_over()) return false;
    if (auto taken = take(place, bytes); !taken) failure = taken.error();
    return !failure;
  });
  if (failure) return *std::move(failure);
  return scanned;
}

SeenLease look_at(const rocks::StoreReader& reader, const rocks::StoredMeta& meta,
                  std::string_view name, const core::Lease& lease) {
  const auto seen = [&](const core::GrantRecord& grant) {
    return Grant{.record = grant, .standing = reader.standing(meta, grant)};
  };
  SeenLease found{.name = name,
                  .newest = seen(lease.newest()),
                  .others = {},
                  .permits = lease.permits(),
                  .blocked = reader.blocked(meta, lease)};
  for (const auto& grant : lease.others()) found.others.push_back(seen(grant));
  return found;
}

Error damaged_record(const rocks::StoreReader& reader, const Error& error) {
  return {error.code(), (reader.directory() / "db").string() + ": " + error.detail()};
}

}  // namespace

Result<void> dump(rocks::StoreReader& reader, const DumpOptions& options, Output& output) {
  const auto meta = reader.meta();
  if (!meta) return meta.error();
  // Better no dump than one that is silently short.
  if (auto whole = reader.check_position(*meta); !whole) return whole;

  std::unique_ptr<Form> form;
  if (options.format == DumpFormat::json) {
    form = std::make_unique<JsonLines>(reader, *meta, options, output);
  } else {
    form = std::make_unique<Tables>(options, output);
  }

  std::optional<Progress> progress;
  if (!is_terminal_output()) progress.emplace("dump");
  const auto& position = meta->position;
  const auto total = position.live_keys + position.tombstones + position.lease_names;
  Counts counts;
  const auto show_progress = [&] {
    if (progress) progress->at(counts.keys + counts.tombstones + counts.leases, total);
  };

  form->begin();
  if (options.what != DumpWhat::leases) {
    const auto take = [&](std::string_view place, std::string_view bytes) -> Result<void> {
      const auto record = core::decode_key(place, bytes);
      if (!record) return damaged_record(reader, record.error());
      form->key(place.substr(1), *record);
      ++(record->value ? counts.keys : counts.tombstones);
      show_progress();
      return {};
    };
    auto keys = each(reader, output, core::key_place(options.prefix), take);
    if (!keys) return keys;
  }
  if (options.what != DumpWhat::keys) {
    const auto take = [&](std::string_view place, std::string_view bytes) -> Result<void> {
      auto record = core::decode_lease(place, bytes);
      if (!record) return damaged_record(reader, record.error());
      const auto name = place.substr(1);
      const auto lease = reader.lease(name, *std::move(record));
      if (!lease) return lease.error();
      const auto seen = look_at(reader, *meta, name, *lease);
      form->lease(seen);
      ++counts.leases;
      counts.holders += seen.holders().size();
      show_progress();
      return {};
    };
    auto leases = each(reader, output, core::lease_place(options.prefix), take);
    if (!leases) return leases;
  }
  if (output.is_over()) return {};

  const auto missing = [&](std::string_view what, std::uint64_t found, std::uint64_t expected) {
    return Error(Errc::corrupt,
                 fmt::format("{}: {} {} were read, but the store has {}",
                             (reader.directory() / "db").string(), found, what, expected));
  };
  if (options.prefix.empty() && options.what != DumpWhat::leases) {
    if (counts.keys != position.live_keys) {
      return missing("keys with a value", counts.keys, position.live_keys);
    }
    if (counts.tombstones != position.tombstones) {
      return missing("keys without a value", counts.tombstones, position.tombstones);
    }
  }
  if (options.prefix.empty() && options.what != DumpWhat::keys &&
      counts.leases != position.lease_names) {
    return missing("lease names", counts.leases, position.lease_names);
  }
  form->end(counts);
  return {};
}

}  // namespace fencekv::admin
