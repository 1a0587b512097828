// SPDX-License-Identifier: Apache-2.0
/// A client of a live history: it works under leases as applications do, and as they should not.

#pragma once

#include "tests/history/operation.h"
#include "tests/support/raw_client.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace fencekv::testing {

/// Takes leases, writes under them, renews, releases, asks again when a reply is lost; sleeps
/// longer than its time and goes on; writes with tokens of grants that are over, with tokens of
/// other leases, and with tokens that nobody was given; reads; revokes.
///
/// Each process has one. Its operations are written to a descriptor, a line each, when they end.
class Worker {
 public:
  struct Place {
    std::uint16_t port = 0;
    int id = 0;
    int groups = 3;
    Time until{0};  ///< When it stops.
    int out = -1;
  };

  Worker(const Place& place, std::uint64_t seed) : place_(place), random_(seed) {}

  void run();

  /// The names that workers use, to look at when they are gone.
  static std::vector<std::string> keys(int groups);
  static std::vector<std::string> leases(int groups);

 private:
  std::uint64_t number(std::uint64_t below) { return random_() % below; }
  bool chance(unsigned percent) { return number(100) < percent; }
  bool is_over() const;
  void rest(std::chrono::milliseconds at_most);
  std::string group_of(const std::string& lease) const { return lease.substr(1); }
  std::string some_group();
  std::string value();

  /// Sends, waits for the reply, and tells. An answer that did not come is Outcome::unknown.
  Operation ask(const std::vector<std::string>& words);

  void work_under_lease();
  void work_without();
  void look();
  /// False: a refusal told it to stop.
  bool write(const std::string& lease, const std::string& token);

  Place place_;
  std::mt19937_64 random_;
  std::optional<RawClient> connection_;
  std::map<std::string, std::vector<std::string>> tokens_;  // By lease: all that it was given.
  std::uint64_t count_ = 0;                                 // Of owners, values and requests.
};

}  // namespace fencekv::testing
