// SPDX-License-Identifier: Apache-2.0
/// When a command is accepted: sections 2 and 3 of engine/SEMANTICS.md, and nowhere else.
///
/// The rules know no thread, no clock, no disk and no socket. They see a State and a Moment, and
/// either change the State and answer, or leave it as it was and answer why.

#pragma once

#include "engine/core/boots.h"
#include "engine/core/lease.h"
#include "engine/core/record.h"
#include "engine/core/sessions.h"
#include "engine/core/waiters.h"
#include "fencekv/command.h"
#include "fencekv/options.h"
#include "fencekv/result.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  /// The first one has stood still for a while: nothing may be granted.
  bool stands_still = false;
};

/// The options that the rules look at.
struct Policy {
  UnguardedTokens unguarded_tokens = UnguardedTokens::issued;
  std::size_t max_value_bytes = 0;
  std::size_t max_waiting = 0;  ///< Commands that wait, of all names together.
};

/// What the rules may see and change. Pointers live until the next change of the same record.
class State {
 public:
  virtual ~State() = default;

  /// nullptr: no record. Errors: corrupt.
  virtual Result<const KeyRecord*> key(std::string_view key) = 0;
  /// The same for who needs to know whether there is a value, and not which: it may be empty.
  virtual Result<const KeyRecord*> fence(std::string_view key) { return this->key(key); }
  virtual const KeyRecord& put_key(std::string_view key, KeyRecord record) = 0;

  /// nullptr: never granted. Errors: corrupt.
  virtual Result<const Lease*> lease(std::string_view name) = 0;
  /// A lease that lease() has shown, to be changed.
  virtual Lease& change_lease(std::string_view name) = 0;
  /// The first grant of a name that lease() has shown to have none.
  virtual void put_lease(std::string_view name, Lease lease) = 0;

  virtual Token newest() const = 0;
  virtual Token floor() const = 0;
  virtual const Boots& boots() const = 0;
  /// The running process, as in Origin.
  virtual std::uint64_t process() const = 0;
  /// When it became the writer for the first time.
  virtual std::chrono::nanoseconds process_began() const = 0;

  /// How long who held a lease may be told how it ended.
  virtual std::chrono::nanoseconds fence_retention() const = 0;
  /// Lifts the floor to `floor`, if it is lower.
  virtual void lift_floor(Token floor) = 0;
  /// Takes away what lease() or key() has shown.
  virtual void erase_key(std::string_view key) = 0;
  virtual void erase_lease(std::string_view name) = 0;

  /// Draws a fresh token, larger than every one before. Errors: invalid, the token space is used
  /// up; misconf, it cannot be reserved now.
  virtual Result<Token> draw() = 0;

  /// Nothing durable can be changed now: only looked at.
  virtual bool is_frozen() const = 0;

  // What lives in memory, and is never undone.

  virtual const Sessions& sessions() const = 0;
  virtual Waiters& waiters() = 0;

  // What becomes true with the group, or not at all.

  /// Answers a command that waited.
  virtual void answer(Ticket ticket, Result<Reply> reply) = 0;
  /// Tells those who watch.
  virtual void happened(LeaseEvent event) = 0;
  /// A grant that was bound has ended, or went to another session.
  virtual void unbind(std::uint64_t session, std::string_view name, Token token) = 0;

  /// Tells of a refused write, for the log of refusals.
  virtual void refused(std::string_view key, const std::optional<std::string>& lease, Token offered,
                       const Error& error) = 0;
};

/// Who asks, for the records and for what ends with a session.
struct Asker {
  std::string_view client;
  std::uint64_t session = 0;
  Ticket ticket = 0;
};

/// nullopt: the command waits, and is answered through State::answer().
using Decision = std::optional<Result<Reply>>;

/// Decides one command. `command` may be consumed, unless it is a read: of a group that failed they
/// are decided once more.
Decision decide(State& state, const Policy& policy, Command& command, const Moment& moment,
                const Asker& asker);

/// Whether the command can be answered, or may wait, without changing anything durable.
bool is_read(const Command& command);

// What happens without a command, in succession.cpp.

/// Ends waits whose time is over, and does what is due at names that anybody waits for. Returns
/// false if more of that is due, which is left for the next time so that others come between.
bool pass_time(State& state, const Moment& moment);
/// Looks again at every name that anybody waits for.
void look_everywhere(State& state, const Moment& moment);
/// Ends a wait as if its time were over. Of no effect if it has been answered.
void cancel_wait(State& state, Ticket ticket, const Moment& moment);
/// Ends what a session waits for, holds bound and watches. The session is closed already.
void end_session(State& state, std::uint64_t session, const Moment& moment);

/// Takes away, of the given ones, keys without a value and lease names whose fence is below the
/// floor: no token that could reach them is accepted any more. Errors: corrupt.
Result<Reclaimed> reclaim(State& state, const std::vector<std::string>& keys,
                          const std::vector<std::string>& names, const Moment& moment);

/// What readers see of a key.
KeyState describe(const KeyRecord* record);

/// Checks that the rules for keys need from the rules for leases: may `token` write under `name`?
/// Errors: no_lease, unissued, fenced, expired, corrupt; invalid, of a grant that may not write.
Result<void> check_lease(State& state, std::string_view name, Token token, bool live,
                         const Moment& moment);

// One a command, in lease_rules.cpp.
Decision decide(State& state, const Policy& policy, Acquire& command, const Moment& moment,
                const Asker& asker);
Decision decide(State& state, const Policy& policy, AcquireMany& command, const Moment& moment,
                const Asker& asker);
Result<Reply> decide(State& state, const Renew& command, const Moment& moment);
Result<Reply> decide(State& state, const RenewMany& command, const Moment& moment);
Result<Reply> decide(State& state, const Release& command, const Moment& moment);
Result<Reply> decide(State& state, const ReleaseMany& command, const Moment& moment);
Result<Reply> decide(State& state, const GiveBack& command, const Moment& moment,
                     const Asker& asker);
Result<Reply> decide(State& state, const Revoke& command, const Moment& moment);
Result<Reply> decide(State& state, const Inspect& command, const Moment& moment);
Result<Reply> decide(State& state, const ListWaiters& command, const Moment& moment);
Decision decide(State& state, const Policy& policy, const Await& command, const Moment& moment,
                const Asker& asker);
Result<Reply> decide(State& state, const Watch& command, const Moment& moment, const Asker& asker);
Result<Reply> decide(State& state, const Unwatch& command, const Asker& asker);

/// Adds to what a read returns, unless it is too much for one reply: memory is bounded.
Result<void> add_key(Read::Reply& keys, KeyState state, std::size_t& bytes);

/// A key, a lease name, an owner or a request id within its limits? `what` begins the error.
Result<void> check_length(std::string_view what, std::string_view bytes, std::size_t max_bytes);
Result<void> check_token(Token token);

}  // namespace fencekv::core
