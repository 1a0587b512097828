// SPDX-License-Identifier: Apache-2.0
#include "engine/core/committer.h"

#include "engine/core/overloaded.h"
#include "engine/core/owner.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <type_traits>
#include <utility>

namespace fencekv::core {
namespace {

// A group is cut here, so that its first command does not wait for a long tail, and a batch stays
// far below what one RocksDB write may be.
constexpr std::size_t kGroupCommands = 4096;
constexpr std::size_t kGroupBytes = std::size_t{8} * 1024 * 1024;

// The longest sleep while something is due later. A condition variable counts on a clock that stops
// while the machine is suspended, and leases do not.
constexpr std::chrono::milliseconds kLongestSleep{20};

constexpr std::chrono::milliseconds kFirstBackOff{100};
constexpr std::chrono::milliseconds kLastBackOff{5000};

// How often it is looked whether there is space again.
constexpr std::chrono::milliseconds kSpaceCheck{300};

std::size_t size_of(const std::vector<std::string>& strings) {
  std::size_t bytes = 0;
  for (const auto& string : strings) bytes += sizeof(std::string) + string.size();
  return bytes;
}

std::size_t size_of(const std::vector<Holding>& grants) {
  std::size_t bytes = 0;
  for (const auto& grant : grants) {
    bytes += sizeof(Holding) + grant.name.size() + grant.owner.size();
  }
  return bytes;
}

/// What a command occupies while it waits, in bytes, but for what the limits keep small.
std::size_t weight(const Command& command) {
  const auto more = std::visit(
      Overloaded{
          [](const Write& write) {
            std::size_t bytes = 0;
            for (const auto& entry : write.entries) {
              bytes += sizeof(entry) + entry.key.size() + (entry.value ? entry.value->size() : 0);
            }
            return bytes;
          },
          [](const Read& read) { return size_of(read.keys); },
          [](const AcquireMany& acquire) { return size_of(acquire.names); },
          [](const RenewMany& renew) { return size_of(renew.grants); },
          [](const ReleaseMany& release) { return size_of(release.grants); },
          [](const Watch& watch) { return size_of(watch.names); },
          [](const auto&) { return std::size_t{0}; },
      },
      command);
  return sizeof(Command) + more;
}

Error overloaded() {
  return {Errc::overloaded, "too many commands are waiting; not executed"};
}

Error in_doubt() {
  return {Errc::in_doubt,
          "the storage failed while this was written: it happened in full or not at all"};
}

/// A caller that waits for its answer.
struct Waiter {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Result<Reply>> reply;  // guarded by mutex

  void answer(Result<Reply> result) {
    // Told under the lock: once it is given up, the waiter may be gone.
    const std::lock_guard lock(mutex);
    reply = std::move(result);
    answered.notify_one();
  }

  Result<Reply> wait() {
    std::unique_lock lock(mutex);
    answered.wait(lock, [this] { return reply.has_value(); });
    return *std::move(reply);
  }
};

}  // namespace

/// Notes since when the storage has been at work, for as long as it lives.
class Committer::Busy {
 public:
  explicit Busy(std::atomic<std::chrono::nanoseconds>& since) : since_(since) {
    since_ = std::chrono::steady_clock::now().time_since_epoch();
  }
  ~Busy() { since_ = std::chrono::nanoseconds(0); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<std::chrono::nanoseconds>& since_;
};

Committer::Committer(Backend& backend, const Options& options, RejectionLog& rejections)
    : backend_(backend),
      options_(options),
      policy_{.unguarded_tokens = options.unguarded_tokens,
              .max_value_bytes = options.max_value_bytes,
              .max_waiting = options.max_waiting},
      rejections_(rejections),
      boot_id_(options.clock->boot_id()),
      memory_(options),
      reads_(shares_of(options).records) {}

Committer::~Committer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  {
    // What is queued still when there is no own thread.
    Lock lock(mutex_);
    while (!queue_.empty()) work_once(lock, false);
  }

  for (const auto& [ticket, done] : waiting_) {
    done(Error(Errc::unreachable, "the store is closed; nothing was acquired"));
  }
  // A store whose last group is in doubt has no clean end: the next opening finds out.
  if (epoch_ == 0 || (suspended_ && !lacks_space_)) return;
  Group last(backend_, memory_, meta_, rejections_);
  // The clock goes along, so that a lease whose time is over now stays over after a reboot.
  const auto& batch = last.batch(epoch_, moment().since_boot);
  if (backend_.commit(batch) == Outcome::committed) backend_.close(meta_.allocator.newest);
}

Result<void> Committer::open(OwnThread own_thread) {
  auto meta = load_meta();
  if (!meta) return meta.error();
  const bool is_new = meta->position.n == 0;
  if (is_new) memory_.places.set_complete();
  meta_ = *std::move(meta);
  // For readers, until become_writer() makes it durable.
  auto identity = *meta_.identity;
  identity.boots.enter(boot_id_, moment().since_boot, meta_.position.clock);
  meta_.identity = std::make_shared<const IdentityRecord>(std::move(identity));

  if (auto writer = become_writer(); !writer) {
    if (is_new || writer.error().code() != Errc::misconf) return writer;
    suspend(writer.error().detail());
  } else if (const auto space = backend_.space(moment().since_boot);
             space.level == SpaceLevel::out) {
    suspend_for_space(space);
  }
  if (own_thread == OwnThread::yes) thread_ = std::thread([this] { work(); });
  return {};
}

Ticket Committer::enqueue(Command command, Done done, Caller caller) {
  const auto bytes = weight(command);
  Operation operation{.task = std::move(command),
                      .done = std::move(done),
                      .caller = std::move(caller),
                      .bytes = bytes,
                      .ticket = 0};
  {
    const std::lock_guard lock(mutex_);
    if (has_room_locked(bytes)) {
      const auto ticket = add_locked(operation);
      wake_.notify_one();
      return ticket;
    }
  }
  operation.done(overloaded());
  return 0;
}

void Committer::enqueue(std::vector<Submission>& submissions, std::size_t lead_most) {
  std::size_t taken = 0;
  {
    Lock lock(mutex_);
    for (auto& [command, done, caller] : submissions) {
      const auto bytes = weight(command);
      if (!has_room_locked(bytes)) break;
      Operation operation{.task = std::move(command),
                          .done = std::move(done),
                          .caller = std::move(caller),
                          .bytes = bytes,
                          .ticket = 0};
      try {
        add_locked(operation);
      } catch (const std::bad_alloc&) {
        done = std::move(operation.done);
        break;
      }
      ++taken;
    }
    if (!leading_ && !suspended_ && !stopping_ && queued_ <= lead_most) {
      lead_some(lock, lead_most);
    } else if (!leading_) {
      wake_.notify_one();
    }
  }
  for (; taken < submissions.size(); ++taken) submissions[taken].done(overloaded());
  submissions.clear();
}

Result<Reply> Committer::run(Command command, Caller caller, std::stop_token cancel) {
  const auto bytes = weight(command);
  return run_task(std::move(command), bytes, std::move(caller), cancel);
}

Result<Reply> Committer::run_task(Task task, std::size_t bytes, Caller caller,
                                  const std::stop_token& cancel) {
  Waiter waiter;
  Operation operation{.task = std::move(task),
                      .done = [&waiter](Result<Reply> reply) { waiter.answer(std::move(reply)); },
                      .caller = std::move(caller),
                      .bytes = bytes,
                      .ticket = 0};
  Ticket ticket = 0;
  {
    Lock lock(mutex_);
    if (!has_room_locked(operation.bytes)) return overloaded();
    ticket = add_locked(operation);
    if (!leading_) {
      leading_ = true;
      while (!queue_.empty() && queue_.front().operations.front().ticket <= ticket) {
        lead_group(lock);
      }
      leading_ = false;
      // The own thread may have a recovery to do, too, and waits for the lead.
      if (!queue_.empty() || suspended_ || more_is_due_) wake_.notify_one();
    }
  }
  const std::stop_callback on_cancel(cancel, [this, ticket] { this->cancel(ticket); });
  return waiter.wait();
}

Result<void> Committer::lift_floor(Token floor) {
  const auto lifted = run_task(LiftFloor{floor}, 0, {}, {});
  if (!lifted) return lifted.error();
  return {};
}

Result<Reclaimed> Committer::reclaim(std::vector<std::string> keys,
                                     std::vector<std::string> names) {
  Reclaimed reclaimed;
  const auto bytes = size_of(keys) + size_of(names);
  const auto done =
      run_task(Reclaim{.keys = std::move(keys), .names = std::move(names), .reclaimed = &reclaimed},
               bytes, {}, {});
  if (!done) return done.error();
  return reclaimed;
}

/// Can it be done while the storage takes no writes?
bool Committer::only_looks(const Task& task) {
  return std::visit(Overloaded{
                        [](const Command& command) { return is_read(command); },
                        [](const CancelWait&) { return true; },
                        [](const EndSession&) { return true; },
                        [](const auto&) { return false; },
                    },
                    task);
}

/// Is it refused while space is low? What ends or keeps a lease, or deletes, is not: it lets space
/// be won. Neither is what is known to answer without a write.
bool Committer::makes_keys_grow(const Task& task) {
  const auto* command = std::get_if<Command>(&task);
  if (command == nullptr) return false;
  return std::visit(Overloaded{
                        [](const Write& write) {
                          return std::any_of(
                              write.entries.begin(), write.entries.end(),
                              [](const auto& entry) { return entry.value.has_value(); });
                        },
                        [](const Raise&) { return true; },
                        [](const FencedRead&) { return true; },
                        [](const Reset&) { return true; },
                        [](const auto&) { return false; },
                    },
                    *command);
}

void Committer::cancel(Ticket ticket) {
  add(CancelWait{ticket});
}

std::uint64_t Committer::enter(Sessions::OnEvent on_event) {
  return memory_.sessions.enter(std::move(on_event));
}

void Committer::leave(std::uint64_t session) {
  memory_.sessions.leave(session);
  add(EndSession{session});
}

/// Ends are never refused: they make room.
void Committer::add(Task task) {
  Operation operation{.task = std::move(task), .done = {}, .caller = {}, .bytes = 0, .ticket = 0};
  const std::lock_guard lock(mutex_);
  add_locked(operation);
  wake_.notify_one();
}

bool Committer::has_room_locked(std::size_t bytes) const {
  return queued_ < options_.max_queued_commands &&
         queued_bytes_ + bytes <= options_.max_queued_bytes;
}

/// Takes the operation; if there is no memory for it, it is as it was.
Ticket Committer::add_locked(Operation& operation) {
  const bool needs_group = queue_.empty() || queue_.back().operations.size() == kGroupCommands ||
                           queue_.back().bytes + operation.bytes > kGroupBytes;
  if (needs_group) {
    auto operations = std::exchange(spare_, {});
    operations.reserve(1);
    queue_.push_back({.operations = std::move(operations), .bytes = 0});
  }
  auto& last = queue_.back();
  const auto bytes = operation.bytes;
  operation.ticket = newest_ticket_ + 1;
  last.operations.push_back(std::move(operation));
  last.bytes += bytes;
  queued_bytes_ += bytes;
  ++queued_;
  return ++newest_ticket_;
}

std::vector<Committer::Operation> Committer::take_group() {
  if (queue_.empty()) return {};
  auto group = std::move(queue_.front());
  queue_.pop_front();
  queued_ -= group.operations.size();
  queued_bytes_ -= group.bytes;
  return std::move(group.operations);
}

/// Nobody leads, and the caller does so as long as it is little. What comes meanwhile is brought by
/// others, so after a second group it is for the own thread.
void Committer::lead_some(Lock& lock, std::size_t most) {
  constexpr int kGroups = 2;

  leading_ = true;
  for (int groups = 0; groups < kGroups; ++groups) {
    if (queue_.empty() || queued_ > most || suspended_) break;
    lead_group(lock);
  }
  leading_ = false;
  // The own thread may have a recovery to do, too, and waits for the lead.
  if (!queue_.empty() || suspended_ || more_is_due_ || stopping_) wake_.notify_one();
}

/// Takes one group and answers it. The caller leads; the lock is given up meanwhile.
void Committer::lead_group(Lock& lock) {
  assert(leading_);
  auto operations = take_group();
  const bool is_suspended = suspended_.has_value();

  lock.unlock();
  {
    const Busy busy(busy_since_);
    if (is_suspended || !can_write()) {
      look_group(operations);
    } else {
      change_group(operations);
    }
  }
  // Closures and commands of this group go before the lock is taken again.
  operations.clear();
  lock.lock();
  if (operations.capacity() > spare_.capacity()) spare_.swap(operations);
}

/// Whether the storage takes a group now, as far as it can say beforehand.
bool Committer::can_write() {
  if (const auto failed = backend_.failed_behind()) {
    suspend("the storage failed: " + *failed);
    return false;
  }
  const auto space = backend_.space(moment().since_boot);
  space_ = space.level;
  if (space.level == SpaceLevel::low) scarce_ = describe(space);
  if (space.level != SpaceLevel::out) return true;
  suspend_for_space(space);
  return false;
}

Decision Committer::decide_one(Group& group, Operation& operation) {
  static const std::string kEmbedded = "embedded";
  const auto now = moment();
  return std::visit(Overloaded{
                        [&](Command& command) -> Decision {
                          const auto& caller = operation.caller;
                          const std::string& client = caller.name ? *caller.name : kEmbedded;
                          group.begin(client, now.wall);
                          const Asker asker{.client = client,
                                            .session = caller.session,
                                            .ticket = operation.ticket};
                          return decide(group, policy_, command, now, asker);
                        },
                        [&](const CancelWait& wait) -> Decision {
                          cancel_wait(group, wait.ticket, now);
                          return std::nullopt;
                        },
                        [&](const EndSession& end) -> Decision {
                          end_session(group, end.session, now);
                          return std::nullopt;
                        },
                        [&](const LiftFloor& lift) -> Decision {
                          group.lift_floor(lift.floor);
                          return Result<Reply>(std::monostate{});
                        },
                        [&](const Reclaim& task) -> Decision {
                          const auto some = core::reclaim(group, task.keys, task.names, now);
                          if (!some) return some.error();
                          *task.reclaimed = *some;
                          return Result<Reply>(std::monostate{});
                        },
                    },
                    operation.task);
}

/// After the storage was reopened: what those who wait and watch may have missed.
void Committer::catch_up(Group& group) {
  if (!std::exchange(look_again_, false)) return;
  for (const auto& name : std::exchange(unsure_, {})) {
    const auto lease = group.lease(name);
    const auto newest = lease && *lease != nullptr ? (*lease)->fence() : Token();
    group.happened({.change = LeaseChange::missed, .name = name, .token = newest});
  }
  look_everywhere(group, moment());
}

void Committer::change_group(std::vector<Operation>& operations) {
  Decisions decisions;
  decisions.reserve(operations.size());
  std::optional<Group> group;
  group.emplace(backend_, memory_, meta_, rejections_);
  catch_up(*group);
  const bool is_up_to_date = pass_time(*group, moment());
  for (auto& operation : operations) {
    const bool is_refused = space_ == SpaceLevel::low && makes_keys_grow(operation.task);
    decisions.push_back(is_refused ? Decision(Error(Errc::misconf, scarce_))
                                   : decide_one(*group, operation));
  }

  auto outcome = Outcome::committed;
  if (group->is_changed()) {
    const auto& batch = group->batch(epoch_, moment().since_boot);
    reads_.begin(batch);
    outcome = backend_.commit(batch);
    reads_.end(outcome);
  }
  auto answers = group->take_answers();
  if (outcome == Outcome::committed) {
    group->committed();
    park(operations, decisions);
    publish(&group->meta(), is_up_to_date);
    answer(operations, std::move(decisions));
    for (auto& [ticket, reply] : answers) answer_waiting(ticket, std::move(reply));
    tell(group->events());
    return;
  }

  // What was granted in the group may be there after the reopening, or not; who watches must look.
  for (const auto& happened : group->events()) unsure_.insert(happened.event.name);
  look_again_ = true;
  group.reset();
  auto refusal = Error(Errc::misconf, "the storage refused the write");
  if (outcome == Outcome::unknown) {
    suspend("a write to the storage failed");
    memory_.forget_records();
    refusal = in_doubt();
  }
  decide_again(operations, decisions, refusal);
  park(operations, decisions);
  publish(nullptr, outcome == Outcome::unknown);
  answer(operations, std::move(decisions));
  for (auto& [ticket, reply] : answers) {
    // That a wait ended with nothing is true whatever became of the group.
    const bool is_nothing =
        !reply || *reply == Reply(Acquire::Reply()) || *reply == Reply(Await::Reply());
    answer_waiting(ticket, is_nothing ? std::move(reply) : Result<Reply>(refusal));
  }
}

/// The group's reads have another answer when its changes have failed: what is committed.
void Committer::decide_again(std::vector<Operation>& operations, Decisions& decisions,
                             const Error& refusal) {
  Group group(backend_, memory_, meta_, rejections_, Group::Mode::look);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!decisions[i]) continue;
    const auto& task = operations[i].task;
    decisions[i] = only_looks(task) ? decide_one(group, operations[i]) : Decision(refusal);
  }
  // Of waits whose time is over by now.
  for (auto& [ticket, reply] : group.take_answers()) answer_waiting(ticket, std::move(reply));
}

/// A group while the storage takes no writes.
void Committer::look_group(std::vector<Operation>& operations) {
  const Error refusal(Errc::misconf,
                      refuses_writes().value_or("") + "; no writes until it has recovered");
  Group group(backend_, memory_, meta_, rejections_, Group::Mode::look);
  pass_time(group, moment());
  Decisions decisions;
  decisions.reserve(operations.size());
  for (auto& operation : operations) {
    const bool looks = only_looks(operation.task);
    decisions.push_back(looks ? decide_one(group, operation) : Decision(refusal));
  }
  park(operations, decisions);
  publish(nullptr, true);
  answer(operations, std::move(decisions));
  for (auto& [ticket, reply] : group.take_answers()) answer_waiting(ticket, std::move(reply));
}

/// Keeps commands that wait until they are answered.
void Committer::park(std::vector<Operation>& operations, const Decisions& decisions) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    auto& operation = operations[i];
    if (decisions[i] || !operation.done) continue;
    waiting_.emplace(operation.ticket, std::move(operation.done));
  }
}

/// Makes known what the group has left. `committed`: nullptr if nothing was.
void Committer::publish(const Meta* committed, bool is_up_to_date) {
  auto& waiters = memory_.waiters;
  const auto changed = waiters.take_changed_queues();
  auto due = waiters.next_end();

  const std::lock_guard lock(mutex_);
  if (committed != nullptr) meta_ = *committed;
  for (const auto& name : changed) {
    if (const auto length = waiters.queue_length(name); length > 0) {
      queues_.insert_or_assign(name, length);
    } else {
      queues_.erase(name);
    }
  }
  waiting_count_ = waiters.size();
  // While nothing can be changed, only waits end.
  const auto timer = suspended_ ? std::nullopt : waiters.next_timer();
  if (timer) due = due ? std::min(*due, *timer) : timer;
  next_due_ = due;
  more_is_due_ = !is_up_to_date;
  if (next_due_ && (!asleep_until_ || *next_due_ < *asleep_until_)) wake_.notify_one();
}

void Committer::answer(std::vector<Operation>& operations, Decisions decisions) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (decisions[i]) operations[i].done(*std::move(decisions[i]));
  }
}

void Committer::answer_waiting(Ticket ticket, Result<Reply> reply) {
  const auto waiting = waiting_.extract(ticket);
  assert(!waiting.empty());
  waiting.mapped()(std::move(reply));
}

void Committer::tell(const std::vector<Group::Happened>& events) {
  for (const auto& [event, watch] : events) {
    const auto* watchers = memory_.waiters.watchers(event.name);
    if (watchers == nullptr) continue;
    for (const auto& [session, since] : *watchers) {
      if (since <= watch) memory_.sessions.tell(session, event);
    }
  }
}

Meta Committer::meta() const {
  const std::lock_guard lock(mutex_);
  return meta_;
}

std::optional<std::string> Committer::refuses_writes() const {
  const std::lock_guard lock(mutex_);
  return suspended_;
}

std::chrono::milliseconds Committer::in_flight() const {
  const auto since = busy_since_.load();
  if (since.count() == 0) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now().time_since_epoch() - since);
}

std::size_t Committer::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_count_;
}

Committer::Listing Committer::listing(const std::optional<std::string>& after, std::size_t limit) {
  // A group shows in the storage a moment before its effects are published here.
  constexpr int kTries = 10'000;
  Listing listing;
  for (int tried = 0;; ++tried) {
    listing.snapshot = backend_.snapshot();
    std::optional<std::uint64_t> shown;
    if (const auto bytes = listing.snapshot->read(kPositionKey); bytes && *bytes) {
      if (const auto position = decode_position(kPositionKey, **bytes)) shown = position->n;
    }
    // Not under the lock: who is told of a change submits commands under that of the sessions.
    listing.sessions = std::make_unique<const Sessions::View>(memory_.sessions);
    {
      const std::lock_guard lock(mutex_);
      // In doubt, the storage may be ahead until it is reopened.
      const bool is_settled = shown && (shown == meta_.position.n || suspended_);
      if ((is_settled && listing.sessions->is_current()) || tried == kTries) {
        listing.now = never_back(options_.clock->since_boot());
        listing.meta = meta_;
        auto queue = after ? queues_.upper_bound(*after) : queues_.begin();
        for (; queue != queues_.end() && listing.queues.size() < limit; ++queue) {
          listing.queues.insert(*queue);
        }
        return listing;
      }
    }
    std::this_thread::yield();
  }
}

/// The time that was read, or the latest that ever was if the clock was set back.
std::chrono::nanoseconds Committer::never_back(std::chrono::nanoseconds read) {
  auto last = last_clock_.load();
  while (last < read && !last_clock_.compare_exchange_weak(last, read)) {
  }
  return std::max(last, read);
}

Moment Committer::moment() {
  const auto& clock = *options_.clock;
  const auto read = clock.since_boot();
  const auto now = never_back(read);
  const auto other = clock.second_opinion();
  const bool stands = other && clock_watch_.stands_still(read, *other);
  if (clock_stands_.exchange(stands) != stands) {
    log(stands ? LogLevel::error : LogLevel::note,
        stands ? "the machine's clock stands still: nothing is granted until it runs again"
               : "the machine's clock runs again");
  }
  return {.since_boot = now, .wall = clock.wall(), .stands_still = stands};
}

/// Reads the small records. A store without any is new: position 0.
Result<Meta> Committer::load_meta() {
  Meta meta;
  meta.process = process_;
  meta.process_began = process_began_;
  const auto load = [this]<class Record>(
                        std::string_view place, Record& record,
                        Result<Record> (*decode)(std::string_view, std::string_view)) {
    auto bytes = backend_.read(place);
    if (!bytes) return Result<bool>(bytes.error());
    if (!*bytes) return Result<bool>(false);
    auto decoded = decode(place, **bytes);
    if (!decoded) return Result<bool>(decoded.error());
    record = *std::move(decoded);
    return Result<bool>(true);
  };

  IdentityRecord identity;
  const auto has_position = load(kPositionKey, meta.position, decode_position);
  if (!has_position) return has_position.error();
  const auto has_allocator = load(kAllocatorKey, meta.allocator, decode_allocator);
  if (!has_allocator) return has_allocator.error();
  const auto has_identity = load(kIdentityKey, identity, decode_identity);
  if (!has_identity) return has_identity.error();

  if (*has_position != *has_allocator || *has_position != *has_identity) {
    return Error(Errc::corrupt, "some of the records position, allocator, identity are missing");
  }
  if (!*has_position) identity.incarnation = new_incarnation();
  meta.identity = std::make_shared<const IdentityRecord>(std::move(identity));
  return meta;
}

/// Claims the backend and commits the first group of the new epoch.
Result<void> Committer::become_writer() {
  const auto claim = backend_.claim();
  if (!claim) return claim.error();
  auto loaded = load_meta();
  if (!loaded) return loaded.error();
  auto& meta = *loaded;
  meta.reserved = claim->reserved;
  meta.skip = claim->reserved;

  auto identity = *meta.identity;
  if (identity.boots.enter(boot_id_, moment().since_boot, meta.position.clock)) {
    // The old boot's clock says nothing in this one.
    meta.position.clock = {};
  }
  // In the same boot, a clock that was set back (a machine restored from an image) stands still.
  last_clock_ = std::max(last_clock_.load(), meta.position.clock);

  const auto epoch = meta.position.epoch + 1;
  const bool is_new = meta.position.n == 0;
  Group first(backend_, memory_, std::move(meta), rejections_);
  first.set_identity(std::move(identity));
  if (is_new) first.set_allocator({});
  if (claim->may_have_lost) {
    first.lift_floor_over_all();
    log(LogLevel::warning,
        "the machine stopped while durability was `process`: acknowledged writes may be lost. The "
        "floor is lifted to " +
            std::to_string(first.floor().number()) + "; all leases have ended");
  }

  const auto& batch = first.batch(epoch, moment().since_boot);
  switch (backend_.commit(batch)) {
    case Outcome::committed:
      break;
    case Outcome::refused:
    case Outcome::unknown:
      return Error(Errc::misconf, "the storage takes no writes now");
  }
  if (process_ == 0) {
    process_ = epoch;
    process_began_ = moment().since_boot;
  }
  const std::lock_guard lock(mutex_);
  meta_ = first.meta();
  meta_.process = process_;
  meta_.process_began = process_began_;
  epoch_ = epoch;
  return {};
}

void Committer::suspend_for_space(const Space& space) {
  // The storage has logged it.
  lacks_space_ = true;
  const std::lock_guard lock(mutex_);
  suspended_ = describe(space);
  back_off_ = kFirstBackOff;
  retry_at_ = std::chrono::steady_clock::now() + kSpaceCheck;
  wake_.notify_one();
}

void Committer::suspend(const std::string& reason) {
  lacks_space_ = false;
  log(LogLevel::error, reason + ": no writes are taken until the storage has been reopened");
  const std::lock_guard lock(mutex_);
  suspended_ = reason;
  back_off_ = kFirstBackOff;
  retry_at_ = std::chrono::steady_clock::now() + back_off_;
  wake_.notify_one();
}

/// What stood in the way is gone. Errors: why it is not.
Result<void> Committer::try_again() {
  if (lacks_space_ && !backend_.failed_behind()) {
    const auto space = backend_.space(moment().since_boot);
    if (space.level == SpaceLevel::out) return Error(Errc::misconf, describe(space));
    return {};
  }

  lacks_space_ = false;
  // It may come back with a group in doubt, or without what was seen before.
  reads_.stop();
  auto recovered = backend_.settle();
  if (recovered) recovered = become_writer();
  if (recovered) {
    reads_.resume();
    log(LogLevel::note, "the storage takes writes again");
  } else {
    log(LogLevel::warning, "the storage still takes no writes: " + recovered.error().line());
  }
  return recovered;
}

/// Tries to take writes again. The own thread leads; the lock is given up meanwhile.
void Committer::recover(Lock& lock) {
  assert(leading_);
  lock.unlock();
  Result<void> recovered;
  {
    const Busy busy(busy_since_);
    recovered = try_again();
  }
  lock.lock();

  if (recovered) {
    suspended_.reset();
    if (!std::exchange(lacks_space_, false)) {
      memory_.forget_records();
      look_again_ = true;
    }
    more_is_due_ = true;
  } else if (lacks_space_) {
    suspended_ = recovered.error().detail();
    retry_at_ = std::chrono::steady_clock::now() + kSpaceCheck;
  } else {
    suspended_ = recovered.error().detail();
    back_off_ = std::min(back_off_ * 2, kLastBackOff);
    retry_at_ = std::chrono::steady_clock::now() + back_off_;
  }
}

bool Committer::is_due() const {
  return more_is_due_ || (next_due_ && *next_due_ <= options_.clock->since_boot());
}

/// How long the own thread may sleep if nobody wakes it.
std::chrono::steady_clock::duration Committer::time_to_sleep() const {
  auto sleep = std::chrono::steady_clock::duration::max();
  if (suspended_ && !stopping_) sleep = retry_at_ - std::chrono::steady_clock::now();
  if (next_due_) {
    const auto left = *next_due_ - options_.clock->since_boot();
    sleep = std::min<std::chrono::steady_clock::duration>({sleep, left, kLongestSleep});
  }
  return std::max<std::chrono::steady_clock::duration>(sleep, std::chrono::microseconds(100));
}

/// Nobody leads.
bool Committer::work_once(Lock& lock, bool may_recover) {
  assert(!leading_);
  bool has_worked = false;
  leading_ = true;
  // Before anything queued: a stream of reads must not put the recovery off.
  if (suspended_ && may_recover) {
    recover(lock);
    has_worked = true;
  }
  if (!queue_.empty() || is_due()) {
    lead_group(lock);
    has_worked = true;
  }
  leading_ = false;
  return has_worked;
}

bool Committer::step() {
  Lock lock(mutex_);
  if (leading_) return false;
  return work_once(lock, !stopping_);
}

void Committer::work() {
  Lock lock(mutex_);
  const auto must_recover = [this] {
    return suspended_ && !stopping_ && std::chrono::steady_clock::now() >= retry_at_;
  };
  while (true) {
    const bool has_work = stopping_ || !queue_.empty() || is_due() || must_recover();
    if (leading_ || !has_work) {
      // Who leads tells when it is done.
      asleep_until_ = next_due_;
      const auto sleep = time_to_sleep();
      if (sleep < std::chrono::hours(1)) {
        wake_.wait_for(lock, sleep);
      } else {
        wake_.wait(lock);
      }
      asleep_until_.reset();
      continue;
    }

    work_once(lock, must_recover());
    if (stopping_ && queue_.empty()) return;
  }
}

void Committer::log(LogLevel level, const std::string& line) const {
  if (options_.log) options_.log(level, line);
}

}  // namespace fencekv::core
