// SPDX-License-Identifier: Apache-2.0
/// The requests that a session has taken from its buffer in one go, and their replies in order.

#pragma once

#include "server/client.h"
#include "server/commands/command.h"
#include "server/lane.h"
#include "server/resumption.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::server {

/// Collects replies that are known at once and calls of the store, runs the calls together, and
/// puts all replies into the order of the requests:
///
///     text    reply 1, reply 2 │ reply 4 │ …          what handlers wrote
///     calls                    3         5            where the store's answers belong
///
/// All calls of a round are handed to the store before any is waited for, so that they share its
/// group commits; their answers come on its threads, and the last one wakes the session with the
/// only message between threads that a round costs.
///
/// Thread safety: none; used on one thread. Lifetime: a round may only end when no call is under
/// way: whoever called start() has to finish wait().
class Round final : private Answered {
 public:
  /// A round holds no more requests than this.
  static constexpr std::size_t kMaxRequests = 1024;
  /// No request is added once the known replies have this many bytes.
  static constexpr std::size_t kReplyBytes = std::size_t{1024} * 1024;
  /// With more busy connections than this rounds are shorter, down to a 32nd: who sends little
  /// waits for one round of each of those who send as much as they can.
  static constexpr std::size_t kFullRounds = 16;
  static constexpr std::size_t kShortest = 32;
  /// How many keys may be read by way of the store's queue, where the size of the values is only
  /// known afterwards. A single request may exceed it.
  static constexpr std::size_t kQueuedReads = 64;

  explicit Round(Lane& lane);
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  /// Where replies go that are known at once.
  std::string& text() { return text_; }

  /// Adds a call whose reply belongs here. Not `wanted`: it is run and its reply is dropped.
  void add(StoreCall call, resp::Protocol protocol, bool wanted);

  void count_request() { ++requests_; }
  std::size_t requests() const { return requests_; }
  /// Whether it has had enough, with so many connections busy at once.
  bool is_full(std::size_t busy) const {
    const std::size_t shorter = std::clamp<std::size_t>(busy / kFullRounds, 1, kShortest);
    return requests_ >= kMaxRequests / shorter || text_.size() >= kReplyBytes / shorter ||
           queued_reads_ >= kQueuedReads;
  }
  bool has_calls() const { return !calls_.empty(); }

  /// Hands all calls to `store`; `alone`: at once, so that cancel() can be called.
  void start(Store& store, const Caller& caller, bool alone);
  /// Whether wait() would return at once.
  bool is_answered() const { return !under_way_ || all_answered_; }
  /// Returns when all calls have been answered.
  boost::asio::awaitable<void> wait();

  /// Returns when all calls have been answered, at wake(), at `until`, or for no reason.
  boost::asio::awaitable<void> pause(MonotonicTime until);
  void wake() { wake_.cancel(); }
  /// Ends the wait of the newest call, if it waits for a lease.
  void cancel(Store& store) { store.cancel(newest_ticket_); }
  /// The answer to the newest call, once all are there.
  Result<Reply>& newest_answer() { return *calls_.back().answer; }

  /// Moves all replies to `out`, in order, and is empty again.
  void finish(std::string& out);

 private:
  struct PendingCall {
    StoreCall call;
    resp::Protocol protocol;
    bool wanted;
    std::size_t text_before;  // how much of text_ comes before this reply
    std::optional<Result<Reply>> answer;
  };

  void answered();
  void give_up_share();

  void on_answered() override;

  Lane& lane_;
  Resumption answers_;              // of wait(): the last answer is there
  boost::asio::steady_timer wake_;  // of pause(): cancelled when there is something to look at
  std::string text_;
  std::vector<PendingCall> calls_;
  std::size_t requests_ = 0;
  std::size_t queued_reads_ = 0;
  Ticket newest_ticket_ = 0;
  bool under_way_ = false;  // from start() to the end of wait()
  bool holds_share_ = false;
  bool all_answered_ = false;
  std::atomic<std::size_t> open_ = 0;  // unanswered calls, and one for the session itself
};

}  // namespace fencekv::server
