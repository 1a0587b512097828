// SPDX-License-Identifier: Apache-2.0
#include "fencekv/lease_watcher.h"

#include "client/client_core.h"
#include "client/command_codec.h"

#include <algorithm>
#include <future>
#include <iterator>
#include <set>
#include <span>
#include <utility>

namespace fencekv {

/// Everything about it belongs to the loop's thread.
///
/// A push may come before the answer to the request that asks for it. So after a loss the first
/// sign of life of the new connection, be it push or answer, is preceded by `missed`.
class LeaseWatcher::Watch : public std::enable_shared_from_this<LeaseWatcher::Watch> {
 public:
  Watch(ClientCore& core, Listener listener) : core_(core), listener_(std::move(listener)) {}

  /// False: too many connections.
  bool open() {
    connection_ = core_.own().open({.on_push =
                                        [weak = weak_from_this()](resp::Value&& push) {
                                          if (const auto self = weak.lock())
                                            self->on_push(std::move(push));
                                        },
                                    .on_lost =
                                        [weak = weak_from_this()] {
                                          if (const auto self = weak.lock()) self->on_lost();
                                        }});
    return connection_ != nullptr;
  }

  void add(std::vector<std::string> names, CallOptions call,
           std::function<void(Result<void>)> done);

  void mute() { listener_ = {}; }
  void end() {
    mute();
    if (connection_) core_.own().end(connection_);
    connection_.reset();
  }

 private:
  void on_push(resp::Value&& push);
  void on_lost();
  void watch_again();
  void tell_missed();
  void tell(const LeaseEvent& event) {
    // A copy: the listener may end the watcher.
    if (const auto listener = listener_) listener(event);
  }

  ClientCore& core_;
  Listener listener_;
  std::shared_ptr<Connection> connection_;
  std::set<std::string> names_;  ///< What the server was known to watch.
  bool behind_ = false;          ///< Changes were missed, and that was not told yet.
  bool asking_ = false;          ///< A round of watch_again() is under way.
  Pauses pauses_;
};

struct LeaseWatcher::State {
  std::shared_ptr<ClientCore> core;
  std::shared_ptr<Watch> watch;
};

namespace {

constexpr auto kNamesPerRequest = static_cast<std::ptrdiff_t>(Limits::kKeysPerCommand);

/// Sends one LEASE.WATCH.
void send_watch(Connection& connection, std::span<const std::string> names, CallOptions call,
                std::function<void(Result<void>)> done) {
  auto on_reply = [done](Result<resp::Value> reply) {
    auto watched = reply ? decode<Release>(*std::move(reply))  // which is answered OK, too
                         : Result<std::monostate>(std::move(reply).error());
    const bool understood = watched || watched.error().code() != Errc::protocol;
    done(watched ? Result<void>() : Result<void>(std::move(watched).error()));
    return understood;
  };
  const bool sent = connection.send({.bytes = encode_watch(names),
                                     .changes = false,
                                     .call = std::move(call),
                                     .done = std::move(on_reply)});
  if (!sent) done(Error(Errc::unreachable, "not sent: the client was closed"));
}

}  // namespace

void LeaseWatcher::Watch::add(std::vector<std::string> names, CallOptions call,
                              std::function<void(Result<void>)> done) {
  if (!connection_) return done(Error(Errc::unreachable, "not sent: the client was closed"));
  if (names.empty()) return done({});

  // One after the other, so that an error says how far it came.
  const auto size = std::min<std::ptrdiff_t>(kNamesPerRequest, std::ssize(names));
  const auto piece = std::make_shared<std::vector<std::string>>(
      std::make_move_iterator(names.begin()), std::make_move_iterator(names.begin() + size));
  names.erase(names.begin(), names.begin() + size);
  auto on_watched = [self = shared_from_this(), piece, rest = std::move(names), call,
                     done = std::move(done)](Result<void> watched) {
    if (!watched) return done(std::move(watched));
    self->names_.insert(piece->begin(), piece->end());
    self->add(rest, call, done);
  };
  send_watch(*connection_, *piece, call, std::move(on_watched));
}

void LeaseWatcher::Watch::on_push(resp::Value&& push) {
  const auto event = decode_push(std::move(push));
  if (!event) return;
  const auto self = shared_from_this();
  tell_missed();
  tell(*event);
}

void LeaseWatcher::Watch::on_lost() {
  if (names_.empty()) return;
  behind_ = true;
  watch_again();
}

void LeaseWatcher::Watch::watch_again() {
  if (asking_ || !connection_ || core_.is_closed()) return;
  asking_ = true;
  struct Round {
    std::size_t open = 0;
    bool failed = false;
  };
  const auto round = std::make_shared<Round>();
  const std::vector<std::string> names(names_.begin(), names_.end());
  std::vector<std::span<const std::string>> pieces;
  for (auto rest = std::span(names); !rest.empty();) {
    const auto size = std::min(Limits::kKeysPerCommand, rest.size());
    pieces.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
  round->open = pieces.size();
  for (const auto& piece : pieces) {
    send_watch(*connection_, piece, {}, [self = shared_from_this(), round](Result<void> watched) {
      if (!watched) round->failed = true;
      if (--round->open > 0) return;
      self->asking_ = false;
      if (!round->failed) {
        self->pauses_ = {};
        return self->tell_missed();
      }
      self->core_.later(self->pauses_.next(), [self] { self->watch_again(); });
    });
    if (!connection_) return;
  }
}

/// Before anything else is told over the new connection.
void LeaseWatcher::Watch::tell_missed() {
  if (!std::exchange(behind_, false)) return;
  const auto names = names_;
  for (const auto& name : names) tell({LeaseChange::missed, name, Token{}});
}

LeaseWatcher::LeaseWatcher(std::shared_ptr<State> state) : state_(std::move(state)) {}
LeaseWatcher::LeaseWatcher(LeaseWatcher&& other) noexcept = default;

LeaseWatcher& LeaseWatcher::operator=(LeaseWatcher&& other) noexcept {
  if (this == &other) return *this;
  end();
  state_ = std::move(other.state_);
  return *this;
}

LeaseWatcher::~LeaseWatcher() {
  end();
}

Result<LeaseWatcher> LeaseWatcher::start(Client& client, std::vector<std::string> names,
                                         Listener listener, CallOptions call) {
  const auto& core = client.core_;
  if (core->is_own_thread()) {
    return Error(Errc::invalid, "a blocking call from a callback would wait for itself");
  }
  if (!core->loop().is_running()) {
    return Error(Errc::unreachable, "not sent: no thread could be started");
  }
  const auto watch = std::make_shared<Watch>(*core, std::move(listener));
  bool opened = false;
  core->loop().run([&] { opened = watch->open(); });
  if (!opened) return Error(Errc::overloaded, "too many connections of their own are in use");
  LeaseWatcher watcher(std::make_shared<State>(State{core, watch}));
  if (auto added = watcher.add(std::move(names), std::move(call)); !added) return added.error();
  return watcher;
}

Result<void> LeaseWatcher::add(std::vector<std::string> names, CallOptions call) {
  const auto& [core, watch] = *state_;
  if (core->is_own_thread()) {
    return Error(Errc::invalid, "a blocking call from a callback would wait for itself");
  }
  const auto promise = std::make_shared<std::promise<Result<void>>>();
  auto outcome = promise->get_future();
  core->loop().post([watch = watch, names = std::move(names), call = std::move(call), promise] {
    watch->add(names, call, [promise](Result<void> added) { promise->set_value(added); });
  });
  return outcome.get();
}

void LeaseWatcher::end() noexcept {
  if (!state_) return;
  const auto state = std::move(state_);
  state_.reset();
  const auto& [core, watch] = *state;
  if (core->is_own_thread()) {
    // Perhaps from its own listener. The connection may not end under its own feet.
    core->loop().post([watch = watch] { watch->end(); });
    watch->mute();
  } else {
    core->loop().run([&watch = watch] { watch->end(); });
  }
}

}  // namespace fencekv
