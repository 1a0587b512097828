// SPDX-License-Identifier: Apache-2.0
#include "engine/core/committer.h"

#include "engine/core/owner.h"

#include <algorithm>
#include <cassert>
#include <type_traits>
#include <utility>

namespace fencekv::core {
namespace {

// A group is cut here, so that its first command does not wait for a long tail, and a batch stays
// far below what one RocksDB write may be.
constexpr std::size_t kGroupCommands = 4096;
constexpr std::size_t kGroupBytes = std::size_t{8} * 1024 * 1024;

constexpr std::chrono::milliseconds kFirstBackOff{100};
constexpr std::chrono::milliseconds kLastBackOff{5000};

/// What a command occupies while it waits, in bytes.
std::size_t weight(const Command& command) {
  std::size_t bytes = sizeof(Command);
  if (const auto* write = std::get_if<Write>(&command)) {
    for (const auto& entry : write->entries) {
      bytes += entry.key.size() + (entry.value ? entry.value->size() : 0);
    }
  }
  return bytes;
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

  bool has_answer() {
    const std::lock_guard lock(mutex);
    return reply.has_value();
  }

  Result<Reply> wait() {
    std::unique_lock lock(mutex);
    answered.wait(lock, [this] { return reply.has_value(); });
    return *std::move(reply);
  }
};

}  // namespace

Committer::Committer(Backend& backend, const Options& options, RejectionLog& rejections)
    : backend_(backend),
      options_(options),
      policy_{.unguarded_tokens = options.unguarded_tokens,
              .max_value_bytes = options.max_value_bytes},
      rejections_(rejections),
      boot_id_(options.clock->boot_id()) {}

Committer::~Committer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();

  // A store whose last group is in doubt has no clean end: the next opening finds out.
  if (epoch_ == 0 || suspended_) return;
  Group last(backend_, meta_, rejections_);
  // The clock goes along, so that a lease whose time is over now stays over after a reboot.
  const auto batch = last.batch(epoch_, moment().since_boot);
  if (backend_.commit(batch) == Outcome::committed) backend_.close(meta_.allocator.newest);
}

Result<void> Committer::open() {
  auto meta = load_meta();
  if (!meta) return meta.error();
  const bool is_new = meta->position.n == 0;
  meta_ = *std::move(meta);
  // For readers, until become_writer() makes it durable.
  auto identity = *meta_.identity;
  identity.boots.enter(boot_id_, moment().since_boot, meta_.position.clock);
  meta_.identity = std::make_shared<const IdentityRecord>(std::move(identity));

  if (auto writer = become_writer(); !writer) {
    if (is_new || writer.error().code() != Errc::misconf) return writer;
    suspend(writer.error().detail());
  }
  thread_ = std::thread([this] { work(); });
  return {};
}

void Committer::enqueue(Command command, Done done, ClientName client) {
  Operation operation{.command = std::move(command),
                      .done = std::move(done),
                      .client = std::move(client),
                      .bytes = 0};
  bool is_queued = false;
  {
    const std::lock_guard lock(mutex_);
    is_queued = enqueue_locked(operation);
  }
  if (is_queued) {
    wake_.notify_one();
    return;
  }
  operation.done(Error(Errc::overloaded, "too many commands are waiting; not executed"));
}

Result<Reply> Committer::run(Command command, ClientName client) {
  Waiter waiter;
  Operation operation{.command = std::move(command),
                      .done = [&waiter](Result<Reply> reply) { waiter.answer(std::move(reply)); },
                      .client = std::move(client),
                      .bytes = 0};
  {
    Lock lock(mutex_);
    if (!enqueue_locked(operation)) {
      return Error(Errc::overloaded, "too many commands are waiting; not executed");
    }
    if (!leading_) {
      leading_ = true;
      while (!waiter.has_answer()) lead_group(lock);
      leading_ = false;
      // The own thread may have a recovery to do, too, and waits for the lead.
      if (!queue_.empty() || suspended_) wake_.notify_one();
    }
  }
  return waiter.wait();
}

bool Committer::enqueue_locked(Operation& operation) {
  operation.bytes = weight(operation.command);
  if (queue_.size() >= options_.max_queued_commands ||
      queued_bytes_ + operation.bytes > options_.max_queued_bytes) {
    return false;
  }
  queued_bytes_ += operation.bytes;
  queue_.push_back(std::move(operation));
  return true;
}

std::vector<Committer::Operation> Committer::take_group() {
  std::vector<Operation> group;
  std::size_t bytes = 0;
  while (!queue_.empty() && group.size() < kGroupCommands) {
    const auto next = queue_.front().bytes;
    if (!group.empty() && bytes + next > kGroupBytes) break;
    bytes += next;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_bytes_ -= bytes;
  return group;
}

/// Takes one group and answers it. The caller leads; the lock is given up meanwhile.
void Committer::lead_group(Lock& lock) {
  assert(leading_);
  auto operations = take_group();
  const bool is_suspended = suspended_.has_value();

  lock.unlock();
  auto replies = is_suspended ? decide_suspended(operations) : decide_group(operations);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    operations[i].done(std::move(replies[i]));
  }
  // Closures and commands of this group go before the lock is taken again.
  operations.clear();
  lock.lock();
}

Result<Reply> Committer::decide_one(Group& group, Operation& operation) {
  static const std::string kEmbedded = "embedded";
  const std::string& client = operation.client ? *operation.client : kEmbedded;
  const auto now = moment();
  group.begin(client, now.wall);
  return decide(group, policy_, operation.command, now, {.client = client});
}

Committer::Replies Committer::decide_group(std::vector<Operation>& operations) {
  Replies replies;
  replies.reserve(operations.size());
  Group group(backend_, meta_, rejections_);
  for (auto& operation : operations) replies.push_back(decide_one(group, operation));
  if (!group.is_changed()) return replies;

  const auto batch = group.batch(epoch_, moment().since_boot);
  switch (backend_.commit(batch)) {
    case Outcome::committed: {
      const std::lock_guard lock(mutex_);
      meta_ = group.meta();
      return replies;
    }
    case Outcome::refused:
      for (auto& reply : replies) reply = Error(Errc::misconf, "the storage refused the write");
      break;
    case Outcome::unknown:
      // Writes of the group may be there after the reopen, or not.
      suspend("a write to the storage failed");
      for (auto& reply : replies) reply = in_doubt();
      break;
  }

  // The group's reads have another answer: what is committed.
  auto committed = decide_suspended(operations);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (is_read(operations[i].command)) replies[i] = std::move(committed[i]);
  }
  return replies;
}

Committer::Replies Committer::decide_suspended(std::vector<Operation>& operations) {
  const auto reason = refuses_writes().value_or("");
  Replies replies;
  replies.reserve(operations.size());
  // What a read would note down (an expiry) is not noted now.
  Group group(backend_, meta_, rejections_);
  for (auto& operation : operations) {
    if (is_read(operation.command)) {
      replies.push_back(decide_one(group, operation));
    } else {
      replies.push_back(Error(Errc::misconf, reason + "; no writes until it has recovered"));
    }
  }
  return replies;
}

Meta Committer::meta() const {
  const std::lock_guard lock(mutex_);
  return meta_;
}

std::optional<std::string> Committer::refuses_writes() const {
  const std::lock_guard lock(mutex_);
  return suspended_;
}

Moment Committer::moment() {
  const auto read = options_.clock->since_boot();
  auto last = last_clock_.load();
  while (last < read && !last_clock_.compare_exchange_weak(last, read)) {
  }
  return {.since_boot = std::max(last, read), .wall = options_.clock->wall()};
}

/// Reads the small records. A store without any is new: position 0.
Result<Meta> Committer::load_meta() {
  Meta meta;
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
  Group first(backend_, std::move(meta), rejections_);
  first.set_identity(std::move(identity));
  if (is_new) first.set_allocator({});
  if (claim->may_have_lost) {
    first.lift_floor();
    log(LogLevel::warning,
        "the machine stopped while durability was `process`: acknowledged writes may be lost. The "
        "floor is lifted to " +
            std::to_string(first.floor().number()) + "; all leases have ended");
  }

  const auto batch = first.batch(epoch, moment().since_boot);
  switch (backend_.commit(batch)) {
    case Outcome::committed:
      break;
    case Outcome::refused:
    case Outcome::unknown:
      return Error(Errc::misconf, "the storage takes no writes now");
  }
  const std::lock_guard lock(mutex_);
  meta_ = first.meta();
  epoch_ = epoch;
  return {};
}

void Committer::suspend(const std::string& reason) {
  log(LogLevel::error, reason + ": no writes are taken until the storage has been reopened");
  const std::lock_guard lock(mutex_);
  suspended_ = reason;
  back_off_ = kFirstBackOff;
  retry_at_ = std::chrono::steady_clock::now() + back_off_;
  wake_.notify_one();
}

/// Tries to take writes again. The own thread leads; the lock is given up meanwhile.
void Committer::recover(Lock& lock) {
  assert(leading_);
  lock.unlock();
  auto recovered = backend_.settle();
  if (recovered) recovered = become_writer();
  if (recovered) {
    log(LogLevel::note, "the storage takes writes again");
  } else {
    log(LogLevel::warning, "the storage still takes no writes: " + recovered.error().line());
  }
  lock.lock();

  if (recovered) {
    suspended_.reset();
  } else {
    suspended_ = recovered.error().detail();
    back_off_ = std::min(back_off_ * 2, kLastBackOff);
    retry_at_ = std::chrono::steady_clock::now() + back_off_;
  }
}

void Committer::work() {
  Lock lock(mutex_);
  const auto may_recover = [this] { return suspended_ && !stopping_; };
  const auto is_early = [this] { return std::chrono::steady_clock::now() < retry_at_; };
  const auto is_due = [&] {
    return !leading_ && (stopping_ || !queue_.empty() || (may_recover() && !is_early()));
  };
  while (true) {
    if (may_recover() && is_early()) {
      wake_.wait_until(lock, retry_at_, is_due);
    } else {
      wake_.wait(lock, [&] { return is_due() || (may_recover() && is_early()); });
    }
    if (!is_due()) continue;

    // Before anything queued: a stream of reads must not put the recovery off.
    leading_ = true;
    if (may_recover() && !is_early()) recover(lock);
    if (!queue_.empty()) lead_group(lock);
    leading_ = false;
    if (stopping_ && queue_.empty()) return;
  }
}

void Committer::log(LogLevel level, const std::string& line) const {
  if (options_.log) options_.log(level, line);
}

}  // namespace fencekv::core
