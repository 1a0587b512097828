// SPDX-License-Identifier: Apache-2.0
// The client against a server that does what it is told: what is reported when, and that no answer
// ever reaches another command.
#include "fencekv/client.h"

#include "tests/support/fake_server.h"
#include "tests/support/seed_from_environment.h"
#include "tests/support/temporary_directory.h"

#include <boost/asio/local/stream_protocol.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace fencekv {
namespace {

using namespace std::chrono_literals;
using testing::FakeServer;
using testing::FakeSession;
using testing::Words;
using Clock = std::chrono::steady_clock;

constexpr auto kSoon = 10s;  // far longer than anything here takes

ClientOptions options_for(const FakeServer& server) {
  return {.port = server.port(), .first_backoff = 1ms, .last_backoff = 10ms};
}

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

/// Answers ECHO with its message, everything else with OK, until the client closes.
void play_echo(FakeSession& session) {
  session.greet();
  while (auto request = session.read()) {
    session.write(request->front() == "ECHO" ? bulk(request->back()) : "+OK\r\n");
  }
}

/// A set() that is under way.
std::future<Result<Write::Reply>> start_set(Client& client, const std::string& key,
                                            CallOptions call = {}) {
  auto promise = std::make_shared<std::promise<Result<Write::Reply>>>();
  auto outcome = promise->get_future();
  client.submit<Write>(
      {.entries = {{key, "v"}}, .token = Token{1}},
      [promise](Result<Write::Reply> reply) { promise->set_value(reply); }, call);
  return outcome;
}

template <class T>
Errc code_of(const Result<T>& result) {
  EXPECT_FALSE(result);
  return result ? Errc{} : result.error().code();
}

Errc code_of(std::future<Result<Write::Reply>>& outcome) {
  if (outcome.wait_for(kSoon) != std::future_status::ready) {
    ADD_FAILURE() << "no outcome";
    return Errc{};
  }
  return code_of(outcome.get());
}

// ---- Connecting -------------------------------------------------------------------------------

TEST(Client, GreetsWithPasswordAndName) {
  std::promise<Words> hello;
  FakeServer server([&](FakeSession& session, int) {
    hello.set_value(session.greet());
    session.read();
    session.write("+PONG\r\n");
    session.await_close();
  });
  auto options = options_for(server);
  options.password = "s3cret word";
  options.name = "worker-7";

  const auto client = Client::connect(options);

  EXPECT_TRUE(client);
  EXPECT_EQ(hello.get_future().get(),
            (Words{"HELLO", "3", "AUTH", "default", "s3cret word", "SETNAME", "worker-7"}));
}

TEST(Client, SaysThatAWrongPasswordIsDenied) {
  FakeServer server([](FakeSession& session, int) {
    session.read();
    session.write("-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    session.await_close();
  });

  EXPECT_EQ(code_of(Client::connect(options_for(server))), Errc::denied);
}

TEST(Client, IsUnreachableWhereNobodyListens) {
  std::uint16_t port = 0;
  {
    const FakeServer server([](FakeSession&, int) {});
    port = server.port();
  }

  const auto begin = Clock::now();
  const auto client = Client::connect({.port = port, .connect_timeout = 60s});

  EXPECT_EQ(code_of(client), Errc::unreachable);
  EXPECT_LT(Clock::now() - begin, 30s) << "a refusal is not waited out";
}

TEST(Client, LimitsConnectingAndGreetingTogether) {
  FakeServer silent([](FakeSession& session, int) { session.await_close(); });
  auto options = options_for(silent);
  options.connect_timeout = 50ms;
  options.call_timeout = 60s;
  Client client(options);

  const auto begin = Clock::now();
  const auto set = client.set("k", "v", Token{1});

  EXPECT_EQ(code_of(set), Errc::unreachable);
  EXPECT_LT(Clock::now() - begin, 30s);
}

TEST(Client, TellsAPeerThatSpeaksSomethingElse) {
  const std::vector<std::string> greetings = {
      "HTTP/1.1 400 Bad Request\r\n\r\n", "+OK\r\n",
      "-ERR unknown command 'HELLO'\r\n", "-ERR max number of clients reached\r\n",
      "%1\r\n+proto\r\n:2\r\n",           ""};
  for (const auto& greeting : greetings) {
    FakeServer server([&](FakeSession& session, int) {
      session.read();
      session.write(greeting);
    });
    Client client(options_for(server));

    // Nothing was sent, so it is safe to say so.
    EXPECT_EQ(code_of(client.set("k", "v", Token{1})), Errc::unreachable) << greeting;
  }
}

TEST(Client, ConnectsToAUnixSocket) {
  const testing::TemporaryDirectory directory;
  const auto path = (directory.path() / "s").string();
  boost::asio::io_context io;
  boost::asio::local::stream_protocol::acceptor acceptor(io, path);
  std::thread server([&] {
    auto socket = acceptor.accept();
    char bytes[1024];
    socket.read_some(boost::asio::buffer(bytes));
    boost::asio::write(socket, boost::asio::buffer(testing::kHello));
    socket.read_some(boost::asio::buffer(bytes));
    boost::asio::write(socket, boost::asio::buffer(std::string("+PONG\r\n")));
    boost::system::error_code closed;
    socket.read_some(boost::asio::buffer(bytes), closed);
  });

  EXPECT_TRUE(Client::connect({.unix_path = path}));
  server.join();

  EXPECT_EQ(code_of(Client::connect({.unix_path = std::string(200, 'x')})), Errc::unreachable);
  EXPECT_EQ(code_of(Client::connect({.unix_path = path + ".none"})), Errc::unreachable);
}

TEST(Client, WaitsLongerAndLongerBetweenAttempts) {
  FakeServer server([](FakeSession&, int) {});  // accepts and closes
  auto options = options_for(server);
  options.first_backoff = 40ms;
  options.last_backoff = 400ms;
  Client client(options);

  const auto end = Clock::now() + 400ms;
  while (Clock::now() < end || server.connections() < 2)
    EXPECT_EQ(code_of(client.ping()), Errc::unreachable);

  // At least 20, 40, 80, 160 and 200 ms lie between the attempts.
  EXPECT_LE(server.connections(), 6);
}

// ---- Pipelining -------------------------------------------------------------------------------

TEST(Client, SendsCommandsWithoutWaitingForAnswers) {
  constexpr int kCommands = 50;
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    std::vector<std::string> messages;
    for (int i = 0; i < kCommands; ++i) messages.push_back(session.read().value().back());
    for (const auto& message : messages) session.write(bulk(message));
    session.await_close();
  });
  Client client(options_for(server));
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;

  // Nobody is answered before all have asked.
  for (int i = 0; i < kCommands; ++i) {
    threads.emplace_back([&, i] {
      if (const auto echo = client.echo(std::to_string(i)); echo && *echo == std::to_string(i)) {
        ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(right, kCommands);
  EXPECT_EQ(server.connections(), 1);
}

TEST(Client, KeepsTheOrderOfSubmission) {
  constexpr int kCommands = 2000;
  std::vector<std::string> seen;
  std::vector<std::string> answered;
  {
    FakeServer server([&](FakeSession& session, int) {
      session.greet();
      while (auto request = session.read()) {
        seen.push_back(request->back());
        session.write(bulk(request->back()));
      }
    });
    Client client(options_for(server));
    std::latch left(kCommands);
    for (int i = 0; i < kCommands; ++i) {
      client.submit<Echo>({std::to_string(i)}, [&](Result<std::string> echo) {
        answered.push_back(echo ? *echo : "");
        left.count_down();
      });
    }
    left.wait();
  }

  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kCommands));
  for (int i = 0; i < kCommands; ++i)
    ASSERT_EQ(seen[static_cast<std::size_t>(i)], std::to_string(i));
  EXPECT_EQ(answered, seen);
}

TEST(Client, SkipsPushes) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.write(">1\r\n+hello\r\n");
    session.read();
    session.write(">2\r\n+a\r\n+b\r\n+PONG\r\n>1\r\n+c\r\n");
    session.await_close();
  });
  Client client(options_for(server));

  EXPECT_EQ(*client.ping(), "PONG");
}

// ---- Refused, not sent, unknown: never confused -----------------------------------------------

TEST(Client, PassesOnWhatTheServerRefuses) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
    session.write("-FENCED 34 33 superseded by another grant\r\n");
    session.await_close();
  });
  Client client(options_for(server));

  const auto set = client.set("k", "v", Token{33});

  ASSERT_EQ(code_of(set), Errc::fenced);
  EXPECT_EQ(set.error().highest(), Token{34});
  EXPECT_EQ(set.error().reason(), "superseded");
}

TEST(Client, IsInDoubtAboutAWriteWhoseAnswerIsLost) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
  });
  Client client(options_for(server));

  EXPECT_EQ(code_of(client.set("k", "v", Token{1})), Errc::in_doubt);
}

TEST(Client, IsInDoubtAboutAWriteThatWasSentInPart) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read_bytes(100);
  });
  Client client(options_for(server));

  const auto set = client.set("k", std::string(std::size_t{8} * 1024 * 1024, 'v'), Token{1});

  EXPECT_EQ(code_of(set), Errc::in_doubt);
}

TEST(Client, HasNoDoubtAboutAReadWhoseAnswerIsLost) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
  });
  Client client(options_for(server));

  EXPECT_EQ(code_of(client.get("k")), Errc::unreachable);
}

TEST(Client, IsInDoubtAboutEveryCommandThatChangesSomething) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
  });
  Client client(options_for(server));
  const Token t{1};

  EXPECT_EQ(code_of(client.remove("k", t)), Errc::in_doubt);
  EXPECT_EQ(code_of(client.set_many({{"a", "1"}, {"b", "2"}}, t)), Errc::in_doubt);
  EXPECT_EQ(code_of(client.raise("k", t)), Errc::in_doubt);
  EXPECT_EQ(code_of(client.get_fenced("k", t)), Errc::in_doubt) << "it lifts the fence";
  EXPECT_EQ(code_of(client.reset({.key = "k", .token = t})), Errc::in_doubt);
  EXPECT_EQ(code_of(client.acquire("n", "o", 1s)), Errc::in_doubt);
  EXPECT_EQ(code_of(client.renew("n", "o", t, 1s)), Errc::in_doubt);
  EXPECT_EQ(code_of(client.release("n", "o", t)), Errc::in_doubt);
  EXPECT_EQ(code_of(client.revoke("n")), Errc::in_doubt);
  EXPECT_EQ(code_of(client.call({"FENCE.SET", "k", "1", "v"})), Errc::in_doubt);

  EXPECT_EQ(code_of(client.get_fenced("k")), Errc::unreachable);
  EXPECT_EQ(code_of(client.describe("k")), Errc::unreachable);
  EXPECT_EQ(code_of(client.rejections()), Errc::unreachable);
  EXPECT_EQ(code_of(client.inspect("n")), Errc::unreachable);
  EXPECT_EQ(code_of(client.scan_leases()), Errc::unreachable);
  EXPECT_EQ(code_of(client.get_many({"a"})), Errc::unreachable);
  EXPECT_EQ(code_of(client.exists({"a"})), Errc::unreachable);
  EXPECT_EQ(code_of(client.strlen("a")), Errc::unreachable);
  EXPECT_EQ(code_of(client.type("a")), Errc::unreachable);
  EXPECT_EQ(code_of(client.scan()), Errc::unreachable);
  EXPECT_EQ(code_of(client.dbsize()), Errc::unreachable);
}

TEST(Client, SendsNothingTwice) {
  std::atomic<int> writes = 0;
  FakeServer server([&](FakeSession& session, int number) {
    session.greet();
    while (auto request = session.read()) {
      if (request->front() == "FENCE.SET") ++writes;
      if (number == 0) return;
      session.write("+PONG\r\n");
    }
  });
  Client client(options_for(server));

  EXPECT_EQ(code_of(client.set("k", "v", Token{1})), Errc::in_doubt);
  EXPECT_TRUE(client.ping()) << "the next command finds a new connection";

  EXPECT_EQ(server.connections(), 2);
  EXPECT_EQ(writes, 1);
}

TEST(Client, NoticesAConnectionThatWasClosedWhileItWasIdle) {
  FakeServer server([](FakeSession& session, int number) {
    session.greet();
    session.read();
    session.write("+PONG\r\n");
    if (number > 0) session.await_close();
  });
  Client client(options_for(server));
  ASSERT_TRUE(client.ping());

  // The end of the connection arrives by itself; a write that is sent into it meanwhile is in
  // doubt.
  const auto end = Clock::now() + kSoon;
  while (server.connections() < 2 && Clock::now() < end) {
    const auto ping = client.ping({.timeout = 1s});
    if (!ping) {
      EXPECT_EQ(ping.error().code(), Errc::unreachable);
    }
  }

  EXPECT_EQ(server.connections(), 2);
}

// ---- Timeouts and cancellation ----------------------------------------------------------------

TEST(Client, EndsTheConnectionOfACallThatTimesOut) {
  FakeServer server([](FakeSession& session, int number) {
    if (number > 0) return play_echo(session);
    session.greet();
    session.read();  // the call that will time out
    session.read();  // one behind it
    session.await_close();
    session.write(bulk("late"));
  });
  Client client(options_for(server));
  auto slow = start_set(client, "slow", {.timeout = 500ms});
  auto behind = start_set(client, "behind", {.timeout = kSoon});

  EXPECT_EQ(code_of(slow), Errc::in_doubt);
  EXPECT_EQ(code_of(behind), Errc::in_doubt) << "its answer can come no more";

  EXPECT_EQ(*client.echo("mine"), "mine") << "never another command's answer";
  EXPECT_EQ(server.connections(), 2);
}

TEST(Client, IsSureAboutACallThatTimesOutBeforeItWasSent) {
  std::atomic<int> commands = 0;
  FakeServer server([&](FakeSession& session, int) {
    session.read();  // HELLO, left without an answer
    while (session.read()) ++commands;
  });
  {
    auto options = options_for(server);
    options.connect_timeout = 60s;
    Client client(options);

    const auto begin = Clock::now();
    const auto set = client.set("k", "v", Token{1}, {}, {.timeout = 50ms});

    EXPECT_EQ(code_of(set), Errc::unreachable);
    EXPECT_LT(Clock::now() - begin, 30s) << "its own timeout, not that of the connection";
  }
  EXPECT_EQ(commands, 0);
}

TEST(Client, CancelsACallThatWasSent) {
  std::promise<void> received;
  FakeServer server([&](FakeSession& session, int number) {
    if (number > 0) return play_echo(session);
    session.greet();
    session.read();
    received.set_value();
    session.await_close();
  });
  Client client(options_for(server));
  std::stop_source stop;
  auto set = start_set(client, "k", {.cancel = stop.get_token()});
  received.get_future().wait();

  stop.request_stop();

  EXPECT_EQ(code_of(set), Errc::in_doubt);
  EXPECT_EQ(*client.echo("mine"), "mine");
}

TEST(Client, CancelsACallThatWasNotSent) {
  FakeServer server([](FakeSession& session, int) { session.await_close(); });
  Client client(options_for(server));
  std::stop_source stop;
  auto set = start_set(client, "k", {.cancel = stop.get_token()});

  stop.request_stop();

  EXPECT_EQ(code_of(set), Errc::unreachable);
  auto never = start_set(client, "k", {.cancel = stop.get_token()});
  EXPECT_EQ(code_of(never), Errc::unreachable) << "cancelled before it began";
}

TEST(Client, GivesNobodyAnothersAnswerWhereverCallsAreCancelled) {
  const auto seed = static_cast<unsigned>(testing::seed_from_environment("FENCEKV_SEED"));
  SCOPED_TRACE("FENCEKV_SEED=" + std::to_string(seed));
  FakeServer server([](FakeSession& session, int) { play_echo(session); });
  Client client(options_for(server));
  std::atomic<int> answered = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;

  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(seed + t);
      for (int i = 0; i < 500; ++i) {
        const auto nonce = std::to_string(t) + "-" + std::to_string(i);
        std::stop_source stop;
        std::thread canceller;
        if (i % 10 == 0) {
          canceller = std::thread([&, pause = random() % 300] {
            std::this_thread::sleep_for(std::chrono::microseconds(pause));
            stop.request_stop();
          });
        }
        const auto echo = client.echo(nonce, {.cancel = stop.get_token()});
        if (canceller.joinable()) canceller.join();
        if (!echo) {
          EXPECT_EQ(echo.error().code(), Errc::unreachable);
        } else {
          ++answered;
          if (*echo != nonce) ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answered, 500);
  EXPECT_GT(server.connections(), 1) << "no call was cancelled in flight: nothing was tested";
}

// ---- Peers that cannot be trusted -------------------------------------------------------------

TEST(Client, EndsTheConnectionAfterAReplyThatTheCommandCannotHave) {
  FakeServer server([](FakeSession& session, int number) {
    if (number > 0) return play_echo(session);
    session.greet();
    session.read();
    session.read();
    session.write("+QUEUED\r\n:1\r\n");
    session.await_close();
  });
  Client client(options_for(server));
  auto first = start_set(client, "a");
  auto second = start_set(client, "b");

  EXPECT_EQ(code_of(first), Errc::protocol);
  EXPECT_EQ(code_of(second), Errc::in_doubt);
  EXPECT_EQ(*client.echo("mine"), "mine");
}

TEST(Client, EndsTheConnectionAfterAReplyThatNobodyAskedFor) {
  FakeServer server([](FakeSession& session, int number) {
    if (number > 0) return play_echo(session);
    session.greet();
    session.read();
    session.write("+PONG\r\n+PONG\r\n");
    session.await_close();
  });
  Client client(options_for(server));

  EXPECT_EQ(*client.ping(), "PONG");
  EXPECT_EQ(*client.echo("mine", {.timeout = kSoon}), "mine");
  EXPECT_EQ(server.connections(), 2);
}

TEST(Client, EndsTheConnectionAfterBytesThatAreNoReply) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
    session.write("?what\r\n");
    session.await_close();
  });
  Client client(options_for(server));

  EXPECT_EQ(code_of(client.set("k", "v", Token{1})), Errc::in_doubt);
}

TEST(Client, GivesUpOnAReplyOverTheLimit) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
    session.write("$100000000\r\n");
    session.await_close();
  });
  auto options = options_for(server);
  options.max_reply_bytes = 1024 * 1024;
  Client client(options);

  EXPECT_EQ(code_of(client.get("k")), Errc::unreachable);
}

TEST(Client, PassesOnAnErrorAfterWhichTheServerCloses) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    session.read();
    session.read();
    session.write("-TOOBIG request of more than 64 bytes; split it, or raise the limit\r\n");
  });
  Client client(options_for(server));
  auto first = start_set(client, "a");
  auto second = start_set(client, "b");

  EXPECT_EQ(code_of(first), Errc::too_big);
  EXPECT_EQ(code_of(second), Errc::in_doubt);
}

// ---- Its own limits ---------------------------------------------------------------------------

TEST(Client, RefusesMoreCallsThanItMayHold) {
  std::promise<void> go;
  FakeServer server([&, wait = go.get_future().share()](FakeSession& session, int) {
    session.greet();
    wait.wait();
    while (session.read()) session.write(":1\r\n");
  });
  auto options = options_for(server);
  options.max_pending_calls = 2;
  Client client(options);
  auto first = start_set(client, "a");
  auto second = start_set(client, "b");

  auto third = start_set(client, "c");

  EXPECT_EQ(code_of(third), Errc::overloaded);
  go.set_value();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
  EXPECT_TRUE(client.set("d", "v", Token{1})) << "there is room again";
}

TEST(Client, RefusesMoreBytesThanItMayHold) {
  FakeServer server([](FakeSession& session, int) {
    session.greet();
    while (session.read()) session.write(":1\r\n");
  });
  auto options = options_for(server);
  options.max_pending_bytes = 1000;
  Client client(options);

  EXPECT_EQ(code_of(client.set("k", std::string(1000, 'v'), Token{1})), Errc::overloaded);
  EXPECT_TRUE(client.set("k", std::string(500, 'v'), Token{1}));
  EXPECT_TRUE(client.set("k", std::string(900, 'v'), Token{1})) << "there is room again";
}

TEST(Client, RefusesToWaitForItself) {
  FakeServer server([](FakeSession& session, int) { play_echo(session); });
  Client client(options_for(server));
  std::promise<Errc> nested;

  client.submit<Echo>({"a"},
                      [&](Result<std::string>) { nested.set_value(code_of(client.echo("b"))); });

  EXPECT_EQ(nested.get_future().get(), Errc::invalid);
}

TEST(Client, AnswersFromItsOwnThreadOnly) {
  FakeServer server([](FakeSession& session, int) { play_echo(session); });
  Client client(options_for(server));
  std::promise<std::thread::id> answered;
  std::promise<std::thread::id> refused;

  client.submit<Echo>({"a"}, [&](auto) { answered.set_value(std::this_thread::get_id()); });
  client.submit<Raw>({}, [&](auto) { refused.set_value(std::this_thread::get_id()); });

  const auto own = answered.get_future().get();
  EXPECT_NE(own, std::this_thread::get_id());
  EXPECT_EQ(refused.get_future().get(), own);
}

TEST(Client, EndsEveryCallWhenItIsClosed) {
  std::promise<void> received;
  FakeServer server([&](FakeSession& session, int) {
    session.greet();
    session.read();
    received.set_value();
    session.await_close();
  });
  std::future<Result<Write::Reply>> sent;
  std::future<Result<Write::Reply>> unsent;
  {
    Client client(options_for(server));
    sent = start_set(client, "a");
    received.get_future().wait();
    Client other({.port = 1, .first_backoff = kSoon, .last_backoff = kSoon});
    static_cast<void>(other.ping());  // fails, and the next attempt is far away
    unsent = start_set(other, "b");
  }

  EXPECT_EQ(code_of(sent), Errc::in_doubt);
  EXPECT_EQ(code_of(unsent), Errc::unreachable);
}

TEST(Client, Moves) {
  FakeServer server([](FakeSession& session, int) { play_echo(session); });
  Client first(options_for(server));
  Client second(std::move(first));
  Client third({.port = 1});

  third = std::move(second);

  EXPECT_EQ(*third.echo("x"), "x");
}

}  // namespace
}  // namespace fencekv
