// SPDX-License-Identifier: Apache-2.0
/// Keeps all leases of a client: one timer, and as few requests as can be.

#pragma once

#include "client/callback_thread.h"
#include "client/connection.h"
#include "client/loop.h"
#include "client/renewal_plan.h"
#include "fencekv/lease_guard.h"

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>

namespace fencekv {

/// The connection that a bound lease ends with. It belongs to one guard.
struct BoundConnection {
  std::shared_ptr<Connection> connection;
  bool lost = false;                // Since the last request that binds was sent.
  std::function<void()> on_lost{};  // Called when it is lost.
};

/// Who is told that a lease is lost. Apart from the lease: the thread that tells may outlive the
/// client, and must hold on to nothing that lives in the client's loop.
struct LossListener {
  std::mutex mutex;
  std::condition_variable told;
  std::function<void(const LeaseLoss&)> on_lost;  // guarded by mutex; empty once taken
  bool telling = false;                           // guarded by mutex; on_lost runs
};

/// A lease that is held, as its guard and the client's threads share it.
struct Hold {
  Hold(Holding granted, LeaseOptions chosen) : grant(std::move(granted)), options(chosen) {
    listener->on_lost.swap(options.on_lost);
  }

  bool is_held(std::chrono::nanoseconds now) const { return !ending && !loss && now < deadline; }

  const Holding grant;
  LeaseOptions options;  // But on_lost. Not changed after the constructor.

  mutable std::mutex mutex;
  std::chrono::nanoseconds deadline{0};  // guarded by mutex; CLOCK_BOOTTIME
  std::optional<LossReason> loss;        // guarded by mutex
  bool ending = false;                   // guarded by mutex; a release was begun
  std::optional<Result<void>> settled;   // guarded by mutex; the server said it is over

  std::stop_source stop;
  const std::shared_ptr<LossListener> listener = std::make_shared<LossListener>();

  // Of the loop's thread.
  RenewalPlan::Id id = 0;  ///< 0: not kept.
  std::shared_ptr<BoundConnection> bound;
};

/// Thread safety: none; everything belongs to the loop's thread.
class LeaseKeeper {
 public:
  LeaseKeeper(Loop& loop, Connection& shared, CallbackThread& callbacks);

  /// From now on it is renewed, and told of its loss.
  void keep(const std::shared_ptr<Hold>& hold, Renewal renewal);
  /// It is renewed no more.
  void drop(Hold& hold);
  /// Renews it no more, and releases it. `done` is called with the outcome, which is noted in the
  /// hold, too, if it is final.
  void release(const std::shared_ptr<Hold>& hold, std::function<void(Result<void>)> done);
  /// All connections have ended, and with them the bound leases.
  void disconnect_all();

  std::size_t size() const { return holds_.size(); }

 private:
  void step();
  void send(const RenewalPlan::Batch& batch);
  void on_answer(RenewalPlan::Id id, const Result<std::chrono::milliseconds>& answer);
  void lose(RenewalPlan::Id id, LossReason reason);
  void arm(std::optional<Renewal::Time> next);

  Loop& loop_;
  Connection& shared_;
  CallbackThread& callbacks_;
  boost::asio::steady_timer timer_;
  std::uint64_t alarm_ = 0;  ///< The newest; older ones mean nothing any more.
  RenewalPlan::Id last_id_ = 0;
  RenewalPlan plan_;
  std::unordered_map<RenewalPlan::Id, std::shared_ptr<Hold>> holds_;
};

}  // namespace fencekv
