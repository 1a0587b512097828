// SPDX-License-Identifier: Apache-2.0

#include "server/client.h"

#include "server/commands/command.h"

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <utility>

namespace fencekv::server {

std::string_view to_string(Wait wait) {
  switch (wait) {
    case Wait::none:
      return "nothing";
    case Wait::authentication:
      return "it did not authenticate in time";
    case Wait::command:
      return "its command did not arrive in full in time";
    case Wait::write:
      return "it does not read its replies";
    case Wait::idle:
      return "it was idle for too long";
    case Wait::closing:
      return "it does not close its side";
  }
  return "nothing";
}

Client::Client(std::uint64_t number, std::string peer_address, std::string local_address)
    : id(number),
      peer(std::move(peer_address)),
      local(std::move(local_address)),
      shown_(std::make_shared<const std::string>(peer)),
      active_(connected.time_since_epoch().count()),
      deadline_(MonotonicTime::max().time_since_epoch().count()) {}

std::string Client::name() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

void Client::set_name(std::string_view name) {
  // A new string: the store may still hold the old one for commands under way.
  shown_ =
      std::make_shared<const std::string>(name.empty() ? peer : fmt::format("{}@{}", name, peer));
  const std::lock_guard lock(mutex_);
  name_ = name;
}

void Client::set_library(std::string_view name) {
  const std::lock_guard lock(mutex_);
  library_ = name;
}

void Client::set_library_version(std::string_view version) {
  const std::lock_guard lock(mutex_);
  library_version_ = version;
}

void Client::starts(const CommandSpec& command) {
  last_command_.store(&command, std::memory_order_relaxed);
}

void Client::set_deadline(Wait wait, MonotonicTime until) {
  // Every wait begins with this call, so it also marks the newest activity.
  active_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                std::memory_order_relaxed);
  wait_.store(wait, std::memory_order_relaxed);
  deadline_.store(until.time_since_epoch().count(), std::memory_order_release);
}

Wait Client::overdue(MonotonicTime now) const {
  if (now.time_since_epoch().count() < deadline_.load(std::memory_order_acquire)) return Wait::none;
  return wait_.load(std::memory_order_relaxed);
}

std::string Client::describe(MonotonicTime now) const {
  const auto seconds = [](MonotonicTime::duration span) {
    return std::chrono::duration_cast<std::chrono::seconds>(span).count();
  };
  const MonotonicTime active(MonotonicTime::duration(active_.load(std::memory_order_relaxed)));
  const CommandSpec* last = last_command_.load(std::memory_order_relaxed);

  const std::lock_guard lock(mutex_);
  return fmt::format(
      "id={} addr={} laddr={} name={} age={} idle={} flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 "
      "cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}",
      id, peer, local, name_, seconds(now - connected), seconds(now - active),
      last != nullptr ? last->name : "NULL", static_cast<int>(protocol.load()), library_,
      library_version_);
}

bool Clients::try_reserve() {
  if (reserved_.fetch_add(1) < max_) return true;
  reserved_.fetch_sub(1);
  return false;
}

std::size_t Clients::size() const {
  return reserved_.load();
}

void Clients::enter(Client& client, SessionControl& control,
                    boost::asio::any_io_executor executor) {
  const std::lock_guard lock(mutex_);
  entries_.emplace(client.id, Entry{&client, &control, std::move(executor)});
}

void Clients::leave(std::uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    entries_.erase(id);
  }
  reserved_.fetch_sub(1);
}

std::string Clients::describe(const std::function<bool(const Client&)>& wanted) const {
  const auto now = std::chrono::steady_clock::now();
  std::string lines;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (!wanted(*entry.client)) continue;
    lines += entry.client->describe(now);
    lines += '\n';
  }
  return lines;
}

std::size_t Clients::hang_up(const std::function<bool(const Client&)>& wanted) {
  std::size_t count = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (!wanted(*entry.client)) continue;
    post_hang_up(entry);
    ++count;
  }
  return count;
}

void Clients::hang_up_overdue(MonotonicTime now,
                              const std::function<void(const Client&, Wait)>& log) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    const Wait wait = entry.client->overdue(now);
    if (wait == Wait::none) continue;
    // A peer that keeps its side open after our good-bye is no news.
    if (wait != Wait::closing) log(*entry.client, wait);
    entry.client->clear_deadline();
    post_hang_up(entry);
  }
}

void Clients::drain_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    boost::asio::post(entry.executor, [this, id = id] {
      const std::lock_guard relock(mutex_);
      if (const auto found = entries_.find(id); found != entries_.end()) {
        found->second.control->begin_drain();
      }
    });
  }
}

// By way of the session's own thread, and by its id: it may have left meanwhile. A session leaves
// under the same mutex, so what was found stays until the call returns.
void Clients::post_hang_up(const Entry& entry) {
  boost::asio::post(entry.executor, [this, id = entry.client->id] {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(id); found != entries_.end()) {
      found->second.control->hang_up();
    }
  });
}

}  // namespace fencekv::server
