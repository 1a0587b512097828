// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/load.h"

#include "engine/core/new_history.h"
#include "engine/core/record.h"
#include "engine/rocksdb/new_store.h"
#include "fencekv/store.h"
#include "tools/admin/dump.h"
#include "tools/admin/dump_reader.h"
#include "tools/admin/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace fencekv::admin {
namespace {

using Field = DumpField;
using Kind = DumpField::Kind;

constexpr std::string_view kMakeANewDump =
    "make a new one, `fencekv-admin dump --format json DIR`, and load that";

Error bad(std::string_view what) {
  return {Errc::invalid, std::string(what)};
}

// ---- fields --------------------------------------------------------------------------------

Result<const Field*> need(const DumpFields& fields, std::string_view name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return bad(fmt::format("`{}` is missing", name));
  return &found->second;
}

Result<std::string> text_of(const DumpFields& fields, std::string_view name) {
  const auto field = need(fields, name);
  if (!field) return field.error();
  if ((*field)->kind != Kind::text) return bad(fmt::format("`{}` is no string", name));
  return (*field)->text;
}

/// Bytes that stand under `name` if they are text, else in base64 under `name_base64`; nullopt:
/// neither is there.
Result<std::optional<std::string>> bytes_of(const DumpFields& fields, const std::string& name) {
  const auto coded = name + "_base64";
  const bool is_text = fields.contains(name);
  if (!is_text && !fields.contains(coded)) return std::optional<std::string>{};
  if (is_text && fields.contains(coded)) {
    return bad(fmt::format("both `{}` and `{}` are there", name, coded));
  }
  auto text = text_of(fields, is_text ? name : coded);
  if (!text) return text.error();
  if (is_text) return std::optional(*std::move(text));
  auto bytes = unbase64(*text);
  if (!bytes) return bad(fmt::format("`{}` is no base64", coded));
  return bytes;
}

/// As bytes_of(), of a limited length, at least 1.
Result<std::optional<std::string>> name_of(const DumpFields& fields, const std::string& name,
                                           std::size_t max_bytes) {
  auto bytes = bytes_of(fields, name);
  if (bytes && *bytes && ((*bytes)->empty() || (*bytes)->size() > max_bytes)) {
    return bad(
        fmt::format("`{}` has {} bytes, expected 1 to {}", name, (*bytes)->size(), max_bytes));
  }
  return bytes;
}

Result<std::string> needed_name(const DumpFields& fields, const std::string& name) {
  auto bytes = name_of(fields, name, Limits::kNameBytes);
  if (!bytes) return bytes.error();
  if (!*bytes) return bad(fmt::format("`{}` is missing", name));
  return **std::move(bytes);
}

/// A decimal in a string.
Result<std::uint64_t> decimal_of(const DumpFields& fields, std::string_view name, std::uint64_t low,
                                 std::uint64_t high) {
  const auto text = text_of(fields, name);
  if (!text) return text.error();
  const auto number = parse_decimal(*text, high);
  if (!number || *number < low) {
    return bad(fmt::format("`{}` is no plain decimal from {} to {}", name, low, high));
  }
  return *number;
}

Result<Token> token_of(const DumpFields& fields, std::string_view name, std::uint64_t low) {
  const auto number = decimal_of(fields, name, low, Token::kMax);
  if (!number) return number.error();
  return Token{*number};
}

Result<std::uint64_t> count_of(const DumpFields& fields, std::string_view name) {
  const auto field = need(fields, name);
  if (!field) return field.error();
  if ((*field)->kind != Kind::integer) return bad(fmt::format("`{}` is no whole number", name));
  return (*field)->number;
}

// ---- lines ---------------------------------------------------------------------------------

struct Header {
  std::uint64_t layout = 0;
  std::string incarnation;
  Token highest;  ///< That may have been handed out.
  bool has_hash = false;
};

struct Counts {
  std::uint64_t keys = 0;
  std::uint64_t tombstones = 0;
  std::uint64_t leases = 0;
  std::uint64_t holders = 0;
};

Result<Header> header_of(const DumpFields& fields) {
  const auto title = text_of(fields, "dump");
  if (!title || *title != "fencekv") {
    return bad("this is no dump in JSON lines; make one with `fencekv-admin dump --format json`");
  }
  Header header;
  const auto layout = count_of(fields, "dump_format");
  if (!layout) return layout.error();
  if (*layout > kDumpFormat) {
    return Error(Errc::newer_format, fmt::format("the dump has layout {}, this build loads up to "
                                                 "{}. Use a newer fencekv-admin",
                                                 *layout, kDumpFormat));
  }
  if (*layout == 0) return bad("`dump_format` is 0");
  header.layout = *layout;
  if (fields.contains("digest")) {
    const auto digest = text_of(fields, "digest");
    if (!digest || *digest != kDigest) return bad("`digest` is not sha256");
    header.has_hash = true;
  }

  const auto prefix = bytes_of(fields, "prefix");
  if (!prefix) return prefix.error();
  if (*prefix && !(*prefix)->empty()) {
    return bad(
        "the dump has only keys with a prefix: the fences of the others would be lost; load "
        "a dump without --prefix");
  }
  const auto what = text_of(fields, "what");
  if (!what) return what.error();
  if (*what == "leases") {
    return bad(
        "the dump has only leases, and they are void after a load; load one of `--what all`");
  }
  if (*what != "all" && *what != "keys") return bad("`what` is neither all nor keys");

  auto incarnation = text_of(fields, "incarnation");
  if (!incarnation) return incarnation.error();
  header.incarnation = *std::move(incarnation);
  for (const auto* name : {"newest", "floor", "reserved"}) {
    const auto token = token_of(fields, name, 0);
    if (!token) return token.error();
    header.highest = std::max(header.highest, *token);
  }
  return header;
}

Result<std::optional<std::string>> value_of(const DumpFields& fields) {
  const auto whole = fields.find("value");
  if (whole != fields.end()) {
    if (whole->second.kind == Kind::null) return std::optional<std::string>{};
    return bad("`value` is neither null nor an object");
  }
  if (fields.contains("value.bytes")) {
    return bad("the values were left out of this dump (--values none); load one that has them");
  }
  const bool is_text = fields.contains("value.text");
  if (is_text && fields.contains("value.base64")) return bad("`value` is there twice");
  auto text = text_of(fields, is_text ? "value.text" : "value.base64");
  if (!text) return text.error();
  if (is_text) return std::optional(*std::move(text));
  auto bytes = unbase64(*text);
  if (!bytes) return bad("`value` is no base64");
  return bytes;
}

Result<core::KeyRecord> key_of(const DumpFields& fields) {
  core::KeyRecord record;
  const auto fence = token_of(fields, "fence", 1);
  if (!fence) return fence.error();
  const auto version = decimal_of(fields, "version", 0, std::numeric_limits<std::uint64_t>::max());
  if (!version) return version.error();
  const auto written_by = token_of(fields, "written_by", 0);
  if (!written_by) return written_by.error();
  const auto written = count_of(fields, "written");
  if (!written) return written.error();
  constexpr auto kLatest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (*written > kLatest) return bad("`written` is out of range");
  auto guard = name_of(fields, "guard", Limits::kNameBytes);
  if (!guard) return guard.error();
  auto request = name_of(fields, "request", Limits::kOwnerBytes);
  if (!request) return request.error();
  auto value = value_of(fields);
  if (!value) return value.error();

  record.fence = *fence;
  record.version = *version;
  record.written_by = *written_by;
  record.written = std::chrono::milliseconds(*written);
  record.guard = *std::move(guard);
  record.request = *std::move(request);
  record.value = *std::move(value);
  const bool was_written = record.value || record.request || !record.written_by.is_none();
  if (record.version == 0 && was_written) return bad("it was written, but its version is 0");
  if (record.version > 0 && record.written_by.is_none()) {
    return bad("it has a version, but was written by no token");
  }
  return record;
}

// ---- the dump ------------------------------------------------------------------------------

class Loader {
 public:
  Loader(rocks::FileSystem& files, const LoadOptions& options, DumpReader reader)
      : files_(files), options_(options), reader_(std::move(reader)) {}

  Result<void> run() {
    auto loaded = read_all();
    if (!loaded) return at_line(loaded.error());
    return finish();
  }

  void tell(Output& output) const {
    if (options_.format == LoadFormat::json) {
      nlohmann::ordered_json line;
      line["loaded"] = options_.directory.string();
      line["keys"] = counts_.keys;
      line["tombstones"] = counts_.tombstones;
      line["void_leases"] = counts_.leases;
      line["floor"] = std::to_string(small_.allocator.floor.number());
      line["incarnation"] = core::to_hex(small_.identity.incarnation);
      line["dumped_incarnation"] = header_->incarnation;
      line["checksum"] = header_->has_hash;
      output.write(line.dump() + "\n");
      return;
    }
    output.write(fmt::format("loaded {} keys with a value and {} without into {}\n", counts_.keys,
                             counts_.tombstones, options_.directory.string()));
    output.write(
        fmt::format("the {} lease names of the dump are void: none was loaded\n", counts_.leases));
    output.write(
        fmt::format("tokens below {} are refused from here on, unless they come from an "
                    "external allocator\n",
                    small_.allocator.floor.number()));
    output.write(fmt::format("incarnation {}, before {}\n",
                             core::to_hex(small_.identity.incarnation), header_->incarnation));
    if (!header_->has_hash) {
      output.write("note: the dump is of an older version and has no checksum of its own\n");
    }
  }

 private:
  Result<void> read_all() {
    std::optional<Progress> progress;
    if (reader_.total_bytes() > 0) progress.emplace("load");
    while (true) {
      const auto line = reader_.next();
      if (!line) return line.error();
      if (!*line) {
        return bad(
            fmt::format("the dump was cut off: its last line, which counts the others, is "
                        "missing; {}",
                        kMakeANewDump));
      }
      const auto fields = parse_dump_line(**line);
      if (!fields && reader_.is_cut()) {
        return bad(fmt::format("the dump was cut off in this line; {}", kMakeANewDump));
      }
      if (!fields) return fields.error();
      const auto ended = take(*fields);
      if (!ended) return ended.error();
      if (*ended) break;
      if (progress) progress->at(reader_.bytes(), reader_.total_bytes());
    }
    const auto more = reader_.next();
    if (!more) return more.error();
    if (*more) return bad("the dump ended in the line before: this is something else");
    return {};
  }

  /// Whether it was the last line.
  Result<bool> take(const DumpFields& fields) {
    if (!header_) {
      auto header = header_of(fields);
      if (!header) return header.error();
      header_ = *std::move(header);
      // Only now: what is no dump leaves no traces.
      auto store = rocks::NewStore::begin(files_, options_.directory);
      if (!store) return about_store(store.error());
      store_.emplace(*std::move(store));
      return false;
    }
    const auto kind = text_of(fields, "kind");
    if (!kind) return kind.error();
    if (*kind == "end") return end(fields);
    auto taken = *kind == "key"     ? key(fields)
                 : *kind == "lease" ? lease(fields)
                                    : Result<void>(bad("`kind` is none of key, lease, end"));
    if (!taken) return taken.error();
    return false;
  }

  Result<void> key(const DumpFields& fields) {
    const auto name = needed_name(fields, "key");
    if (!name) return name.error();
    if (counts_.leases > 0) return bad("a key after the leases");
    if (auto ordered = in_order(*name); !ordered) return ordered;
    const auto record = key_of(fields);
    if (!record) return bad(fmt::format("key {}: {}", escaped(*name), record.error().detail()));

    const auto place = core::key_place(*name);
    if (auto added = store_->add(place, core::encode(place, *record)); !added) {
      return about_store(added.error());
    }
    ++(record->value ? counts_.keys : counts_.tombstones);
    return {};
  }

  Result<void> lease(const DumpFields& fields) {
    const auto name = needed_name(fields, "name");
    if (!name) return name.error();
    if (counts_.leases == 0) last_.reset();
    if (auto ordered = in_order(*name); !ordered) return ordered;
    const auto fence = token_of(fields, "fence", 1);
    if (!fence) return bad(fmt::format("lease {}: {}", escaped(*name), fence.error().detail()));
    header_->highest = std::max(header_->highest, *fence);
    ++counts_.leases;
    const auto holders = fields.find("holders");
    if (holders != fields.end() && holders->second.kind == Kind::list) {
      counts_.holders += holders->second.number;
    }
    return {};
  }

  /// A dump has them in the order of their bytes. So none comes twice, without remembering them
  /// all.
  Result<void> in_order(const std::string& name) {
    if (last_ && name == *last_) return bad(fmt::format("{} is there twice", escaped(name)));
    if (last_ && name < *last_) {
      return bad(
          fmt::format("{} stands behind {}: keys and names must be in the order of their "
                      "bytes, as `fencekv-admin dump` writes them",
                      escaped(name), escaped(*last_)));
    }
    last_ = name;
    return {};
  }

  Result<bool> end(const DumpFields& fields) {
    const auto compare = [&](std::string_view name, std::uint64_t found) -> Result<void> {
      const auto count = count_of(fields, name);
      if (!count) return count.error();
      if (*count == found) return {};
      return bad(
          fmt::format("the last line counts {} {}, but {} are there: lines are missing or "
                      "were added; {}",
                      *count, name, found, kMakeANewDump));
    };
    if (auto same = compare("keys", counts_.keys); !same) return same.error();
    if (auto same = compare("tombstones", counts_.tombstones); !same) return same.error();
    if (auto same = compare("leases", counts_.leases); !same) return same.error();
    // All leases of layout 1 were exclusive, and it did not count who holds them.
    if (header_->layout > 1) {
      if (auto same = compare("holders", counts_.holders); !same) return same.error();
    }

    // The last line may know it even if the first, changed by somebody, does not say so.
    if (!header_->has_hash && !fields.contains(kDigest)) return true;
    const auto hash = text_of(fields, kDigest);
    if (!hash) return hash.error();
    if (*hash == reader_.hash_before()) return true;
    return bad(
        fmt::format("the lines above are not those that were written: their SHA-256 is {}, "
                    "not {}; {}. If they were changed on purpose, take `digest` out of the "
                    "first line and `sha256` out of this one",
                    reader_.hash_before(), escaped(*hash), kMakeANewDump));
  }

  Result<void> finish() {
    core::SmallRecords old;
    old.position.live_keys = counts_.keys;
    old.position.tombstones = counts_.tombstones;
    const auto clock = system_clock();
    old.identity.boots.enter(clock->boot_id(), clock->since_boot(), {});
    small_ = core::new_history(std::move(old), header_->highest);
    if (auto finished = store_->finish(small_); !finished) return about_store(finished.error());
    return {};
  }

  Error about_store(const Error& error) {
    is_about_store_ = true;
    return error;
  }

  /// What is wrong with the dump is told with its line; with the store, without.
  Error at_line(const Error& error) const {
    if (is_about_store_) return error;
    const auto name = options_.dump == "-" ? std::string("standard input") : options_.dump;
    return {error.code(), fmt::format("{}:{}: {}", name, reader_.line_number(), error.detail())};
  }

  rocks::FileSystem& files_;
  const LoadOptions& options_;
  DumpReader reader_;
  std::optional<Header> header_;
  std::optional<rocks::NewStore> store_;
  std::optional<std::string> last_;  // the key, or name, of the line before
  Counts counts_;
  core::SmallRecords small_;
  bool is_about_store_ = false;
};

}  // namespace

Result<void> load(rocks::FileSystem& files, const LoadOptions& options, Output& output) {
  auto reader = DumpReader::open(options.dump);
  if (!reader) return reader.error();
  Loader loader(files, options, *std::move(reader));
  if (auto loaded = loader.run(); !loaded) return loaded;
  loader.tell(output);
  return {};
}

}  // namespace fencekv::admin
