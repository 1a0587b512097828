// SPDX-License-Identifier: Apache-2.0
/// Stores to be measured, load for them, and rows of figures.

#pragma once

#include "fencekv/store.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::bench {

using Time = std::chrono::steady_clock;

/// Where a store keeps its bytes, and when it answers.
enum class Kind { memory, process, sync };
constexpr Kind kKinds[] = {Kind::memory, Kind::process, Kind::sync};

std::string_view to_string(Kind kind);

/// Ends the process if it cannot be opened.
std::unique_ptr<Store> open(Kind kind, const std::filesystem::path& directory);

/// A new directory below another, gone with the object.
class Scratch {
 public:
  explicit Scratch(const std::filesystem::path& below);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// One line of the table.
void row(std::string_view what, std::string_view where, const std::string& figure);

std::uint64_t resident_bytes();
std::uint64_t bytes_below(const std::filesystem::path& directory);

/// The `share` (0 to 1) of the samples that are not above the answer.
double percentile(std::vector<double> samples, double share);
double milliseconds_since(Time::time_point began);

/// Commands in flight, a bounded number of them.
class Pipeline {
 public:
  static constexpr std::size_t kWindow = 256;

  explicit Pipeline(Store& store) : store_(store) {}
  ~Pipeline() { finish(); }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// `is_right` says whether the answer is the one that is expected.
  template <class C, class IsRight>
  void submit(C command, IsRight is_right, Caller caller = {}) {
    enter();
    store_.submit(
        std::move(command),
        [this, is_right = std::move(is_right)](Result<typename C::Reply> reply) {
          leave(reply && is_right(*reply));
        },
        std::move(caller));
  }

  /// Waits for all answers. False: one was wrong.
  bool finish();

 private:
  void enter();
  void leave(bool is_right);

  Store& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t in_flight_ = 0;  // guarded by mutex_
  bool all_right_ = true;      // guarded by mutex_
};

/// Live leases of one owner, `PREFIX/0` and so on.
class LiveLeases {
 public:
  /// Takes them, a thousand names a command.
  LiveLeases(Store& store, std::string prefix, std::size_t count);

  bool are_right() const { return are_right_; }
  std::size_t size() const { return size_; }
  std::string name(std::size_t i) const { return prefix_ + "/" + std::to_string(i); }
  std::string owner() const { return "owner of " + prefix_; }
  Token token(std::size_t i) const { return tokens_[i / kTogether]; }
  Holding holding(std::size_t i) const {
    return {.name = name(i), .owner = owner(), .token = token(i)};
  }

  static constexpr std::size_t kTogether = 1000;

 private:
  const std::string prefix_;
  const std::size_t size_;
  std::vector<Token> tokens_;  // one a command
  bool are_right_ = true;
};

/// Runs `work` in a process of its own, which must not have opened a store yet, and returns what it
/// returned. What it does not close is left as by a kill.
bool in_own_process(const std::function<bool()>& work);

}  // namespace fencekv::bench
