// SPDX-License-Identifier: Apache-2.0
/// The way of a LeaseGuard from the wish for a lease to its holding, or to the certainty that
/// nothing is held.

#pragma once

#include "client/client_core.h"
#include "fencekv/lease_guard.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace fencekv {

/// Asks, asks again when an answer was lost, confirms a grant that was waited for, and gives back
/// what nobody wants any more.
///
///     asking ─► granted ─► confirming ─► handed out
///       │ ▲        │            │
///       ▼ │        └────────────┴──► given back   (cancelled, or too late)
///     pausing
///       └──────────► not acquired, or failed; what is in doubt then is cleared up afterwards
///
/// The caller gets one answer, as soon as there is one; the object lives on until nothing is in
/// doubt.
///
/// Thread safety: none; everything belongs to the loop's thread.
class Acquisition final : public Activity, public std::enable_shared_from_this<Acquisition> {
 public:
  struct Wish {
    std::string name;
    std::string owner;  ///< Nobody else's, and used for nothing before.
    LeaseOptions options;
    std::chrono::milliseconds wait{0};
    CallOptions call;
    LeaseGuard::Done done;
  };

  Acquisition(ClientCore& core, Wish wish);
  void start();
  void abort() override;

 private:
  using Time = std::chrono::nanoseconds;

  Acquire request(std::chrono::milliseconds wait) const;
  void ask();
  void on_asked(Result<std::optional<Grant>> reply, bool late_follows);
  void on_late(std::optional<Grant> grant, bool certain);
  void retry();
  void confirm();
  void on_confirmed(Result<std::chrono::milliseconds> remaining);
  void cancel();
  void withdraw();
  void hand_out(Renewal renewal);
  void give_back(std::optional<Error> error);
  void clear_up();
  void resolve();
  void answer(Result<std::optional<LeaseGuard>> outcome);
  void finish();

  ClientCore& core_;
  Wish wish_;
  Time asks_until_{};   ///< The caller's timeout.
  Time waits_until_{};  ///< The end of the time in which it may queue.
  std::shared_ptr<Debt> debt_;
  std::optional<std::stop_callback<std::function<void()>>> on_cancel_;

  bool answered_ = false;
  bool asking_ = false;    ///< A request is under way.
  bool in_doubt_ = false;  ///< A request may have been granted, and its answer did not come.
  bool asked_before_in_doubt_ = false;  ///< And that was not the newest request.
  bool handed_out_ = false;
  Time doubt_ends_{};    ///< Whatever was granted is over by then.
  Time sent_{};          ///< The newest request.
  bool waited_ = false;  ///< It may have queued.
  std::stop_source attempt_;
  std::optional<Token> token_;
  Time granted_by_{};  ///< When the grant arrived.
  std::shared_ptr<BoundConnection> bound_;
  Pauses pauses_;
};

}  // namespace fencekv
