// SPDX-License-Identifier: Apache-2.0
#include "client/acquisition.h"

#include "client/boot_clock.h"
#include "client/command_codec.h"
#include "client/lease_guard_state.h"

#include <algorithm>
#include <utility>

namespace fencekv {
namespace {

using namespace std::chrono_literals;

// Longer times would overflow the clock.
constexpr std::chrono::milliseconds kLongestTime = std::chrono::hours{24 * 365};
constexpr std::chrono::milliseconds kResolveTimeout = 1s;

Error closed_error() {
  return {Errc::unreachable, "not sent: the client was closed"};
}

Error too_late() {
  return {Errc::expired, "the grant arrived after its time was over"};
}

std::chrono::milliseconds at_least_one(std::chrono::nanoseconds time) {
  return std::max(1ms, std::chrono::ceil<std::chrono::milliseconds>(time));
}

}  // namespace

Acquisition::Acquisition(ClientCore& core, Wish wish) : core_(core), wish_(std::move(wish)) {}

void Acquisition::start() {
  if (core_.is_closed()) return answer(closed_error());
  const auto self = shared_from_this();
  core_.begin(self);
  debt_ = core_.owe();

  wish_.wait = std::clamp(wish_.wait, 0ms, kLongestTime);
  const auto timeout = wish_.call.timeout > 0ms ? std::min(wish_.call.timeout, kLongestTime)
                                                : wish_.wait + core_.options().call_timeout;
  const auto now = since_boot();
  waits_until_ = now + wish_.wait;
  asks_until_ = now + timeout;
  if (wish_.call.cancel.stop_requested()) {
    answer(std::optional<LeaseGuard>{});
    return finish();
  }
  if (wish_.call.cancel.stop_possible()) {
    // Not run here: it may come in the midst of anything, from any thread.
    on_cancel_.emplace(wish_.call.cancel, [this, weak = weak_from_this()] {
      core_.loop().post([weak] {
        if (const auto cancelled = weak.lock()) cancelled->cancel();
      });
    });
  }
  ask();
}

Acquire Acquisition::request(std::chrono::milliseconds wait) const {
  const auto& options = wish_.options;
  return make_acquire(wish_.name, wish_.owner, options.ttl,
                      {.wait = wait,
                       .mode = options.mode,
                       .permits = options.permits,
                       .bind = options.bind,
                       .delay = options.delay,
                       .payload = options.payload});
}

// ---- Asking -----------------------------------------------------------------------------------

void Acquisition::ask() {
  const auto now = since_boot();
  const auto wait =
      sent_ == Time{}
          ? wish_.wait
          : std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(waits_until_ - now));
  auto bytes = encode(request(wait));
  if (!bytes) {
    answer(std::move(bytes).error());
    return finish();
  }
  waited_ = wait > 0ms;
  sent_ = now;
  asking_ = true;
  attempt_ = std::stop_source{};

  const auto self = shared_from_this();
  const auto time = std::min(at_least_one(asks_until_ - now), wait + core_.options().call_timeout);
  Request ask{.bytes = *std::move(bytes), .changes = true, .call = {.timeout = time}};
  const bool own = waited_ || wish_.options.bind;
  ask.done = [self, own](Result<resp::Value> reply) {
    const bool came = reply.has_value();
    auto grant = came ? decode<Acquire>(*std::move(reply))
                      : Result<std::optional<Grant>>(std::move(reply).error());
    const bool understood = grant || grant.error().code() != Errc::protocol;
    const bool late_follows = own && !came && grant.error().code() == Errc::in_doubt;
    self->on_asked(std::move(grant), late_follows);
    return understood;
  };
  if (own) {
    ask.call.cancel = attempt_.get_token();
    ask.late = [self](std::optional<resp::Value> reply, bool certain) {
      std::optional<Grant> grant;
      if (reply) {
        auto decoded = decode<Acquire>(*std::move(reply));
        if (decoded) grant = *decoded;
        certain = decoded || decoded.error().code() == Errc::lease_lost;
      }
      self->on_late(grant, certain);
    };
  }

  if (wish_.options.bind) {
    if (!bound_) {
      bound_ = std::make_shared<BoundConnection>();
      bound_->connection = core_.own().open({.on_lost = [weak = std::weak_ptr(bound_)] {
        const auto bound = weak.lock();
        if (!bound) return;
        bound->lost = true;
        if (const auto tell = bound->on_lost) tell();
      }});
    }
    if (!bound_->connection) {
      return on_asked(Error(Errc::overloaded, "too many connections of their own are in use"),
                      false);
    }
    bound_->lost = false;
    if (!bound_->connection->send(std::move(ask))) on_asked(closed_error(), false);
  } else if (waited_) {
    core_.own().send(std::move(ask), false);
  } else if (!core_.send(std::move(ask))) {
    on_asked(closed_error(), false);
  }
}

void Acquisition::on_asked(Result<std::optional<Grant>> reply, bool late_follows) {
  asking_ = false;
  const auto now = since_boot();
  if (reply && *reply) {
    in_doubt_ = false;
    token_ = (*reply)->token;
    granted_by_ = now;
    if (answered_) return give_back(std::nullopt);
    // Counted from before the request it holds for certain; but after a wait that may be long ago.
    const auto& ttl = wish_.options.ttl;
    if (waited_ && now >= sent_ + Time(ttl) / 3) return confirm();
    const Renewal first(sent_, ttl, (*reply)->remaining);
    return first.held(now) ? hand_out(first) : give_back(too_late());
  }
  if (reply) {
    // The owner holds nothing, so nothing came of an earlier request either.
    in_doubt_ = false;
    if (!answered_) answer(std::optional<LeaseGuard>{});
    return finish();
  }

  const auto code = reply.error().code();
  // LEASELOST: the server ended the connection, and with it the wait.
  const bool unknown = code == Errc::in_doubt || code == Errc::lease_lost || code == Errc::protocol;
  if (unknown) in_doubt_ = true;
  if (answered_) {
    if (!late_follows) clear_up();
    return;
  }
  const bool not_executed =
      code == Errc::unreachable || code == Errc::overloaded || code == Errc::misconf;
  if (code != Errc::protocol && (unknown || (in_doubt_ && not_executed))) return retry();
  answer(std::move(reply).error());
  clear_up();
}

/// The last words of a connection over which a request was given up.
void Acquisition::on_late(std::optional<Grant> grant, bool certain) {
  // Else it is being asked for again, by the same owner, who gets the same answer.
  if (!answered_ || handed_out_) return;
  if (grant) {
    token_ = grant->token;
    return give_back(std::nullopt);
  }
  if (certain && !asked_before_in_doubt_) in_doubt_ = false;
  clear_up();
}

void Acquisition::retry() {
  asked_before_in_doubt_ = in_doubt_;
  const auto pause = pauses_.next();
  if (since_boot() + pause >= asks_until_) {
    answer(Error(Errc::in_doubt, "no answer: the timeout passed"));
    return clear_up();
  }
  core_.later(pause, [self = shared_from_this()] {
    if (!self->answered_) self->ask();
  });
}

// ---- Confirming -------------------------------------------------------------------------------

/// Renews a grant of unknown age, so as to have a moment from which its time counts.
void Acquisition::confirm() {
  const auto now = since_boot();
  const auto& ttl = wish_.options.ttl;
  // It was granted before it was told.
  const auto until = std::min(asks_until_, granted_by_ + ttl);
  if (now >= until) return give_back(too_late());
  sent_ = now;
  const auto self = shared_from_this();
  auto done = [self](Result<resp::Value> reply) {
    auto remaining = reply ? decode<Renew>(*std::move(reply))
                           : Result<std::chrono::milliseconds>(std::move(reply).error());
    const bool understood = remaining || remaining.error().code() != Errc::protocol;
    self->on_confirmed(std::move(remaining));
    return understood;
  };
  const auto time = std::min(at_least_one(until - now), at_least_one(Time(ttl) / 3));
  const auto bytes = encode(Renew{wish_.name, wish_.owner, *token_, ttl});
  const bool sent = core_.send(
      {.bytes = *bytes, .changes = true, .call = {.timeout = time}, .done = std::move(done)});
  if (!sent) on_confirmed(closed_error());
}

void Acquisition::on_confirmed(Result<std::chrono::milliseconds> remaining) {
  if (answered_) return;  // cancelled: it is on its way back
  if (remaining) {
    const Renewal renewal(sent_, wish_.options.ttl, *remaining);
    return renewal.held(since_boot()) ? hand_out(renewal) : give_back(too_late());
  }
  if (remaining.error().code() == Errc::lease_lost) {
    token_.reset();
    answer(std::move(remaining).error());
    return finish();
  }
  core_.later(pauses_.next(), [self = shared_from_this()] {
    if (!self->answered_) self->confirm();
  });
}

// ---- Ending -----------------------------------------------------------------------------------

void Acquisition::hand_out(Renewal renewal) {
  auto core = core_.weak_from_this().lock();
  if (!core) return give_back(closed_error());
  if (bound_ && bound_->lost) {
    answer(Error::lease_lost(to_string(LossReason::disconnected)));
    return finish();
  }
  const auto hold =
      std::make_shared<Hold>(Holding{wish_.name, wish_.owner, *token_}, std::move(wish_.options));
  hold->bound = bound_;
  handed_out_ = true;
  core_.keeper().keep(hold, renewal);
  auto state = std::make_shared<LeaseGuard::State>(LeaseGuard::State{std::move(core), hold});
  answer(std::optional<LeaseGuard>(LeaseGuard(std::move(state))));
  finish();
}

/// Somebody who waits for the lease should not have to wait for its time. With an error the caller
/// is answered after that was tried.
void Acquisition::give_back(std::optional<Error> error) {
  const auto self = shared_from_this();
  std::function<void()> tried;
  if (error) {
    tried = [self, error = *std::move(error)] {
      if (!self->answered_) self->answer(error);
      self->finish();
    };
  }
  const bool last = !tried;
  core_.give_back({{wish_.name, wish_.owner, *token_}}, wish_.options.ttl, std::move(tried));
  if (last) finish();
}

void Acquisition::cancel() {
  if (answered_) return;
  const auto self = shared_from_this();
  withdraw();
  answer(std::optional<LeaseGuard>{});
}

void Acquisition::abort() {
  if (answered_) return;
  const auto self = shared_from_this();
  const bool sent = asking_ || in_doubt_ || token_;
  withdraw();
  answer(sent ? Error(Errc::in_doubt, "no answer: the client was closed") : closed_error());
}

/// The caller is answered next, and not with a lease.
void Acquisition::withdraw() {
  if (token_) return give_back(std::nullopt);
  if (!asking_) return clear_up();
  // A request over the shared connection stays: ending it would end those of others. Its answer
  // tells what to do.
  attempt_.request_stop();
}

void Acquisition::clear_up() {
  // A bound lease has ended with its connection.
  if (!in_doubt_ || wish_.options.bind) return finish();
  doubt_ends_ = since_boot() + wish_.options.ttl;
  resolve();
}

/// Finds out what the owner holds, by asking for it once more. Whatever it was granted by is known
/// then, and given back.
void Acquisition::resolve() {
  if (since_boot() >= doubt_ends_) return finish();
  auto wish = request(0ms);
  // Should it be free, then it is granted for a moment: let no trace of that be seen.
  wish.delay.reset();
  wish.payload.reset();
  const auto self = shared_from_this();
  auto done = [self](Result<resp::Value> reply) {
    auto grant = reply ? decode<Acquire>(*std::move(reply))
                       : Result<std::optional<Grant>>(std::move(reply).error());
    if (grant && *grant) {
      self->token_ = (*grant)->token;
      self->give_back(std::nullopt);
      return true;
    }
    const auto code = grant ? Errc{} : grant.error().code();
    const bool ask_again = !grant && (code == Errc::in_doubt || code == Errc::unreachable ||
                                      code == Errc::overloaded || code == Errc::misconf);
    if (ask_again) {
      self->core_.later(self->pauses_.next(), [self] { self->resolve(); });
    } else {
      self->finish();
    }
    return grant || code != Errc::protocol;
  };
  const auto bytes = encode(wish);
  const bool sent = core_.send({.bytes = *bytes,
                                .changes = true,
                                .call = {.timeout = kResolveTimeout},
                                .done = std::move(done)});
  if (!sent) finish();
}

void Acquisition::answer(Result<std::optional<LeaseGuard>> outcome) {
  answered_ = true;
  on_cancel_.reset();
  const auto done = std::exchange(wish_.done, {});
  done(std::move(outcome));
}

void Acquisition::finish() {
  const auto self = shared_from_this();
  if (bound_ && bound_->connection && !handed_out_) {
    // Not now: it may be the connection that tells of this.
    core_.loop().post([self] { self->core_.own().end(self->bound_->connection); });
  }
  debt_.reset();
  core_.end(self);
}

}  // namespace fencekv
