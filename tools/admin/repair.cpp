// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/repair.h"

#include "engine/rocksdb/repair.h"
#include "engine/rocksdb/store_reader.h"
#include "fencekv/options.h"
#include "tools/admin/text.h"
#include "tools/admin/verify.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

namespace fencekv::admin {
namespace {

using std::filesystem::path;

/// How it ended, for programs.
enum class Done { nothing_to_do, dry_run, loss_not_accepted, repaired };

std::string_view word(Done done) {
  switch (done) {
    case Done::nothing_to_do:
      return "nothing to do";
    case Done::dry_run:
      return "dry run";
    case Done::loss_not_accepted:
      return "loss not accepted";
    case Done::repaired:
      break;
  }
  return "repaired";
}

path plain(const path& directory) {
  return directory.has_filename() ? directory : directory.parent_path();
}

path target_of(const RepairOptions& options) {
  if (options.in_place) return plain(options.directory);
  if (!options.copy.empty()) return options.copy;
  auto copy = plain(options.directory);
  copy += ".repaired";
  return copy;
}

class Report {
 public:
  Report(const RepairOptions& options, Output& output) : options_(options), output_(output) {}

  void found(const rocks::Examined& found) {
    const auto& kept = found.kept();
    if (is_json()) {
      json_["directory"] = shown(options_.directory.string());
      json_["damage"] = lines(found.damage());
      json_["losses"] = lines(found.losses());
      json_["kept"] = {{"live_keys", kept.live_keys()},
                       {"tombstones", kept.tombstones()},
                       {"lease_names", kept.lease_names()}};
      return;
    }
    for (const auto& text : found.damage()) line("damage", text);
    for (const auto& text : found.losses()) line("loss", text);
    if (found.damage().empty()) return;
    line("kept", fmt::format("{} keys with a value, {} without, {} lease names", kept.live_keys(),
                             kept.tombstones(), kept.lease_names()));
  }

  /// What a repair means for those who use the store.
  void plan(const rocks::Examined& found, const path& target) {
    const auto& small = found.small();
    const auto incarnation = core::to_hex(small.identity.incarnation);
    if (is_json()) {
      json_["target"] = shown(target.string());
      json_["new_history"] = found.may_have_lost();
      json_["floor"] = std::to_string(small.allocator.floor.number());
      return;
    }
    line("plan", options_.in_place
                     ? fmt::format("the repaired store takes the place of the damaged one in {}, "
                                   "whose parts are kept in a directory there",
                                   target.string())
                     : fmt::format("the repaired store is written to {}; {} is left as it is",
                                   target.string(), options_.directory.string()));
    if (!found.may_have_lost()) {
      line("plan", "nothing acknowledged is lost: the history goes on, leases included");
      return;
    }
    line("plan", fmt::format("a new history begins: incarnation and floor change (floor {}), all "
                             "leases end, and tokens handed out so far are refused",
                             small.allocator.floor.number()));
    line("plan",
         "tokens of an external allocator (unguarded_tokens = any) are not refused by a floor: a "
         "key that is lost, or older than it was, has lost its fence; raise it before anybody "
         "writes");
  }

  void replaced(const path& aside) {
    if (is_json()) {
      json_["damaged_parts"] = shown(aside.string());
    } else {
      line("kept", fmt::format("the damaged parts are in {}: remove them when nobody needs them",
                               aside.string()));
    }
  }

  void ended(Done done) {
    if (is_json()) {
      json_["result"] = word(done);
      output_.write(json_.dump() + "\n");
      return;
    }
    const auto name = options_.directory.string();
    switch (done) {
      case Done::nothing_to_do:
        return line("done", name + ": no damage was found, there is nothing to repair");
      case Done::dry_run:
        return line("done", name + ": nothing was changed (--dry-run)");
      case Done::loss_not_accepted:
        return line("refused",
                    name +
                        ": acknowledged writes may be lost, so nothing was done. A backup may "
                        "have them: `fencekv-admin restore`. To repair all the same, add "
                        "--accept-loss");
      case Done::repaired:
        return line("done", target_of(options_).string() + ": repaired");
    }
  }

 private:
  bool is_json() const { return options_.format == RepairFormat::json; }

  void line(std::string_view kind, std::string_view text) {
    output_.write(fmt::format("{}: {}\n", kind, message(text)));
  }

  static std::vector<std::string> lines(const std::vector<std::string>& texts) {
    std::vector<std::string> safe;
    safe.reserve(texts.size());
    for (const auto& text : texts) safe.push_back(message(text));
    return safe;
  }

  const RepairOptions& options_;
  Output& output_;
  nlohmann::json json_ = nlohmann::json::object();
};

/// Looks at the repaired store as everybody will.
Result<void> check(const path& target, Output& output, RepairFormat format) {
  auto reader = rocks::StoreReader::open(target, {});
  if (!reader) return reader.error();
  if (format == RepairFormat::json) return {};
  const auto code = verify(**reader, output);
  if (code == exit_ok) return {};
  return Error(Errc::corrupt, target.string() + " has problems after its repair");
}

}  // namespace

Result<ExitCode> repair(rocks::FileSystem& files, const RepairOptions& options, Output& output) {
  Report report(options, output);
  const auto is_half = rocks::is_half_repaired(files, options.directory);
  if (!is_half) return is_half.error();
  if (*is_half) {
    if (options.dry_run) {
      report.ended(Done::dry_run);
      return exit_damaged;
    }
    // What was decided then is only carried out.
    const auto aside = rocks::finish_repair(files, options.directory);
    if (!aside) return aside.error();
    report.replaced(*aside);
    if (auto sound = check(options.directory, output, options.format); !sound) {
      return sound.error();
    }
    report.ended(Done::repaired);
    return exit_ok;
  }

  const auto mode =
      options.in_place && !options.dry_run ? rocks::LockMode::exclusive : rocks::LockMode::shared;
  const auto boot = system_clock()->boot_id();
  path target = target_of(options);
  {
    const auto found = rocks::examine(files, options.directory, boot, mode);
    if (!found) return found.error();
    report.found(*found);
    if (found->damage().empty()) {
      report.ended(Done::nothing_to_do);
      return exit_ok;
    }
    report.plan(*found, target);
    if (options.dry_run) {
      report.ended(Done::dry_run);
      return exit_damaged;
    }
    if (found->may_have_lost() && !options.accept_loss) {
      report.ended(Done::loss_not_accepted);
      return exit_damaged;
    }
    if (options.in_place) {
      const auto aside = found->write_in_place();
      if (!aside) return aside.error();
      report.replaced(*aside);
    } else if (auto written = found->write_copy(target); !written) {
      return written.error();
    }
  }
  // The lock is given up: the repaired store is opened as by anybody.
  if (auto sound = check(target, output, options.format); !sound) return sound.error();
  report.ended(Done::repaired);
  return exit_ok;
}

}  // namespace fencekv::admin
