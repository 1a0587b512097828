// SPDX-License-Identifier: Apache-2.0
#include "fencekv/lease_guard.h"

#include "client/boot_clock.h"
#include "client/command_codec.h"
#include "client/connection.h"
#include "client/renewal.h"
#include "client/signals_blocked.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <future>
#include <mutex>
#include <sys/random.h>
#include <system_error>
#include <thread>
#include <utility>

namespace fencekv {
namespace {

using namespace std::chrono_literals;

// The longest sleep between two looks at the clock. std::condition_variable stops counting while
// the machine is suspended; CLOCK_BOOTTIME does not.
constexpr std::chrono::nanoseconds kLongestSleep = 200ms;

/// A random UUID (version 4): new for every acquisition, so that no late copy of an older request
/// speaks for this one.
Result<std::string> new_uuid() {
  std::array<unsigned char, 16> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0) {
    return Error(Errc::unreachable, "not sent: the system gave no random bytes");
  }
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0FU) | 0x40U);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3FU) | 0x80U);

  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 0x0FU];
  }
  return text;
}

std::chrono::milliseconds whole_milliseconds(std::chrono::nanoseconds time) {
  return std::max(1ms, std::chrono::duration_cast<std::chrono::milliseconds>(time));
}

}  // namespace

struct LeaseGuard::State {
  State(Client& client, std::string lease, std::string holder, Token granted, LeaseOptions given,
        Renewal first)
      : connection(client.connection_),
        name(std::move(lease)),
        owner(std::move(holder)),
        token(granted),
        options(std::move(given)),
        renewal(first) {}

  static void keep(const std::shared_ptr<State>& self);
  static bool send_renewal(const std::shared_ptr<State>& self, Renewal::Time until);
  Result<void> release();
  bool is_held() const { return !ending && renewal.held(since_boot()); }

  const std::shared_ptr<Connection> connection;
  const std::string name;
  const std::string owner;
  const Token token;
  const LeaseOptions options;

  mutable std::mutex mutex;
  std::condition_variable changed;
  Renewal renewal;      // guarded by mutex
  bool ending = false;  // guarded by mutex; a release was begun: nothing is renewed any more
  std::optional<Result<void>> settled;  // guarded by mutex; the server said that the grant is over

  std::stop_source stop;
  std::thread keeper;  // of the guard alone
};

/// The guard's thread: renews, and says when the lease is lost.
void LeaseGuard::State::keep(const std::shared_ptr<State>& self) {
  std::unique_lock lock(self->mutex);
  while (!self->ending) {
    const auto now = since_boot();
    const auto step = self->renewal.next(now);
    if (step.kind == Renewal::Step::Kind::lost) break;
    if (step.kind == Renewal::Step::Kind::wait) {
      self->changed.wait_for(lock, std::min(step.until - now, kLongestSleep));
      continue;
    }
    // Sent under the lock: once a release has begun no renewal can follow it.
    if (!send_renewal(self, step.until)) {
      self->renewal.failed(now, Error(Errc::unreachable, "the client was closed"));
    }
  }
  if (self->ending) return;

  const auto reason = *self->renewal.loss();
  lock.unlock();
  self->stop.request_stop();
  if (self->options.on_lost) self->options.on_lost({self->name, self->token, reason});
}

bool LeaseGuard::State::send_renewal(const std::shared_ptr<State>& self, Renewal::Time until) {
  auto done = [self](Result<resp::Value> reply) {
    auto remaining = reply ? decode<Renew>(*std::move(reply))
                           : Result<std::chrono::milliseconds>(std::move(reply).error());
    const bool understood = remaining || remaining.error().code() != Errc::protocol;
    {
      const std::lock_guard lock(self->mutex);
      if (remaining) {
        self->renewal.acknowledged(since_boot(), *remaining);
      } else {
        if (remaining.error().code() == Errc::lease_lost) self->settled = remaining.error();
        self->renewal.failed(since_boot(), remaining.error());
      }
    }
    self->changed.notify_all();
    return understood;
  };
  const auto bytes = encode(Renew{self->name, self->owner, self->token, self->options.ttl});
  return self->connection->send({.bytes = *bytes,
                                 .changes = true,
                                 .call = {.timeout = whole_milliseconds(until - since_boot())},
                                 .done = std::move(done)});
}

Result<void> LeaseGuard::State::release() {
  {
    const std::lock_guard lock(mutex);
    ending = true;
    if (settled) return *settled;
  }
  changed.notify_all();
  stop.request_stop();
  if (connection->is_own_thread()) {
    return Error(Errc::invalid, "a release from a callback would wait for itself");
  }

  const auto promise = std::make_shared<std::promise<Result<void>>>();
  auto outcome = promise->get_future();
  auto done = [promise](Result<resp::Value> reply) {
    auto released = reply ? decode<Release>(*std::move(reply))
                          : Result<std::monostate>(std::move(reply).error());
    const bool understood = released || released.error().code() != Errc::protocol;
    promise->set_value(released ? Result<void>() : Result<void>(std::move(released).error()));
    return understood;
  };
  const auto bytes = encode(Release{name, owner, token});
  const bool sent = connection->send({.bytes = *bytes,
                                      .changes = true,
                                      .call = {.timeout = options.release_timeout},
                                      .done = std::move(done)});
  if (!sent) return Error(Errc::unreachable, "not sent: the client was closed");

  auto result = outcome.get();
  if (result || result.error().code() == Errc::lease_lost) {
    const std::lock_guard lock(mutex);
    settled = result;
  }
  return result;
}

Result<std::optional<LeaseGuard>> LeaseGuard::try_acquire(Client& client, std::string_view name,
                                                          LeaseOptions options, CallOptions call) {
  auto owner = new_uuid();
  if (!owner) return std::move(owner).error();

  const auto sent = since_boot();
  auto grant = client.acquire(name, *owner, options.ttl, std::move(call));
  if (!grant) return std::move(grant).error();
  if (!*grant) return std::optional<LeaseGuard>{};

  const Renewal renewal(sent, options.ttl, (*grant)->remaining);
  auto state = std::make_shared<State>(client, std::string(name), *std::move(owner),
                                       (*grant)->token, std::move(options), renewal);
  if (!renewal.held(since_boot())) {
    // Not handed out, and not left behind for others to wait for. If this fails it ends by its
    // time.
    static_cast<void>(state->release());
    return Error(Errc::expired, "the grant arrived after its time was over");
  }
  try {
    const SignalsBlocked blocked;
    state->keeper = std::thread(State::keep, state);
  } catch (const std::system_error&) {
    static_cast<void>(state->release());
    return Error(Errc::overloaded, "no thread could be started; the grant was given back");
  }
  return std::optional<LeaseGuard>(LeaseGuard(std::move(state)));
}

LeaseGuard::LeaseGuard(std::shared_ptr<State> state) : state_(std::move(state)) {}
LeaseGuard::LeaseGuard(LeaseGuard&& other) noexcept = default;

LeaseGuard& LeaseGuard::operator=(LeaseGuard&& other) noexcept {
  if (this == &other) return *this;
  end();
  state_ = std::move(other.state_);
  return *this;
}

LeaseGuard::~LeaseGuard() {
  end();
}

void LeaseGuard::end() noexcept {
  if (!state_) return;
  const auto state = std::move(state_);
  state_.reset();
  try {
    // Nobody is left to hear of a failure; the lease then ends by its time.
    static_cast<void>(state->release());
  } catch (const std::bad_alloc&) {
    // The keeper must still be stopped.
    const std::lock_guard lock(state->mutex);
    state->ending = true;
    state->changed.notify_all();
  }
  // From on_lost this is the keeper itself; it owns all it needs, and ends after on_lost.
  if (state->keeper.get_id() == std::this_thread::get_id()) {
    state->keeper.detach();
  } else if (state->keeper.joinable()) {
    state->keeper.join();
  }
}

const std::string& LeaseGuard::name() const {
  return state_->name;
}
Token LeaseGuard::token() const {
  return state_->token;
}

bool LeaseGuard::valid() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_held();
}

std::chrono::milliseconds LeaseGuard::remaining() const {
  const std::lock_guard lock(state_->mutex);
  const auto now = since_boot();
  if (state_->ending || !state_->renewal.held(now)) return 0ms;
  return std::chrono::duration_cast<std::chrono::milliseconds>(state_->renewal.deadline() - now);
}

std::stop_token LeaseGuard::stop_token() const {
  return state_->stop.get_token();
}

std::optional<LossReason> LeaseGuard::loss() const {
  const std::lock_guard lock(state_->mutex);
  return state_->renewal.loss();
}

Result<void> LeaseGuard::release() {
  return state_->release();
}

}  // namespace fencekv
