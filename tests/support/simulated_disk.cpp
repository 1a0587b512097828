// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simulated_disk.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace fencekv::testing {
namespace {

using std::filesystem::path;

Result<void> outcome(int number, std::string_view action, const path& file) {
  if (number == 0) return {};
  return rocks::file_error(action, file, number);
}

class OpenFile final : public rocks::File {
 public:
  OpenFile(SimulatedInodes& inodes, path path, SimulatedInodes::InodePtr file)
      : inodes_(inodes), path_(std::move(path)), file_(std::move(file)) {}

  Result<void> write_at(std::uint64_t offset, std::string_view bytes) override {
    return outcome(inodes_.write(file_, path_.native(), offset, bytes), "write", path_);
  }
  Result<void> sync() override {
    return outcome(inodes_.sync(file_, path_.native()), "sync", path_);
  }

 private:
  SimulatedInodes& inodes_;
  const path path_;
  const SimulatedInodes::InodePtr file_;
};

class HeldLock final : public rocks::FileLock {
 public:
  HeldLock(SimulatedInodes& inodes, path path, bool is_exclusive)
      : inodes_(inodes), path_(std::move(path)), is_exclusive_(is_exclusive) {}
  ~HeldLock() override { inodes_.unlock(path_.native(), "flock", is_exclusive_); }

  void note_holder() override {
    SimulatedInodes::InodePtr file;
    if (inodes_.open(path_.native(), &file) != 0) return;
    if (inodes_.truncate(file, path_.native(), 0) != 0) return;
    static_cast<void>(inodes_.append(file, path_.native(), "1\n"));
  }

 private:
  SimulatedInodes& inodes_;
  const path path_;
  const bool is_exclusive_;
};

}  // namespace

SimulatedDisk::SimulatedDisk(BackgroundWork background)
    : SimulatedDisk(std::make_unique<SimulatedInodes>(), background) {}

SimulatedDisk::SimulatedDisk(std::unique_ptr<SimulatedInodes> inodes, BackgroundWork background)
    : background_(background),
      inodes_(std::move(inodes)),
      env_(std::make_unique<SimulatedEnv>(*inodes_, background)) {}

SimulatedDisk::~SimulatedDisk() = default;

std::shared_ptr<SimulatedDisk> SimulatedDisk::after_process_crash() const {
  return std::shared_ptr<SimulatedDisk>(
      new SimulatedDisk(inodes_->after_process_crash(), background_));
}

std::shared_ptr<SimulatedDisk> SimulatedDisk::after_power_loss(std::mt19937_64& random) const {
  return std::shared_ptr<SimulatedDisk>(
      new SimulatedDisk(inodes_->after_power_loss(random), background_));
}

Result<std::unique_ptr<rocks::File>> SimulatedDisk::create(const path& file) {
  SimulatedInodes::InodePtr inode;
  const auto number = inodes_->create(file.native(), true, &inode);
  if (number != 0) return rocks::file_error("open", file, number);
  return std::unique_ptr<rocks::File>(std::make_unique<OpenFile>(*inodes_, file, std::move(inode)));
}

Result<std::unique_ptr<rocks::File>> SimulatedDisk::open(const path& file) {
  SimulatedInodes::InodePtr inode;
  const auto number = inodes_->open(file.native(), &inode);
  if (number != 0) return rocks::file_error("open", file, number);
  return std::unique_ptr<rocks::File>(std::make_unique<OpenFile>(*inodes_, file, std::move(inode)));
}

Result<std::optional<std::string>> SimulatedDisk::read(const path& file) {
  SimulatedInodes::InodePtr inode;
  auto number = inodes_->open(file.native(), &inode);
  if (number == ENOENT) return std::optional<std::string>{};
  if (number != 0) return rocks::file_error("open", file, number);
  std::string bytes;
  number = inodes_->read(inode, file.native(), 0, SIZE_MAX, &bytes);
  if (number != 0) return rocks::file_error("read", file, number);
  return std::optional(std::move(bytes));
}

Result<std::string> SimulatedDisk::read_at(const path& file, std::uint64_t offset,
                                           std::size_t bytes) {
  SimulatedInodes::InodePtr inode;
  auto number = inodes_->open(file.native(), &inode);
  if (number != 0) return rocks::file_error("open", file, number);
  std::string content;
  number = inodes_->read(inode, file.native(), offset, bytes, &content);
  if (number != 0) return rocks::file_error("read", file, number);
  return content;
}

Result<std::uint64_t> SimulatedDisk::size(const path& file) {
  std::uint64_t size = 0;
  const auto number = inodes_->look(file.native(), nullptr, &size, nullptr);
  if (number != 0) return rocks::file_error("look at", file, number);
  return size;
}

Result<bool> SimulatedDisk::exists(const path& file) {
  const auto number = inodes_->look(file.native(), nullptr, nullptr, nullptr);
  if (number == 0) return true;
  if (number == ENOENT || number == ENOTDIR) return false;
  return rocks::file_error("look at", file, number);
}

Result<bool> SimulatedDisk::is_directory(const path& file) {
  bool is_directory = false;
  const auto number = inodes_->look(file.native(), &is_directory, nullptr, nullptr);
  if (number == 0) return is_directory;
  if (number == ENOENT || number == ENOTDIR) return false;
  return rocks::file_error("look at", file, number);
}

Result<std::vector<std::string>> SimulatedDisk::list(const path& directory) {
  std::vector<std::string> names;
  const auto number = inodes_->list(directory.native(), &names);
  if (number != 0) return rocks::file_error("list", directory, number);
  return names;
}

Result<void> SimulatedDisk::make_directory(const path& directory) {
  const auto number = inodes_->make_directory(directory.native());
  if (number == EEXIST) {
    const auto is_there = is_directory(directory);
    if (is_there && *is_there) return {};
  }
  return outcome(number, "create", directory);
}

Result<void> SimulatedDisk::rename(const path& from, const path& to) {
  return outcome(inodes_->rename(from.native(), to.native()), "rename", from);
}

Result<void> SimulatedDisk::link(const path& from, const path& to) {
  return outcome(inodes_->link(from.native(), to.native()), "create", to);
}

Result<void> SimulatedDisk::remove(const path& file) {
  const auto number = inodes_->remove(file.native());
  return outcome(number == ENOENT ? 0 : number, "remove", file);
}

Result<void> SimulatedDisk::sync_directory(const path& directory) {
  return outcome(inodes_->sync_directory(directory.native()), "sync", directory);
}

std::optional<rocks::FreeSpace> SimulatedDisk::free_space(const path&) {
  const auto capacity = inodes_->capacity();
  const auto used = capacity == UINT64_MAX ? 0 : std::min(capacity, inodes_->used());
  return rocks::FreeSpace{.free = capacity - used, .total = capacity};
}

bool SimulatedDisk::is_open_to_others(const path&) {
  return false;
}

Result<std::unique_ptr<rocks::FileLock>> SimulatedDisk::lock(const path& file,
                                                             rocks::LockMode mode) {
  const bool is_exclusive = mode == rocks::LockMode::exclusive;
  SimulatedInodes::InodePtr inode;
  auto number = inodes_->open(file.native(), &inode);
  if (number == ENOENT && is_exclusive) number = inodes_->create(file.native(), true, &inode);
  if (number != 0) return rocks::file_error("open", file, number);
  number = inodes_->lock(file.native(), "flock", is_exclusive);
  if (number == EWOULDBLOCK) return std::unique_ptr<rocks::FileLock>();
  if (number != 0) return rocks::file_error("lock", file, number);
  return std::unique_ptr<rocks::FileLock>(std::make_unique<HeldLock>(*inodes_, file, is_exclusive));
}

}  // namespace fencekv::testing
