// SPDX-License-Identifier: Apache-2.0
/// What the tests of fencekv-admin have in common: a directory, a store in it, and the real
/// program.

#pragma once

#include "engine/core/backend.h"
#include "fencekv/store.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::admin_test {

/// A new directory, gone with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Ended {
  int code = -1;  ///< 128 + n: killed by signal n.
  std::string out;
  std::string err;
};

/// Runs fencekv-admin to its end, standard input empty, TMPDIR = `scratch` if it is not empty.
Ended run_admin(const std::vector<std::string>& arguments,
                const std::filesystem::path& scratch = {});

/// Runs a command line in bash; its exit code.
int run_shell(const std::string& line);

/// Opens the store, creating it if there is none. Fails the test if that is not possible.
std::unique_ptr<Store> open_store(const std::filesystem::path& directory,
                                  const Options& options = {});

/// Moves everything out of RocksDB's log into table files, as reopening does.
void move_into_tables(const std::filesystem::path& directory);

/// Puts records into a stopped store past all rules, in one group. What the position record counts
/// stays as it was.
void plant(const std::filesystem::path& directory, const std::vector<core::Put>& puts);

/// Everything below a directory: path and content of each file, name of each directory.
std::map<std::string, std::string> contents(const std::filesystem::path& directory);
/// The same of a store that has just been opened, once RocksDB has taken away the files of before:
/// it does so by itself, when nobody reads them any more.
std::map<std::string, std::string> settled_contents(const std::filesystem::path& directory);

/// The files below DIR/db that end so.
std::vector<std::filesystem::path> database_files(const std::filesystem::path& directory,
                                                  std::string_view extension);

std::string read_whole(const std::filesystem::path& file);
void write_whole(const std::filesystem::path& file, std::string_view content);
void flip_byte(const std::filesystem::path& file, std::size_t offset);

/// A dump in JSON lines. Fails the test if a line is not JSON.
struct Dump {
  nlohmann::json header;
  std::map<std::string, nlohmann::json> keys;    ///< By `key`, or `base64:` and `key_base64`.
  std::map<std::string, nlohmann::json> leases;  ///< By `name`, likewise.
  nlohmann::json trailer;                        ///< Without `sha256`; null: the dump was cut off.
  std::string sha256;                            ///< What the trailer says of the lines before it.
};
Dump parse_dump(const std::string& lines);

}  // namespace fencekv::admin_test
