// SPDX-License-Identifier: Apache-2.0
// The lease guard against a server that fails in every way a lease can be lost.
#include "fencekv/lease_guard.h"

#include "client/boot_clock.h"
#include "tests/support/fake_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace fencekv {
namespace {

using namespace std::chrono_literals;
using testing::FakeServer;
using testing::FakeSession;
using testing::Words;

constexpr auto kSoon = 10s;  // far longer than anything here takes

static_assert(!std::is_copy_constructible_v<LeaseGuard>);
static_assert(std::is_nothrow_move_constructible_v<LeaseGuard>);
static_assert(std::is_nothrow_move_assignable_v<LeaseGuard>);

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

/// Grants every lease, and answers the rest as a test says.
class LeaseServer {
 public:
  /// The reply to a request; nullopt: none, and the connection ends.
  using Answer = std::function<std::optional<std::string>(const Words&)>;

  explicit LeaseServer(Answer answer = {})
      : answer_(std::move(answer)), server_([this](FakeSession& session, int) { play(session); }) {}

  ClientOptions options() const {
    return {.port = server_.port(), .first_backoff = 1ms, .last_backoff = 5ms};
  }

  /// The usual reply.
  std::string usual(const Words& request) {
    if (request[0] == "LEASE.ACQUIRE") {
      return "*2\r\n" + bulk(std::to_string(++token_)) + ":" + request[3] + "\r\n";
    }
    if (request[0] == "LEASE.RENEW") return ":" + request[4] + "\r\n";
    return "+OK\r\n";
  }

  std::vector<Words> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  std::size_t count(std::string_view command) const {
    const auto all = requests();
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [&](const Words& request) { return request[0] == command; }));
  }
  /// Waits until `count` requests of `command` have come.
  void await(std::string_view command, std::size_t count_wanted) const {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(arrived_.wait_for(lock, kSoon, [&] {
      return static_cast<std::size_t>(std::count_if(
                 requests_.begin(), requests_.end(),
                 [&](const Words& request) { return request[0] == command; })) >= count_wanted;
    })) << command;
  }

 private:
  void play(FakeSession& session) {
    session.greet();
    while (auto request = session.read()) {
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(*request);
      }
      arrived_.notify_all();
      const auto reply = answer_ ? answer_(*request) : usual(*request);
      if (!reply) return;
      session.write(*reply);
    }
  }

  Answer answer_;
  std::atomic<int> token_ = 40;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::vector<Words> requests_;  // guarded by mutex_
  FakeServer server_;
};

/// What on_lost was told, and when.
class Losses {
 public:
  std::function<void(const LeaseLoss&)> listener() {
    return [this](const LeaseLoss& loss) {
      const std::lock_guard lock(mutex_);
      losses_.push_back(loss);
      when_ = since_boot();
      told_.notify_all();
    };
  }
  std::optional<LeaseLoss> await() {
    std::unique_lock lock(mutex_);
    if (!told_.wait_for(lock, kSoon, [&] { return !losses_.empty(); })) return std::nullopt;
    return losses_.front();
  }
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return losses_.size();
  }
  std::chrono::nanoseconds when() const {
    const std::lock_guard lock(mutex_);
    return when_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable told_;
  std::vector<LeaseLoss> losses_;
  std::chrono::nanoseconds when_{0};
};

LeaseGuard must_acquire(Client& client, LeaseOptions options, std::string_view name = "job") {
  auto guard = LeaseGuard::try_acquire(client, name, std::move(options));
  EXPECT_TRUE(guard && *guard) << (guard ? "held" : guard.error().line());
  return **std::move(guard);
}

// ---- Acquiring --------------------------------------------------------------------------------

TEST(LeaseGuard, HoldsTheTokenOfItsGrant) {
  LeaseServer server;
  Client client(server.options());

  const auto guard = must_acquire(client, {.ttl = 60s});

  EXPECT_EQ(guard.token(), Token{41});
  EXPECT_EQ(guard.name(), "job");
  EXPECT_TRUE(guard.valid());
  EXPECT_GT(guard.remaining(), 50s);
  EXPECT_LE(guard.remaining(), 60s);
  EXPECT_EQ(guard.loss(), std::nullopt);
  EXPECT_FALSE(guard.stop_token().stop_requested());
}

TEST(LeaseGuard, IsNotGivenForALeaseThatAnotherHolds) {
  LeaseServer server([](const Words&) { return "_\r\n"; });
  Client client(server.options());

  const auto guard = LeaseGuard::try_acquire(client, "job", {});

  ASSERT_TRUE(guard);
  EXPECT_FALSE(*guard);
}

TEST(LeaseGuard, AsksAsANewOwnerEachTime) {
  LeaseServer server;
  Client client(server.options());

  for (int i = 0; i < 20; ++i) static_cast<void>(must_acquire(client, {}));

  std::set<std::string> owners;
  for (const auto& request : server.requests()) {
    if (request[0] != "LEASE.ACQUIRE") continue;
    owners.insert(request[2]);
    EXPECT_EQ(request[2].size(), 36U);
  }
  EXPECT_EQ(owners.size(), 20U);
}

TEST(LeaseGuard, CountsItsTimeFromBeforeItAsked) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) {
    if (request[0] == "LEASE.ACQUIRE") std::this_thread::sleep_for(200ms);
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());

  const auto guard = must_acquire(client, {.ttl = 60s});

  EXPECT_LE(guard.remaining(), 60s - 200ms);
}

TEST(LeaseGuard, GivesBackAGrantThatArrivesTooLate) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) {
    if (request[0] == "LEASE.ACQUIRE") std::this_thread::sleep_for(60ms);
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());

  const auto guard = LeaseGuard::try_acquire(client, "job", {.ttl = 50ms});

  ASSERT_FALSE(guard);
  EXPECT_EQ(guard.error().code(), Errc::expired);
  EXPECT_EQ(server.count("LEASE.RELEASE"), 1U);
}

TEST(LeaseGuard, IsNotTouchedByAnotherAcquireThatFails) {
  LeaseServer* self = nullptr;
  std::atomic<int> asked = 0;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (request[0] != "LEASE.ACQUIRE" || ++asked == 1) return self->usual(request);
    if (asked == 2) return "_\r\n";
    return std::nullopt;
  });
  self = &server;
  Client client(server.options());
  auto first = must_acquire(client, {.ttl = 60s});

  const auto second = LeaseGuard::try_acquire(client, "job", {.ttl = 60s});
  const auto third = LeaseGuard::try_acquire(client, "job", {.ttl = 60s});

  EXPECT_FALSE(*second);
  EXPECT_EQ(third.error().code(), Errc::in_doubt);
  EXPECT_TRUE(first.valid());
  EXPECT_EQ(first.token(), Token{41});
  EXPECT_TRUE(first.release());
  EXPECT_EQ(server.requests().back()[3], "41");
}

// ---- Renewing ---------------------------------------------------------------------------------

TEST(LeaseGuard, RenewsForAsLongAsItLives) {
  LeaseServer server;
  Client client(server.options());
  Losses losses;
  const auto guard = must_acquire(client, {.ttl = 600ms, .on_lost = losses.listener()});

  server.await("LEASE.RENEW", 7);

  EXPECT_TRUE(guard.valid());
  EXPECT_EQ(guard.token(), Token{41});
  EXPECT_EQ(losses.count(), 0U);
  for (const auto& request : server.requests()) {
    if (request[0] == "LEASE.RENEW") {
      EXPECT_EQ(request[3], "41");
      EXPECT_EQ(request[4], "600");
    }
  }
}

TEST(LeaseGuard, SurvivesRenewalsThatFailWhileThereIsTime) {
  LeaseServer* self = nullptr;
  std::atomic<int> renewals = 0;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (request[0] != "LEASE.RENEW") return self->usual(request);
    switch (++renewals) {
      case 1:
        return std::nullopt;  // the connection breaks
      case 2:
        return "-OVERLOADED later\r\n";
      case 3:
        return "-INDOUBT who knows\r\n";
      case 4:
        return "+QUEUED\r\n";  // not a reply to a renewal
      default:
        return self->usual(request);
    }
  });
  self = &server;
  Client client(server.options());
  Losses losses;
  const auto guard = must_acquire(client, {.ttl = 2s, .on_lost = losses.listener()});

  server.await("LEASE.RENEW", 6);

  EXPECT_TRUE(guard.valid());
  EXPECT_EQ(losses.count(), 0U);
}

// ---- Losing -----------------------------------------------------------------------------------

class ServersWord : public ::testing::TestWithParam<std::pair<std::string, LossReason>> {};

TEST_P(ServersWord, EndsTheLeaseAtOnce) {
  const auto& [word, reason] = GetParam();
  LeaseServer* self = nullptr;
  LeaseServer server([&, line = "-LEASELOST " + word + "\r\n"](const Words& request) {
    return request[0] == "LEASE.RENEW" ? line : self->usual(request);
  });
  self = &server;
  Client client(server.options());
  Losses losses;
  const auto begin = since_boot();
  {
    const auto guard = must_acquire(client, {.ttl = 3s, .on_lost = losses.listener()});

    const auto loss = losses.await();

    ASSERT_TRUE(loss);
    EXPECT_EQ(loss->reason, reason);
    EXPECT_EQ(loss->name, "job");
    EXPECT_EQ(loss->token, Token{41});
    EXPECT_LT(losses.when() - begin, 2500ms) << "not only at the deadline";
    EXPECT_TRUE(guard.stop_token().stop_requested());
    EXPECT_FALSE(guard.valid());
    EXPECT_EQ(guard.remaining(), 0ms);
    EXPECT_EQ(guard.loss(), reason);
  }
  EXPECT_EQ(losses.count(), 1U);
  EXPECT_EQ(server.count("LEASE.RENEW"), 1U) << "never again";
  EXPECT_EQ(server.count("LEASE.RELEASE"), 0U) << "there is nothing to give back";
}

INSTANTIATE_TEST_SUITE_P(LeaseGuard, ServersWord,
                         ::testing::Values(std::pair{"expired", LossReason::expired},
                                           std::pair{"superseded", LossReason::superseded},
                                           std::pair{"revoked", LossReason::revoked},
                                           std::pair{"unknown", LossReason::unknown}),
                         [](const auto& word) { return word.param.first; });

TEST(LeaseGuard, IsLostAtItsDeadlineWhenTheServerIsSilent) {
  LeaseServer* self = nullptr;
  std::promise<void> end;
  LeaseServer server([&, wait = end.get_future().share()](const Words& request) {
    if (request[0] == "LEASE.RENEW") wait.wait_for(kSoon);
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());
  Losses losses;
  const auto begin = since_boot();
  auto guard =
      must_acquire(client, {.ttl = 600ms, .on_lost = losses.listener(), .release_timeout = 50ms});

  const auto loss = losses.await();

  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->reason, LossReason::deadline);
  EXPECT_GE(losses.when() - begin, 600ms);
  EXPECT_LT(losses.when() - begin, 5s) << "it waited for the answer";
  EXPECT_FALSE(guard.valid());
  EXPECT_TRUE(guard.stop_token().stop_requested());
  end.set_value();
}

TEST(LeaseGuard, IsLostAtItsDeadlineWhenTheServerIsGone) {
  auto server = std::make_unique<LeaseServer>();
  Client client(server->options());
  Losses losses;
  const auto begin = since_boot();
  const auto guard = must_acquire(client, {.ttl = 400ms, .on_lost = losses.listener()});

  server.reset();

  ASSERT_TRUE(losses.await());
  EXPECT_GE(losses.when() - begin, 400ms);
  EXPECT_LT(losses.when() - begin, 5s);
  EXPECT_EQ(guard.loss(), LossReason::deadline);
  EXPECT_EQ(losses.count(), 1U);
}

TEST(LeaseGuard, CountsTheLastAcknowledgedRenewalAndNoOther) {
  LeaseServer* self = nullptr;
  std::atomic<int> renewals = 0;
  std::atomic<std::int64_t> second = 0;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (request[0] != "LEASE.RENEW") return self->usual(request);
    if (++renewals == 2) second = since_boot().count();
    if (renewals > 2) return std::nullopt;
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());
  Losses losses;
  const auto guard = must_acquire(client, {.ttl = 450ms, .on_lost = losses.listener()});

  ASSERT_TRUE(losses.await());

  const auto held = losses.when() - std::chrono::nanoseconds(second);
  EXPECT_GT(held, 400ms);
  EXPECT_LT(held, 5s);
  EXPECT_GT(renewals, 3) << "it tried again";
}

TEST(LeaseGuard, MayBeDestroyedByTheListenerOfItsLoss) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) {
    return request[0] == "LEASE.RENEW" ? "-LEASELOST revoked\r\n" : self->usual(request);
  });
  self = &server;
  Client client(server.options());
  // Shared: the listener may still be at them when the test is done.
  struct Scene {
    std::mutex mutex;
    std::optional<LeaseGuard> guard;
    std::promise<void> destroyed;
  };
  const auto scene = std::make_shared<Scene>();
  auto destroyed = scene->destroyed.get_future();
  const auto listener = [scene](const LeaseLoss&) {
    {
      const std::lock_guard lock(scene->mutex);
      scene->guard.reset();
    }
    scene->destroyed.set_value();
  };
  {
    const std::lock_guard lock(scene->mutex);
    scene->guard.emplace(must_acquire(client, {.ttl = 150ms, .on_lost = listener}));
  }

  EXPECT_EQ(destroyed.wait_for(kSoon), std::future_status::ready);
}

TEST(LeaseGuard, OutlivesItsClientAndRunsIntoItsDeadline) {
  LeaseServer server;
  Losses losses;
  std::optional<LeaseGuard> guard;
  {
    Client client(server.options());
    guard.emplace(must_acquire(client, {.ttl = 200ms, .on_lost = losses.listener()}));
  }

  ASSERT_TRUE(losses.await());

  EXPECT_EQ(guard->loss(), LossReason::deadline);
  EXPECT_EQ(guard->release().error().code(), Errc::unreachable);
}

// ---- Releasing --------------------------------------------------------------------------------

TEST(LeaseGuard, ReleasesAtTheEndOfItsScope) {
  LeaseServer server;
  Client client(server.options());
  Losses losses;
  std::stop_token stopped;
  {
    const auto guard = must_acquire(client, {.ttl = 60s, .on_lost = losses.listener()});
    stopped = guard.stop_token();
  }

  const auto requests = server.requests();
  EXPECT_EQ(requests.back(), (Words{"LEASE.RELEASE", "job", requests.front()[2], "41"}));
  EXPECT_TRUE(stopped.stop_requested());
  EXPECT_EQ(losses.count(), 0U) << "giving back is not losing";
}

TEST(LeaseGuard, TakesABoundedTimeToLeaveItsScope) {
  LeaseServer* self = nullptr;
  std::promise<void> end;
  LeaseServer server([&, wait = end.get_future().share()](const Words& request) {
    if (request[0] == "LEASE.RELEASE") wait.wait_for(kSoon);
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());
  std::optional guard(must_acquire(client, {.ttl = 60s, .release_timeout = 100ms}));

  const auto begin = since_boot();
  guard.reset();

  EXPECT_LT(since_boot() - begin, 2s);
  end.set_value();
}

TEST(LeaseGuard, CanBeReleasedAgainAfterAFailure) {
  LeaseServer* self = nullptr;
  std::atomic<int> releases = 0;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (request[0] == "LEASE.RELEASE" && ++releases == 1) return std::nullopt;
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());
  {
    auto guard = must_acquire(client, {.ttl = 60s});

    const auto first = guard.release();
    const auto second = guard.release();
    const auto third = guard.release();

    EXPECT_EQ(first.error().code(), Errc::in_doubt);
    EXPECT_TRUE(second);
    EXPECT_TRUE(third);
    EXPECT_FALSE(guard.valid());
    EXPECT_EQ(guard.remaining(), 0ms);
  }
  EXPECT_EQ(releases, 2) << "what was confirmed is not sent again";
}

TEST(LeaseGuard, GivesBackALeaseThatItLostByItsOwnClock) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) {
    return request[0] == "LEASE.RENEW" ? "-OVERLOADED later\r\n" : self->usual(request);
  });
  self = &server;
  Client client(server.options());
  Losses losses;
  auto guard = must_acquire(client, {.ttl = 100ms, .on_lost = losses.listener()});
  ASSERT_TRUE(losses.await());

  EXPECT_TRUE(guard.release()) << "the server may still count it as held";
  EXPECT_TRUE(guard.release()) << "again is harmless";
  EXPECT_EQ(server.count("LEASE.RELEASE"), 1U);
}

TEST(LeaseGuard, SaysThatWhatItReleasesWasLost) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) {
    return request[0] == "LEASE.RELEASE" ? "-LEASELOST superseded\r\n" : self->usual(request);
  });
  self = &server;
  Client client(server.options());
  auto guard = must_acquire(client, {.ttl = 60s});

  const auto released = guard.release();
  const auto again = guard.release();

  EXPECT_EQ(released.error().code(), Errc::lease_lost);
  EXPECT_EQ(released.error().reason(), "superseded");
  EXPECT_EQ(again.error(), released.error());
  EXPECT_EQ(server.count("LEASE.RELEASE"), 1U) << "one round trip, no retries";
}

TEST(LeaseGuard, NeverRenewsOnceAReleaseHasBegun) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::minstd_rand random(seed);
  LeaseServer server;
  Client client(server.options());

  for (int i = 0; i < 300; ++i) {
    // A renewal is due after 10 ms; the release comes around that moment.
    auto guard = LeaseGuard::try_acquire(client, "job-" + std::to_string(i % 7), {.ttl = 30ms});
    if (!guard || !*guard) continue;  // this machine was too slow for so short a lease
    std::this_thread::sleep_for(std::chrono::microseconds(9500 + random() % 1000));
    if (i % 2 == 0) static_cast<void>((*guard)->release());
  }

  std::set<std::string> released;
  std::size_t renewals = 0;
  for (const auto& request : server.requests()) {
    if (request[0] == "LEASE.RELEASE") released.insert(request[3]);
    if (request[0] != "LEASE.RENEW") continue;
    ++renewals;
    EXPECT_FALSE(released.contains(request[3])) << "token " << request[3];
  }
  EXPECT_GT(renewals, 30U) << "nothing was renewed: nothing was tested";
}

TEST(LeaseGuard, ReleasesWhatItHeldWhenAnotherIsMovedIntoIt) {
  LeaseServer server;
  Client client(server.options());
  auto guard = must_acquire(client, {.ttl = 60s}, "a");
  auto other = must_acquire(client, {.ttl = 60s}, "b");

  guard = std::move(other);

  EXPECT_EQ(server.requests().back()[1], "a");
  EXPECT_EQ(guard.name(), "b");
  EXPECT_EQ(guard.token(), Token{42});
  EXPECT_TRUE(guard.valid());
}

}  // namespace
}  // namespace fencekv
