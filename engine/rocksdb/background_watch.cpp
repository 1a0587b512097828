// SPDX-License-Identifier: Apache-2.0
#include "engine/rocksdb/background_watch.h"

#include "engine/rocksdb/database_options.h"

namespace fencekv::rocks {

void BackgroundWatch::OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                                        rocksdb::Status* status) {
  // Another listener has dealt with it.
  if (status->ok()) return;
  const auto error = error_of(*status);
  if (reason == rocksdb::BackgroundErrorReason::kCompaction) {
    if (error.code() == Errc::corrupt) {
      const std::lock_guard lock(mutex_);
      if (!is_damaged_) damage_ = error.detail();
      is_damaged_ = true;
      *status = rocksdb::Status::OK();
      return;
    }
    if (error.code() == Errc::no_space) {
      no_space_ = true;
      *status = rocksdb::Status::OK();
      return;
    }
  }
  const std::lock_guard lock(mutex_);
  if (!has_failed_) failure_ = error.detail();
  has_failed_ = true;
}

std::optional<std::string> BackgroundWatch::failure() const {
  if (!has_failed_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<std::string> BackgroundWatch::damage() const {
  if (!is_damaged_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return damage_;
}

void BackgroundWatch::forget_failure() {
  const std::lock_guard lock(mutex_);
  has_failed_ = false;
  failure_.clear();
}

}  // namespace fencekv::rocks
