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
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fencekv {

/// Who asks, as listings and the log of refusals show it. Shared, since a connection asks often.
using ClientName = std::shared_ptr<const std::string>;

/// A piece of a listing.
template <class Item>
struct Page {
  std::vector<Item> items;
  std::optional<std::string> next;  ///< Pass as `after` for the next piece; nullopt: the end.
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
  /// another owner holds it. An owner that holds it gets the same token, and its time again.
  ///
  /// The store counts from the grant; the holder must count from before it asked.
  /// Errors: invalid, a limit is exceeded or the token space is used up.
  Result<std::optional<Grant>> acquire(std::string_view name, std::string_view owner,
                                       std::chrono::milliseconds ttl);

  /// Sets the remaining time of a current grant to `ttl`, and returns it.
  /// Errors: lease_lost.
  Result<std::chrono::milliseconds> renew(std::string_view name, std::string_view owner,
                                          Token token, std::chrono::milliseconds ttl);

  /// Ends the grant: after it returns, nothing in flight with that token can land. Repeating it is
  /// harmless. Errors: lease_lost, and nothing was touched.
  Result<void> release(std::string_view name, std::string_view owner, Token token);

  // Everything, in one form.

  /// Runs any command, and waits for its answer.
  template <class C>
  Result<typename C::Reply> execute(C command, ClientName client = {}) {
    return as<typename C::Reply>(run(Command(std::move(command)), std::move(client)));
  }

  /// Runs any command without waiting. `done` is called exactly once, from a thread of the store or
  /// from this one before submit() returns; it must not block, throw, or call into the store but by
  /// submit(). Commands submitted by one thread are decided in the order of submission.
  template <class C>
  void submit(C command, std::function<void(Result<typename C::Reply>)> done,
              ClientName client = {}) {
    enqueue(
        Command(std::move(command)),
        [done = std::move(done)](Result<Reply> reply) {
          done(as<typename C::Reply>(std::move(reply)));
        },
        std::move(client));
  }

  /// The same for a command whose type is known only at run time.
  Result<Reply> run(Command command, ClientName client = {});
  void enqueue(Command command, std::function<void(Result<Reply>)> done, ClientName client = {});

  /// Answers from what is durable now, without the queue and without waiting for writers: on this
  /// thread, at one point in time. Commands that were submitted and not yet answered are not seen.
  Result<Read::Reply> read_committed(const Read& command);

  // Listings. Each page is at one point in time.

  /// The keys with a live value, in order of their bytes, after `after`. Looks at no more than
  /// `examine` records, so a page may be empty and still have a next one.
  Result<Page<std::string>> list_keys(const std::optional<std::string>& after, std::size_t examine);

  /// The leases that have a holder, in order of their names. As list_keys().
  Result<Page<LeaseState>> list_leases(const std::optional<std::string>& after,
                                       std::size_t examine);

  /// The newest refused writes, newest first. Kept in memory, 1,024 of them.
  std::vector<Rejection> rejections(std::size_t count) const;

  StoreStats stats() const;

  /// Why the store takes no writes now; nullopt: it does.
  std::optional<std::string> refuses_writes() const;

  const Options& options() const;

 private:
  template <class T>
  static Result<T> as(Result<Reply> reply) {
    if (!reply) return std::move(reply).error();
    return std::get<T>(*std::move(reply));
  }

  std::unique_ptr<Core> core_;
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
/// directory holds something else, or cannot be used.
Result<std::unique_ptr<Store>> open_rocksdb(const std::filesystem::path& directory,
                                            const Options& options);

/// Opens an empty store that lives in memory and is gone with the process: for tests.
std::unique_ptr<Store> open_memory(const Options& options);

}  // namespace fencekv
