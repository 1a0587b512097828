// SPDX-License-Identifier: Apache-2.0
/// What the lease service must do, written as plainly as possible: maps, one command at a time,
/// time as a number that moves between commands, nothing that can fail. It shares no line with the
/// engine's rules.
///
/// At every moment everything that is due has happened: first what is over by the clock, then the
/// waits whose time is over, then the grants to those who wait. A store may notice such things
/// late; nobody can tell.
///
/// Tokens that are drawn in one step are provisional: between names their order is the store's
/// choice. settle() replaces them by those that the store answered.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fencekv::testing {

class LeaseModel {
 public:
  using Milliseconds = std::int64_t;
  using User = std::uint64_t;
  using Number = std::uint64_t;  ///< Of a command that may wait, in the order of their arrival.

  enum class Mode { exclusive, shared, permit };

  /// An acquire, of one name or, with `many`, of a set.
  struct Ask {
    std::vector<std::string> names;
    bool many = false;
    std::string owner;
    Milliseconds ttl = 0;
    Milliseconds wait = 0;
    Mode mode = Mode::exclusive;
    std::uint64_t permits = 0;
    bool bind = false;
    std::optional<Milliseconds> delay{};
    std::optional<std::string> payload{};
    User user = 0;
  };

  /// `text` leaves out the token, so that an answer can be compared before the token is known.
  struct Answer {
    std::string text;
    std::uint64_t token = 0;

    friend bool operator==(const Answer&, const Answer&) = default;
  };

  struct Event {
    std::string change;
    std::string name;
    std::uint64_t token = 0;

    friend auto operator<=>(const Event&, const Event&) = default;
  };

  struct Grant {
    std::uint64_t token = 0;
    std::string owner;
    Mode mode = Mode::exclusive;
    Milliseconds ttl = 0;
    Milliseconds deadline = 0;
    Milliseconds delay = 0;
    std::optional<std::string> payload;
    bool bound = false;
    User user = 0;
    std::string ended;  ///< How; empty: it is held.
  };

  struct Name {
    std::uint64_t fence = 0;
    std::vector<Grant> holders;  ///< In the order of their tokens.
    std::optional<Grant> last;   ///< The newest grant, once it has ended.
    std::uint64_t permits = 0;   ///< Of the holders, if they have permits.
    Milliseconds blocked_until = 0;
    Milliseconds block = 0;  ///< How long that was altogether.
  };

  struct Waiter {
    Ask ask;
    Milliseconds since = 0;
  };

  // Commands. Those that may wait take their number, and answer nothing if they wait; what they
  // answer in the end is in ended().
  std::optional<Answer> acquire(const Ask& ask, Number number);
  std::optional<Answer> await(const std::string& name, std::uint64_t token, Milliseconds timeout,
                              User user, Number number);
  std::string renew(const std::string& name, const std::string& owner, std::uint64_t token,
                    Milliseconds ttl);
  std::string release(const std::string& name, const std::string& owner, std::uint64_t token);
  std::string revoke(const std::string& name);
  void watch(User user, const std::vector<std::string>& names);
  void unwatch(User user) { watches_.erase(user); }
  /// The wait is over as if its time were.
  void cancel(Number number);
  /// The user's waits end; the user is still there.
  void end_waits(User user);
  /// The user is gone, and with it its waits, its bound leases and its watches.
  void disconnect(User user);

  void advance(Milliseconds step);
  /// The process ends, and all users at once with it. In the same boot nothing else changes.
  void restart();
  /// restart(), and another boot: what is held gets its ttl again, what is blocked its block.
  void reboot();
  /// restart() after the process was gone for so long. What was bound ended with it, whether or not
  /// its time was over meanwhile.
  void restart_after(Milliseconds down);
  /// Tokens below `floor` are refused from here on, and their grants are over without a word.
  /// `newest`: of the tokens that may have been handed out.
  void lift_floor(std::uint64_t floor, std::uint64_t newest);
  /// Names that nobody needs any more, below the floor, are forgotten. Returns how many.
  std::uint64_t reclaim();
  /// How the newest grant of `name` ended, where only the store can know.
  void learn_end(const std::string& name, const std::string& how);

  // What can be seen.
  std::string inspect(const std::string& name) const;
  std::string list_waiters(const std::string& name) const;
  /// Names that have a holder or a waiter.
  std::vector<std::string> listed() const;
  std::uint64_t names_granted() const;
  std::size_t waiting() const { return waiters_.size() + awaits_.size(); }
  bool is_waiting(Number number) const {
    return waiters_.contains(number) || awaits_.contains(number);
  }
  std::uint64_t newest() const { return newest_; }
  std::uint64_t floor() const { return floor_; }
  const std::map<std::string, Name>& names() const { return names_; }

  /// Why a token may not write under a lease; empty: it may.
  std::string write_refusal(const std::string& name, std::uint64_t token, bool live) const;

  // What happened in this step.
  const std::map<Number, Answer>& ended() const { return ended_; }
  const std::vector<Event>& events(User user) { return events_[user]; }
  /// Ends the step. `actual` tells for each token that the model drew in it the one that the store
  /// drew. False: their order on one name is another.
  bool settle(const std::map<std::uint64_t, std::uint64_t>& actual);
  /// To be called before settle() to compare events.
  static std::vector<Event> with_tokens(std::vector<Event> events,
                                        const std::map<std::uint64_t, std::uint64_t>& actual);

 private:
  struct Awaiting {
    std::string name;
    std::uint64_t token = 0;
    Milliseconds deadline = 0;
    User user = 0;
  };

  Grant* held_by(const std::string& name, const std::string& owner);
  std::optional<Answer> decide_for_holder(const Ask& ask, Number number);
  bool is_free_for(const Name& name, const Ask& ask) const;
  bool is_first(const std::string& name, Number number) const;
  std::size_t queue_length(const std::string& name) const;
  bool has_another_number_of_permits(const std::string& name, const Ask& ask) const;
  Answer reacquire(Grant& grant, const Ask& ask);
  Answer grant(const Ask& ask);
  void end(const std::string& name, std::size_t holder, const std::string& how, Milliseconds at);
  void drop_waits(User user);
  void end_bound(std::optional<User> user);
  void expire();
  void time_out();
  void hand_out();
  void decide_waits_of(const std::string& owner);
  void tell_awaiting(bool only_overdue);
  std::optional<Answer> await_answer(const Awaiting& await) const;
  std::string lost(const std::string& name, const std::string& owner, std::uint64_t token) const;
  void tell(const std::string& change, const std::string& name, std::uint64_t token);

  Milliseconds now_ = 0;
  Milliseconds boot_began_ = 0;
  std::uint64_t newest_ = 0;
  std::uint64_t floor_ = 0;
  std::map<std::string, Name> names_;
  std::map<Number, Waiter> waiters_;
  std::map<Number, Awaiting> awaits_;
  std::map<User, std::set<std::string>> watches_;
  std::map<Number, Answer> ended_;
  std::map<User, std::vector<Event>> events_;
};

std::string to_string(LeaseModel::Mode mode);

/// Several holders of one name may end at one moment, in any order: sorted, to be compared.
std::vector<LeaseModel::Event> normal(std::vector<LeaseModel::Event> events);
std::string to_string(const std::vector<LeaseModel::Event>& events);

}  // namespace fencekv::testing
