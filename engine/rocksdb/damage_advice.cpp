// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/damage_advice.h"

#include "engine/rocksdb/database_options.h"
#include "engine/rocksdb/salvage.h"

#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace fencekv::rocks {
namespace {

/// The logs in the directory `database`, in their order.
std::string logs_of(FileSystem& files, const std::filesystem::path& database) {
  auto names = files.list(database);
  if (!names) return {};
  std::sort(names->begin(), names->end());
  std::string text;
  for (const auto& name : *names) {
    if (!name.ends_with(".log")) continue;
    text += (text.empty() ? "" : ", ") + (database / name).string();
  }
  return text;
}

/// Which tables cannot be opened. Only what is read then is looked at: a store may have terabytes.
std::string unreadable_tables(FileSystem& files, const std::filesystem::path& database) {
  const auto names = files.list(database);
  if (!names) return {};
  const auto options = database_options(files.env(), {});
  std::string text;
  for (const auto& name : *names) {
    if (!name.ends_with(".sst")) continue;
    const auto table = (database / name).string();
    rocksdb::SstFileReader reader(options);
    if (!reader.Open(table).ok()) text += "; " + table + " cannot be read";
  }
  return text;
}

/// The file that RocksDB calls number so-and-so; `at` is where that number is in its words.
std::string file_of(const std::filesystem::path& database, const std::string& words, std::size_t at,
                    const char* ending) {
  auto number = words.substr(at, words.find_first_not_of("0123456789", at) - at);
  constexpr std::size_t kDigits = 6;
  number.insert(0, kDigits - std::min(kDigits, number.size()), '0');
  return (database / (number + ending)).string();
}

/// The files that words about damage of `database` mean and do not name.
std::string files_meant(FileSystem& files, const std::filesystem::path& database,
                        const std::string& words) {
  const auto says = [&words](const std::string& some) {
    return words.find(some) != std::string::npos;
  };
  const auto current = (database / "CURRENT").string();
  if (says(" is behind: ")) {
    auto unreadable = unreadable_logs(files, database);
    if (!unreadable.empty()) return unreadable;
    const auto logs = logs_of(files, database);
    return logs.empty() ? "; there is no log" : "; there are " + logs;
  }
  if (!says(database.string() + ": ") || says(".sst")) return {};

  // RocksDB knows a log that has another length than it noted, or is missing, by its number. The
  // log may be right, and the manifest wrong.
  constexpr std::string_view kByNumber = "log number: ";
  if (const auto at = words.find(kByNumber); at != std::string::npos) {
    const auto manifest = files.read(current);
    const auto name = manifest && *manifest ? (*manifest)->substr(0, (*manifest)->find('\n')) : "";
    return "; that is " + file_of(database, words, at + kByNumber.size(), ".log") + ", of which " +
           (database / escaped(name)).string() + " speaks";
  }
  // A table that is missing has the name that it would have had in an older version.
  if (const auto at = words.find(".ldb: No such file"); at != std::string::npos) {
    const auto from = words.rfind('/', at) + 1;
    return "; that is " + file_of(database, words, from, ".sst");
  }
  if (says("/MANIFEST-")) {
    if (says("No such file")) return "; that is what " + current + " names";
    // It blames the manifest for a table that it cannot open, too.
    auto unreadable = unreadable_tables(files, database);
    if (!unreadable.empty()) return unreadable;
  }
  return unreadable_logs(files, database);
}

}  // namespace

Error with_advice(FileSystem& files, const std::filesystem::path& directory, const Error& error) {
  if (error.code() != Errc::corrupt) return error;
  const auto name = directory.string();
  return {Errc::corrupt, error.detail() + files_meant(files, directory / "db", error.detail()) +
                             ". Nothing was changed. `fencekv-admin verify " + name +
                             "` says more; `fencekv-admin repair " + name +
                             "` makes a store of what can be read"};
}

}  // namespace fencekv::rocks
