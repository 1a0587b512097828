// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simulated_env.h"

#include <rocksdb/file_system.h>
#include <rocksdb/system_clock.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

namespace fencekv::testing {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using InodePtr = SimulatedInodes::InodePtr;

/// What RocksDB's own layer over POSIX makes of an errno.
IOStatus status_of(int number, const std::string& action, const std::string& path) {
  if (number == 0) return IOStatus::OK();
  const auto context = "While " + action + ": " + path;
  const auto words = std::generic_category().message(number);
  if (number == ENOSPC) {
    auto status = IOStatus::NoSpace(context, words);
    status.SetRetryable(true);
    return status;
  }
  if (number == ENOENT) return IOStatus::PathNotFound(context, words);
  return IOStatus::IOError(context, words);
}

class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(SimulatedInodes& inodes, std::string path, InodePtr file)
      : inodes_(inodes), path_(std::move(path)), file_(std::move(file)) {}

  IOStatus Read(size_t size, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    std::string bytes;
    const auto number = inodes_.read(file_, path_, offset_, size, &bytes);
    if (number != 0) return status_of(number, "reading file sequentially", path_);
    std::copy(bytes.begin(), bytes.end(), scratch);
    *result = Slice(scratch, bytes.size());
    offset_ += bytes.size();
    return IOStatus::OK();
  }
  IOStatus Skip(uint64_t size) override {
    offset_ = std::min(offset_ + size, inodes_.size_of(file_));
    return IOStatus::OK();
  }

 private:
  SimulatedInodes& inodes_;
  const std::string path_;
  const InodePtr file_;
  std::uint64_t offset_ = 0;
};

class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(SimulatedInodes& inodes, std::string path, InodePtr file)
      : inodes_(inodes), path_(std::move(path)), file_(std::move(file)) {}

  IOStatus Read(uint64_t offset, size_t size, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    std::string bytes;
    const auto number = inodes_.read(file_, path_, offset, size, &bytes);
    if (number != 0) return status_of(number, "pread", path_);
    std::copy(bytes.begin(), bytes.end(), scratch);
    *result = Slice(scratch, bytes.size());
    return IOStatus::OK();
  }

 private:
  SimulatedInodes& inodes_;
  const std::string path_;
  const InodePtr file_;
};

class WritableFile final : public rocksdb::FSWritableFile {
 public:
  WritableFile(SimulatedInodes& inodes, std::string path, InodePtr file)
      : inodes_(inodes), path_(std::move(path)), file_(std::move(file)) {}

  using rocksdb::FSWritableFile::Append;
  IOStatus Append(const Slice& bytes, const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.append(file_, path_, {bytes.data(), bytes.size()}),
                     "appending to file", path_);
  }
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.truncate(file_, path_, size), "truncating file", path_);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.sync(file_, path_), "fdatasync", path_);
  }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    return inodes_.size_of(file_);
  }

 private:
  SimulatedInodes& inodes_;
  const std::string path_;
  const InodePtr file_;
};

class RandomRWFile final : public rocksdb::FSRandomRWFile {
 public:
  RandomRWFile(SimulatedInodes& inodes, std::string path, InodePtr file)
      : inodes_(inodes), path_(std::move(path)), file_(std::move(file)) {}

  IOStatus Write(uint64_t offset, const Slice& bytes, const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.write(file_, path_, offset, {bytes.data(), bytes.size()}),
                     "write random read/write file", path_);
  }
  IOStatus Read(uint64_t offset, size_t size, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    std::string bytes;
    const auto number = inodes_.read(file_, path_, offset, size, &bytes);
    if (number != 0) return status_of(number, "reading random read/write file", path_);
    std::copy(bytes.begin(), bytes.end(), scratch);
    *result = Slice(scratch, bytes.size());
    return IOStatus::OK();
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.sync(file_, path_), "fdatasync random read/write file", path_);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  SimulatedInodes& inodes_;
  const std::string path_;
  const InodePtr file_;
};

class Directory final : public rocksdb::FSDirectory {
 public:
  Directory(SimulatedInodes& inodes, std::string path) : inodes_(inodes), path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.sync_directory(path_), "fsync directory", path_);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  SimulatedInodes& inodes_;
  const std::string path_;
};

class FileLock final : public rocksdb::FileLock {
 public:
  explicit FileLock(std::string locked) : path(std::move(locked)) {}
  const std::string path;
};

class Files final : public rocksdb::FileSystem {
 public:
  explicit Files(SimulatedInodes& inodes) : inodes_(inodes) {}
  const char* Name() const override { return "SimulatedDisk"; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext*) override {
    return open<SequentialFile>(path, file, "open a file for sequentially reading");
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                               IODebugContext*) override {
    return open<RandomAccessFile>(path, file, "open a file for random read");
  }
  IOStatus NewWritableFile(const std::string& path, const FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext*) override {
    file->reset();
    InodePtr inode;
    const auto number = inodes_.create(path, false, &inode);
    if (number != 0) return status_of(number, "open a file for appending", path);
    *file = std::make_unique<WritableFile>(inodes_, path, std::move(inode));
    return IOStatus::OK();
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* context) override {
    auto opened = open<WritableFile>(path, file, "open a file for appending");
    return opened.IsPathNotFound() ? NewWritableFile(path, options, file, context) : opened;
  }
  IOStatus NewRandomRWFile(const std::string& path, const FileOptions&,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           IODebugContext*) override {
    return open<RandomRWFile>(path, file, "open file for random read/write");
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        IODebugContext*) override {
    directory->reset();
    const auto number = inodes_.look(path, nullptr, nullptr, nullptr);
    if (number != 0) return status_of(number, "open directory", path);
    *directory = std::make_unique<Directory>(inodes_, path);
    return IOStatus::OK();
  }
  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    const auto number = inodes_.look(path, nullptr, nullptr, nullptr);
    if (number == ENOENT || number == ENOTDIR) return IOStatus::NotFound();
    return status_of(number, "access", path);
  }
  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* names,
                       IODebugContext*) override {
    const auto number = inodes_.list(path, names);
    if (number == ENOENT || number == ENOTDIR) {
      return IOStatus::NotFound("While opendir: " + path, std::generic_category().message(number));
    }
    return status_of(number, "opendir", path);
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.remove(path), "unlink() file", path);
  }
  IOStatus Truncate(const std::string& path, size_t size, const IOOptions&,
                    IODebugContext*) override {
    InodePtr file;
    auto number = inodes_.open(path, &file);
    if (number == 0) number = inodes_.truncate(file, path, size);
    return status_of(number, "truncate file", path);
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.make_directory(path), "mkdir", path);
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    const auto number = inodes_.make_directory(path);
    return number == EEXIST ? IOStatus::OK() : status_of(number, "mkdir if missing", path);
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return status_of(inodes_.remove(path), "file rmdir", path);
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size,
                       IODebugContext*) override {
    return status_of(inodes_.look(path, nullptr, size, nullptr), "stat a file for size", path);
  }
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    return status_of(inodes_.look(path, nullptr, nullptr, time),
                     "stat a file for modification time", path);
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    return status_of(inodes_.rename(from, to), "renaming a file to " + to, from);
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&,
                    IODebugContext*) override {
    return status_of(inodes_.link(from, to), "link file to " + to, from);
  }
  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                        bool* same, IODebugContext*) override {
    *same = inodes_.are_same(first, second);
    return IOStatus::OK();
  }
  IOStatus LockFile(const std::string& path, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    *lock = nullptr;
    if (const auto number = inodes_.lock(path, "fcntl", true); number != 0) {
      return status_of(number, "lock file", path);
    }
    // The file itself, as whoever lists the directory expects it.
    InodePtr file;
    if (const auto number = inodes_.create(path, false, &file); number != 0) {
      inodes_.unlock(path, "fcntl", true);
      return status_of(number, "open a file for locking", path);
    }
    *lock = new FileLock(path);
    return IOStatus::OK();
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    const std::unique_ptr<FileLock> held(static_cast<FileLock*>(lock));
    inodes_.unlock(held->path, "fcntl", true);
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    *path = "/test";
    return IOStatus::OK();
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute,
                           IODebugContext*) override {
    *absolute = path.starts_with('/') ? path : "/" + path;
    return IOStatus::OK();
  }
  IOStatus GetFreeSpace(const std::string&, const IOOptions&, uint64_t* bytes,
                        IODebugContext*) override {
    const auto capacity = inodes_.capacity();
    *bytes = capacity - std::min(capacity, inodes_.used());
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_directory,
                       IODebugContext*) override {
    return status_of(inodes_.look(path, is_directory, nullptr, nullptr), "stat()", path);
  }

 private:
  template <class Kind, class Base>
  IOStatus open(const std::string& path, std::unique_ptr<Base>* file, const char* action) {
    file->reset();
    InodePtr inode;
    const auto number = inodes_.open(path, &inode);
    if (number != 0) return status_of(number, action, path);
    *file = std::make_unique<Kind>(inodes_, path, std::move(inode));
    return IOStatus::OK();
  }

  SimulatedInodes& inodes_;
};

class TickingClock final : public rocksdb::SystemClock {
 public:
  const char* Name() const override { return "SimulatedClock"; }
  uint64_t NowMicros() override { return ++micros_; }
  uint64_t NowNanos() override { return NowMicros() * 1000; }
  void SleepForMicroseconds(int micros) override {
    micros_ += static_cast<std::uint64_t>(std::max(micros, 0));
  }
  rocksdb::Status GetCurrentTime(int64_t* unix_time) override {
    *unix_time = static_cast<std::int64_t>(NowMicros() / 1'000'000);
    return rocksdb::Status::OK();
  }
  std::string TimeToString(uint64_t time) override { return std::to_string(time); }

 private:
  // Of a fixed length as text and as varint, so that files have the same size each time.
  std::atomic<std::uint64_t> micros_{std::uint64_t{2'000'000'000} * 1'000'000};
};

}  // namespace

SimulatedEnv::SimulatedEnv(SimulatedInodes& inodes, BackgroundWork background)
    : rocksdb::Env(std::make_shared<Files>(inodes), background == BackgroundWork::queued
                                                        ? std::make_shared<TickingClock>()
                                                        : rocksdb::SystemClock::Default()),
      background_(background),
      files_(rocksdb::NewCompositeEnv(GetFileSystem())) {}

SimulatedEnv::~SimulatedEnv() = default;

// Threads.

bool SimulatedEnv::run_background(std::size_t jobs) {
  bool has_run = false;
  for (; jobs > 0; --jobs) {
    Job job;
    {
      const std::lock_guard lock(mutex_);
      if (jobs_.empty()) return has_run;
      const auto next = std::max_element(
          jobs_.begin(), jobs_.end(),
          [](const Job& one, const Job& other) { return one.priority < other.priority; });
      job = *next;
      jobs_.erase(next);
    }
    job.function(job.arg);
    has_run = true;
  }
  return has_run;
}

std::size_t SimulatedEnv::queued() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

void SimulatedEnv::Schedule(void (*function)(void*), void* arg, Priority priority, void* tag,
                            void (*unscheduled)(void*)) {
  if (background_ == BackgroundWork::threads) {
    Default()->Schedule(function, arg, priority, tag, unscheduled);
    return;
  }
  const std::lock_guard lock(mutex_);
  jobs_.push_back({function, arg, priority, tag, unscheduled});
}

int SimulatedEnv::UnSchedule(void* tag, Priority priority) {
  if (background_ == BackgroundWork::threads) return Default()->UnSchedule(tag, priority);
  std::vector<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    const auto kept = std::stable_partition(jobs_.begin(), jobs_.end(), [&](const Job& job) {
      return job.tag != tag || job.priority != priority;
    });
    dropped.assign(kept, jobs_.end());
    jobs_.erase(kept, jobs_.end());
  }
  for (const auto& job : dropped) {
    if (job.unscheduled != nullptr) job.unscheduled(job.arg);
  }
  return static_cast<int>(dropped.size());
}

void SimulatedEnv::StartThread(void (*function)(void*), void* arg) {
  if (background_ == BackgroundWork::threads) {
    Default()->StartThread(function, arg);
  } else {
    Schedule(function, arg, LOW, nullptr, nullptr);
  }
}

void SimulatedEnv::WaitForJoin() {
  if (background_ == BackgroundWork::threads) {
    Default()->WaitForJoin();
  } else {
    run_background();
  }
}

unsigned int SimulatedEnv::GetThreadPoolQueueLen(Priority priority) const {
  if (background_ == BackgroundWork::threads) return Default()->GetThreadPoolQueueLen(priority);
  const std::lock_guard lock(mutex_);
  return static_cast<unsigned int>(std::count_if(
      jobs_.begin(), jobs_.end(), [&](const Job& job) { return job.priority == priority; }));
}

void SimulatedEnv::SetBackgroundThreads(int number, Priority priority) {
  if (background_ == BackgroundWork::threads) Default()->SetBackgroundThreads(number, priority);
}

int SimulatedEnv::GetBackgroundThreads(Priority priority) {
  return background_ == BackgroundWork::threads ? Default()->GetBackgroundThreads(priority) : 1;
}

void SimulatedEnv::IncBackgroundThreadsIfNeeded(int number, Priority priority) {
  if (background_ == BackgroundWork::threads) {
    Default()->IncBackgroundThreadsIfNeeded(number, priority);
  }
}

// Time.

uint64_t SimulatedEnv::NowMicros() {
  return GetSystemClock()->NowMicros();
}
uint64_t SimulatedEnv::NowNanos() {
  return GetSystemClock()->NowNanos();
}
void SimulatedEnv::SleepForMicroseconds(int micros) {
  GetSystemClock()->SleepForMicroseconds(micros);
}
rocksdb::Status SimulatedEnv::GetCurrentTime(int64_t* unix_time) {
  return GetSystemClock()->GetCurrentTime(unix_time);
}
std::string SimulatedEnv::TimeToString(uint64_t time) {
  return GetSystemClock()->TimeToString(time);
}

// Files.

rocksdb::Status SimulatedEnv::NewSequentialFile(const std::string& path,
                                                std::unique_ptr<rocksdb::SequentialFile>* file,
                                                const rocksdb::EnvOptions& options) {
  return files_->NewSequentialFile(path, file, options);
}
rocksdb::Status SimulatedEnv::NewRandomAccessFile(const std::string& path,
                                                  std::unique_ptr<rocksdb::RandomAccessFile>* file,
                                                  const rocksdb::EnvOptions& options) {
  return files_->NewRandomAccessFile(path, file, options);
}
rocksdb::Status SimulatedEnv::NewWritableFile(const std::string& path,
                                              std::unique_ptr<rocksdb::WritableFile>* file,
                                              const rocksdb::EnvOptions& options) {
  return files_->NewWritableFile(path, file, options);
}
rocksdb::Status SimulatedEnv::NewDirectory(const std::string& path,
                                           std::unique_ptr<rocksdb::Directory>* directory) {
  return files_->NewDirectory(path, directory);
}
rocksdb::Status SimulatedEnv::FileExists(const std::string& path) {
  return files_->FileExists(path);
}
rocksdb::Status SimulatedEnv::GetChildren(const std::string& path,
                                          std::vector<std::string>* names) {
  return files_->GetChildren(path, names);
}
rocksdb::Status SimulatedEnv::DeleteFile(const std::string& path) {
  return files_->DeleteFile(path);
}
rocksdb::Status SimulatedEnv::CreateDir(const std::string& path) {
  return files_->CreateDir(path);
}
rocksdb::Status SimulatedEnv::CreateDirIfMissing(const std::string& path) {
  return files_->CreateDirIfMissing(path);
}
rocksdb::Status SimulatedEnv::DeleteDir(const std::string& path) {
  return files_->DeleteDir(path);
}
rocksdb::Status SimulatedEnv::GetFileSize(const std::string& path, uint64_t* size) {
  return files_->GetFileSize(path, size);
}
rocksdb::Status SimulatedEnv::GetFileModificationTime(const std::string& path, uint64_t* time) {
  return files_->GetFileModificationTime(path, time);
}
rocksdb::Status SimulatedEnv::RenameFile(const std::string& from, const std::string& to) {
  return files_->RenameFile(from, to);
}
rocksdb::Status SimulatedEnv::LinkFile(const std::string& from, const std::string& to) {
  return files_->LinkFile(from, to);
}
rocksdb::Status SimulatedEnv::IsDirectory(const std::string& path, bool* is_directory) {
  return files_->IsDirectory(path, is_directory);
}
rocksdb::Status SimulatedEnv::LockFile(const std::string& path, rocksdb::FileLock** lock) {
  return files_->LockFile(path, lock);
}
rocksdb::Status SimulatedEnv::UnlockFile(rocksdb::FileLock* lock) {
  return files_->UnlockFile(lock);
}
rocksdb::Status SimulatedEnv::GetTestDirectory(std::string* path) {
  return files_->GetTestDirectory(path);
}
rocksdb::Status SimulatedEnv::GetHostName(char* name, uint64_t size) {
  std::snprintf(name, size, "simulated");
  return rocksdb::Status::OK();
}
rocksdb::Status SimulatedEnv::GetAbsolutePath(const std::string& path, std::string* absolute) {
  return files_->GetAbsolutePath(path, absolute);
}

}  // namespace fencekv::testing
