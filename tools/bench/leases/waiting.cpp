// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/leases/figures.h"
#include "tools/bench/leases/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

namespace fencekv::bench {
namespace {

using namespace std::chrono_literals;

/// Waiters on one name, each of whom releases it as soon as it has it. Milliseconds for all.
class Queue {
 public:
  Queue(Store& store, std::size_t waiters) : store_(store), waiters_(waiters) {}

  double pass_through() {
    const auto holder = store_.acquire(kName, "holder", 1h);
    is_right_ = holder && *holder;
    if (!is_right_) return 0;
    const auto before = resident_bytes();
    for (std::size_t i = 0; i < waiters_; ++i) {
      store_.submit(Acquire{.name = kName, .owner = owner(i), .ttl = 1h, .wait = 1h},
                    [this, i](const Result<Acquire::Reply>& reply) { granted(i, reply); });
    }
    const auto queue = store_.execute(ListWaiters{.name = kName});
    is_right_ = queue && queue->size() == waiters_;
    bytes_ = static_cast<double>(resident_bytes()) - static_cast<double>(before);

    const auto began = Time::now();
    is_right_ = store_.release(kName, "holder", (*holder)->token) && is_right_;
    is_right_ = all_.get_future().wait_for(10min) == std::future_status::ready && is_right_;
    const auto took = milliseconds_since(began);
    is_right_ = is_right_ && next_ == waiters_ && is_in_order_;
    return took;
  }

  bool is_right() const { return is_right_; }
  double bytes() const { return bytes_; }

 private:
  static constexpr const char* kName = "wanted by many";

  static std::string owner(std::size_t i) { return "waiter " + std::to_string(i); }

  /// Called by one thread of the store after the other.
  void granted(std::size_t i, const Result<Acquire::Reply>& reply) {
    is_in_order_ = is_in_order_ && reply && *reply && i == next_ && (*reply)->token > last_;
    ++next_;
    if (!reply || !*reply) return all_.set_value();
    last_ = (*reply)->token;
    store_.submit(Release{.name = kName, .owner = owner(i), .token = last_},
                  [this](const Result<std::monostate>&) {
                    if (++released_ == waiters_) all_.set_value();
                  });
  }

  Store& store_;
  const std::size_t waiters_;
  std::promise<void> all_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::size_t> released_ = 0;
  Token last_;
  std::atomic<bool> is_in_order_ = true;
  bool is_right_ = true;
  double bytes_ = 0;
};

bool measure_queue(Kind kind, const Settings& settings) {
  const Scratch scratch(settings.directory);
  const auto store = open(kind, scratch.path() / "store");
  const auto few = std::max<std::size_t>(settings.waiters / 100, 1);
  Queue small(*store, few);
  const auto small_ms = small.pass_through();
  Queue large(*store, settings.waiters);
  const auto large_ms = large.pass_through();
  row(fmt::format("{} waiters on one name, in order", settings.waiters), to_string(kind),
      fmt::format("{:.1f} ms, {:.1f} us each ({:.1f} us with {}), {:.0f} bytes a waiter", large_ms,
                  large_ms * 1000 / static_cast<double>(settings.waiters),
                  small_ms * 1000 / static_cast<double>(few), few,
                  large.bytes() / static_cast<double>(settings.waiters)));
  return small.is_right() && large.is_right();
}

/// How long after the deadline of a lease the first in the queue has it.
bool measure_lateness(Kind kind, const Settings& settings) {
  const Scratch scratch(settings.directory);
  const auto store = open(kind, scratch.path() / "store");
  const auto samples = std::clamp<std::size_t>(settings.operations / 100, 5, 100);
  constexpr auto kTtl = 50ms;
  std::vector<double> late;
  for (std::size_t i = 0; i < samples; ++i) {
    const auto name = "lease/" + std::to_string(i);
    // The deadline is a ttl after the decision, so no earlier than this.
    const auto earliest = Time::now() + kTtl;
    const auto held = store->acquire(name, "dead", kTtl);
    const auto next = store->acquire(name, "alive", 1h, {.wait = 10s});
    if (!held || !*held || !next || !*next) return false;
    late.push_back(milliseconds_since(earliest));
  }
  row("from a deadline to the next one's grant", to_string(kind),
      fmt::format("p50 {:.2f} ms, p99 {:.2f} ms, longest {:.2f} ms of {}", percentile(late, 0.5),
                  percentile(late, 0.99), percentile(late, 1), samples));
  // Sooner would be two holders at once.
  return std::all_of(late.begin(), late.end(), [](double time) { return time >= 0; });
}

bool measure_renewals(Kind kind, const Settings& settings) {
  const Scratch scratch(settings.directory);
  const auto store = open(kind, scratch.path() / "store");
  constexpr std::size_t kLeases = 1000;
  const LiveLeases live(*store, "live", kLeases);
  bool is_right = live.are_right();
  const auto renew = [&](std::size_t i) {
    const auto own = live.holding(i);
    return Renew{.name = own.name, .owner = own.owner, .token = own.token, .ttl = 1h};
  };
  std::vector<double> together;
  std::vector<double> pipelined;
  std::vector<double> apart;
  for (std::size_t round = 0; round < settings.rounds; ++round) {
    auto began = Time::now();
    RenewMany command{.grants = {}, .ttl = 1h};
    for (std::size_t i = 0; i < kLeases; ++i) command.grants.push_back(live.holding(i));
    const auto replies = store->execute(std::move(command));
    together.push_back(milliseconds_since(began));
    is_right = is_right && replies && replies->size() == kLeases &&
               std::all_of(replies->begin(), replies->end(),
                           [](const auto& reply) { return reply.has_value(); });

    began = Time::now();
    Pipeline line(*store);
    for (std::size_t i = 0; i < kLeases; ++i) {
      line.submit(renew(i), [](std::chrono::milliseconds left) { return left == 1h; });
    }
    is_right = line.finish() && is_right;
    pipelined.push_back(milliseconds_since(began));

    began = Time::now();
    for (std::size_t i = 0; i < kLeases; ++i) is_right = store->execute(renew(i)) && is_right;
    apart.push_back(milliseconds_since(began));
  }
  row("1000 leases renewed", to_string(kind),
      fmt::format("{:.2f} ms by one command, {:.2f} ms one by one ({:.1f} times), {:.2f} ms {} at "
                  "a time",
                  percentile(together, 0.5), percentile(apart, 0.5),
                  percentile(apart, 0.5) / percentile(together, 0.5), percentile(pipelined, 0.5),
                  Pipeline::kWindow));
  return is_right;
}

bool for_every_kind(const Settings& settings, bool (*measure)(Kind, const Settings&)) {
  bool is_right = true;
  for (const auto kind : kKinds) {
    is_right = in_own_process([&] { return measure(kind, settings); }) && is_right;
  }
  return is_right;
}

}  // namespace

bool measure_waiting(const Settings& settings) {
  const bool is_right = for_every_kind(settings, measure_queue);
  return for_every_kind(settings, measure_lateness) && is_right;
}

bool measure_many(const Settings& settings) {
  return for_every_kind(settings, measure_renewals);
}

}  // namespace fencekv::bench
