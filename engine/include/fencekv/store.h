// SPDX-License-Identifier: Apache-2.0
/// The embedded store. This is the only header an application includes.
///
///     auto store = fencekv::open_rocksdb("/var/lib/app", {});
///     if (!store) return report(store.error());
///
///     const auto owner = fencekv::new_owner();
///     auto lease = (*store)->acquire("jobs/nightly", owner, 10s);
///     if (!lease) return report(lease.error());
///     if (!*lease) return wait_for_our_turn();
///
///     auto put = (*store)->set("jobs/nightly/state", "done", (*lease)->token,
///                              {.lease = "jobs/nightly"});
///     if (!put && put.error().code() == fencekv::Errc::fenced) return stand_down();

#pragma once

#include "fencekv/command.h"
#include "fencekv/options.h"
#include "fencekv/result.h"
#include "fencekv/types.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fencekv {

/// A name as listings and the log of refusals show it. Shared, since a connection asks often.
using ClientName = std::shared_ptr<const std::string>;

/// Who asks.
struct Caller {
  ClientName name{};          ///< nullptr: `embedded`.
  std::uint64_t session = 0;  ///< Session::id(). 0: the process, which ends last.
};

/// A command on its way, for Store::cancel().
using Ticket = std::uint64_t;

/// A command to be run without waiting, and where its answer goes.
struct Submission {
  Command command;
  std::function<void(Result<Reply>)> done;  ///< As with Store::submit().
  Caller caller{};
};

/// A piece of a listing.
template <class Item>
struct Page {
  std::vector<Item> items;
  std::optional<std::string> next;  ///< Pass as `after` for the next piece; nullopt: the end.
};

/// A complete backup.
struct Backup {
  std::string name;                    ///< Of its directory.
  std::chrono::milliseconds taken{0};  ///< Wall clock since 1970. For people.
  std::uint64_t group = 0;             ///< It holds the groups up to this one, and none after it.
  Token newest;                        ///< The newest token handed out until then.
  std::uint64_t records = 0;  ///< Keys with and without a value, leases, and what the store needs.
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;  ///< In its files.
};

/// A durable map in which every write proves that its author is still current, and the allocator
/// of those proofs.
///
/// Every command is decided and applied in one serialised step, together with all that runs at the
/// same time: between the comparison of a token and the write nothing can slip in.
///
/// Thread safety: all members may be called concurrently.
/// Blocking: execute(), run() and the members built on them wait for the disk; submit() does not.
///     The calling thread may commit other callers' commands along with its own.
/// After a crash: what was answered with success is there, in full; with Durability::process after
///     a crash of the process only. A command without an answer is there in full or not at all.
/// Errors: each member lists its own. Every one may also return corrupt, and every one that changes
///     something overloaded, in_doubt or misconf. A command that is refused changes nothing.
class Store {
 public:
  class Core;
  explicit Store(std::unique_ptr<Core> core);
  /// Finishes what was submitted, then closes. No member may be running.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Keys.

  /// Stores `value` under `key`, unless a newer token was ever accepted for it. Returns the new
  /// version. A holder may use its token for any number of writes.
  ///
  /// Errors: fenced, unissued, no_lease, wrong_lease, expired, version, invalid, too_big.
  Result<std::uint64_t> set(std::string_view key, std::string_view value, Token token,
                            WriteOptions options = {});

  /// Deletes `key`. Its fence, version and guard stay, so that a late writer cannot revive it.
  /// Errors: as set(). `options.once` is not for deletions: invalid.
  Result<std::uint64_t> remove(std::string_view key, Token token, WriteOptions options = {});

  /// What is stored under `key`: a live value, or nullopt. Lifts no fence.
  Result<std::optional<std::string>> get(std::string_view key);

  // Leases.

  /// Grants `name` to `owner` for `ttl` with a token larger than every one before, and raises the
  /// name's fence in the same step, so that the previous holder is shut out from now on. nullopt:
  /// not acquired within `options.wait`. An owner that holds it gets the same token, and its time
  /// again.
  ///
  /// The store counts from the grant; the holder must count from before it asked. One that queued
  /// does not know when the grant was: it renews first, and counts from before that.
  /// `cancel` ends the wait with nullopt.
  /// Errors: invalid, a limit is exceeded, the owner holds it in another way, or the token space is
  /// used up; lease_lost, the caller's session ended; overloaded, the queue is full.
  Result<std::optional<Grant>> acquire(std::string_view name, std::string_view owner,
                                       std::chrono::milliseconds ttl, AcquireOptions options = {},
                                       Caller caller = {}, std::stop_token cancel = {});

  /// Sets the remaining time of a current grant to `ttl`, and returns it.
  /// Errors: lease_lost.
  Result<std::chrono::milliseconds> renew(std::string_view name, std::string_view owner,
                                          Token token, std::chrono::milliseconds ttl);

  /// Ends the grant: after it returns, nothing in flight with that token can land. Repeating it is
  /// harmless. Errors: lease_lost, and nothing was touched.
  Result<void> release(std::string_view name, std::string_view owner, Token token);

  // Everything, in one form.

  /// Runs any command, and waits for its answer. `cancel` ends the wait of a command that waits
  /// for a lease, as if its time were over.
  template <class C>
  Result<typename C::Reply> execute(C command, Caller caller = {}, std::stop_token cancel = {}) {
    return as<typename C::Reply>(
        run(Command(std::move(command)), std::move(caller), std::move(cancel)));
  }

  /// Runs any command without waiting. `done` is called exactly once, from a thread of the store or
  /// from this one before submit() returns; it must not block, throw, or call into the store but by
  /// submit() and cancel(). Commands submitted by one thread are decided in the order of
  /// submission; one that waits for a lease does not hold up those behind it.
  template <class C>
  Ticket submit(C command, std::function<void(Result<typename C::Reply>)> done,
                Caller caller = {}) {
    return enqueue(
        Command(std::move(command)),
        [done = std::move(done)](Result<Reply> reply) {
          done(as<typename C::Reply>(std::move(reply)));
        },
        std::move(caller));
  }

  /// The same for a command whose type is known only at run time.
  Result<Reply> run(Command command, Caller caller = {}, std::stop_token cancel = {});
  Ticket enqueue(Command command, std::function<void(Result<Reply>)> done, Caller caller = {});
  /// The same for many, in their order; `submissions` is empty afterwards. If no more than
  /// `lead_most` commands are queued then and nobody else is at them, they are decided and
  /// committed on this thread, before it returns: for an event loop, which has nothing to gain from
  /// waking another thread. It then takes as long as the storage does.
  void enqueue(std::vector<Submission>& submissions, std::size_t lead_most);

  /// Ends the wait of a command that waits for a lease, as if its time were over: its answer is
  /// nullopt, unless the grant came first. Of no effect on other commands, and on those answered.
  void cancel(Ticket ticket);

  /// Answers from what is durable now, without the queue and without waiting for writers: on this
  /// thread, at one point in time. Commands that were submitted and not yet answered are not seen.
  Result<Read::Reply> read_committed(const Read& command);

  // Listings. Each page is at one point in time, and several pages are not of the same one.

  /// The keys with a live value, in order of their bytes, after `after`. Looks at no more than
  /// `examine` records, so a page may be empty and still have a next one.
  Result<Page<std::string>> list_keys(const std::optional<std::string>& after, std::size_t examine);

  /// The leases that have a holder or a waiter, in order of their names. As list_keys().
  Result<Page<LeaseState>> list_leases(const std::optional<std::string>& after,
                                       std::size_t examine);

  /// The newest refused writes, newest first. Kept in memory, 1,024 of them.
  std::vector<Rejection> rejections(std::size_t count) const;

  StoreStats stats() const;

  /// For how long the storage has been at work on what it was last given; zero: it has nothing to
  /// do. Seconds mean that the disk does not answer: nothing is lost, and nobody is answered. What
  /// to do about that is the process' to decide; the store waits. Never waits itself.
  std::chrono::milliseconds in_flight() const;

  /// Whether the clock by which leases expire stands still while another one runs: nothing is
  /// granted until it runs again. Reads both clocks, and can tell once it has stood still for two
  /// seconds since somebody last asked or used the store. Never waits itself.
  bool clock_stands_still() const;

  /// Lifts the floor, durably, as far as no token can be missed: below the lowest one of any grant
  /// that is held or ended less than Options::fence_retention ago. Then takes away the tombstones
  /// and the lease names below it. The store does so by itself, see Options::reclaim_interval.
  ///
  /// Takes as long as looking at every record; others go on meanwhile.
  /// Errors: invalid, under UnguardedTokens::any, where every tombstone is needed.
  Result<Reclaimed> reclaim();

  /// Reads and verifies everything that is stored: every record, every block of every table. The
  /// store does so by itself, slowly, see Options::scrub_interval. What is damaged is no error, but
  /// a finding, and logged; the commands that need it answer corrupt, and all others work.
  ///
  /// Takes as long as reading all of it; others go on meanwhile.
  /// Errors: misconf, the storage cannot be read now; unreachable, the store is being closed.
  Result<Scrubbed> scrub();

  /// Makes a backup at `target`: the store as it is at one moment between two groups, in a new
  /// directory that shares no file with it and may be on another disk. It is read back and verified
  /// before it gets its name, so it is complete or not there. fencekv-admin makes a store of it.
  ///
  /// Takes as long as reading everything and writing it once more; others go on meanwhile. While
  /// the storage recovers from a failed write, a backup ends.
  /// Errors: invalid, there is something at `target`, it cannot be written, or the store is in
  /// memory; in_use, another process makes the same one; corrupt, a record of the store is damaged:
  /// the detail names it; no_space; misconf; unreachable, `cancel` was asked for.
  Result<Backup> backup(const std::filesystem::path& target, std::stop_token cancel = {});

  /// Why the store takes no writes now; nullopt: it does.
  std::optional<std::string> refuses_writes() const;

  /// With what was left to the store filled in: its clock, and what its caches may take.
  const Options& options() const;

 private:
  template <class T>
  static Result<T> as(Result<Reply> reply) {
    if (!reply) return std::move(reply).error();
    return std::get<T>(*std::move(reply));
  }

  friend class Session;
  std::unique_ptr<Core> core_;
};

/// One user of a store for as long as it is there: a connection of a server, or a part of an
/// embedding program. With it end its waits (lease_lost, disconnected), its bound leases, closed,
/// and its watches.
///
/// Thread safety: id() may be called concurrently.
/// Lifetime: ends before the store. Its end does not wait for the disk; what it ends is decided
///     after everything that was submitted before. From the moment of its end no token of its bound
///     leases counts as held.
class Session {
 public:
  /// `on_event` hears of what is watched, in order. It is called from threads of the store, must
  /// not block or throw, nor call into the store but by Store::submit(). After the destructor
  /// returned it is not called any more; so the destructor must not be called from it.
  explicit Session(Store& store, std::function<void(const LeaseEvent&)> on_event = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Never 0, and never that of another session of the same store.
  std::uint64_t id() const { return id_; }

 private:
  Store& store_;
  const std::uint64_t id_;
};

/// A new random owner: 128 bits from the system, as 32 hex digits.
std::string new_owner();

/// The fingerprint under which listings show an owner: the first 8 hex digits of its SHA-256.
std::string owner_fingerprint(std::string_view owner);

/// Opens the store in `directory`, creating it (mode 0700) if it does not exist or is empty.
///
/// On a full disk an existing store opens and serves reads; refuses_writes() says so, and it takes
/// writes again by itself once there is space.
///
/// Errors: in_use; newer_format; corrupt: something is missing or damaged, the detail names the
/// file, and nothing was changed; no_space: a new store could not be created; invalid: the
/// directory holds something else, or cannot be used; or Options::memory_budget is too small.
Result<std::unique_ptr<Store>> open_rocksdb(const std::filesystem::path& directory,
                                            const Options& options);

/// The complete backups in the directory `root`, by name. What is no backup is left out, and so is
/// one whose list is damaged. The files in them are not looked at: `fencekv-admin verify-backup`.
/// Errors: invalid, the directory cannot be read.
Result<std::vector<Backup>> list_backups(const std::filesystem::path& root);

/// Opens an empty store that lives in memory and is gone with the process: for tests.
std::unique_ptr<Store> open_memory(const Options& options);

}  // namespace fencekv
