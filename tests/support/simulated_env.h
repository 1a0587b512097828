// SPDX-License-Identifier: Apache-2.0
/// The simulated disk as RocksDB sees it, and the threads that RocksDB would like to have.

#pragma once

#include "tests/support/simulated_inodes.h"

#include <rocksdb/env.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencekv::testing {

/// Where RocksDB's flushes and compactions run.
enum class BackgroundWork : std::uint8_t {
  threads,  ///< On RocksDB's own threads, as ever.
  queued,   ///< Nowhere, until SimulatedEnv::run_background() is called: all of a store in one
           ///< thread, the same each time. What waits for such work then waits for ever: no call of
           ///< Flush(), no checkpoint, and buffers and triggers so high that no write is stalled.
};

/// Time stands still but for a tick a look and for what is slept.
///
/// Thread safety: as rocksdb::Env.
class SimulatedEnv final : public rocksdb::Env {
 public:
  SimulatedEnv(SimulatedInodes& inodes, BackgroundWork background);
  ~SimulatedEnv() override;

  /// Runs what is queued, the oldest first and flushes before compactions, and what that queues,
  /// but no more than `jobs`. Whether there was anything.
  bool run_background(std::size_t jobs = SIZE_MAX);
  std::size_t queued() const;

  // Threads.
  void Schedule(void (*function)(void* arg), void* arg, Priority priority, void* tag,
                void (*unscheduled)(void* arg)) override;
  int UnSchedule(void* tag, Priority priority) override;
  void StartThread(void (*function)(void* arg), void* arg) override;
  void WaitForJoin() override;
  unsigned int GetThreadPoolQueueLen(Priority priority) const override;
  void SetBackgroundThreads(int number, Priority priority) override;
  int GetBackgroundThreads(Priority priority) override;
  void IncBackgroundThreadsIfNeeded(int number, Priority priority) override;

  // Time.
  uint64_t NowMicros() override;
  uint64_t NowNanos() override;
  void SleepForMicroseconds(int micros) override;
  rocksdb::Status GetCurrentTime(int64_t* unix_time) override;
  std::string TimeToString(uint64_t time) override;

  // Files: those of the file system that this Env was made with.
  rocksdb::Status NewSequentialFile(const std::string& path,
                                    std::unique_ptr<rocksdb::SequentialFile>* file,
                                    const rocksdb::EnvOptions& options) override;
  rocksdb::Status NewRandomAccessFile(const std::string& path,
                                      std::unique_ptr<rocksdb::RandomAccessFile>* file,
                                      const rocksdb::EnvOptions& options) override;
  rocksdb::Status NewWritableFile(const std::string& path,
                                  std::unique_ptr<rocksdb::WritableFile>* file,
                                  const rocksdb::EnvOptions& options) override;
  rocksdb::Status NewDirectory(const std::string& path,
                               std::unique_ptr<rocksdb::Directory>* directory) override;
  rocksdb::Status FileExists(const std::string& path) override;
  rocksdb::Status GetChildren(const std::string& path, std::vector<std::string>* names) override;
  rocksdb::Status DeleteFile(const std::string& path) override;
  rocksdb::Status CreateDir(const std::string& path) override;
  rocksdb::Status CreateDirIfMissing(const std::string& path) override;
  rocksdb::Status DeleteDir(const std::string& path) override;
  rocksdb::Status GetFileSize(const std::string& path, uint64_t* size) override;
  rocksdb::Status GetFileModificationTime(const std::string& path, uint64_t* time) override;
  rocksdb::Status RenameFile(const std::string& from, const std::string& to) override;
  rocksdb::Status LinkFile(const std::string& from, const std::string& to) override;
  rocksdb::Status IsDirectory(const std::string& path, bool* is_directory) override;
  rocksdb::Status LockFile(const std::string& path, rocksdb::FileLock** lock) override;
  rocksdb::Status UnlockFile(rocksdb::FileLock* lock) override;
  rocksdb::Status GetTestDirectory(std::string* path) override;
  rocksdb::Status GetHostName(char* name, uint64_t size) override;
  rocksdb::Status GetAbsolutePath(const std::string& path, std::string* absolute) override;

 private:
  struct Job {
    void (*function)(void*) = nullptr;
    void* arg = nullptr;
    Priority priority = LOW;
    void* tag = nullptr;
    void (*unscheduled)(void*) = nullptr;
  };

  const BackgroundWork background_;
  const std::unique_ptr<rocksdb::Env> files_;
  mutable std::mutex mutex_;
  std::vector<Job> jobs_;  // guarded by mutex_
};

}  // namespace fencekv::testing
