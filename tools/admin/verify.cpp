// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/verify.h"

#include "engine/core/record.h"
#include "fencekv/types.h"
#include "tools/admin/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencekv::admin {
namespace {

class Findings {
 public:
  explicit Findings(Output& output) : output_(output) {}

  void damage(std::string_view text) {
    ++damages_;
    line("damage", text);
  }
  void problem(std::string_view text) {
    ++problems_;
    line("problem", text);
  }
  void problem(const std::string& subject, std::string_view text) {
    problem(subject + ": " + std::string(text));
  }
  void note(std::string_view text) {
    ++notes_;
    line("note", text);
  }
  /// A note that many records may give: told once, with how many and the first of them.
  void note_of_many(std::string_view what, const std::string& subject) {
    auto& many =
        many_.try_emplace(std::string(what), Many{.count = 0, .first = subject}).first->second;
    ++many.count;
  }
  void tell_many() {
    for (const auto& [what, many] : many_) {
      note(fmt::format("{} {}, first {}", many.count, what, many.first));
    }
    many_.clear();
  }

  std::string summary() const {
    if (damages_ + problems_ + notes_ == 0) return "no problems";
    return fmt::format("{} damaged, {} problems, {} notes", damages_, problems_, notes_);
  }
  ExitCode exit_code() const {
    return damages_ > 0 ? exit_damaged : problems_ > 0 ? exit_problems : exit_ok;
  }

 private:
  struct Many {
    std::uint64_t count;
    std::string first;
  };

  void line(std::string_view kind, std::string_view text) {
    output_.write(fmt::format("{}: {}\n", kind, message(text)));
  }

  Output& output_;
  std::uint64_t damages_ = 0;
  std::uint64_t problems_ = 0;
  std::uint64_t notes_ = 0;
  std::map<std::string, Many> many_;
};

/// What the further grants of one name come to. They stand together.
struct FurtherGrants {
  std::string name;
  std::uint64_t count = 0;
  bool all_readable = true;
  Token newest;
  bool is_any_shared = false;
  bool is_any_permit = false;
};

/// What is checked of every record.
class RecordCheck {
 public:
  RecordCheck(rocks::StoreReader& reader, const std::optional<rocks::StoredMeta>& meta,
              Findings& findings)
      : reader_(reader), meta_(meta), findings_(findings) {}

  void record(std::string_view place, std::string_view bytes) {
    if (place.empty()) {
      findings_.problem("a record at an empty place");
      return;
    }
    switch (place.front()) {
      case core::kKeyPrefix:
        return key(place, bytes);
      case core::kLeasePrefix:
        return lease(place, bytes);
      case core::kGrantPrefix:
        return further_grant(place, bytes);
      case core::kMetaPrefix:
        if (place == core::kPositionKey || place == core::kAllocatorKey ||
            place == core::kIdentityKey) {
          return;  // decoded before everything else
        }
        break;
      default:
        break;
    }
    findings_.problem("record " + shown(place), "unknown kind");
  }

  std::uint64_t live_keys() const { return live_keys_; }
  std::uint64_t tombstones() const { return tombstones_; }
  std::uint64_t lease_names() const { return lease_names_; }
  std::uint64_t seen() const { return live_keys_ + tombstones_ + lease_names_ + unreadable_; }

  /// After the last record.
  void finish() { finish_name(); }

 private:
  void key(std::string_view place, std::string_view bytes) {
    const auto name = place.substr(1);
    const auto subject = "key " + shown(name);
    check_length(subject, "its name", name, Limits::kNameBytes);
    const auto record = core::decode_key(place, bytes);
    if (!record) {
      ++unreadable_;
      findings_.problem(record.error().detail());
      return;
    }
    ++(record->value ? live_keys_ : tombstones_);

    if (record->version == 0) {
      const bool was_written = record->value || record->request || !record->written_by.is_none();
      if (was_written) findings_.problem(subject, "was written, but its version is 0");
    } else if (!record->written_by.is_valid()) {
      findings_.problem(subject, "was written by a token that is none");
    }
    if (record->written.count() < 0) findings_.problem(subject, "was written before 1970");
    if (record->request)
      check_length(subject, "its request", *record->request, Limits::kOwnerBytes);
    if (record->written_by > record->fence) {
      findings_.note_of_many(
          "keys have a fence below the token that wrote them, as FENCE.RESET does", shown(name));
    }
    if (meta_ && record->fence > meta_->allocator.newest) {
      findings_.note_of_many(
          "keys have a fence above the newest token, as tokens of an external allocator have",
          shown(name));
    }
    if (record->guard) guard(subject, name, *record);
  }

  void guard(const std::string& subject, std::string_view name, const core::KeyRecord& record) {
    check_length(subject, "its guard", *record.guard, Limits::kNameBytes);
    const auto fence = lease_fence(*record.guard);
    if (!fence) {
      findings_.note_of_many(
          "keys are guarded by a lease that was never granted, as FENCE.RESET allows", shown(name));
    } else if (record.fence > *fence && !fence->is_none()) {
      findings_.note_of_many(
          "keys have a fence above that of their guard: no holder can write them before the lease "
          "has been granted with a newer token",
          shown(name));
    }
  }

  /// nullopt: never granted. None: cannot be read, which is a finding of its own.
  std::optional<Token> lease_fence(const std::string& name) {
    // Keys that stand together often have the same guard.
    if (last_guard_ && last_guard_->first == name) return last_guard_->second;
    std::optional<Token> fence;
    const auto place = core::lease_place(name);
    const auto bytes = reader_.records().read(place);
    if (!bytes) {
      fence = Token{};
    } else if (*bytes) {
      const auto record = core::decode_lease(place, **bytes);
      fence = record ? record->newest.token : Token{};
    }
    last_guard_.emplace(name, fence);
    return fence;
  }

  void lease(std::string_view place, std::string_view bytes) {
    const auto name = place.substr(1);
    const auto subject = "lease " + shown(name);
    check_length(subject, "its name", name, Limits::kNameBytes);
    const auto record = core::decode_lease(place, bytes);
    if (!record) {
      ++unreadable_;
      findings_.problem(record.error().detail());
      return;
    }
    ++lease_names_;

    grant(subject, record->newest);
    if (record->block.count() < 0 || record->block > Limits::kMaxDelay) {
      findings_.problem(subject, "it is blocked for longer than 7 days");
    }
    if (record->block.count() != 0) runs_in_a_known_boot(subject, record->blocked);
    if (!record->ended.is_none()) runs_in_a_known_boot(subject, record->ended_since);
    // Those that are there were compared when they came by.
    if (record->others > 0 && !has_further_grants(name)) {
      findings_.problem(
          subject, fmt::format("it counts {} further grants, but 0 are there", record->others));
    }
  }

  void further_grant(std::string_view place, std::string_view bytes) {
    const auto where = core::parse_grant_place(place);
    if (!where) {
      ++unreadable_;
      findings_.problem("record " + shown(place), "unknown kind");
      return;
    }
    if (!further_ || further_->name != where->name) {
      finish_name();
      further_.emplace();
      further_->name = where->name;
    }
    const auto record = core::decode_grant(place, bytes);
    if (!record) {
      ++unreadable_;
      further_->all_readable = false;
      findings_.problem(record.error().detail());
      return;
    }
    ++further_->count;
    further_->newest = record->token;
    (record->mode == LeaseMode::shared ? further_->is_any_shared : further_->is_any_permit) = true;
    grant(fmt::format("lease {}, grant {}", shown(where->name), record->token.number()), *record);
  }

  /// Compares the further grants of a name with its lease record.
  void finish_name() {
    if (!further_) return;
    const auto further = *std::exchange(further_, std::nullopt);
    const auto subject = "lease " + shown(further.name);
    const auto place = core::lease_place(further.name);
    const auto bytes = reader_.records().read(place);
    if (!bytes) return;  // the scan comes there, too
    if (!*bytes) {
      findings_.problem(subject, "it was never granted, but has further grants");
      return;
    }
    const auto lease = core::decode_lease(place, **bytes);
    if (!lease) return;  // found when the scan comes there
    if (further.all_readable && further.count != lease->others) {
      findings_.problem(subject, fmt::format("it counts {} further grants, but {} are there",
                                             lease->others, further.count));
    }
    if (further.newest >= lease->newest.token) {
      findings_.problem(subject,
                        fmt::format("its fence {} is not above that of its grant {}",
                                    lease->newest.token.number(), further.newest.number()));
    }
    const auto mode = lease->newest.mode;
    if ((further.is_any_shared && mode != LeaseMode::shared) ||
        (further.is_any_permit && mode != LeaseMode::permit)) {
      findings_.problem(subject, fmt::format("it is {}, but has further grants of another mode",
                                             to_string(mode)));
    }
  }

  bool has_further_grants(std::string_view name) {
    const auto prefix = core::grants_prefix(name);
    bool found = false;
    const auto scanned =
        reader_.records().scan(prefix, [&](std::string_view place, std::string_view) {
          found = place.starts_with(prefix);
          return false;
        });
    return found || !scanned;
  }

  void grant(const std::string& subject, const core::GrantRecord& grant) {
    check_length(subject, "its owner", grant.owner, Limits::kOwnerBytes);
    if (grant.payload && grant.payload->size() > Limits::kPayloadBytes) {
      findings_.problem(subject, fmt::format("its payload has {} bytes, not 0 to {}",
                                             grant.payload->size(), Limits::kPayloadBytes));
    }
    if (grant.ttl.count() < 1 || grant.ttl > Limits::kMaxTtl) {
      findings_.problem(subject, "its ttl is not 1 ms to 7 days");
    }
    if (grant.delay.count() < 0 || grant.delay > Limits::kMaxDelay) {
      findings_.problem(subject, "its delay is not 0 to 7 days");
    }
    if (!meta_) return;
    if (grant.token > meta_->allocator.newest) {
      findings_.problem(
          subject, fmt::format("its fence {} is above the newest token {}", grant.token.number(),
                               meta_->allocator.newest.number()));
    }
    if (grant.origin.process > meta_->position.epoch) {
      findings_.problem(subject, fmt::format("it was acquired in epoch {}, but the store is in {}",
                                             grant.origin.process, meta_->position.epoch));
    }
    if (!runs_in_a_known_boot(subject, grant.deadline)) return;
    if (grant.deadline.boot == meta_->identity.boots.current() &&
        grant.deadline.at > meta_->position.clock + grant.ttl) {
      findings_.problem(subject, "it ends later than its ttl allows");
    }
  }

  bool runs_in_a_known_boot(const std::string& subject, const core::Deadline& deadline) {
    if (!meta_ || deadline.boot <= meta_->identity.boots.current()) return true;
    findings_.problem(subject, fmt::format("it runs in boot {}, but the store saw only {}",
                                           deadline.boot, meta_->identity.boots.current()));
    return false;
  }

  void check_length(const std::string& subject, std::string_view what, std::string_view bytes,
                    std::size_t max_bytes) {
    if (!bytes.empty() && bytes.size() <= max_bytes) return;
    findings_.problem(subject,
                      fmt::format("{} has {} bytes, not 1 to {}", what, bytes.size(), max_bytes));
  }

  rocks::StoreReader& reader_;
  const std::optional<rocks::StoredMeta>& meta_;
  Findings& findings_;
  std::optional<std::pair<std::string, std::optional<Token>>> last_guard_;
  std::optional<FurtherGrants> further_;  // of the name that the scan has come to
  std::uint64_t live_keys_ = 0;
  std::uint64_t tombstones_ = 0;
  std::uint64_t lease_names_ = 0;
  std::uint64_t unreadable_ = 0;
};

void check_position_file(const rocks::StoreReader& reader, Findings& findings) {
  const auto& noted = reader.noted();
  const auto file = (reader.directory() / "position").string();
  if (!noted.newest) {
    findings.damage(noted.newest.error().detail());
  } else if (noted.valid_slots < 2) {
    findings.note(file +
                  ": one of its two slots is damaged; the other one counts, and the damaged "
                  "one is written anew at the next write");
  }
}

void check_meta(const rocks::StoreReader& reader, const rocks::StoredMeta& meta,
                Findings& findings) {
  const auto& noted = reader.noted();
  if (noted.newest) {
    if (auto whole = reader.check_position(meta); !whole) findings.damage(whole.error().detail());
    if (noted.newest->epoch > meta.position.epoch && meta.position.n >= noted.newest->n) {
      findings.problem("position", fmt::format("the file is in epoch {}, the records only in {}",
                                               noted.newest->epoch, meta.position.epoch));
    }
    if (meta.allocator.newest > noted.reserved) {
      findings.problem("allocator",
                       fmt::format("the newest token {} was never reserved: only {}",
                                   meta.allocator.newest.number(), noted.reserved.number()));
    }
    if (reader.may_have_lost()) {
      findings.note(
          "the machine stopped while durability was `process`: writes may be lost, and the "
          "next start lifts the floor above every token handed out");
    }
  }
  if (meta.allocator.floor.number() > meta.allocator.newest.number() + 1) {
    findings.problem("allocator",
                     fmt::format("the floor {} is above the newest token {}",
                                 meta.allocator.floor.number(), meta.allocator.newest.number()));
  }
}

void compare_counts(const RecordCheck& check, const core::PositionRecord& position,
                    Findings& findings) {
  const auto compare = [&findings](std::string_view what, std::uint64_t found,
                                   std::uint64_t expected) {
    if (found == expected) return;
    findings.problem("counts", fmt::format("{} {} are there, but the store has counted {}", found,
                                           what, expected));
  };
  compare("keys with a value", check.live_keys(), position.live_keys);
  compare("keys without a value", check.tombstones(), position.tombstones);
  compare("lease names", check.lease_names(), position.lease_names);
}

}  // namespace

ExitCode verify(rocks::StoreReader& reader, Output& output) {
  Findings findings(output);
  check_position_file(reader, findings);

  std::optional<rocks::StoredMeta> meta;
  if (auto loaded = reader.meta(); loaded) {
    meta = *std::move(loaded);
    check_meta(reader, *meta, findings);
  } else {
    findings.damage(loaded.error().detail());
  }

  Progress progress("checking records");
  const auto total =
      meta ? meta->position.live_keys + meta->position.tombstones + meta->position.lease_names : 0;
  RecordCheck check(reader, meta, findings);
  const auto scanned =
      reader.records().scan({}, [&](std::string_view place, std::string_view bytes) {
        check.record(place, bytes);
        if (meta) progress.at(check.seen(), total);
        return !output.is_over();
      });
  check.finish();
  if (!scanned) findings.problem("the records cannot all be read: " + scanned.error().detail());
  // Counts of a scan that was cut short say nothing new.
  if (meta && scanned && !output.is_over()) compare_counts(check, meta->position, findings);

  progress.now("checking tables");
  const auto tables = reader.check_tables(
      [&findings](const Error& error) { findings.problem(error.detail()); },
      [&progress](std::uint64_t done, std::uint64_t all) { progress.at(done, all); });

  findings.tell_many();
  output.write(
      fmt::format("{}: {} ({} keys with a value, {} without, {} lease names; {} table files, {})\n",
                  shown(reader.directory().string()), findings.summary(), check.live_keys(),
                  check.tombstones(), check.lease_names(), tables.files, size_words(tables.bytes)));
  return findings.exit_code();
}

void report_unopened(const std::filesystem::path& directory, const Error& error, Output& output) {
  Findings findings(output);
  findings.damage(error.detail());
  output.write(
      fmt::format("{}: {}; it cannot be opened\n", shown(directory.string()), findings.summary()));
}

}  // namespace fencekv::admin
