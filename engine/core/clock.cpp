// SPDX-License-Identifier: Apache-2.0
#include "fencekv/options.h"

#include <fstream>
#include <time.h>

namespace fencekv {
namespace {

class SystemClock final : public Clock {
 public:
  SystemClock() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, boot_id_);
  }

  std::chrono::nanoseconds since_boot() const override {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }

  std::optional<std::chrono::nanoseconds> second_opinion() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }

  std::string boot_id() const override { return boot_id_; }

  std::chrono::milliseconds wall() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
  }

 private:
  std::string boot_id_;
};

}  // namespace

std::shared_ptr<Clock> system_clock() {
  return std::make_shared<SystemClock>();
}

}  // namespace fencekv
