// SPDX-License-Identifier: Apache-2.0
// Guards, waits and watches with a real server, which is killed, frozen and restarted.
#include "client/boot_clock.h"
#include "fencekv/client.h"
#include "fencekv/lease_guard.h"
#include "fencekv/lease_watcher.h"
#include "tests/support/fake_server.h"
#include "tests/support/raw_client.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kSoon = 20s;  // far longer than anything here takes

template <class T>
T value_of(Result<T> result) {
  EXPECT_TRUE(result) << result.error().line();
  return *std::move(result);
}

template <class T>
Errc code_of(const Result<T>& result) {
  EXPECT_FALSE(result);
  return result ? Errc{} : result.error().code();
}

bool eventually(const std::function<bool()>& holds, std::chrono::nanoseconds within = kSoon) {
  const auto until = since_boot() + within;
  while (!holds()) {
    if (since_boot() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

/// Waits until a renewal that was sent after `moment` has been acknowledged.
bool is_renewed_after(const LeaseGuard& guard, std::chrono::nanoseconds moment,
                      std::chrono::nanoseconds ttl) {
  // The deadline is the time of sending and the ttl; what is read is up to 1 ms less.
  return eventually([&] { return since_boot() + guard.remaining() > moment + ttl + 1ms; });
}

class LeaseClient : public ::testing::Test {
 protected:
  void SetUp() override { start(); }

  /// Starts the server, on the port it had before.
  void start() {
    server_ = std::make_unique<ServerProcess>(
        ServerProcess::Start{.flags = {"--dir", (directory_.path() / "store").string(), "--port",
                                       std::to_string(port_)}});
    port_ = server_->wait_ready();
    ASSERT_NE(port_, 0) << server_->log();
  }
  void end(int signal) {
    server_->signal(signal);
    ASSERT_TRUE(server_->wait_exit());
  }

  ClientOptions options() const {
    return {.port = port_, .first_backoff = 5ms, .last_backoff = 50ms};
  }

  LeaseGuard must_acquire(Client& client, std::string_view name, LeaseOptions chosen,
                          std::chrono::milliseconds wait = 0ms) {
    auto guard = LeaseGuard::acquire(client, name, wait, std::move(chosen));
    EXPECT_TRUE(guard && *guard) << (guard ? "held" : guard.error().line());
    return **std::move(guard);
  }

  /// An acquire that is waiting in the server's queue.
  std::future<Result<std::optional<LeaseGuard>>> start_waiting(Client& client, std::string name,
                                                               LeaseOptions chosen,
                                                               CallOptions call = {}) {
    Client look(options());
    const auto before = value_of(look.inspect(name)).waiters;
    auto waiting = std::async(std::launch::async,
                              [&client, name, chosen = std::move(chosen), call = std::move(call)] {
                                return LeaseGuard::acquire(client, name, 60s, chosen, call);
                              });
    EXPECT_TRUE(eventually([&] { return value_of(look.inspect(name)).waiters > before; }));
    return waiting;
  }

  bool is_free(std::string_view name, std::chrono::nanoseconds within = kSoon) {
    Client look(options());
    return eventually(
        [&] {
          const auto state = value_of(look.inspect(name));
          return state.holders.empty() && state.waiters == 0;
        },
        within);
  }

  std::unique_ptr<ServerProcess> server_;
  TemporaryDirectory directory_;
  std::uint16_t port_ = 0;
};

// ---- Commands ---------------------------------------------------------------------------------

TEST_F(LeaseClient, SpeaksEveryCommandOfTheLeaseService) {
  Client client(options());
  const auto many = value_of(client.acquire_many({"a", "b"}, "me", 60s, 1s));
  ASSERT_TRUE(many);
  const auto renewed = value_of(client.renew_many(
      {{"a", "me", many->token}, {"b", "me", many->token}, {"c", "me", many->token}}, 30s));
  ASSERT_EQ(renewed.size(), 3U);
  EXPECT_EQ(*renewed[0], 30s);
  EXPECT_EQ(renewed[2].error().reason(), "unknown");

  const auto reader = value_of(client.acquire(
      "r", "one", 60s, {.mode = LeaseMode::shared, .delay = 5s, .payload = "host-7"}));
  ASSERT_TRUE(reader);
  ASSERT_TRUE(value_of(client.acquire("r", "two", 60s, {.wait = 1s, .mode = LeaseMode::shared})));
  const auto state = value_of(client.inspect("r"));
  EXPECT_EQ(state.mode(), LeaseMode::shared);
  EXPECT_EQ(state.holders.size(), 2U);
  ASSERT_TRUE(value_of(
      client.acquire("p", "one", 60s, {.mode = LeaseMode::permit, .permits = 2, .bind = true})));
  EXPECT_TRUE(value_of(client.inspect("p")).holders.at(0).bound);
  EXPECT_EQ(code_of(client.acquire("p", "x", 60s, {.mode = LeaseMode::permit, .permits = 3})),
            Errc::invalid);

  // One waits; who, and what for, is seen.
  auto waiting = std::async(std::launch::async, [&] {
    return client.acquire("a", "you", 60s, {.wait = 60s, .payload = "label"});
  });
  ASSERT_TRUE(eventually([&] { return !value_of(client.waiters("a")).empty(); }));
  const auto waiter = value_of(client.waiters("a")).at(0);
  EXPECT_EQ(waiter.mode, LeaseMode::exclusive);
  EXPECT_GT(waiter.remaining, 50s);
  auto changed =
      std::async(std::launch::async, [&] { return client.wait_for_change("a", many->token, 60s); });
  const auto released =
      value_of(client.release_many({{"a", "me", many->token}, {"c", "me", many->token}}));
  EXPECT_TRUE(released[0]);
  EXPECT_EQ(released[1].error().code(), Errc::lease_lost);
  const auto granted = value_of(waiting.get());
  ASSERT_TRUE(granted);
  const auto event = value_of(changed.get());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->name, "a");
  EXPECT_GE(event->token, many->token);
  EXPECT_EQ(value_of(client.inspect("a")).payload, "label");
  EXPECT_EQ(value_of(client.acquire("a", "they", 60s, {.wait = 20ms})), std::nullopt);
  EXPECT_EQ(value_of(client.wait_for_change("a", granted->token, 20ms)), std::nullopt);
}

TEST_F(LeaseClient, G4OverlooksNoChangeThatCameBeforeTheWait) {
  Client client(options());
  const auto first = value_of(client.acquire("job", "a", 60s));
  ASSERT_TRUE(client.release("job", "a", first->token));

  const auto event = value_of(client.wait_for_change("job", first->token, 60s));

  ASSERT_TRUE(event) << "it was over before it was waited for";
  EXPECT_EQ(*event, (LeaseEvent{LeaseChange::released, "job", first->token}));
}

// ---- Waiting ----------------------------------------------------------------------------------

TEST_F(LeaseClient, GetsTheLeaseAtOnceWhenItIsReleased) {
  Client a(options());
  Client b(options());
  auto first = must_acquire(a, "job", {.ttl = 60s});
  auto waiting = start_waiting(b, "job", {.ttl = 60s});

  const auto begin = since_boot();
  ASSERT_TRUE(first.release());
  const auto second = value_of(waiting.get());

  ASSERT_TRUE(second);
  EXPECT_LT(since_boot() - begin, 15s) << "not only when its time is over";
  EXPECT_GT(second->token(), first.token());
  EXPECT_TRUE(b.set("k", "v", second->token(), {.lease = "job", .live = true}));
  EXPECT_EQ(code_of(a.set("k", "v", first.token(), {.lease = "job"})), Errc::fenced);
}

TEST_F(LeaseClient, A7WaitsLongerThanItsTtlAndIsGrantedAllOfIt) {
  Client a(options());
  Client b(options());
  auto first = must_acquire(a, "job", {.ttl = 60s});
  constexpr auto kTtl = 3s;
  auto waiting = start_waiting(b, "job", {.ttl = kTtl});
  std::this_thread::sleep_for(kTtl + 500ms);

  ASSERT_TRUE(first.release());
  const auto second = value_of(waiting.get());

  ASSERT_TRUE(second);
  EXPECT_TRUE(second->valid()) << "counted from the request it would be over";
  EXPECT_LE(second->remaining(), kTtl);
  EXPECT_TRUE(b.set("k", "v", second->token(), {.lease = "job", .live = true}));
}

TEST_F(LeaseClient, LeavesTheQueueWhenItIsCancelled) {
  Client a(options());
  Client b(options());
  auto first = must_acquire(a, "job", {.ttl = 60s});
  std::stop_source cancel;
  auto cancelled = start_waiting(b, "job", {.ttl = 60s}, {.cancel = cancel.get_token()});
  auto third = start_waiting(b, "job", {.ttl = 60s});

  cancel.request_stop();

  EXPECT_EQ(value_of(cancelled.get()), std::nullopt);
  EXPECT_TRUE(eventually([&] { return value_of(a.inspect("job")).waiters == 1; }));
  ASSERT_TRUE(first.release());
  EXPECT_TRUE(value_of(third.get())) << "the others keep their places";
}

TEST_F(LeaseClient, A1LeavesNothingBehindWhereverItIsCancelled) {
  const auto seed = static_cast<unsigned>(seed_from_environment("FENCEKV_SEED"));
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));
  std::minstd_rand random(seed);
  Client a(options());
  Client b(options());
  constexpr int kRounds = 1000;
  // So long that a lease that was left behind would be seen at the end.
  constexpr auto kTtl = 120s;
  int acquired = 0;
  int cancelled = 0;
  // When it is cancelled, follows how fast this machine is just now: both outcomes come.
  auto longest_pause = 1500us;

  for (int round = 0; round < kRounds; ++round) {
    const auto name = "job-" + std::to_string(round % 10);
    const bool contended = round % 2 == 0;
    std::optional<LeaseGuard> held;
    if (contended) {
      held.emplace(must_acquire(a, name, {.ttl = kTtl}, 60s));
    }
    std::stop_source cancel;
    std::atomic<bool> asking = false;
    const auto pause = 1us * (random() % static_cast<unsigned>(longest_pause.count()));
    std::thread canceller([&, pause] {
      while (!asking) std::this_thread::yield();
      std::this_thread::sleep_for(pause);
      if (contended) held.reset();  // the grant and the cancellation race
      cancel.request_stop();
    });
    asking = true;
    auto guard = LeaseGuard::acquire(b, name, round % 3 == 0 ? 0ms : 60'000ms, {.ttl = kTtl},
                                     {.cancel = cancel.get_token()});
    canceller.join();
    ASSERT_TRUE(guard) << guard.error().line();
    ++(*guard ? acquired : cancelled);
    longest_pause = std::clamp(longest_pause * (*guard ? 9 : 11) / 10, 200us, 100'000us);
    if (*guard && random() % 2 == 0) {
      EXPECT_TRUE((*guard)->release());
    }
  }

  EXPECT_GT(acquired, kRounds / 20);
  EXPECT_GT(cancelled, kRounds / 20);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(is_free("job-" + std::to_string(i))) << i;
}

TEST_F(LeaseClient, GivesBackWhatCameForAPlainAcquireThatWasGivenUp) {
  Client a(options());
  Client b(options());
  auto first = must_acquire(a, "job", {.ttl = 60s});
  for (int round = 0; round < 100; ++round) {
    std::stop_source cancel;
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
      static_cast<void>(first.release());
      cancel.request_stop();
    });
    const auto owner = "owner-" + std::to_string(round);
    const auto granted =
        b.acquire("job", owner, 60s, {.wait = 60s}, {.cancel = cancel.get_token()});
    canceller.join();
    if (granted && *granted) {
      EXPECT_TRUE(b.release("job", owner, (*granted)->token));
    }
    ASSERT_TRUE(is_free("job", 10s)) << "round " << round;
    first = must_acquire(a, "job", {.ttl = 60s});
  }
}

TEST_F(LeaseClient, F8IsGivenTheSameTokenWhenItsAnswerWasLost) {
  // Between client and server: the first answer to an acquire gets lost.
  std::atomic<int> acquires = 0;
  FakeServer proxy([&](FakeSession& session, int) {
    session.greet();
    RawClient server(port_);
    while (auto words = session.read()) {
      server.send(request(*words));
      const auto reply = server.receive();
      if (words->front() == "LEASE.ACQUIRE" && ++acquires == 1) return;
      session.write(reply);
    }
  });
  auto through_proxy = options();
  through_proxy.port = proxy.port();
  Client client(through_proxy);

  const auto guard = must_acquire(client, "job", {.ttl = 60s});

  EXPECT_EQ(acquires, 2);
  Client direct(options());
  const auto state = value_of(direct.inspect("job"));
  ASSERT_EQ(state.holders.size(), 1U);
  EXPECT_EQ(state.holders[0].token, guard.token()) << "no second grant";
  EXPECT_EQ(state.fence, guard.token());
}

// ---- Keeping and losing -----------------------------------------------------------------------

TEST_F(LeaseClient, A2KeepsALeaseAgainstManyWhoAskForIt) {
  Client client(options());
  std::atomic<int> losses = 0;
  std::optional guard(
      must_acquire(client, "job", {.ttl = 1s, .on_lost = [&](const LeaseLoss&) { ++losses; }}));
  std::atomic<int> granted = 0;
  std::atomic<int> asked = 0;
  std::atomic<bool> stop = false;
  Client crowd(options());
  std::vector<std::thread> others;
  for (int i = 0; i < 64; ++i) {
    others.emplace_back([&] {
      while (!stop) {
        const auto taken = LeaseGuard::try_acquire(crowd, "job", {.ttl = 1s});
        // Whoever gets it does so after the holder was told.
        if (taken && *taken && guard->valid()) ++granted;
        ++asked;
      }
    });
  }
  std::this_thread::sleep_for(5s);
  EXPECT_TRUE(eventually([&] { return asked > 1000; }));
  // Lost it may be, on a starved machine; but then it is known before the token is refused.
  const auto written = client.set("k", "v", guard->token(), {.lease = "job"});
  EXPECT_TRUE(written || !guard->valid());
  EXPECT_TRUE(written || eventually([&] { return losses > 0; }));
  stop = true;
  for (auto& other : others) other.join();

  EXPECT_EQ(granted, 0);
}

TEST_F(LeaseClient, A5SurvivesAnOutageOfMostOfItsTime) {
  constexpr std::chrono::milliseconds kTtl = 7s;
  Client client(options());
  std::atomic<int> losses = 0;
  const auto guard =
      must_acquire(client, "job", {.ttl = kTtl, .on_lost = [&](const LeaseLoss&) { ++losses; }});
  const auto token = guard.token();

  server_->signal(SIGSTOP);
  const auto stopped = since_boot();
  std::this_thread::sleep_for(kTtl * 6 / 10);
  server_->signal(SIGCONT);

  EXPECT_TRUE(is_renewed_after(guard, stopped, kTtl));
  EXPECT_EQ(losses, 0);
  EXPECT_TRUE(guard.valid());
  EXPECT_EQ(guard.token(), token);
  EXPECT_TRUE(client.set("k", "v", token, {.lease = "job", .live = true}));
}

TEST_F(LeaseClient, A5IsLostAtItsDeadlineInALongerOutage) {
  constexpr auto kTtl = 2s;
  Client client(options());
  std::promise<std::pair<LeaseLoss, std::chrono::nanoseconds>> lost;
  auto told = lost.get_future();
  const auto guard =
      must_acquire(client, "job", {.ttl = kTtl, .on_lost = [&](const LeaseLoss& loss) {
                                     lost.set_value({loss, since_boot()});
                                   }});

  server_->signal(SIGSTOP);
  // The newest renewal that can have been acknowledged was sent before.
  const auto stopped = since_boot();
  bool is_told = false;
  while (!is_told && since_boot() < stopped + kSoon) {
    const auto now = since_boot();
    if (guard.valid()) {
      ASSERT_LT(now, stopped + kTtl) << "valid by its own clock after the deadline";
    }
    is_told = told.wait_for(1ms) == std::future_status::ready;
  }
  server_->signal(SIGCONT);

  ASSERT_TRUE(is_told) << "the answer was waited for";
  const auto [loss, when] = told.get();
  EXPECT_LT(when, stopped + kTtl + 10s) << "the clock was right at once, but nobody was told";
  EXPECT_EQ(loss.reason, LossReason::deadline);
  EXPECT_FALSE(guard.valid());
}

TEST_F(LeaseClient, A9IsNotValidWhenLookingTookLongerThanItsTime) {
  constexpr std::chrono::milliseconds kTtl = 3s;
  Client client(options());
  auto guard = must_acquire(client, "job", {.ttl = kTtl});
  server_->signal(SIGSTOP);

  // No keeper, no callback: the clock alone decides.
  const bool was_valid = guard.valid();
  std::this_thread::sleep_for(kTtl);

  EXPECT_TRUE(was_valid);
  EXPECT_FALSE(guard.valid());
  EXPECT_EQ(guard.remaining(), 0ms);
  server_->signal(SIGCONT);
}

TEST_F(LeaseClient, A10IsNeverAcquiredAgainByARenewal) {
  Client a(options());
  Client b(options());
  const auto old_grant = value_of(a.acquire("job", "a", 60ms));
  std::optional<Grant> new_grant;
  while (!new_grant) new_grant = value_of(b.acquire("job", "b", 60s));
  ASSERT_TRUE(b.set("k", "v", new_grant->token, {.lease = "job"}));
  ASSERT_TRUE(b.release("job", "b", new_grant->token));

  const auto renewed = value_of(a.renew_many({{"job", "a", old_grant->token}}, 60s));

  EXPECT_EQ(renewed.at(0).error().reason(), "superseded");
  EXPECT_TRUE(value_of(a.inspect("job")).holders.empty());
  EXPECT_EQ(code_of(a.set("k", "x", old_grant->token, {.lease = "job"})), Errc::fenced);
}

TEST_F(LeaseClient, A12LeavesOneResultWhenAWorkerStalls) {
  Client a(options());
  Client b(options());
  constexpr auto kTtl = 3s;
  auto first = must_acquire(a, "job", {.ttl = kTtl});
  const auto token = first.token();
  const auto begin = since_boot();
  // A worker whose whole process stalls does not renew: its client is gone for two ttls.
  {
    const auto grant = value_of(a.acquire("stalled", "a", 400ms));
    std::this_thread::sleep_for(800ms);
    const auto successor = must_acquire(b, "stalled", {.ttl = 60s});
    ASSERT_TRUE(b.set("result", "of the successor", successor.token(), {.lease = "stalled"}));

    EXPECT_EQ(code_of(a.set("result", "late", grant->token, {.lease = "stalled"})), Errc::fenced);
    EXPECT_EQ(code_of(a.set("failed", "late", grant->token, {.lease = "stalled"})), Errc::fenced);
    EXPECT_EQ(code_of(a.set("progress", "late", grant->token, {.lease = "stalled"})), Errc::fenced);
    EXPECT_EQ(value_of(a.get("result")), "of the successor");
  }
  // One whose program alone stalls keeps it.
  EXPECT_TRUE(is_renewed_after(first, begin, kTtl));
  EXPECT_TRUE(first.valid());
  EXPECT_TRUE(a.set("kept", "v", token, {.lease = "job", .live = true}));
}

TEST_F(LeaseClient, C9KeepsLeasesAndTokensThroughARestart) {
  constexpr auto kTtl = 12s;
  Client client(options());
  std::atomic<int> losses = 0;
  const auto on_lost = [&](const LeaseLoss&) { ++losses; };
  std::vector<LeaseGuard> guards;
  std::vector<Token> tokens;
  for (int i = 0; i < 50; ++i) {
    guards.push_back(
        must_acquire(client, "job-" + std::to_string(i), {.ttl = kTtl, .on_lost = on_lost}));
    tokens.push_back(guards.back().token());
  }

  for (const int signal : {SIGTERM, SIGKILL}) {
    end(signal);
    start();
    const auto started = since_boot();
    for (const auto& guard : guards) EXPECT_TRUE(is_renewed_after(guard, started, kTtl));
  }

  EXPECT_EQ(losses, 0);
  for (std::size_t i = 0; i < guards.size(); ++i) {
    EXPECT_TRUE(guards[i].valid());
    EXPECT_EQ(guards[i].token(), tokens[i]);
    const auto name = "job-" + std::to_string(i);
    EXPECT_TRUE(client.set(name, "v", tokens[i], {.lease = name, .live = true}));
  }
}

TEST_F(LeaseClient, QueuesAgainAfterARestart) {
  Client a(options());
  Client b(options());
  auto first = must_acquire(a, "job", {.ttl = 60s});
  auto waiting = start_waiting(b, "job", {.ttl = 60s});

  end(SIGKILL);
  start();
  ASSERT_TRUE(eventually([&] {
    const auto state = a.inspect("job");
    return state && state->waiters == 1;
  }));
  ASSERT_TRUE(eventually([&] { return first.release().has_value(); }));

  const auto second = value_of(waiting.get());
  ASSERT_TRUE(second);
  EXPECT_GT(second->token(), first.token());
}

TEST_F(LeaseClient, LosesABoundLeaseWithItsConnection) {
  Client client(options());
  Client admin(options());
  std::promise<LeaseLoss> lost;
  auto told = lost.get_future();
  const auto guard = must_acquire(
      client, "job",
      {.ttl = 60s, .on_lost = [&](const LeaseLoss& loss) { lost.set_value(loss); }, .bind = true});
  const auto state = value_of(admin.inspect("job"));
  ASSERT_TRUE(state.holders.at(0).bound);

  // The server forgets the connection, and lets the next one in.
  ASSERT_TRUE(admin.call({"CLIENT", "KILL", "ADDR", state.holders[0].client}));

  ASSERT_EQ(told.wait_for(kSoon), std::future_status::ready);
  EXPECT_EQ(told.get().reason, LossReason::disconnected);
  EXPECT_FALSE(guard.valid());
  const auto next = must_acquire(admin, "job", {.ttl = 60s}, 10s);
  EXPECT_EQ(client.set("k", "v", guard.token(), {.lease = "job"}).error().reason(), "superseded");
}

TEST_F(LeaseClient, EndsABoundLeaseWithItsGuard) {
  Client a(options());
  Client b(options());
  std::optional<LeaseGuard> first(
      must_acquire(a, "job", {.ttl = 60s, .bind = true}, 5s));  // this one may wait
  auto waiting = start_waiting(b, "job", {.ttl = 60s});

  first.reset();

  EXPECT_TRUE(value_of(waiting.get()));
}

TEST_F(LeaseClient, SharesALeaseBetweenReadersAndCountsPermits) {
  Client client(options());
  {
    const auto one = must_acquire(client, "r", {.ttl = 60s, .mode = LeaseMode::shared});
    const auto two = must_acquire(client, "r", {.ttl = 60s, .mode = LeaseMode::shared});
    EXPECT_NE(one.token(), two.token());
    EXPECT_FALSE(*LeaseGuard::try_acquire(client, "r", {.ttl = 60s}));
  }
  EXPECT_TRUE(*LeaseGuard::acquire(client, "r", 10s, {.ttl = 60s}));

  const LeaseOptions permit{.ttl = 60s, .mode = LeaseMode::permit, .permits = 2};
  std::optional first(must_acquire(client, "p", permit));
  const auto second = must_acquire(client, "p", permit);
  EXPECT_FALSE(*LeaseGuard::try_acquire(client, "p", permit));
  first.reset();
  EXPECT_TRUE(*LeaseGuard::try_acquire(client, "p", permit));
}

TEST_F(LeaseClient, KeepsThousandsOfLeases) {
  constexpr int kLeases = 2000;
  constexpr auto kTtl = 15s;
  Client client(options());
  std::atomic<int> losses = 0;
  std::mutex mutex;
  std::vector<LeaseGuard> guards;
  std::latch all(kLeases);
  for (int i = 0; i < kLeases; ++i) {
    LeaseGuard::acquire_async(
        client, "job-" + std::to_string(i), 0ms,
        {.ttl = kTtl, .on_lost = [&](const LeaseLoss&) { ++losses; }}, [&](auto outcome) {
          ASSERT_TRUE(outcome && *outcome) << (outcome ? "held" : outcome.error().line());
          const std::lock_guard lock(mutex);
          guards.push_back(**std::move(outcome));
          all.count_down();
        });
  }
  all.wait();
  const auto begin = since_boot();

  const std::lock_guard lock(mutex);
  for (const auto& guard : guards) EXPECT_TRUE(is_renewed_after(guard, begin, kTtl));
  EXPECT_EQ(losses, 0);
  EXPECT_TRUE(std::all_of(guards.begin(), guards.end(), [](auto& one) { return one.valid(); }));
}

// ---- Releasing --------------------------------------------------------------------------------

TEST_F(LeaseClient, H1TouchesNobodyElseByALateRelease) {
  Client a(options());
  Client b(options());
  auto first = must_acquire(a, "job", {.ttl = 60s});
  ASSERT_TRUE(b.revoke("job"));
  const auto second = must_acquire(b, "job", {.ttl = 60s});

  const auto late = first.release();

  EXPECT_EQ(code_of(late), Errc::lease_lost);
  EXPECT_TRUE(b.set("k", "v", second.token(), {.lease = "job", .live = true}));
}

TEST_F(LeaseClient, H2CanBeReleasedOnceTheServerIsBack) {
  Client client(options());
  auto guard = must_acquire(client, "job", {.ttl = 60s});
  end(SIGKILL);

  const auto first = guard.release();
  const auto second = guard.release();
  start();
  const bool released = eventually([&] { return guard.release().has_value(); });

  EXPECT_FALSE(first);
  EXPECT_FALSE(second);
  EXPECT_TRUE(released);
  EXPECT_TRUE(is_free("job"));
}

TEST_F(LeaseClient, H5EndsALostLeaseQuicklyAndSilently) {
  Client client(options());
  Client admin(options());
  std::optional<LeaseGuard> guard(
      must_acquire(client, "job", {.ttl = 60s, .release_timeout = 60s}));
  ASSERT_TRUE(admin.revoke("job"));

  const auto begin = since_boot();
  guard.reset();

  EXPECT_LT(since_boot() - begin, 20s) << "a refusal is an answer, too";
}

TEST_F(LeaseClient, H6TellsWhyByATypeAndAWord) {
  Client client(options());
  const auto grant = value_of(client.acquire("job", "me", 60s));

  const auto not_mine = client.release("job", "you", grant->token);
  const auto never = client.release("nothing", "me", grant->token);
  ASSERT_TRUE(client.revoke("job"));
  const auto revoked = client.release("job", "me", grant->token);

  EXPECT_EQ(code_of(not_mine), Errc::lease_lost);
  EXPECT_EQ(not_mine.error().reason(), "unknown");
  EXPECT_EQ(never.error().reason(), "unknown");
  EXPECT_EQ(revoked.error().reason(), "revoked");
}

// ---- Watching ---------------------------------------------------------------------------------

TEST_F(LeaseClient, WatchesLeasesThroughARestart) {
  Client client(options());
  std::mutex mutex;
  std::vector<LeaseEvent> events;
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return events.size();
  };
  const auto watcher = value_of(LeaseWatcher::start(client, {"a", "b"}, [&](const auto& event) {
    const std::lock_guard lock(mutex);
    events.push_back(event);
  }));

  const auto first = value_of(client.acquire("a", "me", 60s));
  const auto second = value_of(client.acquire("b", "me", 3s));
  ASSERT_TRUE(client.release("a", "me", first->token));
  ASSERT_TRUE(eventually([&] { return count() == 4; }));
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(events, (std::vector<LeaseEvent>{{LeaseChange::granted, "a", first->token},
                                               {LeaseChange::granted, "b", second->token},
                                               {LeaseChange::released, "a", first->token},
                                               {LeaseChange::expired, "b", second->token}}));
    events.clear();
  }

  end(SIGKILL);
  start();
  ASSERT_TRUE(eventually([&] { return count() == 2; }));
  const auto third = value_of(client.acquire("a", "me", 60s));
  ASSERT_TRUE(eventually([&] { return count() == 3; }));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(events, (std::vector<LeaseEvent>{{LeaseChange::missed, "a", Token{}},
                                             {LeaseChange::missed, "b", Token{}},
                                             {LeaseChange::granted, "a", third->token}}));
}

// ---- Everything at once -----------------------------------------------------------------------

TEST_F(LeaseClient, IsHeldByOneAtATimeWhateverBreaks) {
  const auto seed = static_cast<unsigned>(seed_from_environment("FENCEKV_SEED"));
  std::printf("FENCEKV_SEED=%u\n", seed);
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));

  struct Held {
    std::chrono::nanoseconds from;
    std::chrono::nanoseconds until;
    Token token;
  };
  const auto chosen = options();
  std::mutex mutex;
  std::vector<Held> all;
  std::atomic<bool> stop = false;
  std::atomic<int> given_up = 0;
  std::vector<std::thread> workers;
  for (unsigned w = 0; w < 8; ++w) {
    workers.emplace_back([&, w] {
      std::minstd_rand random(seed + w);
      std::optional<Client> client(std::in_place, chosen);
      while (!stop) {
        if (random() % 20 == 0) client.emplace(chosen);
        std::stop_source cancel;
        std::jthread canceller([&, pause = std::chrono::microseconds(random() % 60'000)] {
          std::this_thread::sleep_for(pause);
          cancel.request_stop();
        });
        const bool bind = random() % 4 == 0;
        const auto wait = std::chrono::milliseconds(random() % 2 * 200);
        auto guard = LeaseGuard::acquire(*client, "job", wait, {.ttl = 2s, .bind = bind},
                                         {.timeout = 1s, .cancel = cancel.get_token()});
        if (!guard || !*guard) {
          ++given_up;
          continue;
        }
        Held held{since_boot(), {}, (*guard)->token()};
        const auto stay = std::chrono::microseconds(random() % 20'000);
        do {
          const auto now = since_boot();
          if (!(*guard)->valid()) break;
          // A bound lease ends with its connection, on the server first. Only its token counts.
          held.until = bind ? held.from : now;
        } while (since_boot() - held.from < stay);
        if (held.until.count() != 0) {
          const std::lock_guard lock(mutex);
          all.push_back(held);
        }
        if (random() % 2 == 0) static_cast<void>((*guard)->release());
      }
    });
  }

  // Connections are killed all the time; once the whole server is.
  std::minstd_rand random(seed + 1000);
  Client admin(options());
  const auto until = since_boot() + 8s;
  bool restarted = false;
  const auto is_enough = [&] {
    const std::lock_guard lock(mutex);
    return all.size() > 50 && given_up > 10;
  };
  while (since_boot() < until || (!is_enough() && since_boot() < until + 60s)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 40));
    if (!restarted && since_boot() > until - 4s) {
      restarted = true;
      end(SIGKILL);
      start();
    }
    const auto state = admin.inspect("job");
    if (state && !state->holders.empty() && random() % 2 == 0) {
      static_cast<void>(admin.call({"CLIENT", "KILL", "ADDR", state->holders[0].client}));
    }
    const auto waiters = admin.waiters("job");
    if (waiters && !waiters->empty()) {
      const auto& unlucky = (*waiters)[random() % waiters->size()];
      static_cast<void>(admin.call({"CLIENT", "KILL", "ADDR", unlucky.client}));
    }
  }
  stop = true;
  for (auto& worker : workers) worker.join();

  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.from < b.from; });
  EXPECT_GT(all.size(), 50U);
  EXPECT_GT(given_up, 10);
  for (std::size_t i = 1; i < all.size(); ++i) {
    ASSERT_LE(all[i - 1].until, all[i].from) << i;
    ASSERT_LT(all[i - 1].token, all[i].token) << i;
  }
  EXPECT_TRUE(is_free("job", 10s)) << "nothing is left behind";
}

}  // namespace
}  // namespace fencekv::testing
