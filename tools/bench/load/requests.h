// SPDX-License-Identifier: Apache-2.0
/// What is asked of a server, and what it has to answer.

#pragma once

#include "tools/bench/load/key_picker.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv::bench {

enum class Target {
  fencekv,
  redis,
  // Those below do not speak RESP: of Requests, they use the numbers and the values.
  postgres,
  etcd,
  disk,  ///< No server: a file that is appended to.
};

enum class Workload {
  write,       ///< FENCE.SET; Redis: the fence check as a script, over a hash with fields f and v.
  stale,       ///< As `write`, with an older token than what is stored: refusing it is right.
  set,         ///< Redis only: SET, without a fence, to fill it for `get`.
  get,         ///< GET.
  fenced_get,  ///< FENCE.GET; Redis: HGET of the value that `write` wrote.
  lease,  ///< Acquire and release, counted as one; Redis: SET NX PX, and a script that compares.
};

struct RequestOptions {
  Target target = Target::fencekv;
  Workload workload = Workload::write;
  std::size_t value_bytes = 100;
  std::uint64_t keys = 100'000;
  Distribution distribution = Distribution::uniform;
  double read_share = 0;         ///< Of `write`: so many requests read the value instead.
  bool allows_missing = false;   ///< Reading a key that is not there is right.
  bool is_batch_atomic = false;  ///< PostgreSQL only: a batch is one transaction.
  bool shares_lease = false;     ///< etcd only: a connection has one lease for all its names.
  std::uint64_t seed = 1;
};

/// What the requests need from the server before the load.
///
/// Redis: the scripts are loaded, and called by their digest. fencekv: tokens are drawn from
/// a lease, because a server takes only tokens that it issued unless it is told otherwise.
struct Preparation {
  std::string token = "2";
  std::string older_token = "1";
  std::string write_script;
  std::string release_script;
};

/// The token in the reply to LEASE.ACQUIRE, an array of it and of the time that is left.
std::string_view granted_token(std::string_view reply);

/// A RESP request of the given arguments.
std::string to_request(const std::vector<std::string_view>& arguments);

/// The peer of FENCE.SET, as one would write it by hand: the fence is compared and stored with the
/// value, and an older token is refused by an error.
inline constexpr std::string_view kWriteScript =
    "local f = redis.call('HGET', KEYS[1], 'f') "
    "if f and tonumber(f) > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. f) end "
    "redis.call('HSET', KEYS[1], 'f', ARGV[1], 'v', ARGV[2]) "
    "return 1";

/// The peer of LEASE.RELEASE: gives back what is still the caller's.
inline constexpr std::string_view kReleaseScript =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) "
    "else return 0 end";

/// Makes requests. Everything that does not change from one to the next is made once: a request is
/// a few copies into a buffer.
///
/// Thread safety: none.
class Requests {
 public:
  Requests(const RequestOptions& options, const Preparation& preparation);

  /// What a reply has to begin with. The second is another right answer, or empty.
  struct Expected {
    std::string_view begin;
    std::string_view or_begin;
  };

  /// Appends the next request to `out`.
  Expected append(std::string& out);

  /// A lease that no other connection and no other slot of this one uses at the same time.
  std::uint64_t lease_number(std::size_t slot, std::size_t slots);
  Expected append_acquire(std::string& out, std::uint64_t lease) const;
  /// `granted` is the reply to the acquisition.
  Expected append_release(std::string& out, std::uint64_t lease, std::string_view granted) const;

  /// What a request is made of, for those who do not speak RESP.
  std::uint64_t next_key() { return picker_.next(); }
  bool next_is_read() { return options_.read_share > 0 && picker_.chance(options_.read_share); }
  /// Valid until the next call.
  std::string_view next_value();
  const RequestOptions& options() const { return options_; }

  bool is_lease() const { return options_.workload == Workload::lease; }

 private:
  /// A request with holes for the key and for a value of value_bytes.
  struct Shape {
    std::string before_key;
    std::string after_key;
    bool has_value = false;
    std::string expected;
    std::string or_expected;
  };

  Shape write_shape(const Preparation& preparation) const;
  Shape read_shape() const;
  Expected append(std::string& out, const Shape& shape);

  RequestOptions options_;
  KeyPicker picker_;
  std::string values_;  // random bytes; a value is a piece of them
  Shape main_;
  Shape read_;
  Shape acquire_;
  Shape release_;
};

}  // namespace fencekv::bench
