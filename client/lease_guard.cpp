// SPDX-License-Identifier: Apache-2.0
#include "fencekv/lease_guard.h"

#include "client/acquisition.h"
#include "client/boot_clock.h"
#include "client/lease_guard_state.h"

#include <array>
#include <cassert>
#include <future>
#include <mutex>
#include <sys/random.h>
#include <utility>

namespace fencekv {
namespace {

using namespace std::chrono_literals;

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

}  // namespace

// ---- Acquiring --------------------------------------------------------------------------------

void LeaseGuard::acquire_async(Client& client, std::string_view name,
                               std::chrono::milliseconds wait, LeaseOptions options, Done done,
                               CallOptions call) {
  auto& core = *client.core_;
  auto owner = new_uuid();
  if (!core.loop().is_running()) {
    return done(Error(Errc::unreachable, "not sent: no thread could be started"));
  }
  // By the client's thread, as every other answer: the caller may hold a lock that `done` takes.
  core.loop().post([&core, name = std::string(name), owner = std::move(owner), wait,
                    options = std::move(options), done = std::move(done),
                    call = std::move(call)]() mutable {
    if (!owner) return done(owner.error());
    std::make_shared<Acquisition>(core, Acquisition::Wish{.name = std::move(name),
                                                          .owner = *std::move(owner),
                                                          .options = std::move(options),
                                                          .wait = wait,
                                                          .call = std::move(call),
                                                          .done = std::move(done)})
        ->start();
  });
}

Result<std::optional<LeaseGuard>> LeaseGuard::acquire(Client& client, std::string_view name,
                                                      std::chrono::milliseconds wait,
                                                      LeaseOptions options, CallOptions call) {
  using Outcome = Result<std::optional<LeaseGuard>>;
  if (client.core_->is_own_thread()) {
    return Error(Errc::invalid, "a blocking call from a callback would wait for itself");
  }
  // Shared, as a std::function must be copyable.
  const auto promise = std::make_shared<std::promise<Outcome>>();
  auto outcome = promise->get_future();
  acquire_async(
      client, name, wait, std::move(options),
      [promise](Outcome acquired) { promise->set_value(std::move(acquired)); }, std::move(call));
  return outcome.get();
}

Result<std::optional<LeaseGuard>> LeaseGuard::try_acquire(Client& client, std::string_view name,
                                                          LeaseOptions options, CallOptions call) {
  return acquire(client, name, 0ms, std::move(options), std::move(call));
}

// ---- Holding ----------------------------------------------------------------------------------

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

const std::string& LeaseGuard::name() const {
  return state_->hold->grant.name;
}
Token LeaseGuard::token() const {
  return state_->hold->grant.token;
}

bool LeaseGuard::valid() const {
  return remaining_time().count() > 0;
}

std::chrono::milliseconds LeaseGuard::remaining() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(remaining_time());
}

std::chrono::nanoseconds LeaseGuard::remaining_time() const {
  const auto& hold = *state_->hold;
  const std::lock_guard lock(hold.mutex);
  const auto now = since_boot();
  return hold.is_held(now) ? hold.deadline - now : 0ns;
}

std::stop_token LeaseGuard::stop_token() const {
  return state_->hold->stop.get_token();
}

std::optional<LossReason> LeaseGuard::loss() const {
  const std::lock_guard lock(state_->hold->mutex);
  return state_->hold->loss;
}

// ---- Releasing --------------------------------------------------------------------------------

Result<void> LeaseGuard::release() {
  const auto& [core, hold] = *state_;
  if (core->is_own_thread()) {
    return Error(Errc::invalid, "a release from a callback would wait for itself");
  }
  {
    const std::lock_guard lock(hold->mutex);
    hold->ending = true;
    if (hold->settled) return *hold->settled;
  }
  hold->stop.request_stop();

  const auto promise = std::make_shared<std::promise<Result<void>>>();
  auto outcome = promise->get_future();
  // By the client's thread, so that it comes after every renewal and none comes after it.
  core->loop().post([core = core.get(), hold = hold, promise] {
    core->keeper().release(
        hold, [promise](const Result<void>& released) { promise->set_value(released); });
  });
  return outcome.get();
}

/// What the destructor does. Nobody is left to hear of a failure; the lease then ends by its time.
void LeaseGuard::end() noexcept {
  if (!state_) return;
  const auto state = std::move(state_);
  state_.reset();
  const auto& core = state->core;
  const auto& hold = state->hold;
  const bool may_wait = !core->is_own_thread();
  bool release = false;
  {
    const std::lock_guard lock(hold->mutex);
    release = !hold->settled;
    hold->ending = true;
  }
  std::function<void(const LeaseLoss&)> unused;
  {
    auto& listener = *hold->listener;
    std::unique_lock lock(listener.mutex);
    unused.swap(listener.on_lost);  // from now on it is not told of its loss any more
    if (may_wait && !core->callbacks().is_own_thread()) {
      listener.told.wait(lock, [&] { return !listener.telling; });
    }
  }
  hold->stop.request_stop();

  const auto released = std::make_shared<std::promise<void>>();
  auto is_released = released->get_future();
  core->loop().post([core = core.get(), hold, release, released] {
    const auto ended = [core, hold, released] {
      if (hold->bound) core->own().end(hold->bound->connection);
      released->set_value();
    };
    if (!release) {
      core->keeper().drop(*hold);
      return ended();
    }
    core->keeper().release(hold, [ended](const Result<void>&) { ended(); });
  });
  if (may_wait) is_released.wait();
}

}  // namespace fencekv
