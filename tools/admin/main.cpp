// SPDX-License-Identifier: Apache-2.0
/// fencekv-admin: looks into a store, stopped or in use, and makes new ones.

#include "engine/rocksdb/store_reader.h"
#include "tools/admin/backup.h"
#include "tools/admin/dump.h"
#include "tools/admin/exit_code.h"
#include "tools/admin/load.h"
#include "tools/admin/output.h"
#include "tools/admin/repair.h"
#include "tools/admin/stat.h"
#include "tools/admin/text.h"
#include "tools/admin/verify.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <fcntl.h>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace fencekv::admin {
namespace {

constexpr const char* kAbout =
    "Looks into a fencekv store, stopped or in use by a server, at one point in time: nothing is\n"
    "changed, and a running server does not notice. Makes new stores: a store that is there is\n"
    "never written to.";

constexpr const char* kExitCodes =
    "Exit codes: 0 fine; 1 verify found problems in a store that can be opened; 2 wrong "
    "arguments,\n"
    "there is no store that could be opened, or a dump cannot be loaded; 3 a server is creating "
    "the store right now; 4 the\n"
    "store is damaged: a server refuses to open it, or not all of it could be read; 5 a newer\n"
    "version wrote it; 8 the storage cannot be read now, or the output cannot be written.";

struct Arguments {
  std::string directory;
  DumpOptions dump;
  std::optional<DumpFormat> dump_format;
  StatOptions stat;
  RepairOptions repair;
  std::string target;
  std::string backup;
  LoadOptions load;
};

void complain(std::string_view text) {
  // Longer than any path that can be opened.
  constexpr std::size_t kColumns = 5000;
  fmt::print(stderr, "fencekv-admin: {}\n", message(text, kColumns));
}

/// What the person who reads the error can do about it; empty: the error says so itself.
std::string_view advice(Errc code) {
  switch (code) {
    case Errc::corrupt:
      return "The store is damaged: do not delete anything, keep a copy of the directory, and "
             "restore a backup. `fencekv-admin verify` lists what is wrong; `fencekv-admin repair` "
             "makes a store of what can be read";
    case Errc::misconf:
      return "Check that this user may read all files of the store, and the disk";
    default:
      return {};
  }
}

ExitCode fail(const Error& error) {
  complain(error.detail());
  if (const auto words = advice(error.code()); !words.empty()) complain(words);
  return exit_code_of(error.code());
}

/// A closed standard stream would give its number to the next file that is opened, and what is
/// printed would go there.
bool are_streams_open() {
  for (const int stream : {STDIN_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", O_RDWR) == -1) return false;
  }
  return fcntl(STDOUT_FILENO, F_GETFD) != -1;
}

/// A store holds a file open for every 64 MiB, and the default limit is 1,024 files.
void allow_many_files() {
  struct rlimit files {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

void add_directory(CLI::App& command, Arguments& arguments) {
  command.add_option("--dir,dir", arguments.directory, "The directory of the store")
      ->required()
      ->type_name("DIR");
  command.footer(kExitCodes);
}

template <class Choice>
CLI::Option* add_choice(CLI::App& command, const std::string& name, Choice& choice,
                        const std::map<std::string, Choice>& choices, const std::string& about) {
  std::string names;
  for (const auto& [word, value] : choices) names += (names.empty() ? "" : "|") + word;
  const auto set = [&choice, choices](const std::string& word) {
    const auto found = choices.find(word);
    if (found == choices.end()) return false;
    choice = found->second;
    return true;
  };
  return command
      .add_option_function<std::string>(
          name,
          [set, name, names](const std::string& word) {
            if (set(word)) return;
            throw CLI::ValidationError(name, "expected " + names + ", not " + word);
          },
          about)
      ->type_name(names);
}

/// Opens the store, runs `work` on it, and finishes the output.
template <class Work>
int with_store(const Arguments& arguments, Output& output, Work work) {
  auto reader = rocks::StoreReader::open(arguments.directory, {});
  if (!reader) return fail(reader.error());
  const auto worked = work(**reader);
  auto finished = output.finish();
  if (!worked) return fail(worked.error());
  if (!finished) return fail(finished.error());
  return exit_ok;
}

int run_dump(const Arguments& arguments) {
  auto options = arguments.dump;
  options.format =
      arguments.dump_format.value_or(is_terminal_output() ? DumpFormat::table : DumpFormat::json);
  Output output;
  return with_store(arguments, output,
                    [&](rocks::StoreReader& reader) { return dump(reader, options, output); });
}

int run_stat(const Arguments& arguments) {
  Output output;
  return with_store(arguments, output, [&](rocks::StoreReader& reader) {
    return stat(reader, arguments.stat, output);
  });
}

int run_verify(const Arguments& arguments) {
  Output output;
  auto code = exit_ok;
  if (const auto reader = rocks::StoreReader::open(arguments.directory, {}); reader) {
    code = verify(**reader, output);
  } else if (reader.error().code() == Errc::corrupt) {
    report_unopened(arguments.directory, reader.error(), output);
    code = exit_damaged;
  } else {
    return fail(reader.error());
  }
  if (const auto finished = output.finish(); !finished) return fail(finished.error());
  return code;
}

int run_load(Arguments& arguments) {
  arguments.load.directory = arguments.directory;
  Output output;
  if (auto loaded = load(rocks::posix_files(), arguments.load, output); !loaded) {
    complain(loaded.error().detail());
    return exit_code_of(loaded.error().code());
  }
  if (const auto finished = output.finish(); !finished) return fail(finished.error());
  return exit_ok;
}

/// Ends a command that has its own words for errors.
int finish(const Result<void>& done, Output& output) {
  if (!done) {
    complain(done.error().detail());
    return exit_code_of(done.error().code());
  }
  if (const auto finished = output.finish(); !finished) return fail(finished.error());
  return exit_ok;
}

int run_backup(const Arguments& arguments) {
  Output output;
  return with_store(arguments, output, [&](rocks::StoreReader& reader) {
    return backup(rocks::posix_files(), reader, arguments.target, output);
  });
}

int run_verify_backup(const Arguments& arguments) {
  Output output;
  return finish(verify_backup(rocks::posix_files(), arguments.backup, output), output);
}

int run_restore(const Arguments& arguments) {
  Output output;
  return finish(restore(rocks::posix_files(), arguments.backup, arguments.directory, output),
                output);
}

int run_repair(Arguments& arguments) {
  auto& options = arguments.repair;
  options.directory = arguments.directory;
  options.copy = arguments.target;
  Output output;
  const auto code = repair(rocks::posix_files(), options, output);
  const auto finished = output.finish();
  if (!code) {
    complain(code.error().detail());
    return exit_code_of(code.error().code());
  }
  if (!finished) return fail(finished.error());
  return *code;
}

void add_backup_argument(CLI::App& command, Arguments& arguments) {
  command.add_option("--backup,backup", arguments.backup, "The directory of the backup")
      ->required()
      ->type_name("BACKUP");
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(kAbout, "fencekv-admin");
  app.set_version_flag("--version", "fencekv-admin " FENCEKV_VERSION);
  app.require_subcommand(1);
  app.footer(kExitCodes);

  auto& dump = *app.add_subcommand("dump", "Every record, as JSON lines or as a table");
  add_directory(dump, arguments);
  DumpFormat format{};
  auto* format_option = add_choice<DumpFormat>(
      dump, "--format", format, {{"json", DumpFormat::json}, {"table", DumpFormat::table}},
      "Default: table on a terminal, else json");
  add_choice<DumpWhat>(
      dump, "--what", arguments.dump.what,
      {{"keys", DumpWhat::keys}, {"leases", DumpWhat::leases}, {"all", DumpWhat::all}},
      "Default: all");
  add_choice<DumpValues>(
      dump, "--values", arguments.dump.values,
      {{"text", DumpValues::text}, {"base64", DumpValues::base64}, {"none", DumpValues::none}},
      "text (default): base64 only where a value is no text; none: only how long they are");
  dump.add_option("--prefix", arguments.dump.prefix,
                  "Only keys and lease names that begin with this")
      ->type_name("P");

  auto& stat = *app.add_subcommand("stat", "Where the store stands: counters, counts, sizes");
  add_directory(stat, arguments);
  add_choice<StatFormat>(stat, "--format", arguments.stat.format,
                         {{"text", StatFormat::text}, {"json", StatFormat::json}}, "Default: text");
  stat.add_flag("--leases", arguments.stat.leases,
                "Also count what is held now, by mode: reads every lease record");

  auto& verify = *app.add_subcommand(
      "verify", "Checks all checksums, records and invariants; prints what is wrong");
  add_directory(verify, arguments);

  auto& load = *app.add_subcommand("load", "Makes a new store of a dump; leases are void in it");
  load.add_option("--dump,dump", arguments.load.dump,
                  "What `dump --format json` wrote; - is standard input")
      ->required()
      ->type_name("DUMP");
  add_directory(load, arguments);
  add_choice<LoadFormat>(load, "--format", arguments.load.format,
                         {{"text", LoadFormat::text}, {"json", LoadFormat::json}}, "Default: text");

  auto& backup = *app.add_subcommand(
      "backup", "Makes a verified backup, of a stopped store or of one in use; complete or absent");
  add_directory(backup, arguments);
  backup.add_option("--target,target", arguments.target, "A new directory")
      ->required()
      ->type_name("TARGET");

  auto& verify_backup =
      *app.add_subcommand("verify-backup", "Checks every file of a backup and every record in it");
  add_backup_argument(verify_backup, arguments);
  verify_backup.footer(kExitCodes);

  auto& restore = *app.add_subcommand(
      "restore",
      "Makes a store of a backup in a new or empty directory; complete or absent. Leases are void "
      "in it, and tokens handed out so far are refused");
  add_backup_argument(restore, arguments);
  add_directory(restore, arguments);

  auto& repair = *app.add_subcommand(
      "repair",
      "Makes a store of what can be read of a damaged one, in a copy; says what is lost. Nothing "
      "is done if acknowledged writes may be lost, but with --accept-loss");
  add_directory(repair, arguments);
  auto* copy = repair
                   .add_option("--to", arguments.target,
                               "A new directory for the repaired store. Default: DIR.repaired")
                   ->type_name("COPY");
  repair
      .add_flag("--in-place", arguments.repair.in_place,
                "Replace the damaged store; its parts are kept in a directory in DIR")
      ->excludes(copy);
  repair.add_flag("--dry-run", arguments.repair.dry_run, "Only say what would be done");
  repair.add_flag("--accept-loss", arguments.repair.accept_loss,
                  "Repair although acknowledged writes may be lost");
  add_choice<RepairFormat>(repair, "--format", arguments.repair.format,
                           {{"text", RepairFormat::text}, {"json", RepairFormat::json}},
                           "Default: text");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, std::cout, std::cerr);
    // CLI11 would say "A subcommand is required" to a misspelt one too.
    complain(app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-'
                 ? fmt::format("expected backup, dump, load, repair, restore, stat, verify or "
                               "verify-backup, not {}",
                               argv[1])
                 : error.what());
    complain("--help explains the commands and their options");
    return exit_usage;
  }
  if (arguments.directory.empty() && !verify_backup.parsed()) {
    complain("--dir: expected a directory");
    return exit_usage;
  }

  if (format_option->count() > 0) arguments.dump_format = format;
  if (dump.parsed()) return run_dump(arguments);
  if (stat.parsed()) return run_stat(arguments);
  if (load.parsed()) return run_load(arguments);
  if (backup.parsed()) return run_backup(arguments);
  if (verify_backup.parsed()) return run_verify_backup(arguments);
  if (restore.parsed()) return run_restore(arguments);
  if (repair.parsed()) return run_repair(arguments);
  return run_verify(arguments);
}

}  // namespace
}  // namespace fencekv::admin

int main(int argc, char** argv) {
  if (!fencekv::admin::are_streams_open()) {
    fencekv::admin::complain("standard output is closed");
    return fencekv::admin::exit_io;
  }
  fencekv::admin::allow_many_files();
  return fencekv::admin::run(argc, argv);
}
