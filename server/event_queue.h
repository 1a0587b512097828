// SPDX-License-Identifier: Apache-2.0
/// What a connection that watches leases has still to be told.

#pragma once

#include "fencekv/types.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencekv::server {

/// Stands between the threads of the store, which must not wait, and one connection, whose client
/// may be slow.
///
/// Memory: kMaxEvents and kMaxBytes at most. What comes when it is full is told as one `missed`
/// for each name, which costs no more than the names that are watched.
///
/// Thread safety: add() may be called on any thread, the others on the thread of `executor`.
/// Lifetime: shared by the connection and the store, and by messages between their threads. After
///     disconnect() it touches nothing of the connection.
class EventQueue : public std::enable_shared_from_this<EventQueue> {
 public:
  static constexpr std::size_t kMaxEvents = 1024;
  static constexpr std::size_t kMaxBytes = std::size_t{1024} * 1024;

  /// `wake` is called on `executor` when there is something to take.
  EventQueue(boost::asio::any_io_executor executor, std::function<void()> wake);

  /// Dropped while the queue is closed, as it is in the beginning.
  void add(const LeaseEvent& event);

  bool has_events() const;
  /// All there is, in order; each `missed` stands behind what was told of its name before, with
  /// the newest token that it covers.
  std::vector<LeaseEvent> take();

  void open();
  /// Drops what is there and what comes.
  void close();
  void disconnect();

 private:
  void clear();
  void announce();

  const boost::asio::any_io_executor executor_;
  std::function<void()> wake_;  // the executor's thread only
  mutable std::mutex mutex_;
  bool open_ = false;                                              // guarded by mutex_
  bool announced_ = false;                                         // guarded by mutex_
  bool full_ = false;                                              // guarded by mutex_
  std::size_t bytes_ = 0;                                          // guarded by mutex_
  std::vector<LeaseEvent> events_;                                 // guarded by mutex_
  std::vector<LeaseEvent> missed_;                                 // guarded by mutex_
  boost::unordered_flat_map<std::string, std::size_t> missed_at_;  // guarded by mutex_
};

}  // namespace fencekv::server
