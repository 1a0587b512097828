// SPDX-License-Identifier: Apache-2.0
/// Tells what happens to leases, as it happens.
///
///     auto watcher = fencekv::LeaseWatcher::start(*client, {"leader"}, [&](const auto& event) {
///       if (event.change == fencekv::LeaseChange::missed) return look_at(event.name);
///       show(event.name, to_string(event.change), event.token);
///     });
///     if (!watcher) return report(watcher.error());
///     look_at("leader");  // what was before; from here on nothing is overlooked

#pragma once

#include "fencekv/client.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencekv {

/// Watches names over a connection of its own (LEASE.WATCH).
///
/// Every change is told once, in the order in which it happened. Where that is not possible the
/// listener is told `missed` for the name: by the server, if the connection could not take the
/// events as fast as they came (the token is then that of the newest grant); and by the watcher for
/// every name whenever it had lost its connection, made a new one and watches again, before
/// anything else is told (without a token, Token{}). Then look at the lease.
///
/// While there is no connection nothing is told. The watcher tries to make one for as long as it
/// lives.
///
/// Thread safety: add() may be called concurrently.
/// Threads: the listener is called from the client's thread. It must not block or throw; it may
///     submit to the client. It is not called any more after the destructor returned, which waits
///     for it, unless that runs in a callback of the client.
/// Lifetime: a watcher may outlive the Client; then it tells nothing any more.
class LeaseWatcher {
 public:
  using Listener = std::function<void(const LeaseEvent&)>;

  /// Returns when the server watches. `names` may be empty.
  ///
  /// Errors: those of Client; overloaded: too many own connections (see ClientOptions); invalid: a
  /// limit is exceeded (Limits::kWatchesPerSession), or called from a callback of the client.
  static Result<LeaseWatcher> start(Client& client, std::vector<std::string> names,
                                    Listener listener, CallOptions call = {});

  ~LeaseWatcher();
  LeaseWatcher(LeaseWatcher&& other) noexcept;
  LeaseWatcher& operator=(LeaseWatcher&& other) noexcept;

  /// Watches more names, and returns when the server does. If that failed they are not watched, or
  /// it is in doubt; it may be tried again. Errors: as start().
  Result<void> add(std::vector<std::string> names, CallOptions call = {});

 private:
  class Watch;
  struct State;
  explicit LeaseWatcher(std::shared_ptr<State> state);
  void end() noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace fencekv
