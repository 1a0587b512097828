// SPDX-License-Identifier: Apache-2.0
/// Files and directories in memory that know what was synced: the part of the simulated disk that
/// both its faces stand on. It speaks errno, as the kernel does.
///
/// What a crash leaves:
/// - of the process: everything that was written. What was not synced stays not synced.
/// - of the power: what was synced, and of the rest any part. A file's unsynced bytes arrive sector
///   by sector in any order, a sector being in any of the states it went through; the file may have
///   its new size without its new bytes. A directory's unsynced changes arrive in order up to some
///   point, or each or not; a rename is never half done, nor durable in one of two directories
///   only.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::testing {

enum class DiskOperation : std::uint8_t {
  create,
  open,
  read,
  write,
  sync,
  truncate,
  rename,
  link,
  remove,
  make_directory,
  sync_directory,
  look,  ///< Names, sizes, whether something is there.
  lock,
};

std::string_view to_string(DiskOperation operation);

/// Whether it can change what is on the disk or what of it is durable.
bool is_change(DiskOperation operation);

/// One call of a disk, before it is done.
struct DiskCall {
  std::uint64_t number = 0;  ///< From 1, counting all calls.
  DiskOperation operation = DiskOperation::look;
  std::string_view path;
  std::uint64_t offset = 0;  ///< Of a write; the new size of a truncation.
  std::string_view bytes{};  ///< Of a write.
};

/// What a call is answered instead of being done.
struct DiskFailure {
  int number = 0;           ///< errno.
  std::size_t written = 0;  ///< So many bytes of the write arrive all the same.
};

/// Thread safety: all members may be called concurrently. The hook is called with the lock held,
/// one call at a time, and may call everything but the disk's faces.
class SimulatedInodes {
 public:
  using Hook = std::function<std::optional<DiskFailure>(const DiskCall& call)>;

  struct Inode;
  using InodePtr = std::shared_ptr<Inode>;

  SimulatedInodes();

  // Each returns 0 or an errno.
  int create(std::string_view path, bool exclusive, InodePtr* file);
  int open(std::string_view path, InodePtr* file);
  int read(const InodePtr& file, std::string_view path, std::uint64_t offset, std::size_t size,
           std::string* bytes);
  int write(const InodePtr& file, std::string_view path, std::uint64_t offset,
            std::string_view bytes);
  int append(const InodePtr& file, std::string_view path, std::string_view bytes);
  int sync(const InodePtr& file, std::string_view path);
  int truncate(const InodePtr& file, std::string_view path, std::uint64_t size);
  int rename(std::string_view from, std::string_view to);
  int link(std::string_view from, std::string_view to);
  int remove(std::string_view path);
  int make_directory(std::string_view path);
  int sync_directory(std::string_view path);
  int list(std::string_view path, std::vector<std::string>* names);
  /// `size` of a directory is 0.
  int look(std::string_view path, bool* is_directory, std::uint64_t* size, std::uint64_t* modified);
  /// The locks of one disk image: they are not in the copy that a crash leaves.
  int lock(std::string_view path, std::string_view kind, bool exclusive);
  void unlock(std::string_view path, std::string_view kind, bool exclusive);
  bool are_same(std::string_view first, std::string_view second);

  std::uint64_t size_of(const InodePtr& file) const;
  std::uint64_t used() const;
  std::uint64_t capacity() const;
  /// Beyond it a write is answered ENOSPC, or as given, when what fits has been written.
  void set_capacity(std::uint64_t bytes, int number);

  void set_hook(Hook hook);
  std::uint64_t calls() const;

  std::unique_ptr<SimulatedInodes> after_process_crash() const;
  std::unique_ptr<SimulatedInodes> after_power_loss(std::mt19937_64& random) const;

  // Behind the back of those who use the disk: no call, no hook, durable at once.
  std::optional<std::string> content(std::string_view path) const;
  bool replace(std::string_view path, std::string_view content);
  bool erase(std::string_view path);
  /// Paths of all files, in order.
  std::vector<std::string> files() const;
  /// Whether all that was written to it is durable, its name too.
  bool is_durable(std::string_view path) const;

 private:
  struct Place;

  std::optional<DiskFailure> begin(DiskOperation operation, std::string_view path,
                                   std::uint64_t offset = 0, std::string_view bytes = {});
  Place find(std::string_view path) const;
  int write_locked(Inode& file, std::string_view path, std::uint64_t offset,
                   std::string_view bytes);

  mutable std::recursive_mutex mutex_;
  InodePtr root_;                                  // guarded by mutex_, as all below
  std::map<std::string, int, std::less<>> locks_;  // -1: exclusive, else how many share
  Hook hook_;
  std::uint64_t calls_ = 0;
  std::uint64_t moment_ = 0;
  std::uint64_t capacity_ = UINT64_MAX;
  int full_number_ = 0;
};

}  // namespace fencekv::testing
