// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/leases/figures.h"
#include "tools/bench/leases/sections.h"

#include <fmt/format.h>

#include <array>
#include <random>
#include <thread>

namespace fencekv::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::array kWhat{"acquire", "renew", "release", "take over an expired lease"};

/// Microseconds a command, by kWhat.
using Costs = std::array<double, kWhat.size()>;

/// A store with live leases, and commands on top of them.
class Measured {
 public:
  Measured(Kind kind, const std::filesystem::path& directory, std::size_t live)
      : store_(open(kind, directory)), live_(*store_, "live", live) {}

  bool is_right() const { return is_right_ && live_.are_right(); }

  Costs run(std::size_t operations) {
    tokens_.assign(operations, Token{});
    // The names are those of the run before: they were granted and released already.
    return {per_command(operations, [&](Pipeline& line, std::size_t i) { acquire(line, i, 1h); }),
            per_command(operations, [&](Pipeline& line, std::size_t) { renew(line); }),
            per_command(operations, [&](Pipeline& line, std::size_t i) { release(line, i); }),
            take_over(operations)};
  }

 private:
  static std::string name(std::size_t i) { return "run/" + std::to_string(i); }

  template <class Ask>
  double per_command(std::size_t operations, Ask ask) {
    const auto began = Time::now();
    Pipeline line(*store_);
    for (std::size_t i = 0; i < operations; ++i) ask(line, i);
    is_right_ = line.finish() && is_right_;
    return milliseconds_since(began) * 1000 / static_cast<double>(operations);
  }

  void acquire(Pipeline& line, std::size_t i, std::chrono::milliseconds ttl,
               std::string owner = "me") {
    line.submit(Acquire{.name = name(i), .owner = std::move(owner), .ttl = ttl},
                [this, i](const Acquire::Reply& reply) {
                  if (reply) tokens_[i] = reply->token;
                  return reply.has_value();
                });
  }
  void renew(Pipeline& line) {
    const auto own = live_.holding(random_() % live_.size());
    line.submit(Renew{.name = own.name, .owner = own.owner, .token = own.token, .ttl = 24h},
                [](std::chrono::milliseconds left) { return left == 24h; });
  }
  void release(Pipeline& line, std::size_t i) {
    line.submit(Release{.name = name(i), .owner = "me", .token = tokens_[i]},
                [](std::monostate) { return true; });
  }
  double take_over(std::size_t operations) {
    per_command(operations, [&](Pipeline& line, std::size_t i) { acquire(line, i, 1ms, "gone"); });
    std::this_thread::sleep_for(5ms);
    const auto cost =
        per_command(operations, [&](Pipeline& line, std::size_t i) { acquire(line, i, 1h); });
    per_command(operations, [&](Pipeline& line, std::size_t i) { release(line, i); });
    return cost;
  }

  const std::unique_ptr<Store> store_;
  const LiveLeases live_;
  std::vector<Token> tokens_;
  std::mt19937_64 random_{1};
  bool is_right_ = true;
};

bool measure_kind(Kind kind, const Settings& settings) {
  const Scratch scratch(settings.directory);
  Measured few(kind, scratch.path() / "few", settings.few);
  Measured many(kind, scratch.path() / "many", settings.leases);
  few.run(settings.operations);  // warms up
  many.run(settings.operations);

  std::array<std::vector<double>, kWhat.size()> of_few;
  std::array<std::vector<double>, kWhat.size()> of_many;
  std::array<std::vector<double>, kWhat.size()> ratios;
  for (std::size_t round = 0; round < settings.rounds; ++round) {
    const auto less = few.run(settings.operations);
    const auto more = many.run(settings.operations);
    for (std::size_t i = 0; i < kWhat.size(); ++i) {
      of_few[i].push_back(less[i]);
      of_many[i].push_back(more[i]);
      ratios[i].push_back(more[i] / less[i]);
    }
  }
  for (std::size_t i = 0; i < kWhat.size(); ++i) {
    row(kWhat[i], to_string(kind),
        fmt::format("{:.2f} us with {} live, {:.2f} us with {}: ratio {:.2f}",
                    percentile(of_few[i], 0.5), settings.few, percentile(of_many[i], 0.5),
                    settings.leases, percentile(ratios[i], 0.5)));
  }
  return few.is_right() && many.is_right();
}

}  // namespace

bool measure_cost(const Settings& settings) {
  bool is_right = true;
  for (const auto kind : kKinds) {
    is_right = in_own_process([&] { return measure_kind(kind, settings); }) && is_right;
  }
  return is_right;
}

}  // namespace fencekv::bench
