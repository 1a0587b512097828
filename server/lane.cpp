// SPDX-License-Identifier: Apache-2.0

#include "server/lane.h"

#include <boost/asio/post.hpp>

#include <utility>

namespace fencekv::server {

namespace net = boost::asio;

namespace {

constexpr std::size_t kChunkBytes = std::size_t{64} * 1024;

/// How long the disk may hold up the loop. A commit takes less, but for the worst moments of a
/// disk.
constexpr std::chrono::milliseconds kPatience{50};

std::chrono::nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

}  // namespace

Lane::Lane(Store& store, std::size_t lead_most)
    : store_(store),
      lead_most_(lead_most),
      work_(net::make_work_guard(context_)),
      chunk_(kChunkBytes, '\0') {}

Lane::~Lane() {
  join();
}

void Lane::submit(Submission submission) {
  submissions_.push_back(std::move(submission));
  // Behind the handlers of all that has arrived by now.
  if (submissions_.size() == 1) net::post(context_, [this] { hand_over(); });
}

void Lane::hand_over() {
  // Of this thread alone: it may have lost the loop when the store is done.
  auto submissions = std::exchange(submissions_, std::exchange(spare_, {}));
  if (lead_most_ == 0) {
    store_.enqueue(submissions, 0);
  } else {
    // What is answered meanwhile needs no message: this thread looks at it afterwards.
    Answered* none = nullptr;
    answered_.compare_exchange_strong(none, &looks_anyway_);
    auto since = now();
    in_store_since_ = since;
    store_.enqueue(submissions, lead_most_);
    if (!in_store_since_.compare_exchange_strong(since, {})) throw Superseded();
    tell_all();
  }
  spare_ = std::move(submissions);
}

void Lane::tell(Answered& answered) {
  auto* newest = answered_.load(std::memory_order_relaxed);
  do {
    answered.next_answered_ = newest;
  } while (!answered_.compare_exchange_weak(newest, &answered, std::memory_order_release,
                                            std::memory_order_relaxed));
  if (newest == nullptr) net::post(context_, [this] { tell_all(); });
}

void Lane::tell_all() {
  auto* newest = answered_.exchange(nullptr, std::memory_order_acquire);
  Answered* oldest = nullptr;
  while (newest != nullptr) {
    auto* older = std::exchange(newest->next_answered_, oldest);
    oldest = std::exchange(newest, older);
  }
  while (oldest != nullptr) {
    // It may end with being told.
    auto* next = std::exchange(oldest->next_answered_, nullptr);
    oldest->on_answered();
    oldest = next;
  }
}

void Lane::run() {
  try {
    context_.run();
  } catch (const Superseded&) {
    // What the store answered on this thread lies in the loop's queue, and its new thread may
    // sleep.
    net::post(context_, [] {});
  }
}

void Lane::poll() {
  context_.restart();
  context_.poll();
}

void Lane::look() {
  auto since = in_store_since_.load();
  if (since.count() == 0 || now() - since < kPatience) return;
  const std::lock_guard lock(mutex_);
  // No two commits begin at the same time, so this is still the one that takes so long.
  if (!in_store_since_.compare_exchange_strong(since, {})) return;
  successors_.emplace_back([this] {
    // From here on, what is answered needs a message.
    net::post(context_, [this] { tell_all(); });
    run();
  });
}

void Lane::join() {
  while (true) {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      threads.swap(successors_);
    }
    if (threads.empty()) return;
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace fencekv::server
