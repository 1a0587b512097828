// SPDX-License-Identifier: Apache-2.0
/// A page of the leases is at one point in time, whatever goes on while it is read
/// (fencekv/store.h, server/PROTOCOL.md), on every kind of world.

#include "tests/contract/store_contract.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>

namespace fencekv::testing {
namespace {

using Steady = std::chrono::steady_clock;

// A page is in the order of the names. So the lease that is taken last is looked at first, and
// those between them make the way to the other one long enough for something to happen.
constexpr const char* kTakenFirst = "z";
constexpr const char* kTakenLast = "a";
constexpr const char* kHandedOver = "lease";
constexpr int kBetween = 150;
constexpr std::size_t kWholePage = 1000;
/// That many pages are to show something that could be wrong.
constexpr int kPages = 100;
constexpr int kSmallPages = 1000;

class ListingContract : public StoreContract {
 protected:
  void SetUp() override {
    options().durability = Durability::process;
    // So that the waits of a test that fails end.
    options().clock = system_clock();
  }
  ~ListingContract() override { stop(); }

  /// Runs until stop(); what it throws is a failure of the test.
  template <class Work>
  void meanwhile(Work work) {
    threads_.emplace_back([this, work = std::move(work)]() mutable {
      try {
        for (std::uint64_t round = 0; !is_over_; ++round) work(round);
      } catch (const std::exception& failed) {
        ADD_FAILURE() << failed.what();
      }
    });
  }
  void stop() {
    is_over_ = true;
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  void hold_what_is_between() {
    for (int i = 0; i < kBetween; ++i) hold("m" + std::to_string(i), "me", 1h);
  }

  static const LeaseState* find(const std::vector<LeaseState>& page, std::string_view name) {
    const auto found = std::find_if(page.begin(), page.end(),
                                    [name](const auto& lease) { return lease.name == name; });
    return found == page.end() ? nullptr : &*found;
  }
  static bool is_held(const LeaseState* lease) {
    return lease != nullptr && !lease->holders.empty();
  }
  static std::string holder_of(const LeaseState* lease) {
    return is_held(lease) ? lease->holders.front().client : "nobody";
  }

 private:
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;
};

// Both end in the same moment, with the session. Sessions were looked at record by record once: the
// page then showed the one as held, and the other, which was taken before it, as free.
TEST_P(ListingContract, NoPageShowsHalfOfWhatEndsWithASession) {
  hold_what_is_between();
  meanwhile([this](std::uint64_t round) {
    auto& user = world().add_user("holder-" + std::to_string(round));
    for (const auto* name : {kTakenFirst, kTakenLast}) {
      const auto grant = user.ask(make_acquire(name, "owner-" + std::to_string(round), 1h,
                                               {.wait = kPatience, .bind = true}));
      if (!grant || !*grant) throw std::runtime_error(std::string(name) + ": " + outcome(grant));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(round * 37 % 1500));
    user.leave();
  });

  int held = 0;
  for (const auto end = Steady::now() + kPatience; held < kPages && Steady::now() < end;) {
    const auto page = world().page_of_leases(kWholePage);
    ASSERT_OK(page);
    const auto* last = find(*page, kTakenLast);
    if (!is_held(last)) continue;
    ++held;
    ASSERT_EQ(holder_of(find(*page, kTakenFirst)), holder_of(last));
  }
  EXPECT_GT(held, 0) << "no page showed anything";
}

// Whoever waits for it is granted it with the release of the one before, and then nobody waits. The
// storage shows a group a moment before it is known who waits no more.
TEST_P(ListingContract, NoPageShowsAQueueOfAnotherMomentThanItsHolder) {
  auto& first = new_user();
  auto& second = new_user();
  meanwhile([&](std::uint64_t round) {
    const auto release = [](User& user, const char* owner, const Result<Reply>& granted) {
      if (!granted) throw std::runtime_error("not granted: " + outcome(granted));
      const auto& grant = std::get<Acquire::Reply>(*granted);
      if (!grant) throw std::runtime_error("not granted in time");
      const auto released =
          user.ask(Release{.name = kHandedOver, .owner = owner, .token = grant->token});
      if (!released) throw std::runtime_error("not released: " + outcome(released));
    };
    const auto held = first.run(Command(make_acquire(kHandedOver, "first", 1h, {})));
    const auto waiting =
        second.submit(Command(make_acquire(kHandedOver, "second", 1h, {.wait = kPatience})));
    std::this_thread::sleep_for(std::chrono::microseconds(round * 37 % 500));
    release(first, "first", held);
    const auto handed_over = waiting.answer->wait();
    if (!handed_over) throw std::runtime_error("no answer came");
    release(second, "second", *handed_over);
  });

  int queues = 0;
  for (const auto end = Steady::now() + kPatience; queues < kSmallPages && Steady::now() < end;) {
    const auto page = world().page_of_leases(10);
    ASSERT_OK(page);
    const auto* lease = find(*page, kHandedOver);
    if (lease == nullptr || lease->waiters == 0) continue;
    ++queues;
    ASSERT_EQ(lease->waiters, 1U);
    ASSERT_TRUE(is_held(lease)) << "one waits for nobody";
    ASSERT_EQ(lease->holders.front().owner, owner_fingerprint("first"));
  }
  EXPECT_GT(queues, 0) << "no page showed anything";
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, ListingContract, ::testing::ValuesIn(every_world()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fencekv::testing
