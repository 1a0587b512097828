// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/leases/figures.h"
#include "tools/bench/leases/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace fencekv::bench {
namespace {

using namespace std::chrono_literals;

/// Somebody else, who writes and reads keys one after the other, and notes how long each took.
class Bystander {
 public:
  explicit Bystander(Store& store) : store_(store) {
    const auto grant = store_.acquire("bystander", "me", 24h);
    if (grant && *grant) token_ = (*grant)->token;
  }

  /// Until `is_over`. Milliseconds.
  template <class IsOver>
  std::vector<double> watch(IsOver is_over) {
    std::vector<double> took;
    for (std::size_t i = 0; !is_over(); ++i) {
      const auto key = "key/" + std::to_string(i % 1000);
      const auto began = Time::now();
      if (i % 2 == 0) {
        is_right_ = store_.set(key, "value", token_, {.lease = "bystander"}) && is_right_;
      } else {
        is_right_ = store_.execute(Read{.keys = {key}}) && is_right_;
      }
      took.push_back(milliseconds_since(began));
    }
    return took;
  }
  bool is_right() const { return is_right_; }

 private:
  Store& store_;
  Token token_;
  bool is_right_ = true;
};

/// Sessions that watch all leases, as many names each as one may.
class Watchers {
 public:
  Watchers(Store& store, const LiveLeases& live) {
    for (std::size_t first = 0; first < live.size(); first += Limits::kWatchesPerSession) {
      sessions_.push_back(std::make_unique<Session>(store, [this](const LeaseEvent& event) {
        if (event.change == LeaseChange::expired) expired_.fetch_add(1);
        if (event.change == LeaseChange::missed) missed_.fetch_add(1);
      }));
      const auto last = std::min(first + Limits::kWatchesPerSession, live.size());
      for (auto from = first; from < last; from += LiveLeases::kTogether) {
        Watch command;
        for (auto i = from; i < std::min(from + LiveLeases::kTogether, last); ++i) {
          command.names.push_back(live.name(i));
        }
        is_right_ =
            store.execute(std::move(command), {.session = sessions_.back()->id()}) && is_right_;
      }
    }
  }

  std::size_t expired() const { return expired_; }
  std::size_t missed() const { return missed_; }
  bool is_right() const { return is_right_; }

 private:
  std::atomic<std::size_t> expired_ = 0;
  std::atomic<std::size_t> missed_ = 0;
  bool is_right_ = true;
  std::vector<std::unique_ptr<Session>> sessions_;  // last: they tell of events until they end
};

/// Renews all leases so that they end within `storm` after the moment that is returned.
Time::time_point end_soon(Store& store, const LiveLeases& live, std::chrono::milliseconds storm,
                          double fill_ms, bool& is_right) {
  const auto end =
      Time::now() + 2 * storm + std::chrono::milliseconds(static_cast<std::int64_t>(4 * fill_ms));
  Pipeline line(store);
  for (std::size_t first = 0; first < live.size(); first += LiveLeases::kTogether) {
    RenewMany command;
    const auto share = static_cast<std::size_t>(storm.count()) * first / live.size();
    command.ttl = std::chrono::ceil<std::chrono::milliseconds>(end - Time::now()) +
                  std::chrono::milliseconds(share);
    for (auto i = first; i < std::min(first + LiveLeases::kTogether, live.size()); ++i) {
      command.grants.push_back(live.holding(i));
    }
    line.submit(std::move(command), [](const RenewMany::Reply& replies) {
      return std::all_of(replies.begin(), replies.end(),
                         [](const auto& reply) { return reply.has_value(); });
    });
  }
  is_right = line.finish() && is_right;
  if (Time::now() >= end) {
    fmt::print(stderr, "the renewals took so long that leases expired meanwhile\n");
    is_right = false;
  }
  return end;
}

void tell(std::string_view when, Kind kind, const std::vector<double>& took) {
  row(fmt::format("others: {}", when), to_string(kind),
      fmt::format("{} commands, p50 {:.3f} ms, p99 {:.3f} ms, longest {:.1f} ms", took.size(),
                  percentile(took, 0.5), percentile(took, 0.99), percentile(took, 1)));
}

bool measure_kind(Kind kind, bool is_watched, const Settings& settings) {
  const Scratch scratch(settings.directory);
  const auto store = open(kind, scratch.path() / "store");
  const auto began = Time::now();
  const LiveLeases live(*store, "live", settings.leases);
  const auto fill_ms = milliseconds_since(began);
  bool is_right = live.are_right();

  std::optional<Watchers> watchers;
  if (is_watched) watchers.emplace(*store, live);
  Bystander bystander(*store);
  const auto quiet_until = Time::now() + settings.quiet;
  tell(fmt::format("before, {} live{}", settings.leases, is_watched ? ", all watched" : ""), kind,
       bystander.watch([&] { return Time::now() >= quiet_until; }));

  const auto end = end_soon(*store, live, settings.storm, fill_ms, is_right);
  std::this_thread::sleep_until(end);
  const auto is_over = [&] {
    if (Time::now() > end + 60s) return true;
    return Time::now() > end + settings.storm && (!watchers || watchers->expired() >= live.size());
  };
  const auto during = bystander.watch(is_over);
  const auto late = milliseconds_since(end + settings.storm);
  tell("while they expire", kind, during);
  if (watchers) {
    row("the last expiry was told", to_string(kind),
        fmt::format("{:.0f} ms after the last deadline, {} told, {} missed", late,
                    watchers->expired(), watchers->missed()));
    is_right = is_right && watchers->is_right() && watchers->expired() == live.size() &&
               watchers->missed() == 0;
  }
  // A renewal counts from when it was decided, a little later than it was asked for.
  const Inspect last{.name = live.name(live.size() - 1)};
  const auto found = store->execute(last);
  if (found && !found->holders.empty()) {
    std::this_thread::sleep_for(found->holders[0].remaining);
  }
  const auto lease = store->execute(last);
  return is_right && bystander.is_right() && lease && lease->holders.empty();
}

}  // namespace

bool measure_storm(const Settings& settings) {
  bool is_right = true;
  for (const auto kind : kKinds) {
    for (const bool is_watched : {false, true}) {
      const auto measure = [&] { return measure_kind(kind, is_watched, settings); };
      is_right = in_own_process(measure) && is_right;
    }
  }
  return is_right;
}

}  // namespace fencekv::bench
