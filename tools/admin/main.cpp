// SPDX-License-Identifier: Apache-2.0
/// fencekv-admin: looks into a store, stopped or in use, and changes nothing.

#include "engine/rocksdb/store_reader.h"
#include "tools/admin/dump.h"
#include "tools/admin/exit_code.h"
#include "tools/admin/output.h"
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
    "Looks into a fencekv store, stopped or in use by a server, at one point in time.\n"
    "Nothing is changed, and a running server does not notice.";

constexpr const char* kExitCodes =
    "Exit codes: 0 fine; 1 verify found problems in a store that can be opened; 2 wrong "
    "arguments,\n"
    "or there is no store that could be opened; 3 a server is creating the store right now; 4 the\n"
    "store is damaged: a server refuses to open it, or not all of it could be read; 5 a newer\n"
    "version wrote it; 8 the storage cannot be read now, or the output cannot be written.";

struct Arguments {
  std::string directory;
  DumpOptions dump;
  std::optional<DumpFormat> dump_format;
  StatFormat stat_format = StatFormat::text;
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
             "restore a backup. `fencekv-admin verify` lists what is wrong";
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
    return stat(reader, arguments.stat_format, output);
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
  add_choice<StatFormat>(stat, "--format", arguments.stat_format,
                         {{"text", StatFormat::text}, {"json", StatFormat::json}}, "Default: text");

  auto& verify = *app.add_subcommand(
      "verify", "Checks all checksums, records and invariants; prints what is wrong");
  add_directory(verify, arguments);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, std::cout, std::cerr);
    // CLI11 would say "A subcommand is required" to a misspelt one too.
    complain(app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-'
                 ? fmt::format("expected dump, stat or verify, not {}", argv[1])
                 : error.what());
    complain("--help explains the commands and their options");
    return exit_usage;
  }
  if (arguments.directory.empty()) {
    complain("--dir: expected a directory");
    return exit_usage;
  }

  if (format_option->count() > 0) arguments.dump_format = format;
  if (dump.parsed()) return run_dump(arguments);
  if (stat.parsed()) return run_stat(arguments);
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
