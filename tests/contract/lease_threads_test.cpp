// SPDX-License-Identifier: Apache-2.0
/// Many threads, the clock of this machine, and sessions that are killed while they wait and hold:
/// invariants I1, I2 and I8 where nothing is in step.

#include "tests/contract/store_contract.h"
#include "tests/support/seed_from_environment.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <random>

namespace fencekv::testing {
namespace {

using Steady = std::chrono::steady_clock;
using Moment = Steady::time_point;

constexpr int kThreads = 64;
constexpr std::array<const char*, 3> kNames{"a", "b", "c"};

/// From when to when a holder could be certain that it holds.
struct Hold {
  std::string name;
  Token token;
  Moment from;
  Moment to;
};

/// A grant, between its request and its reply.
struct Granted {
  Moment asked;
  Moment answered;
  Token token;
};

class LeaseThreads : public StoreContract {
 protected:
  /// One thread and its session, which another may end at any moment.
  class Worker {
   public:
    Worker(Store& store, int number, std::uint64_t seed)
        : store_(store), number_(number), random_(seed) {}

    void work(Moment until) {
      while (Steady::now() < until) step();
      end_session();
    }

    void end_session() {
      const std::lock_guard lock(mutex_);
      killed_at_ = std::min(killed_at_, Steady::now());
      session_.reset();
    }

    std::vector<Hold> holds;
    std::vector<Granted> grants;
    std::vector<std::shared_ptr<Answer>> answers;
    std::uint64_t timed_out = 0;
    std::uint64_t disconnected = 0;

   private:
    std::uint64_t pick(std::uint64_t below) { return random_() % below; }

    std::uint64_t session() {
      const std::lock_guard lock(mutex_);
      if (!session_) {
        session_.emplace(store_);
        killed_at_ = Moment::max();
      }
      return session_->id();
    }

    void step() {
      const Caller caller{.name = nullptr, .session = session()};
      const auto owner = std::to_string(number_) + "/" + std::to_string(++acquisitions_);
      const std::string name = kNames.at(pick(kNames.size()));
      const auto ttl = milliseconds(5 + pick(30));
      const bool bind = pick(2) == 0;

      const auto asked = Steady::now();
      const auto answer = std::make_shared<Answer>();
      answers.push_back(answer);
      const auto ticket = store_.enqueue(
          Command(make_acquire(name, owner, ttl, {.wait = milliseconds(pick(60)), .bind = bind})),
          [answer](Result<Reply> reply) { answer->set(std::move(reply)); }, caller);
      if (pick(8) == 0) store_.cancel(ticket);
      const auto reply = answer->wait();
      if (!reply) {
        ADD_FAILURE() << "never answered";
        return;
      }
      if (!*reply) {
        EXPECT_EQ(reply->error().line(), "LEASELOST disconnected");
        ++disconnected;
        return;
      }
      const auto& grant = std::get<Acquire::Reply>(**reply);
      if (!grant) {
        ++timed_out;
        return;
      }
      grants.push_back({asked, Steady::now(), grant->token});
      hold(name, owner, grant->token, ttl, bind);
    }

    void hold(const std::string& name, const std::string& owner, Token token, milliseconds ttl,
              bool bind) {
      // One that queued does not know when it was granted: it counts from before a renewal.
      const auto renewing = Steady::now();
      const auto renewed = store_.renew(name, owner, token, ttl);
      if (!renewed) return;
      const auto from = Steady::now();
      if (pick(2) == 0) std::this_thread::sleep_for(std::chrono::microseconds(pick(8000)));
      auto to = std::min(Steady::now(), renewing + ttl);
      if (bind) {
        const std::lock_guard lock(mutex_);
        to = std::min(to, killed_at_);
      }
      if (from < to) holds.push_back({name, token, from, to});
      if (pick(4) != 0) static_cast<void>(store_.release(name, owner, token));
    }

    Store& store_;
    const int number_;
    std::mt19937_64 random_;
    std::uint64_t acquisitions_ = 0;
    std::mutex mutex_;
    std::optional<Session> session_;    // guarded by mutex_
    Moment killed_at_ = Moment::max();  // guarded by mutex_
  };
};

TEST_P(LeaseThreads, HoldingTimesNeverOverlapTokensRiseAndEveryWaitEndsOnce) {
  options().clock = system_clock();
  const auto seed = seed_from_environment("FENCEKV_SEED");
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));
  auto& store = world().store();
  const auto until = Steady::now() + 1500ms;

  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < kThreads; ++i) {
    workers.push_back(std::make_unique<Worker>(store, i, seed + static_cast<std::uint64_t>(i)));
  }
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    threads.emplace_back([&worker, until] { worker->work(until); });
  }
  threads.emplace_back([&] {
    std::mt19937_64 random(seed);
    while (Steady::now() < until) {
      workers.at(random() % kThreads)->end_session();
      std::this_thread::sleep_for(2ms);
    }
  });
  for (auto& thread : threads) thread.join();

  // I8: every wait ended, and once.
  std::uint64_t timed_out = 0;
  std::uint64_t disconnected = 0;
  std::vector<Granted> grants;
  std::vector<Hold> holds;
  for (const auto& worker : workers) {
    for (const auto& answer : worker->answers) EXPECT_EQ(answer->times(), 1);
    timed_out += worker->timed_out;
    disconnected += worker->disconnected;
    grants.insert(grants.end(), worker->grants.begin(), worker->grants.end());
    holds.insert(holds.end(), worker->holds.begin(), worker->holds.end());
  }
  EXPECT_EQ(store.stats().waiting, 0);
  EXPECT_GT(grants.size(), 50);
  EXPECT_GT(holds.size(), 20);
  EXPECT_GT(timed_out, 0);
  EXPECT_GT(disconnected, 0);
  std::cout << GetParam().name << ": " << grants.size() << " granted, " << timed_out
            << " timed out, " << disconnected << " disconnected\n";

  // I1: a grant that was asked for after the reply of another has the greater token.
  std::vector<Granted> by_reply = grants;
  std::sort(grants.begin(), grants.end(),
            [](const auto& a, const auto& b) { return a.asked < b.asked; });
  std::sort(by_reply.begin(), by_reply.end(),
            [](const auto& a, const auto& b) { return a.answered < b.answered; });
  Token greatest;
  auto replied = by_reply.begin();
  std::vector<Token> tokens;
  for (const auto& grant : grants) {
    for (; replied != by_reply.end() && replied->answered < grant.asked; ++replied) {
      greatest = std::max(greatest, replied->token);
    }
    EXPECT_GT(grant.token, greatest);
    tokens.push_back(grant.token);
  }
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end()) << "a token twice";

  // I2, and on one name tokens rise with the times of their holders.
  for (const auto* name : kNames) {
    std::vector<Hold> of_name;
    std::copy_if(holds.begin(), holds.end(), std::back_inserter(of_name),
                 [&](const auto& hold) { return hold.name == name; });
    std::sort(of_name.begin(), of_name.end(),
              [](const auto& a, const auto& b) { return a.from < b.from; });
    for (std::size_t i = 1; i < of_name.size(); ++i) {
      EXPECT_LE(of_name[i - 1].to, of_name[i].from)
          << name << ": " << of_name[i - 1].token.number() << " and " << of_name[i].token.number();
      EXPECT_LT(of_name[i - 1].token, of_name[i].token);
    }
  }
}

std::vector<WorldKind> embedded_worlds() {
  auto worlds = every_world();
  worlds.erase(std::remove_if(worlds.begin(), worlds.end(),
                              [](const auto& kind) { return kind.name == "Network"; }),
               worlds.end());
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(EmbeddedWorlds, LeaseThreads, ::testing::ValuesIn(embedded_worlds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
