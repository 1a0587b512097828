// SPDX-License-Identifier: Apache-2.0
/// When a command is accepted: sections 2 and 3 of engine/SEMANTICS.md, and nowhere else.
///
/// The rules know no thread, no clock, no disk and no socket. They see a State and a Moment, and
/// either change the State and answer, or leave it as it was and answer why.

#pragma once

#include "engine/core/boots.h"
#include "engine/core/record.h"
#include "fencekv/command.h"
#include "fencekv/options.h"
#include "fencekv/result.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::core {

#ifdef FENCEKV_CONTROL_WITHOUT_FENCE
/// The control of the fence tests: the same store with the comparison of tokens left out. It does
/// lose data, which shows that the tests can see it.
constexpr bool kCompareFences = false;
#else
constexpr bool kCompareFences = true;
#endif

/// The one reading of the clocks by which a command is decided.
struct Moment {
  std::chrono::nanoseconds since_boot{0};
  std::chrono::milliseconds wall{0};
};

/// The options that the rules look at.
struct Policy {
  UnguardedTokens unguarded_tokens = UnguardedTokens::issued;
  std::size_t max_value_bytes = 0;
};

/// What the rules may see and change. Pointers live until the next change of the same record.
class State {
 public:
  virtual ~State() = default;

  /// nullptr: no record. Errors: corrupt.
  virtual Result<const KeyRecord*> key(std::string_view key) = 0;
  virtual Result<const LeaseRecord*> lease(std::string_view name) = 0;
  /// Both return the record as it stands then.
  virtual const KeyRecord& put_key(std::string_view key, KeyRecord record) = 0;
  virtual const LeaseRecord& put_lease(std::string_view name, LeaseRecord record) = 0;

  virtual Token newest() const = 0;
  virtual Token floor() const = 0;
  virtual const Boots& boots() const = 0;

  /// Draws a fresh token, larger than every one before. Errors: invalid, the token space is used
  /// up; misconf, it cannot be reserved now.
  virtual Result<Token> draw() = 0;

  /// Tells of a refused write, for the log of refusals.
  virtual void refused(std::string_view key, const std::optional<std::string>& lease, Token offered,
                       const Error& error) = 0;
};

/// Who asks, for the records.
struct Asker {
  std::string_view client;
};

/// Decides one command. `command` may be consumed.
Result<Reply> decide(State& state, const Policy& policy, Command& command, const Moment& moment,
                     const Asker& asker);

/// Whether the command can be answered without changing anything.
bool is_read(const Command& command);

/// How a lease name stands at a moment.
enum class Standing {
  never_held,
  held,
  expired,     ///< Its time is over, and nobody else came.
  closed,      ///< Released, revoked or disconnected.
  fenced_off,  ///< The floor was lifted above it: as if it had never been.
};

Standing standing(const LeaseRecord* lease, Token floor, const Boots& boots,
                  std::chrono::nanoseconds now);

/// Milliseconds left of a held lease, rounded up: in (0, ttl].
std::chrono::milliseconds remaining(const LeaseRecord& lease, const Boots& boots,
                                    std::chrono::nanoseconds now);

/// What listings show of a lease.
LeaseState describe(std::string_view name, const LeaseRecord* lease, Token floor,
                    const Boots& boots, std::chrono::nanoseconds now);

/// What readers see of a key.
KeyState describe(const KeyRecord* record);

/// Checks that the rules for keys need from the rules for leases: may `token` write under `name`?
/// Errors: no_lease, unissued, fenced, expired, corrupt.
Result<void> check_lease(State& state, std::string_view name, Token token, bool live,
                         const Moment& moment);

// One a command, in lease_rules.cpp.
Result<Reply> decide(State& state, const Acquire& command, const Moment& moment,
                     const Asker& asker);
Result<Reply> decide(State& state, const Renew& command, const Moment& moment);
Result<Reply> decide(State& state, const Release& command, const Moment& moment);
Result<Reply> decide(State& state, const Revoke& command, const Moment& moment);
Result<Reply> decide(State& state, const Inspect& command, const Moment& moment);

/// Adds to what a read returns, unless it is too much for one reply: memory is bounded.
Result<void> add_key(Read::Reply& keys, KeyState state, std::size_t& bytes);

/// A key, a lease name, an owner or a request id within its limits? `what` begins the error.
Result<void> check_length(std::string_view what, std::string_view bytes, std::size_t max_bytes);
Result<void> check_token(Token token);

}  // namespace fencekv::core
