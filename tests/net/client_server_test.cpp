// SPDX-License-Identifier: Apache-2.0
// The client library against the real server: every typed command, and leases through the life of a
// server that is stopped, killed and started again.
#include "client/boot_clock.h"
#include "fencekv/client.h"
#include "fencekv/lease_guard.h"
#include "tests/support/fake_server.h"
#include "tests/support/raw_client.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace fencekv::testing {
namespace {

using namespace std::chrono_literals;

class ClientAndServer : public ::testing::Test {
 protected:
  void SetUp() override { start(); }

  /// Starts the server, on the port it had before.
  void start(std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--dir", (directory_.path() / "store").string(), "--port",
                                      std::to_string(port_)};
    flags.insert(flags.end(), more.begin(), more.end());
    server_ = std::make_unique<ServerProcess>(ServerProcess::Start{.flags = std::move(flags)});
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

  std::unique_ptr<ServerProcess> server_;
  TemporaryDirectory directory_;
  std::uint16_t port_ = 0;
};

template <class T>
Errc code_of(const Result<T>& result) {
  EXPECT_FALSE(result);
  return result ? Errc{} : result.error().code();
}

template <class T>
T value_of(Result<T> result) {
  EXPECT_TRUE(result) << result.error().line();
  return *std::move(result);
}

LeaseGuard must_acquire(Client& client, std::string_view name, LeaseOptions options) {
  auto guard = LeaseGuard::try_acquire(client, name, std::move(options));
  EXPECT_TRUE(guard && *guard) << (guard ? "held" : guard.error().line());
  return **std::move(guard);
}

TEST_F(ClientAndServer, SpeaksEveryCommand) {
  auto client = value_of(Client::connect(options()));

  // Leases.
  const auto grant = value_of(client.acquire("job", "owner-a", 60s));
  ASSERT_TRUE(grant);
  const Token token = grant->token;
  EXPECT_GT(grant->remaining, 50s);
  EXPECT_EQ(value_of(client.acquire("job", "owner-b", 60s)), std::nullopt);
  EXPECT_GT(value_of(client.renew("job", "owner-a", token, 60s)), 50s);
  const auto state = value_of(client.inspect("job"));
  EXPECT_EQ(state.name, "job");
  EXPECT_EQ(state.fence, token);
  ASSERT_EQ(state.holders.size(), 1U);
  EXPECT_EQ(state.holders[0].token, token);
  EXPECT_EQ(value_of(client.scan_leases()).leases.size(), 1U);
  EXPECT_TRUE(value_of(client.inspect("never")).holders.empty());

  // Writes.
  EXPECT_EQ(value_of(client.set("k", "one", token, {.lease = "job", .request = "r1"})), 1U);
  EXPECT_EQ(value_of(client.set("k", "one", token, {.lease = "job", .request = "r1"})), 1U)
      << "a replayed request answers as the first did";
  EXPECT_EQ(value_of(client.set("k", "two", token, {.lease = "job", .if_version = 1})), 2U);
  EXPECT_EQ(code_of(client.set("k", "x", token, {.lease = "job", .if_version = 1})), Errc::version);
  EXPECT_EQ(value_of(client.set_many({{"a", "1"}, {"b", "2"}}, token, {.lease = "job"})),
            (std::vector<std::uint64_t>{1, 1}));
  EXPECT_EQ(value_of(client.remove("b", token, {.lease = "job"})), 2U);
  const auto wrong = client.set("k", "x", token, {.lease = "other"});
  EXPECT_EQ(code_of(wrong), Errc::wrong_lease);
  EXPECT_EQ(wrong.error().subject(), "job");
  EXPECT_EQ(code_of(client.set("new", "x", token, {.lease = "other"})), Errc::no_lease);
  const auto unissued = client.set("k", "x", Token{token.number() + 1000}, {.lease = "job"});
  EXPECT_EQ(code_of(unissued), Errc::unissued);
  EXPECT_EQ(unissued.error().highest(), token);

  // Reads.
  EXPECT_EQ(value_of(client.get("k")), "two");
  EXPECT_EQ(value_of(client.get("b")), std::nullopt);
  EXPECT_EQ(value_of(client.get_many({"k", "b", "a"})),
            (std::vector<std::optional<std::string>>{"two", std::nullopt, "1"}));
  const KeyState expected{
      .value = "two", .version = 2, .fence = token, .guard = "job", .request = {}};
  EXPECT_EQ(value_of(client.get_fenced("k")), expected);
  EXPECT_EQ(value_of(client.get_fenced("k", token, "job")), expected);
  EXPECT_EQ(value_of(client.get_fenced("nothing")), KeyState{});
  const auto description = value_of(client.describe("k"));
  EXPECT_EQ(description.size, 3U);
  EXPECT_TRUE(description.exists);
  EXPECT_GT(description.written, 0ms);
  EXPECT_EQ(value_of(client.raise("k", token, "job")), token);
  EXPECT_EQ(value_of(client.exists({"k", "a", "b"})), 2U);
  EXPECT_EQ(value_of(client.strlen("k")), 3U);
  EXPECT_EQ(value_of(client.type("k")), "string");
  EXPECT_EQ(value_of(client.type("b")), "none");
  EXPECT_EQ(value_of(client.dbsize()), 2U);
  EXPECT_EQ(value_of(client.scan({.match = "a*"})).keys, std::vector<std::string>{"a"});
  EXPECT_FALSE(value_of(client.rejections()).empty());

  // The rest.
  EXPECT_EQ(value_of(client.ping()), "PONG");
  EXPECT_EQ(value_of(client.echo("a\r\n\xff")), "a\r\n\xff");
  EXPECT_EQ(value_of(client.call({"STRLEN", "k"})).integer, 3);
  EXPECT_EQ(code_of(client.call({"SET", "k", "v"})), Errc::invalid);
  EXPECT_EQ(value_of(client.reset({.key = "k", .token = token, .guard = Reset::Guard::clear})),
            token);
  EXPECT_EQ(value_of(client.get_fenced("k")).guard, std::nullopt);
  EXPECT_EQ(value_of(client.revoke("job")), token);
  EXPECT_EQ(client.renew("job", "owner-a", token, 60s).error().reason(), "revoked");
  EXPECT_EQ(client.release("job", "owner-a", token).error().reason(), "revoked");
}

TEST_F(ClientAndServer, RefusesAWorkerThatWakesUpAfterItsSuccessor) {
  Client a(options());
  Client b(options());
  const auto old_grant = value_of(a.acquire("job", "a", 50ms));
  ASSERT_TRUE(old_grant);
  std::optional<Grant> new_grant;
  while (!new_grant) new_grant = value_of(b.acquire("job", "b", 60s));
  ASSERT_GT(new_grant->token, old_grant->token);
  ASSERT_TRUE(b.set("result", "of the successor", new_grant->token, {.lease = "job"}));

  const auto late = a.set("result", "of the sleeper", old_grant->token, {.lease = "job"});
  const auto elsewhere = a.set("untouched", "x", old_grant->token, {.lease = "job"});
  const auto renewed = a.renew("job", "a", old_grant->token, 60s);
  const auto released = a.release("job", "a", old_grant->token);

  EXPECT_EQ(code_of(late), Errc::fenced);
  EXPECT_EQ(late.error().highest(), new_grant->token);
  EXPECT_EQ(late.error().reason(), "superseded");
  EXPECT_EQ(code_of(elsewhere), Errc::fenced) << "also where the successor never wrote";
  EXPECT_EQ(renewed.error().reason(), "superseded");
  EXPECT_EQ(released.error().reason(), "superseded");
  EXPECT_EQ(value_of(b.get("result")), "of the successor");
  EXPECT_EQ(value_of(b.inspect("job")).holders.size(), 1U) << "the successor was not touched";
}

TEST_F(ClientAndServer, FreesALeaseWithinOneRoundTrip) {
  Client client(options());
  auto first = must_acquire(client, "job", {.ttl = 60s});
  const Token old_token = first.token();

  ASSERT_TRUE(first.release());
  const auto second = must_acquire(client, "job", {.ttl = 60s});

  EXPECT_GT(second.token(), old_token);
  EXPECT_EQ(client.set("k", "v", old_token, {.lease = "job"}).error().reason(), "superseded");
}

TEST_F(ClientAndServer, KeepsALeaseThroughARestartOfTheServer) {
  constexpr auto kTtl = 12s;
  Client client(options());
  std::atomic<int> losses = 0;
  const auto guard =
      must_acquire(client, "job", {.ttl = kTtl, .on_lost = [&](const LeaseLoss&) { ++losses; }});

  end(SIGKILL);
  start();

  // A deadline that lies so late: it was renewed with the new process.
  const auto started = since_boot();
  while (since_boot() < started + kTtl && since_boot() + guard.remaining() <= started + kTtl) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GT(since_boot() + guard.remaining(), started + kTtl);
  EXPECT_EQ(losses, 0);
  EXPECT_TRUE(guard.valid());
  EXPECT_TRUE(client.set("k", "v", guard.token(), {.lease = "job", .live = true}));
}

TEST_F(ClientAndServer, StaysLostWhenTheServerWakesUpTooLate) {
  Client client(options());
  std::atomic<int> losses = 0;
  std::optional<LossReason> reason;
  const auto begin = since_boot();
  const auto guard = must_acquire(client, "job", {.ttl = 2s, .on_lost = [&](const LeaseLoss& loss) {
                                                    reason = loss.reason;
                                                    ++losses;
                                                  }});
  const auto token = guard.token();

  server_->signal(SIGSTOP);
  while (losses == 0 && since_boot() - begin < 20s) std::this_thread::sleep_for(1ms);
  const auto held = since_boot() - begin;
  server_->signal(SIGCONT);

  EXPECT_LT(held, 12s);
  EXPECT_EQ(reason, LossReason::deadline);
  // The renewals that hung now land, or fail. Neither revives the guard, or tells it twice.
  EXPECT_TRUE(client.ping({.timeout = 10s}));
  EXPECT_FALSE(guard.valid());
  EXPECT_EQ(guard.token(), token);
  EXPECT_EQ(losses, 1);
}

TEST_F(ClientAndServer, TellsAHolderThatItsLeaseWasRevoked) {
  Client client(options());
  Client admin(options());
  const auto guard = must_acquire(client, "job", {.ttl = 6s});

  ASSERT_TRUE(admin.revoke("job"));

  const auto begin = since_boot();
  while (!guard.stop_token().stop_requested() && since_boot() - begin < 20s) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(guard.loss(), LossReason::revoked) << "from the server, not by the deadline";
}

TEST_F(ClientAndServer, LetsTheTimesOfTwoHoldersNeverOverlap) {
  struct Held {
    std::chrono::nanoseconds from;
    std::chrono::nanoseconds until;
    Token token;
  };
  std::mutex mutex;
  std::vector<Held> all;
  std::vector<std::thread> workers;
  const auto begin = since_boot();
  const auto goes_on = [&] {
    if (since_boot() < begin + 2s) return true;
    const std::lock_guard lock(mutex);
    return all.size() <= 5 && since_boot() < begin + 60s;
  };

  for (int w = 0; w < 4; ++w) {
    workers.emplace_back([&, w] {
      Client client(options());
      while (goes_on()) {
        auto guard = LeaseGuard::try_acquire(client, "job", {.ttl = 60ms});
        if (!guard || !*guard) continue;
        Held held{since_boot(), {}, (*guard)->token()};
        // Every other holder sleeps over its end, as a frozen process would.
        const auto stay = w % 2 == 0 ? 20ms : 90ms;
        while (since_boot() - held.from < stay) {
          const auto now = since_boot();
          if ((*guard)->valid()) held.until = now;
        }
        if (held.until.count() == 0) continue;
        const std::lock_guard lock(mutex);
        all.push_back(held);
      }
    });
  }
  for (auto& worker : workers) worker.join();

  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.from < b.from; });
  ASSERT_GT(all.size(), 5U);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LE(all[i - 1].until, all[i].from);
    EXPECT_LT(all[i - 1].token, all[i].token);
  }
}

TEST_F(ClientAndServer, KeepsALeaseAgainstManyWhoAskForIt) {
  Client client(options());
  const auto guard = must_acquire(client, "job", {.ttl = 1s});
  std::atomic<int> granted = 0;
  std::atomic<int> asked = 0;
  std::vector<std::thread> others;
  const auto begin = since_boot();
  for (int i = 0; i < 16; ++i) {
    others.emplace_back([&] {
      Client other(options());
      while (since_boot() < begin + 3s || (asked <= 100 && since_boot() < begin + 60s)) {
        const auto taken = LeaseGuard::try_acquire(other, "job", {.ttl = 1s});
        // What counts: whoever gets it does so after the holder was told.
        if (taken && *taken && guard.valid()) ++granted;
        ++asked;
      }
    });
  }
  for (auto& other : others) other.join();

  EXPECT_EQ(granted, 0);
  EXPECT_GT(asked, 100);
}

TEST_F(ClientAndServer, AnswersARetryUnderTheSameRequestAsItAnsweredFirst) {
  // Between client and server: whatever the first connection is answered gets lost.
  FakeServer proxy([&](FakeSession& session, int number) {
    session.greet();
    RawClient server(port_);
    while (auto words = session.read()) {
      server.send(request(*words));
      const auto reply = server.receive();
      if (number == 0) return;
      session.write(reply);
    }
  });
  Client direct(options());
  const auto grant = value_of(direct.acquire("job", "me", 60s));
  auto through_proxy = options();
  through_proxy.port = proxy.port();
  Client client(through_proxy);
  const WriteOptions once{.lease = "job", .if_version = 0, .request = "r-1"};

  const auto first = client.set("k", "v", grant->token, once);
  const auto second = client.set("k", "v", grant->token, once);

  EXPECT_EQ(code_of(first), Errc::in_doubt);
  EXPECT_EQ(value_of(second), 1U) << "not VERSION: it is the same request";
  EXPECT_EQ(value_of(direct.describe("k")).version, 1U);
}

TEST_F(ClientAndServer, KnowsWhatItDidNotSendToAServerThatIsGone) {
  Client client(options());
  ASSERT_TRUE(client.ping());

  end(SIGKILL);

  // The first may be sent into the broken connection; after that the client knows.
  static_cast<void>(client.set("k", "v", Token{1}));
  EXPECT_EQ(code_of(client.set("k", "v", Token{1})), Errc::unreachable);
  start();
  EXPECT_EQ(value_of(client.get("k")), std::nullopt);
}

// C6: the server's state was made anew, and clients with old handles froze or got odd errors.
TEST_F(ClientAndServer, TellsAnOldHolderOfADirectoryThatWasDeletedThatAllIsAnother) {
  Client client(options());
  const auto incarnation = [&client] {
    const auto text = value_of(client.call({"INFO", "fencekv"})).text;
    const auto begin = text.find("incarnation:");
    EXPECT_NE(begin, std::string::npos) << text;
    return text.substr(begin, text.find('\r', begin) - begin);
  };
  const auto before = incarnation();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(value_of(client.acquire(std::to_string(i), "me", 60s)));
  const auto token = value_of(client.acquire("job", "me", 60s))->token;
  ASSERT_EQ(value_of(client.set("k", "v", token, {.lease = "job"})), 1U);

  end(SIGTERM);
  std::filesystem::remove_all(directory_.path() / "store");
  start();

  EXPECT_NE(incarnation(), before);
  EXPECT_EQ(value_of(client.get("k")), std::nullopt);
  // Each is told within one round trip, and nothing of it lands.
  const auto expect_all_refused = [&] {
    const auto renewed = client.renew("job", "me", token, 60s);
    ASSERT_FALSE(renewed);
    EXPECT_EQ(renewed.error().line(), "LEASELOST unknown");
    const auto released = client.release("job", "me", token);
    ASSERT_FALSE(released);
    EXPECT_EQ(released.error().line(), "LEASELOST unknown");
    EXPECT_EQ(code_of(client.set("k", "late", token)), Errc::unissued);
    EXPECT_EQ(value_of(client.get("k")), std::nullopt);
  };
  expect_all_refused();
  EXPECT_EQ(code_of(client.set("k", "late", token, {.lease = "job"})), Errc::no_lease);

  // The next holder's token is below the old one, which is refused all the same.
  const auto next = value_of(client.acquire("job", "next", 60s));
  ASSERT_TRUE(next);
  EXPECT_LT(next->token, token);
  expect_all_refused();
  EXPECT_EQ(code_of(client.set("k", "late", token, {.lease = "job"})), Errc::unissued);
  EXPECT_EQ(value_of(client.set("k", "w", next->token, {.lease = "job"})), 1U);
}

TEST_F(ClientAndServer, AuthenticatesOverAUnixSocket) {
  end(SIGTERM);
  const auto password_file = (directory_.path() / "password").string();
  const auto path = (directory_.path() / "socket").string();
  std::ofstream(password_file) << "correct horse\n";
  ::chmod(password_file.c_str(), 0600);
  start({"--unix", path, "--password-file", password_file});

  const auto right = Client::connect({.unix_path = path, .password = "correct horse"});
  const auto wrong = Client::connect({.unix_path = path, .password = "battery staple"});
  const auto none = Client::connect({.unix_path = path});

  EXPECT_TRUE(right) << right.error().line();
  EXPECT_EQ(code_of(wrong), Errc::denied);
  EXPECT_EQ(code_of(none), Errc::denied);
}

}  // namespace
}  // namespace fencekv::testing
