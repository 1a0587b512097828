// SPDX-License-Identifier: Apache-2.0
// The watcher against a server that does what it is told.
#include "fencekv/lease_watcher.h"
#include "tests/support/fake_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fencekv {
namespace {

using namespace std::chrono_literals;
using testing::FakeServer;
using testing::FakeSession;
using testing::Words;

constexpr auto kSoon = 10s;  // far longer than anything here takes

std::string push(const std::string& change, const std::string& name, int token) {
  const auto number = std::to_string(token);
  return ">4\r\n+lease\r\n+" + change + "\r\n$" + std::to_string(name.size()) + "\r\n" + name +
         "\r\n$" + std::to_string(number.size()) + "\r\n" + number + "\r\n";
}

ClientOptions options_for(const FakeServer& server) {
  return {.port = server.port(), .first_backoff = 1ms, .last_backoff = 5ms};
}

/// What a listener heard.
class Heard {
 public:
  LeaseWatcher::Listener listener() {
    return [this](const LeaseEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
      more_.notify_all();
    };
  }
  /// Waits until there are `count` events.
  std::vector<LeaseEvent> await(std::size_t count) {
    std::unique_lock lock(mutex_);
    more_.wait_for(lock, kSoon, [&] { return events_.size() >= count; });
    return events_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<LeaseEvent> events_;
};

LeaseWatcher must_start(Client& client, std::vector<std::string> names,
                        LeaseWatcher::Listener listener) {
  auto watcher = LeaseWatcher::start(client, std::move(names), std::move(listener));
  EXPECT_TRUE(watcher) << watcher.error().line();
  return *std::move(watcher);
}

TEST(LeaseWatcher, TellsEveryChangeInOrder) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    EXPECT_EQ(session.read(), (Words{"LEASE.WATCH", "a", "b"}));
    session.write("+OK\r\n" + push("granted", "a", 7) + push("expired", "a", 7) +
                  ">2\r\n+invalidate\r\n_\r\n" + push("granted", "b", 9));
    session.await_close();
  });
  Client client(options_for(server));
  Heard heard;

  const auto watcher = must_start(client, {"a", "b"}, heard.listener());

  EXPECT_EQ(heard.await(3), (std::vector<LeaseEvent>{{LeaseChange::granted, "a", Token{7}},
                                                     {LeaseChange::expired, "a", Token{7}},
                                                     {LeaseChange::granted, "b", Token{9}}}));
}

TEST(LeaseWatcher, HasAConnectionOfItsOwn) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    while (auto request = session.read()) {
      session.write(request->front() == "PING" ? "+PONG\r\n" : "+OK\r\n");
    }
  });
  Client client(options_for(server));

  const auto watcher = must_start(client, {"a"}, [](const LeaseEvent&) {});

  EXPECT_TRUE(client.ping());
  EXPECT_EQ(server.connections(), 2);
}

TEST(LeaseWatcher, TellsThatItMissedChangesBeforeAnythingElse) {
  // The new connection pushes before it answers; the one after that answers only.
  FakeServer server([](FakeSession& session, int number) {
    session.greet();
    auto names = session.read().value_or(Words{});
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (Words{"LEASE.WATCH", "a", "b"}));
    if (number == 0) {
      session.write("+OK\r\n" + push("granted", "a", 7));
      return;
    }
    if (number == 1) {
      session.write(push("granted", "b", 9) + "+OK\r\n");
      return;
    }
    session.write("+OK\r\n");
    session.await_close();
  });
  Client client(options_for(server));
  Heard heard;

  const auto watcher = must_start(client, {"a", "b"}, heard.listener());

  EXPECT_EQ(heard.await(6), (std::vector<LeaseEvent>{{LeaseChange::granted, "a", Token{7}},
                                                     {LeaseChange::missed, "a", Token{}},
                                                     {LeaseChange::missed, "b", Token{}},
                                                     {LeaseChange::granted, "b", Token{9}},
                                                     {LeaseChange::missed, "a", Token{}},
                                                     {LeaseChange::missed, "b", Token{}}}));
}

TEST(LeaseWatcher, TriesForAsLongAsItTakes) {
  FakeServer server([](FakeSession& session, int number) {
    if (number >= 1 && number < 4) return;  // not even a greeting
    session.greet();
    session.read();
    session.write(number == 4 ? "-OVERLOADED later\r\n" : "+OK\r\n");
    if (number == 4) {
      session.read();  // once more over the same connection
      session.write("+OK\r\n" + push("granted", "a", 9));
    }
    if (number == 0) return;
    session.await_close();
  });
  Client client(options_for(server));
  Heard heard;

  const auto watcher = must_start(client, {"a"}, heard.listener());

  EXPECT_EQ(heard.await(2), (std::vector<LeaseEvent>{{LeaseChange::missed, "a", Token{}},
                                                     {LeaseChange::granted, "a", Token{9}}}));
}

TEST(LeaseWatcher, WatchesMoreNamesOnTheWay) {
  std::mutex mutex;
  std::vector<Words> requests;
  std::atomic<int> connection = 0;
  FakeServer server([&](FakeSession& session, int number) {
    session.greet();
    while (auto request = session.read()) {
      if (request->front() != "LEASE.WATCH") {
        session.write("+OK\r\n");
        continue;
      }
      if (request->back() == "no") {
        session.write("-ERR too many names are watched\r\n");
        continue;
      }
      {
        const std::lock_guard lock(mutex);
        requests.push_back(*request);
      }
      session.write("+OK\r\n");
      if (number == 0 && request->back() == "b") return;
      connection = number;
    }
  });
  Client client(options_for(server));
  Heard heard;
  auto watcher = must_start(client, {"a"}, heard.listener());

  EXPECT_EQ(watcher.add({"no"}).error().code(), Errc::invalid);
  EXPECT_TRUE(watcher.add({"b"}));  // after which the connection breaks

  EXPECT_EQ(heard.await(2), (std::vector<LeaseEvent>{{LeaseChange::missed, "a", Token{}},
                                                     {LeaseChange::missed, "b", Token{}}}));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(requests, (std::vector<Words>{
                          {"LEASE.WATCH", "a"}, {"LEASE.WATCH", "b"}, {"LEASE.WATCH", "a", "b"}}));
}

TEST(LeaseWatcher, WatchesMoreNamesThanOneRequestHolds) {
  std::atomic<int> requests = 0;
  std::atomic<std::size_t> names_watched = 0;
  FakeServer server([&](FakeSession& session, int number) {
    session.greet();
    while (auto request = session.read()) {
      EXPECT_LE(request->size() - 1, Limits::kKeysPerCommand);
      names_watched += request->size() - 1;
      session.write("+OK\r\n");
      if (++requests == 3 && number == 0) return;
    }
  });
  Client client(options_for(server));
  Heard heard;
  std::vector<std::string> names;
  for (int i = 0; i < 2500; ++i) names.push_back("name-" + std::to_string(i));

  const auto watcher = must_start(client, names, heard.listener());

  EXPECT_EQ(heard.await(2500).size(), 2500U) << "each is told once that it was missed";
  EXPECT_EQ(requests, 6);
  EXPECT_EQ(names_watched, 5000U);
}

TEST(LeaseWatcher, SaysWhyItCannotStart) {
  FakeServer refusing([](FakeSession& session, int) {
    session.greet();
    while (session.read()) session.write("-NOAUTH Authentication required.\r\n");
  });
  Client client(options_for(refusing));
  std::uint16_t nobody = 0;
  {
    const FakeServer gone([](FakeSession&, int) {});
    nobody = gone.port();
  }
  Client to_nobody({.port = nobody});
  auto none = options_for(refusing);
  none.max_own_connections = 0;
  Client without(none);
  const auto listener = [](const LeaseEvent&) {};

  EXPECT_EQ(LeaseWatcher::start(client, {"a"}, listener).error().code(), Errc::denied);
  EXPECT_EQ(LeaseWatcher::start(to_nobody, {"a"}, listener).error().code(), Errc::unreachable);
  EXPECT_EQ(LeaseWatcher::start(without, {"a"}, listener).error().code(), Errc::overloaded);
}

TEST(LeaseWatcher, TellsNothingOnceItIsGone) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
    session.write("+OK\r\n");
    std::thread reader([&] { session.await_close(); });
    for (int i = 1; i < 5'000; ++i) session.write(push("granted", "a", i));
    reader.join();
  });
  Client client(options_for(server));
  for (int round = 0; round < 20; ++round) {
    auto alive = std::make_shared<std::atomic<bool>>(true);
    std::atomic<int> told = 0;
    {
      const auto watcher = must_start(client, {"a"}, [&, alive](const LeaseEvent&) {
        EXPECT_TRUE(*alive);
        ++told;
      });
      while (told < 10) std::this_thread::yield();
    }
    *alive = false;
  }
}

TEST(LeaseWatcher, MayBeEndedByItsListener) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
    session.write("+OK\r\n" + push("granted", "a", 7) + push("granted", "a", 8));
    session.await_close();
  });
  Client client(options_for(server));
  std::mutex mutex;
  std::optional<LeaseWatcher> watcher;
  std::promise<void> ended;
  int told = 0;
  {
    const std::lock_guard lock(mutex);
    watcher.emplace(must_start(client, {"a"}, [&](const LeaseEvent&) {
      const std::lock_guard listener_lock(mutex);
      ++told;
      watcher.reset();
      ended.set_value();
    }));
  }

  ASSERT_EQ(ended.get_future().wait_for(kSoon), std::future_status::ready);
  EXPECT_TRUE(client.ping()) << "the client goes on";
  const std::lock_guard lock(mutex);
  EXPECT_EQ(told, 1);
}

TEST(LeaseWatcher, OutlivesItsClient) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
    session.write("+OK\r\n");
    session.await_close();
  });
  std::optional<LeaseWatcher> watcher;
  {
    Client client(options_for(server));
    watcher.emplace(must_start(client, {"a"}, [](const LeaseEvent&) {}));
  }

  EXPECT_EQ(watcher->add({"b"}).error().code(), Errc::unreachable);
}

}  // namespace
}  // namespace fencekv
