// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/ordered_env.h"

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

namespace fencekv::rocks {
namespace {

class OrderedFiles final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;

  const char* Name() const override { return "OrderedFiles"; }

  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override {
    if (to.ends_with("/CURRENT")) {
      const auto synced = sync_directory(to.substr(0, to.rfind('/')), options, context);
      if (!synced.ok()) return synced;
    }
    return target()->RenameFile(from, to, options, context);
  }

 private:
  rocksdb::IOStatus sync_directory(const std::string& path, const rocksdb::IOOptions& options,
                                   rocksdb::IODebugContext* context) {
    std::unique_ptr<rocksdb::FSDirectory> directory;
    const auto opened = target()->NewDirectory(path, options, &directory, context);
    if (!opened.ok()) return opened;
    return directory->Fsync(options, context);
  }
};

}  // namespace

OrderedEnv::OrderedEnv(rocksdb::Env* disk) : EnvWrapper(disk) {
  file_system_ = std::make_shared<OrderedFiles>(disk->GetFileSystem());
  system_clock_ = disk->GetSystemClock();
}

}  // namespace fencekv::rocks
