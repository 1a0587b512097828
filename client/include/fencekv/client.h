// SPDX-License-Identifier: Apache-2.0
/// The client of a fencekv server.
///
///     auto client = fencekv::Client::connect({.host = "127.0.0.1", .port = 7433});
///     if (!client) return report(client.error());
///
///     auto put = client->set("settlement:123/state", "done", token, {.lease = "settlement:123"});
///     if (put) return;
///     switch (put.error().code()) {
///       case fencekv::Errc::fenced: return stand_down();       // a successor has taken over
///       case fencekv::Errc::unreachable: return try_again();   // nothing happened
///       case fencekv::Errc::in_doubt: return look_first();     // it may have happened
///       default: return report(put.error());
///     }
///
/// To hold a lease, use LeaseGuard (fencekv/lease_guard.h): it renews, and says when it is lost.
/// To be told what happens to leases, use LeaseWatcher (fencekv/lease_watcher.h).

#pragma once

#include "fencekv/command.h"
#include "fencekv/result.h"
#include "fencekv/types.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace fencekv {

class ClientCore;

struct ClientOptions {
  // Where the server is.

  std::string host = "127.0.0.1";
  std::uint16_t port = 7433;
  /// A Unix socket; if given, host and port are not used.
  std::string unix_path{};
  /// Sent with the first message of every connection.
  std::optional<std::string> password{};
  /// Shown by the server in its listings. No blanks.
  std::string name{};

  // How long to wait.

  /// For a connection to be of use: name look-up, connecting and the first exchange together.
  std::chrono::milliseconds connect_timeout{5'000};
  /// For the answer of a call that names no timeout of its own.
  std::chrono::milliseconds call_timeout{30'000};
  /// After a failed attempt to connect the next one waits this long, doubled each time up to the
  /// second number, then shortened at random by up to half.
  std::chrono::milliseconds first_backoff{50};
  std::chrono::milliseconds last_backoff{2'000};

  // What it may use.

  /// Calls that have no answer yet, in number and in bytes to send; beyond either, overloaded.
  std::size_t max_pending_calls = 65'536;
  std::size_t max_pending_bytes = std::size_t{256} * 1024 * 1024;
  /// Memory of one reply. A longer one ends the connection.
  std::size_t max_reply_bytes = std::size_t{128} * 1024 * 1024;
  /// Connections beside the shared one that are in use at a time: one for each command that waits,
  /// each bound lease and each watcher. Beyond, overloaded. They share the client's one thread.
  std::size_t max_own_connections = 1'024;
};

/// How one call is made.
struct CallOptions {
  /// For everything, connecting included; zero: ClientOptions::call_timeout, and on top of that the
  /// time that the command itself may wait for a lease.
  std::chrono::milliseconds timeout{0};
  /// Gives the call up.
  std::stop_token cancel{};
};

// Commands that only the network has; those that change something are in fencekv/command.h.

/// GET.
struct Get {
  using Reply = std::optional<std::string>;  ///< nullopt: no live value.
  std::string key;
};

/// MGET: all at one point in time.
struct GetMany {
  using Reply = std::vector<std::optional<std::string>>;  ///< One a key, in order.
  std::vector<std::string> keys;
};

/// FENCE.GET without a token: lifts nothing. `request` and `written` of the reply are not filled
/// in.
struct GetFenced {
  using Reply = KeyState;
  std::string key;
};

/// Everything about a key but its value.
struct KeyDescription {
  std::uint64_t version = 0;
  Token fence;
  std::optional<std::string> guard;
  bool exists = false;     ///< It has a live value.
  std::uint64_t size = 0;  ///< Of the value, in bytes.
  std::optional<std::string> request;
  std::chrono::milliseconds written{0};  ///< Wall clock since 1970; zero: never.

  friend bool operator==(const KeyDescription&, const KeyDescription&) = default;
};

/// FENCE.INFO.
struct Describe {
  using Reply = KeyDescription;
  std::string key;
};

/// FENCE.REJECTIONS: the newest refused writes, newest first.
struct ListRejections {
  using Reply = std::vector<Rejection>;
  std::uint64_t count = 10;
};

/// LEASE.SCAN: names that have a holder or a waiter.
struct ScanLeases {
  struct Reply {
    std::string cursor;  ///< For the next call; "0": that was all.
    std::vector<LeaseState> leases;
  };
  std::string cursor = "0";
  std::optional<std::string> match{};
  std::optional<std::uint64_t> count{};
};

/// SCAN: keys that have a live value.
struct ScanKeys {
  struct Reply {
    std::string cursor;  ///< For the next call; "0": that was all.
    std::vector<std::string> keys;
  };
  std::string cursor = "0";
  std::optional<std::string> match{};
  std::optional<std::uint64_t> count{};
};

/// EXISTS: how many of the keys have a live value.
struct Exists {
  using Reply = std::uint64_t;
  std::vector<std::string> keys;
};

/// STRLEN: bytes of the value, 0 without one.
struct Strlen {
  using Reply = std::uint64_t;
  std::string key;
};

/// TYPE: `string`, or `none`.
struct TypeOf {
  using Reply = std::string;
  std::string key;
};

/// DBSIZE: how many keys have a live value.
struct CountKeys {
  using Reply = std::uint64_t;
};

/// PING: `PONG`, or the message.
struct Ping {
  using Reply = std::string;
  std::optional<std::string> message{};
};

/// ECHO.
struct Echo {
  using Reply = std::string;
  std::string message;
};

/// What a server sent, for commands that have no type here.
struct RawReply {
  enum class Kind : std::uint8_t {
    null,
    text,     ///< In `text`.
    integer,  ///< In `integer`, booleans too (1 or 0).
    error,    ///< Within an array: the line in `text`. As a whole reply it is a Result's error.
    array,    ///< In `parts`, sets too.
    map,      ///< In `parts`: key, value, key, value …
  };

  Kind kind = Kind::null;
  std::string text;
  std::int64_t integer = 0;
  std::vector<RawReply> parts;

  friend bool operator==(const RawReply&, const RawReply&) = default;
};

/// Any command, word by word. It is taken to change something. What it subscribes to is not heard.
struct Raw {
  using Reply = RawReply;
  std::vector<std::string> words;
};

namespace detail {
template <class C>
struct AnswerOf {
  using Type = typename C::Reply;
};
// The protocol tells the new fence only.
template <>
struct AnswerOf<Reset> {
  using Type = Token;
};
}  // namespace detail

/// What `C` is answered with over the network.
template <class C>
using AnswerOf = typename detail::AnswerOf<C>::Type;

/// A connection to one server, made when it is needed and made again after it was lost.
///
/// Commands of all threads share it: they are sent without waiting for each other's answers, and
/// are decided in the order in which they were submitted. Only a command that waits for a lease
/// (Acquire and AcquireMany with a wait, Await, and the same as Raw) would hold up those behind it:
/// each of these has a connection of its own, taken from a few that are kept open for it, and
/// overtakes and is overtaken.
///
/// Thread safety: all members may be called concurrently.
/// Blocking: submit() does not block. All other members wait for the answer; called from a callback
///     of submit() they would wait for themselves, and return invalid.
/// Threads: the client owns one; all callbacks come from it. It lives until the client and all
///     guards and watchers made with it are gone. A second one is started by the first lease that
///     is lost and has a LeaseOptions::on_lost, for these. Both block all signals.
/// Errors: what the server answered, as fencekv/result.h sorts it, and
///     - unreachable: the command was not sent, or it changes nothing and its answer did not come;
///     - in_doubt: the command was sent, at least in part, and its answer did not come: the
///       connection broke, the timeout passed, the call was cancelled, or the client was closed;
///     - denied: the server wants a password, or another one;
///     - protocol: the peer does not speak the protocol;
///     - overloaded: too many calls are pending in this client; it was not sent.
///     Nothing is ever sent twice by itself.
/// Timeout and cancellation: an answer that nobody waits for would be taken for the next command's.
///     So a call that is given up after it was sent ends the connection, and with it every other
///     call that was sent and has no answer. Calls not yet sent go to the next connection.
///     A command that waits for a lease takes nobody with it. It is in_doubt, and leaves nothing
///     behind: its connection is ended, so that the server forgets it, and a grant that was on its
///     way all the same is released, also if the owner held that lease before.
class Client {
 public:
  /// Connects when the first command is submitted.
  explicit Client(ClientOptions options);
  /// Connects now, so that a wrong address or password shows at once.
  static Result<Client> connect(ClientOptions options);
  /// Calls without an answer end as unreachable or in_doubt. Waits, for at most a second, until the
  /// grants of acquires that were given up are given back. Not from a callback.
  ~Client();
  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;

  // Keys.

  /// Returns the new version. Errors: fenced, unissued, no_lease, wrong_lease, expired, version.
  Result<std::uint64_t> set(std::string_view key, std::string_view value, Token token,
                            WriteOptions options = {}, CallOptions call = {});
  /// Deletes; fence, version and guard stay. Returns the new version. Errors: as set().
  Result<std::uint64_t> remove(std::string_view key, Token token, WriteOptions options = {},
                               CallOptions call = {});
  /// Several keys, all or nothing; of the options `lease`, `live` and `request`. Errors: as set().
  Result<std::vector<std::uint64_t>> set_many(std::vector<Write::Entry> entries, Token token,
                                              WriteOptions options = {}, CallOptions call = {});
  Result<std::optional<std::string>> get(std::string_view key, CallOptions call = {});
  Result<std::vector<std::optional<std::string>>> get_many(std::vector<std::string> keys,
                                                           CallOptions call = {});
  /// With version, fence and guard; lifts nothing.
  Result<KeyState> get_fenced(std::string_view key, CallOptions call = {});
  /// The same, and lifts the fence: an older holder cannot change what was read. Errors: as set().
  Result<KeyState> get_fenced(std::string_view key, Token token,
                              std::optional<std::string> lease = {}, CallOptions call = {});
  /// Lifts the fence without writing, and returns it. Errors: as set().
  Result<Token> raise(std::string_view key, Token token, std::optional<std::string> lease = {},
                      CallOptions call = {});
  Result<KeyDescription> describe(std::string_view key, CallOptions call = {});
  Result<std::vector<Rejection>> rejections(std::uint64_t count = 10, CallOptions call = {});
  /// Sets the fence, down too, and returns it. For an administrator. Errors: unissued.
  Result<Token> reset(Reset command, CallOptions call = {});

  // Leases. See LeaseGuard for one that is kept.

  /// nullopt: not acquired within `options.wait`. Count its time from before this call; if it
  /// waited, nobody knows when the grant was: renew first, and count from before that. A bound
  /// lease (`options.bind`) ends with the connection it was acquired by: the shared one, or, if it
  /// may wait, one that is then kept for it as long as the client lives.
  Result<std::optional<Grant>> acquire(std::string_view name, std::string_view owner,
                                       std::chrono::milliseconds ttl, AcquireOptions options = {},
                                       CallOptions call = {});
  /// Several names in one step, all or none, with one token. As acquire().
  Result<std::optional<Grant>> acquire_many(std::vector<std::string> names, std::string_view owner,
                                            std::chrono::milliseconds ttl,
                                            std::chrono::milliseconds wait = {},
                                            CallOptions call = {});
  /// Returns the remaining time. Errors: lease_lost.
  Result<std::chrono::milliseconds> renew(std::string_view name, std::string_view owner,
                                          Token token, std::chrono::milliseconds ttl,
                                          CallOptions call = {});
  /// After it returned, nothing in flight with that token can land. Errors: lease_lost.
  Result<void> release(std::string_view name, std::string_view owner, Token token,
                       CallOptions call = {});
  /// For each what renew() answers.
  Result<RenewMany::Reply> renew_many(std::vector<Holding> grants, std::chrono::milliseconds ttl,
                                      CallOptions call = {});
  /// For each what release() answers.
  Result<ReleaseMany::Reply> release_many(std::vector<Holding> grants, CallOptions call = {});
  /// Ends the grants, whoever holds them; returns the lease fence. For an administrator.
  Result<Token> revoke(std::string_view name, CallOptions call = {});
  Result<LeaseState> inspect(std::string_view name, CallOptions call = {});
  /// Who waits for a lease, in the order of the queue.
  Result<std::vector<LeaseWaiter>> waiters(std::string_view name, CallOptions call = {});
  /// Waits until the grant with `token` is over or a newer one exists, and returns what the newest
  /// grant is then; at once if that is so already. Without a token (Token{}): until anybody holds
  /// the name. nullopt: `timeout` was over first. Ask again with the token of the answer, and no
  /// change is overlooked, though several may be told as one.
  Result<std::optional<LeaseEvent>> wait_for_change(std::string_view name, Token token,
                                                    std::chrono::milliseconds timeout,
                                                    CallOptions call = {});
  Result<ScanLeases::Reply> scan_leases(ScanLeases command = {}, CallOptions call = {});

  // What every Redis tool has.

  Result<std::uint64_t> exists(std::vector<std::string> keys, CallOptions call = {});
  Result<std::uint64_t> strlen(std::string_view key, CallOptions call = {});
  Result<std::string> type(std::string_view key, CallOptions call = {});
  Result<ScanKeys::Reply> scan(ScanKeys command = {}, CallOptions call = {});
  Result<std::uint64_t> dbsize(CallOptions call = {});
  Result<std::string> ping(CallOptions call = {});
  Result<std::string> echo(std::string_view message, CallOptions call = {});
  /// Any command, word by word: `call({"CLIENT", "LIST"})`.
  Result<RawReply> call(std::vector<std::string> words, CallOptions call = {});

  // Everything, in one form. `C` is one of the types above, or of fencekv/command.h but Read,
  // GiveBack, Watch and Unwatch.

  /// Runs a command, and waits for its answer.
  template <class C>
  Result<AnswerOf<C>> execute(C command, CallOptions call = {});

  /// Runs a command without waiting. `done` is called exactly once, from the client's thread; it
  /// must not block or throw. It may submit.
  template <class C>
  void submit(C command, std::function<void(Result<AnswerOf<C>>)> done, CallOptions call = {});

 private:
  friend class LeaseGuard;
  friend class LeaseWatcher;
  std::shared_ptr<ClientCore> core_;
};

}  // namespace fencekv
