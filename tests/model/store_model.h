// SPDX-License-Identifier: Apache-2.0
/// What a store must answer, written as plainly as possible: maps, one command at a time, time as a
/// number, nothing that can fail. It shares no line with the engine's rules.
///
/// It knows durability = sync only, where nothing acknowledged is ever lost; so a restart and a
/// crash change no answer but the tokens that a crash skips, which the test tells it.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::testing {

class StoreModel {
 public:
  using Milliseconds = std::int64_t;

  struct Key {
    std::uint64_t fence = 0;
    std::uint64_t version = 0;
    std::uint64_t writer = 0;
    std::optional<std::string> guard;
    std::optional<std::string> request;
    std::optional<std::string> value;
  };

  struct Lease {
    std::uint64_t fence = 0;
    std::string owner;
    Milliseconds deadline = 0;
    Milliseconds ttl = 0;
    std::string closed;  ///< Why; empty: it is not.
    bool expired = false;
  };

  struct Write {
    std::vector<std::pair<std::string, std::optional<std::string>>> entries;
    std::uint64_t token = 0;
    std::optional<std::string> lease;
    bool once = false;
    bool live = false;
    std::optional<std::uint64_t> if_version;
    std::optional<std::string> request;
  };

  // Each answers a line: `OK …`, or the error as it travels.
  std::string write(const Write& write);
  std::string raise(const std::string& key, std::uint64_t token,
                    const std::optional<std::string>& lease);
  std::string reset(const std::string& key, std::uint64_t token);
  std::string read(const std::string& key) const;
  std::string acquire(const std::string& name, const std::string& owner, Milliseconds ttl);
  std::string renew(const std::string& name, const std::string& owner, std::uint64_t token,
                    Milliseconds ttl);
  std::string release(const std::string& name, const std::string& owner, std::uint64_t token);
  std::string revoke(const std::string& name);
  std::string inspect(const std::string& name);

  void advance(Milliseconds step) { now_ += step; }
  /// A new boot: running leases get their ttl again.
  void reboot();
  /// The next token that is handed out is above `token`.
  void skip_to(std::uint64_t token);

  std::uint64_t newest() const { return newest_; }
  const std::map<std::string, Key>& keys() const { return keys_; }
  const std::map<std::string, Lease>& leases() const { return leases_; }
  bool is_held(const Lease& lease) const;

 private:
  std::string refusal(const std::string& key, const Write& write) const;
  std::string lease_refusal(const std::string& name, std::uint64_t token, bool live) const;
  std::string own_refusal(const std::string& name, const std::string& owner,
                          std::uint64_t token) const;

  Milliseconds now_ = 0;
  Milliseconds boot_began_ = 0;
  std::uint64_t newest_ = 0;
  std::uint64_t skipped_ = 0;
  std::map<std::string, Key> keys_;
  std::map<std::string, Lease> leases_;
};

}  // namespace fencekv::testing
