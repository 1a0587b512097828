// SPDX-License-Identifier: Apache-2.0
/// What a client, its guards and its watchers share: the thread, the connections, the renewals.

#pragma once

#include "client/callback_thread.h"
#include "client/connection.h"
#include "client/lease_keeper.h"
#include "client/loop.h"
#include "client/own_connections.h"
#include "fencekv/client.h"

#include <boost/asio/steady_timer.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fencekv {

/// Something that is not settled yet when its caller has got an answer, as a lease that has to be
/// given back. The client's end waits for it a little.
class Debt {
 public:
  struct Ledger {
    std::mutex mutex;
    std::condition_variable settled;
    std::size_t open = 0;  // guarded by mutex
  };

  explicit Debt(std::shared_ptr<Ledger> ledger);
  ~Debt();
  Debt(const Debt&) = delete;
  Debt& operator=(const Debt&) = delete;

 private:
  std::shared_ptr<Ledger> ledger_;
};

/// Something that goes on in the loop until it is done, or the client is closed.
class Activity {
 public:
  virtual ~Activity() = default;
  /// The client is being closed: the caller gets an answer now. Connections still work for a
  /// moment, to clean up.
  virtual void abort() = 0;
};

/// Nothing in the loop owns it: it ends with the last of the client, the guards and the watchers.
///
/// Thread safety: send(), is_own_thread() and loop() may be used concurrently; close() once; all
/// else belongs to the loop's thread.
class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  explicit ClientCore(ClientOptions options);
  ~ClientCore();
  ClientCore(const ClientCore&) = delete;
  ClientCore& operator=(const ClientCore&) = delete;

  const ClientOptions& options() const { return options_; }
  Loop& loop() { return loop_; }
  bool is_own_thread() const { return loop_.is_own_thread(); }
  CallbackThread& callbacks() { return callbacks_; }

  /// Over the shared connection. False: the client was closed, and nothing is called.
  bool send(Request request) { return shared_->send(std::move(request)); }

  /// Ends everything but the renewals, which run into their deadlines. Waits for open debts, for a
  /// second at most. Not from the loop's thread.
  void close();

  // From the loop's thread only.

  bool is_closed() const { return closed_; }
  OwnConnections& own() { return own_; }
  LeaseKeeper& keeper() { return keeper_; }
  void begin(std::shared_ptr<Activity> activity) { activities_.insert(std::move(activity)); }
  void end(const std::shared_ptr<Activity>& activity) { activities_.erase(activity); }
  std::shared_ptr<Debt> owe() const { return std::make_shared<Debt>(ledger_); }
  /// Releases grants that nobody got, trying again for as long as `ttl` at most. Calls `tried`
  /// after the first attempt.
  void give_back(std::vector<Holding> grants, std::chrono::milliseconds ttl,
                 std::function<void()> tried = {});
  /// Runs `task` after `pause`; not if the client is closed before.
  void later(std::chrono::milliseconds pause, std::function<void()> task);

 private:
  const ClientOptions options_;
  const std::shared_ptr<Debt::Ledger> ledger_ = std::make_shared<Debt::Ledger>();
  CallbackThread callbacks_;
  Loop loop_;  // before what runs in it
  bool closed_ = false;
  const std::shared_ptr<Connection> shared_;
  OwnConnections own_;
  LeaseKeeper keeper_;
  std::set<std::shared_ptr<Activity>> activities_;
};

/// A pause between two attempts, longer each time.
class Pauses {
 public:
  std::chrono::milliseconds next();

 private:
  std::chrono::milliseconds pause_{5};
};

}  // namespace fencekv
