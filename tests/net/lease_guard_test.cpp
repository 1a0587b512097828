// SPDX-License-Identifier: Apache-2.0
// The lease guard against a server that fails in every way a lease can be lost.
#include "fencekv/lease_guard.h"

#include "client/boot_clock.h"
#include "tests/support/fake_server.h"
#include "tests/support/seed_from_environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <latch>
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
    if (request[0] == "LEASE.MRENEW" || request[0] == "LEASE.MRELEASE") {
      const bool renew = request[0] == "LEASE.MRENEW";
      const auto count = std::stoul(request[renew ? 2 : 1]);
      std::string reply = "*" + std::to_string(count) + "\r\n";
      for (std::size_t i = 0; i < count; ++i) {
        reply += renew ? ":" + request[1] + "\r\n" : "+OK\r\n";
      }
      return reply;
    }
    if (request[0] == "PING") return "+PONG\r\n";
    return "+OK\r\n";
  }

  /// The requests of one command.
  std::vector<Words> all(std::string_view command) const {
    auto found = requests();
    std::erase_if(found, [&](const Words& request) { return request[0] != command; });
    return found;
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

/// Waits until a renewal that was sent after `moment` has been acknowledged.
bool is_renewed_after(const LeaseGuard& guard, std::chrono::nanoseconds moment,
                      std::chrono::nanoseconds ttl) {
  const auto until = since_boot() + kSoon;
  // What is read is up to 1 ms less than what is left.
  while (since_boot() + guard.remaining() <= moment + ttl + 1ms) {
    if (since_boot() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

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
    return std::nullopt;  // every connection breaks
  });
  self = &server;
  Client client(server.options());
  auto first = must_acquire(client, {.ttl = 60s});

  const auto second = LeaseGuard::try_acquire(client, "job", {.ttl = 60s});
  const auto third = LeaseGuard::try_acquire(client, "job", {.ttl = 60s}, {.timeout = 300ms});

  EXPECT_FALSE(*second);
  EXPECT_EQ(third.error().code(), Errc::in_doubt);
  EXPECT_TRUE(first.valid());
  EXPECT_EQ(first.token(), Token{41});
  // The client still tries to find out what became of the third, and its connections break.
  auto released = first.release();
  for (int i = 0; i < 1000 && !released; ++i) released = first.release();
  EXPECT_TRUE(released);
  for (const auto& request : server.requests()) {
    if (request[0] != "LEASE.RELEASE") continue;
    EXPECT_EQ(request[3], "41");
  }
}

// ---- Renewing ---------------------------------------------------------------------------------

TEST(LeaseGuard, RenewsForAsLongAsItLives) {
  LeaseServer server;
  Client client(server.options());
  Losses losses;
  const auto guard = must_acquire(client, {.ttl = 3s, .on_lost = losses.listener()});

  server.await("LEASE.RENEW", 4);

  EXPECT_TRUE(guard.valid());
  EXPECT_EQ(guard.token(), Token{41});
  EXPECT_EQ(losses.count(), 0U);
  for (const auto& request : server.requests()) {
    if (request[0] == "LEASE.RENEW") {
      EXPECT_EQ(request[3], "41");
      EXPECT_EQ(request[4], "3000");
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
  {
    const auto guard = must_acquire(client, {.ttl = 4500ms, .on_lost = losses.listener()});

    const auto loss = losses.await();

    ASSERT_TRUE(loss);
    EXPECT_EQ(loss->reason, reason);
    EXPECT_EQ(loss->name, "job");
    EXPECT_EQ(loss->token, Token{41});
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
  constexpr auto kTtl = 2s;
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
      must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener(), .release_timeout = 50ms});

  const auto loss = losses.await();

  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->reason, LossReason::deadline);
  EXPECT_GE(losses.when() - begin, kTtl);
  EXPECT_LT(losses.when() - begin, 15s) << "it waited for the answer";
  EXPECT_FALSE(guard.valid());
  EXPECT_TRUE(guard.stop_token().stop_requested());
  end.set_value();
}

TEST(LeaseGuard, A9IsNotValidAfterItsTimeThoughNobodyHasNoticed) {
  LeaseServer server;
  Client client(server.options());
  const auto guard = must_acquire(client, {.ttl = 2s});
  std::promise<void> busy;
  std::promise<void> go;
  // In the client's own thread: meanwhile nothing is renewed, and no loss is seen.
  LeaseGuard::acquire_async(client, "other", 0ms, {.ttl = 60s},
                            [&, may_go = go.get_future().share()](auto) {
                              busy.set_value();
                              may_go.wait_for(kSoon);
                            });
  ASSERT_EQ(busy.get_future().wait_for(kSoon), std::future_status::ready);

  std::this_thread::sleep_for(2s);

  EXPECT_FALSE(guard.valid());
  EXPECT_EQ(guard.remaining(), 0ms);
  EXPECT_FALSE(guard.stop_token().stop_requested()) << "somebody has noticed: nothing was tested";
  go.set_value();
}

TEST(LeaseGuard, IsLostAtItsDeadlineWhenTheServerIsGone) {
  auto server = std::make_unique<LeaseServer>();
  Client client(server->options());
  Losses losses;
  const auto begin = since_boot();
  constexpr auto kTtl = 2s;
  const auto guard = must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener()});

  server.reset();

  ASSERT_TRUE(losses.await());
  EXPECT_GE(losses.when() - begin, kTtl);
  EXPECT_LT(losses.when() - begin, kTtl + 10s);
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
  constexpr std::chrono::milliseconds kTtl = 3s;
  const auto guard = must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener()});

  ASSERT_TRUE(losses.await());

  const auto held = losses.when() - std::chrono::nanoseconds(second);
  // Counted from the first one, two thirds would be left at the second.
  EXPECT_GT(held, kTtl * 5 / 6);
  EXPECT_LT(held, kTtl + 10s);
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
    scene->guard.emplace(must_acquire(client, {.ttl = 2s, .on_lost = listener}));
  }

  EXPECT_EQ(destroyed.wait_for(kSoon), std::future_status::ready);
}

TEST(LeaseGuard, OutlivesItsClientAndRunsIntoItsDeadline) {
  LeaseServer server;
  Losses losses;
  std::optional<LeaseGuard> guard;
  {
    Client client(server.options());
    guard.emplace(must_acquire(client, {.ttl = 2s, .on_lost = losses.listener()}));
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

  EXPECT_LT(since_boot() - begin, 15s);
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
  auto guard = must_acquire(client, {.ttl = 1s, .on_lost = losses.listener()});
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
  const auto seed = static_cast<unsigned>(testing::seed_from_environment("FENCEKV_SEED"));
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));
  std::minstd_rand random(seed);
  LeaseServer server;
  Client client(server.options());

  const auto until = since_boot() + 60s;
  for (int i = 0; i < 300 || (server.count("LEASE.RENEW") <= 30 && since_boot() < until); ++i) {
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

// ---- Waiting ----------------------------------------------------------------------------------

bool is_waiting(const Words& request) {
  return request[0] == "LEASE.ACQUIRE" && request.size() > 5 && request[4] == "WAIT";
}

std::string grant(int token, std::chrono::milliseconds remaining) {
  return "*2\r\n" + bulk(std::to_string(token)) + ":" + std::to_string(remaining.count()) + "\r\n";
}

LeaseGuard must_wait(Client& client, LeaseOptions options, CallOptions call = {}) {
  auto guard = LeaseGuard::acquire(client, "job", 10s, std::move(options), std::move(call));
  EXPECT_TRUE(guard && *guard) << (guard ? "not acquired" : guard.error().line());
  return **std::move(guard);
}

TEST(LeaseGuard, AsksForWhatItsOptionsSay) {
  LeaseServer server;
  Client client(server.options());

  const auto permit = LeaseGuard::acquire(
      client, "job", 5s,
      {.ttl = 60s, .mode = LeaseMode::permit, .permits = 3, .delay = 2s, .payload = "host-7"});
  const auto reader =
      LeaseGuard::try_acquire(client, "job", {.mode = LeaseMode::shared, .bind = true});

  ASSERT_TRUE(permit && *permit && reader && *reader);
  auto requests = server.all("LEASE.ACQUIRE");
  ASSERT_EQ(requests.size(), 2U);
  requests[0][2] = requests[1][2] = "o";
  EXPECT_EQ(requests[0], (Words{"LEASE.ACQUIRE", "job", "o", "60000", "WAIT", "5000", "PERMITS",
                                "3", "DELAY", "2000", "PAYLOAD", "host-7"}));
  EXPECT_EQ(requests[1], (Words{"LEASE.ACQUIRE", "job", "o", "10000", "SHARED", "BIND"}));
  EXPECT_EQ(server.count("LEASE.RENEW"), 0U) << "who did not wait knows when the grant was";
}

TEST(LeaseGuard, A7CountsAGrantThatItWaitedForFromARenewal) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (is_waiting(request)) {
      std::this_thread::sleep_for(3200ms);  // longer than the ttl
      return grant(7, 1s);                  // it was granted two seconds ago
    }
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());

  const auto guard = must_wait(client, {.ttl = 3s});

  EXPECT_EQ(server.all("LEASE.RENEW").at(0)[3], "7");
  EXPECT_GT(guard.remaining(), 1s) << "counted from the renewal";
  EXPECT_LE(guard.remaining(), 3s);
}

TEST(LeaseGuard, A7GivesBackAGrantThatItCannotConfirm) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (is_waiting(request)) {
      std::this_thread::sleep_for(900ms);  // so long that it has to be confirmed
      return grant(7, 2s);
    }
    if (request[0] == "LEASE.RENEW") return "-OVERLOADED later\r\n";
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());

  const auto guard = LeaseGuard::acquire(client, "job", 10s, {.ttl = 2s});

  ASSERT_FALSE(guard);
  EXPECT_EQ(guard.error().code(), Errc::expired);
  EXPECT_EQ(server.all("LEASE.RELEASE").at(0)[3], "7");
  EXPECT_GT(server.count("LEASE.RENEW"), 1U) << "it tried while there was time";
}

TEST(LeaseGuard, SaysThatAGrantWasLostBeforeItCouldBeConfirmed) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (is_waiting(request)) {
      std::this_thread::sleep_for(900ms);  // so long that it has to be confirmed
      return grant(7, 2s);
    }
    if (request[0] == "LEASE.RENEW") return "-LEASELOST revoked\r\n";
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());

  const auto guard = LeaseGuard::acquire(client, "job", 10s, {.ttl = 2s});

  ASSERT_FALSE(guard);
  EXPECT_EQ(guard.error().reason(), "revoked");
  EXPECT_EQ(server.count("LEASE.RELEASE"), 0U);
}

TEST(LeaseGuard, HoldsUpNobodyWhileItWaits) {
  LeaseServer* self = nullptr;
  std::promise<void> end;
  LeaseServer server(
      [&, wait = end.get_future().share()](const Words& request) -> std::optional<std::string> {
        if (is_waiting(request)) wait.wait_for(kSoon);
        return self->usual(request);
      });
  self = &server;
  Client client(server.options());
  std::thread waiter([&] { static_cast<void>(must_wait(client, {.ttl = 60s})); });
  server.await("LEASE.ACQUIRE", 1);

  EXPECT_TRUE(client.ping({.timeout = 5s}));
  const auto raw = client.acquire("other", "me", 60s, {.wait = 1s}, {.timeout = 100ms});
  EXPECT_EQ(raw.error().code(), Errc::in_doubt) << "and neither does the plain command";
  EXPECT_TRUE(client.ping({.timeout = 5s}));

  end.set_value();
  waiter.join();
}

TEST(LeaseGuard, F8AsksForALostAnswerAsTheSameOwner) {
  for (const auto wait : {0ms, 5000ms}) {
    LeaseServer* self = nullptr;
    std::atomic<int> asked = 0;
    LeaseServer server([&](const Words& request) -> std::optional<std::string> {
      if (request[0] != "LEASE.ACQUIRE") return self->usual(request);
      switch (++asked) {
        case 1:
          return std::nullopt;  // granted, perhaps, and the connection breaks
        case 2:
          return "-INDOUBT the outcome is unknown\r\n";
        case 3:
          return "-OVERLOADED later\r\n";
        default:
          return grant(7, 60s);
      }
    });
    self = &server;
    Client client(server.options());

    const auto guard = LeaseGuard::acquire(client, "job", wait, {.ttl = 60s});

    ASSERT_TRUE(guard && *guard);
    EXPECT_EQ((*guard)->token(), Token{7});
    const auto requests = server.all("LEASE.ACQUIRE");
    ASSERT_EQ(requests.size(), 4U);
    for (const auto& request : requests) EXPECT_EQ(request[2], requests[0][2]);
  }
}

TEST(LeaseGuard, QueuesAgainForTheRestOfItsTime) {
  LeaseServer* self = nullptr;
  std::atomic<int> asked = 0;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (request[0] != "LEASE.ACQUIRE") return self->usual(request);
    if (++asked > 1) return "_\r\n";
    std::this_thread::sleep_for(300ms);
    return std::nullopt;
  });
  self = &server;
  Client client(server.options());

  const auto guard = LeaseGuard::acquire(client, "job", 20s, {.ttl = 60s});

  ASSERT_TRUE(guard);
  EXPECT_FALSE(*guard);
  const auto requests = server.all("LEASE.ACQUIRE");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0][5], "20000");
  EXPECT_LE(std::stoi(requests[1][5]), 19'700);
  EXPECT_GT(std::stoi(requests[1][5]), 0);
}

TEST(LeaseGuard, IsUnreachableAtOnceWhereNobodyListens) {
  std::uint16_t port = 0;
  {
    const FakeServer server([](FakeSession&, int) {});
    port = server.port();
  }
  Client client({.port = port});

  const auto begin = since_boot();
  const auto guard = LeaseGuard::acquire(client, "job", 60s, {});

  ASSERT_FALSE(guard);
  EXPECT_EQ(guard.error().code(), Errc::unreachable);
  EXPECT_LT(since_boot() - begin, 30s);
}

// ---- Giving up --------------------------------------------------------------------------------

TEST(LeaseGuard, GivesBackAGrantThatCrossesItsCancellation) {
  std::promise<Words> released;
  std::promise<void> waiting;
  FakeServer server([&](FakeSession& session, int) {
    session.greet();
    while (auto request = session.read()) {
      if (is_waiting(*request)) {
        waiting.set_value();
        EXPECT_EQ(session.read(), std::nullopt) << "the connection is ended";
        session.write(grant(7, 60s));  // sent before the server could know
        return;
      }
      if (request->front() == "LEASE.RELEASE") released.set_value(*request);
      session.write("+OK\r\n");
    }
  });
  Client client({.port = server.port()});
  std::stop_source cancel;
  std::thread canceller([&] {
    waiting.get_future().wait_for(kSoon);
    cancel.request_stop();
  });

  const auto begin = since_boot();
  const auto guard =
      LeaseGuard::acquire(client, "job", 60s, {.ttl = 60s}, {.cancel = cancel.get_token()});

  ASSERT_TRUE(guard);
  EXPECT_FALSE(*guard);
  EXPECT_LT(since_boot() - begin, 30s);
  auto outcome = released.get_future();
  ASSERT_EQ(outcome.wait_for(kSoon), std::future_status::ready) << "nobody would get it for a ttl";
  EXPECT_EQ(outcome.get()[3], "7");
  canceller.join();
}

TEST(LeaseGuard, ClearsUpWhenTheWaitingConnectionDiesWithItsCancellation) {
  LeaseServer* self = nullptr;
  std::promise<void> cancelled;
  LeaseServer server([&, wait = cancelled.get_future().share()](
                         const Words& request) -> std::optional<std::string> {
    if (is_waiting(request)) {
      wait.wait_for(kSoon);
      return "%garbage\r\n";  // after this nobody knows what was granted
    }
    if (request[0] == "LEASE.ACQUIRE") return grant(7, 60s);  // it was
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());
  std::stop_source cancel;
  std::thread canceller([&] {
    server.await("LEASE.ACQUIRE", 1);
    cancel.request_stop();
  });

  const auto guard =
      LeaseGuard::acquire(client, "job", 60s, {.ttl = 60s}, {.cancel = cancel.get_token()});
  cancelled.set_value();

  EXPECT_FALSE(*guard);
  server.await("LEASE.RELEASE", 1);
  const auto requests = server.requests();
  EXPECT_EQ(requests.back()[3], "7");
  EXPECT_EQ(requests.back()[2], requests.front()[2]) << "as the same owner";
  canceller.join();
}

TEST(LeaseGuard, TakesNobodyAlongWhenATryIsCancelled) {
  LeaseServer* self = nullptr;
  std::promise<void> cancelled;
  LeaseServer server(
      [&, wait = cancelled.get_future().share()](const Words& request) -> std::string {
        if (request[0] == "LEASE.ACQUIRE") wait.wait_for(kSoon);
        return self->usual(request);
      });
  self = &server;
  Client client(server.options());
  std::stop_source cancel;
  auto trying = std::async(std::launch::async, [&] {
    return LeaseGuard::try_acquire(client, "job", {.ttl = 60s}, {.cancel = cancel.get_token()});
  });
  server.await("LEASE.ACQUIRE", 1);
  auto other = std::async(std::launch::async, [&] { return client.ping(); });

  cancel.request_stop();

  ASSERT_EQ(trying.wait_for(kSoon), std::future_status::ready) << "it waits for the server";
  const auto guard = trying.get();
  ASSERT_TRUE(guard);
  EXPECT_FALSE(*guard);
  cancelled.set_value();
  EXPECT_TRUE(other.get());
  server.await("LEASE.RELEASE", 1);
}

TEST(LeaseGuard, IsInDoubtAfterATimeoutAndClearsThatUp) {
  LeaseServer* self = nullptr;
  std::atomic<int> asked = 0;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    if (request[0] == "LEASE.ACQUIRE" && ++asked == 1) return "";  // silence
    if (request[0] == "LEASE.ACQUIRE") return grant(7, 60s);
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());

  const auto guard = LeaseGuard::try_acquire(client, "job", {.ttl = 60s}, {.timeout = 100ms});

  ASSERT_FALSE(guard);
  EXPECT_EQ(guard.error().code(), Errc::in_doubt);
  server.await("LEASE.RELEASE", 1);
  const auto requests = server.requests();
  EXPECT_EQ(requests.back()[3], "7");
  EXPECT_EQ(requests.back()[2], requests.front()[2]);
}

TEST(LeaseGuard, AsksNothingIfItIsCancelledBefore) {
  LeaseServer server;
  Client client(server.options());
  std::stop_source cancel;
  cancel.request_stop();

  const auto guard =
      LeaseGuard::acquire(client, "job", 60s, {.ttl = 60s}, {.cancel = cancel.get_token()});

  ASSERT_TRUE(guard);
  EXPECT_FALSE(*guard);
  EXPECT_TRUE(client.ping());
  EXPECT_EQ(server.count("LEASE.ACQUIRE"), 0U);
}

TEST(LeaseGuard, IsCancelledWhileItConnects) {
  FakeServer silent([](FakeSession& session, int) { session.await_close(); });
  Client client({.port = silent.port(), .connect_timeout = 60s});
  for (const auto wait : {0ms, 60'000ms}) {
    std::stop_source cancel;
    std::thread canceller([&] {
      std::this_thread::sleep_for(50ms);
      cancel.request_stop();
    });
    const auto begin = since_boot();
    const auto guard =
        LeaseGuard::acquire(client, "job", wait, {.ttl = 60s}, {.cancel = cancel.get_token()});

    ASSERT_TRUE(guard);
    EXPECT_FALSE(*guard);
    EXPECT_LT(since_boot() - begin, 30s);
    canceller.join();
  }
}

TEST(LeaseGuard, EndsItsWaitWithTheClient) {
  LeaseServer server([](const Words&) { return ""; });
  std::optional<Client> client(std::in_place, server.options());
  std::promise<Result<std::optional<LeaseGuard>>> ended;
  LeaseGuard::acquire_async(*client, "job", 60s, {.ttl = 60s},
                            [&](auto outcome) { ended.set_value(std::move(outcome)); });
  server.await("LEASE.ACQUIRE", 1);

  const auto begin = since_boot();
  client.reset();

  const auto outcome = ended.get_future().get();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Errc::in_doubt);
  EXPECT_LT(since_boot() - begin, 30s);
}

TEST(LeaseGuard, BoundsTheConnectionsThatWait) {
  LeaseServer server([](const Words&) { return ""; });
  auto options = server.options();
  options.max_own_connections = 3;
  Client client(options);
  std::stop_source cancel;
  std::vector<std::future<Result<std::optional<LeaseGuard>>>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] {
      return LeaseGuard::acquire(client, "job", 60s, {}, {.cancel = cancel.get_token()});
    }));
  }
  server.await("LEASE.ACQUIRE", 3);

  const auto guard = LeaseGuard::acquire(client, "job", 60s, {});
  const auto bound = LeaseGuard::try_acquire(client, "job", {.bind = true});

  EXPECT_EQ(guard.error().code(), Errc::overloaded);
  EXPECT_EQ(bound.error().code(), Errc::overloaded);
  cancel.request_stop();
  for (auto& one : waiting) EXPECT_TRUE(one.get());
}

TEST(LeaseGuard, UsesAConnectionAgainThatHasWaited) {
  int connections = 0;
  std::atomic<int> waited = 0;
  FakeServer server([&](FakeSession& session, int) {
    session.greet();
    while (auto request = session.read()) {
      if (is_waiting(*request)) ++waited;
      session.write("_\r\n");
    }
  });
  Client client({.port = server.port()});

  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(*LeaseGuard::acquire(client, "job", 60s, {}));
    connections = server.connections();
  }

  EXPECT_EQ(waited, 20);
  EXPECT_EQ(connections, 1);
}

// ---- Asynchronously ---------------------------------------------------------------------------

TEST(LeaseGuard, IsAcquiredByACallback) {
  LeaseServer server;
  Client client(server.options());
  std::promise<std::optional<LeaseGuard>> acquired;

  LeaseGuard::acquire_async(client, "job", 5s, {.ttl = 60s}, [&](auto outcome) {
    EXPECT_TRUE(outcome && *outcome);
    // A blocking call in a callback would wait for itself.
    EXPECT_EQ((*outcome)->release().error().code(), Errc::invalid);
    EXPECT_EQ(LeaseGuard::try_acquire(client, "job", {}).error().code(), Errc::invalid);
    acquired.set_value(*std::move(outcome));
  });

  const auto guard = acquired.get_future().get();
  EXPECT_TRUE(guard->valid());
  EXPECT_EQ(guard->token(), Token{41});
}

TEST(LeaseGuard, IsReleasedIfTheCallbackDropsIt) {
  LeaseServer server;
  Client client(server.options());

  LeaseGuard::acquire_async(client, "job", 5s, {.ttl = 60s}, [](auto) {});

  server.await("LEASE.RELEASE", 1);
  EXPECT_EQ(server.requests().back()[3], "41");
}

// ---- Many guards ------------------------------------------------------------------------------

TEST(LeaseGuard, RenewsManyWithFewRequests) {
  constexpr std::size_t kGuards = 1500;
  LeaseServer server;
  Client client(server.options());
  Losses losses;
  std::mutex mutex;
  std::vector<LeaseGuard> guards;
  std::latch all(kGuards);
  for (std::size_t i = 0; i < kGuards; ++i) {
    LeaseGuard::acquire_async(client, "job-" + std::to_string(i), 0ms,
                              {.ttl = 9s, .on_lost = losses.listener()}, [&](auto outcome) {
                                {
                                  const std::lock_guard lock(mutex);
                                  guards.push_back(**std::move(outcome));
                                }
                                all.count_down();
                              });
  }
  all.wait();

  const auto acquired = since_boot();
  const std::lock_guard lock(mutex);
  for (const auto& guard : guards) EXPECT_TRUE(is_renewed_after(guard, acquired, 9s));
  EXPECT_EQ(losses.count(), 0U);
  const auto renewals = server.all("LEASE.MRENEW");
  const auto requests = renewals.size() + server.count("LEASE.RENEW");
  EXPECT_LE(requests, 40U) << "one renewal each would be " << kGuards;
  std::set<std::string> renewed;
  for (const auto& request : renewals) {
    EXPECT_EQ(request[1], "9000");
    for (std::size_t i = 3; i + 2 < request.size(); i += 3) renewed.insert(request[i]);
  }
  EXPECT_EQ(renewed.size(), kGuards);
}

TEST(LeaseGuard, A4TellsOnceWhichOfManyWasLostAndWhy) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) -> std::string {
    if (request[0] == "LEASE.RENEW") return self->usual(request);
    if (request[0] != "LEASE.MRENEW") return self->usual(request);
    std::string reply = "*" + request[2] + "\r\n";
    for (std::size_t i = 3; i + 2 < request.size(); i += 3) {
      reply += request[i] == "b" ? "-LEASELOST revoked\r\n" : ":" + request[1] + "\r\n";
    }
    return reply;
  });
  self = &server;
  Client client(server.options());
  Losses losses;
  constexpr auto kTtl = 4s;
  const auto a = must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener()}, "a");
  const auto b = must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener()}, "b");
  const auto c = must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener()}, "c");

  const auto loss = losses.await();
  const auto told = since_boot();
  EXPECT_TRUE(is_renewed_after(a, told, kTtl));
  EXPECT_TRUE(is_renewed_after(c, told, kTtl));

  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->name, "b");
  EXPECT_EQ(loss->token, b.token());
  EXPECT_EQ(loss->reason, LossReason::revoked);
  EXPECT_EQ(losses.count(), 1U) << "once per lease";
  EXPECT_TRUE(a.valid());
  EXPECT_FALSE(b.valid());
  EXPECT_TRUE(c.valid());
}

TEST(LeaseGuard, IsRenewedWhileAnotherIsBusyWithItsLoss) {
  constexpr auto kTtl = 3s;
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) -> std::string {
    if (request[0] == "LEASE.RENEW" && request[1] != "kept") return "-LEASELOST revoked\r\n";
    if (request[0] != "LEASE.MRENEW") return self->usual(request);
    std::string reply = "*" + request[2] + "\r\n";
    for (std::size_t i = 3; i + 2 < request.size(); i += 3) {
      reply += request[i] == "kept" ? ":" + request[1] + "\r\n" : "-LEASELOST revoked\r\n";
    }
    return reply;
  });
  self = &server;
  Client client(server.options());
  std::promise<void> go;
  auto may_go = go.get_future().share();
  std::promise<void> busy;
  Losses losses;
  const auto first = must_acquire(client,
                                  {.ttl = kTtl,
                                   .on_lost =
                                       [&](const LeaseLoss&) {
                                         busy.set_value();
                                         EXPECT_TRUE(client.ping()) << "it may block";
                                         may_go.wait_for(kSoon);
                                       }},
                                  "lost");
  ASSERT_EQ(busy.get_future().wait_for(kSoon), std::future_status::ready);
  const auto kept = must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener()}, "kept");
  const auto second = must_acquire(client, {.ttl = kTtl, .on_lost = losses.listener()}, "lost 2");

  const auto begin = since_boot();
  EXPECT_TRUE(is_renewed_after(kept, begin + kTtl / 3, kTtl)) << "and again";

  EXPECT_TRUE(kept.valid());
  EXPECT_TRUE(second.stop_token().stop_requested()) << "this needs no thread";
  EXPECT_EQ(losses.count(), 0U) << "one on_lost after the other";
  go.set_value();
  const auto loss = losses.await();
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->name, "lost 2");
}

TEST(LeaseGuard, J1KeepsTheTimeOfEachHolder) {
  LeaseServer server;
  Client client(server.options());
  const LeaseOptions long_one{.ttl = 60s, .mode = LeaseMode::shared};
  const LeaseOptions short_one{.ttl = 3s, .mode = LeaseMode::shared};
  const auto first = must_acquire(client, long_one);
  {
    const auto second = must_acquire(client, short_one);
    server.await("LEASE.RENEW", 2);
    EXPECT_LE(second.remaining(), 3s);
  }

  EXPECT_GT(first.remaining(), 50s);
  for (const auto& request : server.all("LEASE.RENEW")) EXPECT_EQ(request[4], "3000");
}

TEST(LeaseGuard, I3IsNotRenewedOnceItsObjectIsGone) {
  LeaseServer* self = nullptr;
  LeaseServer server([&](const Words& request) -> std::string {
    // The release fails, and the lease would still be there.
    return request[0] == "LEASE.RELEASE" ? "-OVERLOADED later\r\n" : self->usual(request);
  });
  self = &server;
  Client client(server.options());
  { const auto guard = must_acquire(client, {.ttl = 1500ms}); }
  const auto before = server.count("LEASE.RENEW");

  std::this_thread::sleep_for(1500ms);

  EXPECT_EQ(server.count("LEASE.RENEW"), before);
}

TEST(LeaseGuard, F2LosesNothingWithTheAnswerToARenewal) {
  LeaseServer* self = nullptr;
  std::atomic<int> renewals = 0;
  LeaseServer server([&](const Words& request) -> std::optional<std::string> {
    // Every other one is carried out, and its answer gets lost.
    if (request[0] == "LEASE.RENEW" && ++renewals % 2 == 1) return std::nullopt;
    return self->usual(request);
  });
  self = &server;
  Client client(server.options());
  Losses losses;
  const auto guard = must_acquire(client, {.ttl = 3s, .on_lost = losses.listener()});

  server.await("LEASE.RENEW", 7);

  EXPECT_TRUE(guard.valid());
  EXPECT_EQ(losses.count(), 0U);
  for (const auto& request : server.all("LEASE.RENEW")) EXPECT_EQ(request[3], "41");
}

// ---- Bound ------------------------------------------------------------------------------------

/// Grants; the test can end the connection of the one bound lease.
class BindingServer {
 public:
  BindingServer()
      : server_([this](FakeSession& session, int) {
          session.greet();
          while (auto request = session.read()) {
            const bool binds = request->back() == "BIND";
            if (binds) {
              const std::lock_guard lock(mutex_);
              bound_ = &session;
            }
            if (request->front() == "LEASE.RELEASE") ++releases_;
            session.write(request->front() == "LEASE.ACQUIRE" ? grant(7, 60s)
                          : request->front() == "LEASE.RENEW" ? ":60000\r\n"
                                                              : "+OK\r\n");
          }
          const std::lock_guard lock(mutex_);
          if (bound_ == &session) bound_ = nullptr;
        }) {}

  ClientOptions options() const { return {.port = server_.port()}; }
  void end_bound_connection() {
    const std::lock_guard lock(mutex_);
    ASSERT_NE(bound_, nullptr);
    bound_->close();
  }
  bool has_bound_connection() const {
    const std::lock_guard lock(mutex_);
    return bound_ != nullptr;
  }
  int releases() const { return releases_; }

 private:
  mutable std::mutex mutex_;
  FakeSession* bound_ = nullptr;  // guarded by mutex_
  std::atomic<int> releases_ = 0;
  FakeServer server_;
};

TEST(LeaseGuard, KnowsAtOnceThatItsConnectionIsGone) {
  BindingServer server;
  Client client(server.options());
  Losses losses;
  const auto guard = must_acquire(client, {.ttl = 60s, .on_lost = losses.listener(), .bind = true});
  ASSERT_TRUE(guard.valid());

  const auto begin = since_boot();
  server.end_bound_connection();
  const auto loss = losses.await();

  ASSERT_TRUE(loss);
  EXPECT_LT(losses.when() - begin, 15s) << "not only at a renewal";
  EXPECT_EQ(loss->reason, LossReason::disconnected);
  EXPECT_EQ(loss->token, Token{7});
  EXPECT_FALSE(guard.valid());
  EXPECT_TRUE(client.ping()) << "the client's other connection is another one";
}

TEST(LeaseGuard, KeepsItsConnectionForAsLongAsItLives) {
  BindingServer server;
  Client client(server.options());
  {
    const auto guard = must_acquire(client, {.ttl = 60s, .bind = true});
    // Others come and go meanwhile.
    for (int i = 0; i < 10; ++i) static_cast<void>(must_wait(client, {.ttl = 60s}));
    EXPECT_TRUE(server.has_bound_connection());
    EXPECT_TRUE(guard.valid());
  }

  const auto until = since_boot() + kSoon;
  while (server.has_bound_connection() && since_boot() < until) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(server.has_bound_connection());
  EXPECT_EQ(server.releases(), 11);
}

TEST(LeaseGuard, IsLostWithItsClientIfItIsBound) {
  BindingServer server;
  Losses losses;
  std::optional<LeaseGuard> guard;
  {
    Client client(server.options());
    guard.emplace(must_acquire(client, {.ttl = 60s, .on_lost = losses.listener(), .bind = true}));
  }

  const auto loss = losses.await();

  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->reason, LossReason::disconnected);
}

// The connection of a bound lease lives in the client's loop: nobody may hold on to it who goes on
// after the client.
TEST(LeaseGuard, MayBeDestroyedByItsListenerAsTheLastOfItsClientIfItIsBound) {
  BindingServer server;
  // Shared: the listener may still be at them when the test is done.
  struct Scene {
    std::optional<LeaseGuard> guard;
    std::promise<void> client_is_gone;
    std::promise<void> destroyed;
  };
  const auto scene = std::make_shared<Scene>();
  auto destroyed = scene->destroyed.get_future();
  {
    Client client(server.options());
    const auto listener = [scene](const LeaseLoss&) {
      scene->client_is_gone.get_future().wait();
      scene->guard.reset();
      scene->destroyed.set_value();
    };
    scene->guard.emplace(must_acquire(client, {.ttl = 60s, .on_lost = listener, .bind = true}));
  }

  scene->client_is_gone.set_value();

  ASSERT_EQ(destroyed.wait_for(kSoon), std::future_status::ready);
  // The thread of the listener has more to do: nothing of it is left to touch.
  std::this_thread::sleep_for(50ms);
}

}  // namespace
}  // namespace fencekv
