// SPDX-License-Identifier: Apache-2.0
/// Whether things happen when they are due, on a machine that may be busy with other tests.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// Turns of the same, each of which should happen within 50 ms of the moment at which it is due.
///
///     Promptness promptness("expiries", [&] { client.ask({"FENCE.SET", "k", "1", "v"}); });
///     while (promptness.wants_another()) {
///       …
///       promptness.note(due);
///     }
///     promptness.expect();
///
/// A busy machine makes everything late by any time, so no bound of its own would hold on it. Each
/// turn is therefore compared with a control: the same process sleeps until a moment, has the same
/// server do something simple, and what that is late is the machine's. Less than half of the turns
/// may be more than 50 ms later than their controls. A delay of 50 ms fails that always; a look at
/// the clock at intervals fails it nearly always from intervals of 150 ms on, since it is late by
/// any part of one. Two that only the machine makes late are late by the same chance, so of many
/// the one cannot be the later in more than half.
class Promptness {
 public:
  Promptness(std::string what, std::function<void()> control)
      : what_(std::move(what)), control_(std::move(control)) {}

  /// Goes on for longer as long as the verdict would be bad.
  bool wants_another() const {
    return !::testing::Test::HasFailure() &&
           (turns_.size() < kTurns || (!is_prompt() && turns_.size() < 4 * kTurns));
  }

  /// What was due at `due` has happened.
  void note(std::chrono::steady_clock::time_point due) {
    const double late = milliseconds_since(due);
    EXPECT_GE(late, 0.0) << what_ << " before their time";
    // Another time each turn: else whoever looks at intervals could be in step with the turns.
    const auto pause = std::chrono::milliseconds(10 + turns_.size() * 37 % 150);
    const auto moment = std::chrono::steady_clock::now() + pause;
    std::this_thread::sleep_until(moment);
    control_();
    turns_.push_back({late, milliseconds_since(moment)});
  }

  void expect() const {
    std::printf("[ lateness ] of %zu %s: middle %.1f ms, of the control %.1f ms; %zu not prompt\n",
                turns_.size(), what_.c_str(), middle_of(&Turn::late), middle_of(&Turn::control),
                late_turns());
    EXPECT_TRUE(is_prompt()) << what_ << ": " << late_turns() << " of " << turns_.size()
                             << " were late by more than 50 ms that are not the machine's";
  }

 private:
  struct Turn {
    double late;
    double control;
  };
  static constexpr std::size_t kTurns = 15;

  static double milliseconds_since(std::chrono::steady_clock::time_point moment) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - moment)
        .count();
  }

  std::size_t late_turns() const {
    return static_cast<std::size_t>(std::count_if(
        turns_.begin(), turns_.end(), [](const Turn& t) { return t.late > t.control + 50.0; }));
  }
  bool is_prompt() const { return 2 * late_turns() < turns_.size(); }

  double middle_of(double Turn::*which) const {
    std::vector<double> all;
    for (const auto& turn : turns_) all.push_back(turn.*which);
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  const std::string what_;
  const std::function<void()> control_;
  std::vector<Turn> turns_;
};

}  // namespace fencekv::testing
