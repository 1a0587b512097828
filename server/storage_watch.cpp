// SPDX-License-Identifier: Apache-2.0
#include "server/storage_watch.h"

#include <algorithm>
#include <utility>

namespace fencekv::server {

using std::chrono::milliseconds;

StorageWatch::StorageWatch(const Store& store, const ServerOptions& options, spdlog::logger& log,
                           std::function<void()> end)
    : options_(options), log_(log), end_(std::move(end)), store_(&store) {
  if (options.stall_warning.count() > 0 || options.stall_exit.count() > 0) {
    thread_ = std::thread([this] { work(); });
  }
}

StorageWatch::~StorageWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void StorageWatch::closing() {
  const std::lock_guard lock(mutex_);
  store_ = nullptr;
  closes_ = std::chrono::steady_clock::now();
}

void StorageWatch::work() {
  const auto warning = options_.stall_warning;
  const auto exit = options_.stall_exit;
  const auto sooner = warning.count() == 0 || (exit.count() > 0 && exit < warning) ? exit : warning;
  const auto interval = std::clamp(sooner / 10, milliseconds(1), milliseconds(500));

  bool is_told = false;
  milliseconds longest{0};
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopping_; })) {
    const auto age =
        store_ != nullptr
            ? store_->in_flight()
            : std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - closes_);
    if (exit.count() > 0 && age >= exit) {
      log_.critical(
          "the storage has not answered for {} ms (--stall-exit-ms {}): the process ends as in a "
          "crash; what was acknowledged is there after a restart",
          age.count(), exit.count());
      end_();
      return;
    }
    const bool is_stalled = warning.count() > 0 && age >= warning;
    if (is_stalled && !is_told) {
      log_.error(
          "the storage has not answered for {} ms (--stall-warning-ms {}): not ready; nothing is "
          "written, and nobody who writes is answered, until it does",
          age.count(), warning.count());
    } else if (!is_stalled && is_told) {
      log_.warn("the storage answers again, after {} ms: ready", longest.count());
    }
    if (is_stalled) longest = age;
    is_told = is_stalled;
  }
}

}  // namespace fencekv::server
