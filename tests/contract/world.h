// SPDX-License-Identifier: Apache-2.0
/// A store that a test can reach, stop and start, whatever it lives on and however it is reached.
/// The same promises are tested on every kind of world (invariant I13).

#pragma once

#include "fencekv/store.h"
#include "tests/support/manual_clock.h"

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fencekv::testing {

class World {
 public:
  explicit World(Options options) : options_(std::move(options)) { options_.clock = clock_; }
  virtual ~World() = default;

  /// Asks the store, over whatever stands between.
  virtual Result<Reply> run(Command command) = 0;
  virtual Result<std::vector<LeaseState>> leases() = 0;
  virtual Result<std::vector<std::string>> keys() = 0;
  virtual std::vector<Rejection> rejections() = 0;

  /// Stops the store cleanly and starts it again.
  virtual void restart() = 0;
  /// The process dies and is started again: what was written is there, synced or not.
  virtual void crash() = 0;

  /// The store itself, for what is only looked at.
  virtual Store& store() = 0;

  template <class C>
  Result<typename C::Reply> ask(C command) {
    auto reply = run(Command(std::move(command)));
    if (!reply) return std::move(reply).error();
    return std::get<typename C::Reply>(*std::move(reply));
  }

  ManualClock& clock() { return *clock_; }
  /// For the next restart() or crash().
  Options& options() { return options_; }

 private:
  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  Options options_;
};

/// A kind of world, for the name of a test.
struct WorldKind {
  std::string name;
  std::function<std::unique_ptr<World>(Options)> make;
};

inline void PrintTo(const WorldKind& kind, std::ostream* out) {
  *out << kind.name;
}

/// All kinds that this test program was built with.
std::vector<WorldKind> every_world();

std::unique_ptr<World> make_memory_world(Options options);
std::unique_ptr<World> make_rocksdb_world(Options options);
std::unique_ptr<World> make_network_world(Options options);

}  // namespace fencekv::testing
