// SPDX-License-Identifier: Apache-2.0
#include "tests/admin/scene.h"

#include "engine/core/record.h"
#include "engine/rocksdb/directory.h"
#include "engine/rocksdb/rocksdb_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace fencekv::admin_test {
namespace {

namespace fs = std::filesystem;

}  // namespace

Folder::Folder() {
  auto name = (fs::temp_directory_path() / "fencekv-admin-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

Folder::~Folder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

Ended run_admin(const std::vector<std::string>& arguments, const fs::path& scratch) {
  const Folder folder;
  const auto out = folder.path() / "out";
  const auto err = folder.path() / "err";

  std::vector<std::string> words{FENCEKV_ADMIN};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> settings;
  for (char** setting = environ; *setting != nullptr; ++setting) {
    if (!std::string_view(*setting).starts_with("TMPDIR=")) settings.emplace_back(*setting);
  }
  if (!scratch.empty()) settings.push_back("TMPDIR=" + scratch.string());
  std::vector<char*> envp;
  for (auto& setting : settings) envp.push_back(setting.data());
  envp.push_back(nullptr);

  // Between fork and exec only calls that are safe beside the threads of an open store.
  const auto out_name = out.string();
  const auto err_name = err.string();
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open(out_name.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    dup2(open(err_name.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    execve(argv.front(), argv.data(), envp.data());
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return {.code = code, .out = read_whole(out), .err = read_whole(err)};
}

int run_shell(const std::string& line) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

std::unique_ptr<Store> open_store(const fs::path& directory, const Options& options) {
  auto store = open_rocksdb(directory, options);
  if (!store) {
    ADD_FAILURE() << store.error().line();
    return nullptr;
  }
  return *std::move(store);
}

void move_into_tables(const fs::path& directory) {
  open_store(directory).reset();
}

void plant(const fs::path& directory, const std::vector<core::Put>& puts) {
  auto taken = rocks::Directory::take(rocks::posix_files(), directory);
  ASSERT_TRUE(taken) << taken.error().line();
  auto backend = rocks::RocksBackend::open(*std::move(taken), false, Durability::sync,
                                           system_clock()->boot_id(), {});
  ASSERT_TRUE(backend) << backend.error().line();
  ASSERT_TRUE((*backend)->claim());

  const auto read = [&](std::string_view place) {
    return (*backend)->read(place)->value_or(std::string());
  };
  core::Batch batch;
  batch.position = *core::decode_position(core::kPositionKey, read(core::kPositionKey));
  ++batch.position.n;
  const auto allocator = core::decode_allocator(core::kAllocatorKey, read(core::kAllocatorKey));
  batch.puts.add(core::kPositionKey, {}, batch.position);
  // Later ones win, so that the position itself can be planted.
  for (const auto& put : puts) batch.puts.add(put.place, put.bytes);
  ASSERT_EQ((*backend)->commit(batch), core::Outcome::committed);
  (*backend)->close(allocator->newest);
}

std::map<std::string, std::string> contents(const fs::path& directory) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const auto name = fs::relative(entry.path(), directory).string();
    const auto times = std::to_string(entry.last_write_time().time_since_epoch().count());
    found[name] = entry.is_regular_file() ? times + "\n" + read_whole(entry.path()) : times;
  }
  return found;
}

std::map<std::string, std::string> settled_contents(const fs::path& directory) {
  constexpr std::chrono::milliseconds kQuiet{500};
  constexpr int kTries = 60;

  auto before = contents(directory);
  for (int tried = 0; tried < kTries; ++tried) {
    std::this_thread::sleep_for(kQuiet);
    auto now = contents(directory);
    if (now == before) break;
    before = std::move(now);
  }
  return before;
}

std::vector<fs::path> database_files(const fs::path& directory, std::string_view extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory / "db")) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string read_whole(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  return std::move(content).str();
}

void write_whole(const fs::path& file, std::string_view content) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << content;
  ASSERT_TRUE(stream.flush().good()) << file;
}

void flip_byte(const fs::path& file, std::size_t offset) {
  auto content = read_whole(file);
  ASSERT_LT(offset, content.size()) << file;
  content[offset] = static_cast<char>(content[offset] ^ 0x10);
  write_whole(file, content);
}

Dump parse_dump(const std::string& lines) {
  Dump dump;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) {
      ADD_FAILURE() << "not JSON: " << line.substr(0, 200);
      return dump;
    }
    const auto kind = json.value("kind", "");
    const auto named = [&json](const std::string& field) {
      return json.contains(field) ? json[field].get<std::string>()
                                  : "base64:" + json[field + "_base64"].get<std::string>();
    };
    if (json.contains("dump")) {
      EXPECT_TRUE(dump.header.is_null());
      dump.header = json;
    } else if (kind == "key") {
      EXPECT_TRUE(dump.keys.emplace(named("key"), json).second) << line;
    } else if (kind == "lease") {
      EXPECT_TRUE(dump.leases.emplace(named("name"), json).second) << line;
    } else if (kind == "end") {
      EXPECT_TRUE(dump.trailer.is_null());
      dump.sha256 = json.value("sha256", "");
      json.erase("sha256");
      dump.trailer = json;
    } else {
      ADD_FAILURE() << "unknown line: " << line.substr(0, 200);
    }
  }
  return dump;
}

}  // namespace fencekv::admin_test
