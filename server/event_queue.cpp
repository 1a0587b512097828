// SPDX-License-Identifier: Apache-2.0

#include "server/event_queue.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fencekv::server {

EventQueue::EventQueue(boost::asio::any_io_executor executor, std::function<void()> wake)
    : executor_(std::move(executor)), wake_(std::move(wake)) {}

void EventQueue::add(const LeaseEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    if (!open_) return;
    const std::size_t bytes = sizeof(LeaseEvent) + event.name.size();
    // Once full, it stays so until everything is taken: an event that slipped in behind a `missed`
    // of its name would be told before it.
    full_ = full_ || events_.size() >= kMaxEvents || bytes_ + bytes > kMaxBytes;
    if (!full_) {
      events_.push_back(event);
      bytes_ += bytes;
    } else if (const auto [found, is_new] = missed_at_.emplace(event.name, missed_.size());
               is_new) {
      missed_.push_back({LeaseChange::missed, event.name, event.token});
    } else {
      Token& newest = missed_[found->second].token;
      newest = std::max(newest, event.token);
    }
    if (std::exchange(announced_, true)) return;
  }
  boost::asio::post(executor_, [self = shared_from_this()] { self->announce(); });
}

void EventQueue::announce() {
  {
    const std::lock_guard lock(mutex_);
    announced_ = false;
  }
  if (wake_) wake_();
}

bool EventQueue::has_events() const {
  const std::lock_guard lock(mutex_);
  return !events_.empty() || !missed_.empty();
}

std::vector<LeaseEvent> EventQueue::take() {
  const std::lock_guard lock(mutex_);
  std::vector<LeaseEvent> taken = std::move(events_);
  taken.insert(taken.end(), std::make_move_iterator(missed_.begin()),
               std::make_move_iterator(missed_.end()));
  clear();
  return taken;
}

void EventQueue::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
}

void EventQueue::close() {
  const std::lock_guard lock(mutex_);
  open_ = false;
  clear();
}

void EventQueue::clear() {
  events_ = {};
  missed_ = {};
  missed_at_ = {};
  bytes_ = 0;
  full_ = false;
}

void EventQueue::disconnect() {
  close();
  wake_ = nullptr;
}

}  // namespace fencekv::server
