// SPDX-License-Identifier: Apache-2.0
#include "fencekv/client.h"

#include "client/client_core.h"
#include "client/command_codec.h"

#include <future>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace fencekv {
namespace {

const Error& closed_error() {
  static const Error error(Errc::unreachable, "not sent: the client was closed");
  return error;
}

}  // namespace

Client::Client(ClientOptions options) : core_(std::make_shared<ClientCore>(std::move(options))) {}

Result<Client> Client::connect(ClientOptions options) {
  const CallOptions call{.timeout = options.connect_timeout};
  Client client(std::move(options));
  if (auto answered = client.ping(call); !answered) return std::move(answered).error();
  return client;
}

Client::~Client() {
  if (core_) core_->close();
}

Client::Client(Client&& other) noexcept = default;

Client& Client::operator=(Client&& other) noexcept {
  if (this == &other) return *this;
  if (core_) core_->close();
  core_ = std::move(other.core_);
  return *this;
}

namespace {

/// What a late answer to an acquire says to be held.
std::vector<Holding> granted(const Acquire& acquire, Token token) {
  return {{acquire.name, acquire.owner, token}};
}
std::vector<Holding> granted(const AcquireMany& acquire, Token token) {
  std::vector<Holding> grants;
  for (const auto& name : acquire.names) grants.push_back({name, acquire.owner, token});
  return grants;
}

/// Sends a command that may hold up those behind it, over a connection of its own.
template <class C>
void send_apart(ClientCore& core, const C& command, Request request) {
  auto& timeout = request.call.timeout;
  if (timeout.count() <= 0) timeout = waits_for(command) + core.options().call_timeout;

  bool keep = false;
  if constexpr (std::is_same_v<C, Acquire>) keep = command.bind;
  if constexpr (std::is_same_v<C, Acquire> || std::is_same_v<C, AcquireMany>) {
    // By the loop: there the debt is known.
    request.late = [&core, command](std::optional<resp::Value> reply, bool) {
      if (!reply) return;
      const auto grant = decode<C>(*std::move(reply));
      if (grant && *grant) core.give_back(granted(command, (*grant)->token), command.ttl);
    };
  }
  core.loop().post([&core, keep, request = std::move(request)]() mutable {
    if (request.late) {
      request.late = [late = std::move(request.late), debt = core.owe()](
                         std::optional<resp::Value> reply, bool certain) {
        late(std::move(reply), certain);
      };
    }
    core.own().send(std::move(request), keep);
  });
}

}  // namespace

template <class C>
void Client::submit(C command, std::function<void(Result<AnswerOf<C>>)> done, CallOptions call) {
  if (!core_->loop().is_running()) return done(closed_error());
  auto bytes = encode(command);
  if (!bytes) {
    // By the same thread as every other answer: the caller may hold a lock that `done` takes.
    core_->loop().post([done, error = std::move(bytes).error()] { done(error); });
    return;
  }
  auto reply_to = [done](Result<resp::Value> reply) {
    if (!reply) {
      done(std::move(reply).error());
      return true;
    }
    auto answer = decode<C>(*std::move(reply));
    const bool understood = answer || answer.error().code() != Errc::protocol;
    done(std::move(answer));
    return understood;
  };
  Request request{.bytes = *std::move(bytes),
                  .changes = kChanges<C>,
                  .call = std::move(call),
                  .done = std::move(reply_to)};
  if (waits_for(command).count() > 0) return send_apart(*core_, command, std::move(request));
  if (!core_->send(std::move(request))) done(closed_error());
}

template <class C>
Result<AnswerOf<C>> Client::execute(C command, CallOptions call) {
  if (core_->is_own_thread()) {
    return Error(Errc::invalid, "a blocking call from a callback would wait for itself");
  }
  // Shared, as a std::function must be copyable.
  const auto promise = std::make_shared<std::promise<Result<AnswerOf<C>>>>();
  auto answer = promise->get_future();
  submit<C>(
      std::move(command),
      [promise](Result<AnswerOf<C>> outcome) { promise->set_value(std::move(outcome)); },
      std::move(call));
  return answer.get();
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type.
#define FENCEKV_INSTANTIATE(C)                                                               \
  template void Client::submit<C>(C, std::function<void(Result<AnswerOf<C>>)>, CallOptions); \
  template Result<AnswerOf<C>> Client::execute<C>(C, CallOptions);
FENCEKV_FOR_EACH_CLIENT_COMMAND(FENCEKV_INSTANTIATE)
#undef FENCEKV_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

namespace {

Result<std::uint64_t> only(Result<Write::Reply> versions) {
  if (!versions) return std::move(versions).error();
  if (versions->size() != 1) return Error(Errc::protocol, "one write, and not one version");
  return versions->front();
}

}  // namespace

Result<std::uint64_t> Client::set(std::string_view key, std::string_view value, Token token,
                                  WriteOptions options, CallOptions call) {
  std::vector<Write::Entry> entries;
  entries.push_back({std::string(key), std::string(value)});
  return only(execute(make_write(std::move(entries), token, std::move(options)), std::move(call)));
}

Result<std::uint64_t> Client::remove(std::string_view key, Token token, WriteOptions options,
                                     CallOptions call) {
  std::vector<Write::Entry> entries;
  entries.push_back({std::string(key), std::nullopt});
  return only(execute(make_write(std::move(entries), token, std::move(options)), std::move(call)));
}

Result<std::vector<std::uint64_t>> Client::set_many(std::vector<Write::Entry> entries, Token token,
                                                    WriteOptions options, CallOptions call) {
  return execute(make_write(std::move(entries), token, std::move(options)), std::move(call));
}

Result<std::optional<std::string>> Client::get(std::string_view key, CallOptions call) {
  return execute(Get{std::string(key)}, std::move(call));
}

Result<std::vector<std::optional<std::string>>> Client::get_many(std::vector<std::string> keys,
                                                                 CallOptions call) {
  return execute(GetMany{std::move(keys)}, std::move(call));
}

Result<KeyState> Client::get_fenced(std::string_view key, CallOptions call) {
  return execute(GetFenced{std::string(key)}, std::move(call));
}

Result<KeyState> Client::get_fenced(std::string_view key, Token token,
                                    std::optional<std::string> lease, CallOptions call) {
  return execute(FencedRead{std::string(key), token, std::move(lease)}, std::move(call));
}

Result<Token> Client::raise(std::string_view key, Token token, std::optional<std::string> lease,
                            CallOptions call) {
  return execute(Raise{std::string(key), token, std::move(lease)}, std::move(call));
}

Result<KeyDescription> Client::describe(std::string_view key, CallOptions call) {
  return execute(Describe{std::string(key)}, std::move(call));
}

Result<std::vector<Rejection>> Client::rejections(std::uint64_t count, CallOptions call) {
  return execute(ListRejections{count}, std::move(call));
}

Result<Token> Client::reset(Reset command, CallOptions call) {
  return execute(std::move(command), std::move(call));
}

Result<std::optional<Grant>> Client::acquire(std::string_view name, std::string_view owner,
                                             std::chrono::milliseconds ttl, AcquireOptions options,
                                             CallOptions call) {
  return execute(make_acquire(name, owner, ttl, std::move(options)), std::move(call));
}

Result<std::optional<Grant>> Client::acquire_many(std::vector<std::string> names,
                                                  std::string_view owner,
                                                  std::chrono::milliseconds ttl,
                                                  std::chrono::milliseconds wait,
                                                  CallOptions call) {
  return execute(AcquireMany{std::move(names), std::string(owner), ttl, wait}, std::move(call));
}

Result<std::chrono::milliseconds> Client::renew(std::string_view name, std::string_view owner,
                                                Token token, std::chrono::milliseconds ttl,
                                                CallOptions call) {
  return execute(Renew{std::string(name), std::string(owner), token, ttl}, std::move(call));
}

Result<void> Client::release(std::string_view name, std::string_view owner, Token token,
                             CallOptions call) {
  auto done = execute(Release{std::string(name), std::string(owner), token}, std::move(call));
  if (!done) return std::move(done).error();
  return {};
}

Result<RenewMany::Reply> Client::renew_many(std::vector<Holding> grants,
                                            std::chrono::milliseconds ttl, CallOptions call) {
  return execute(RenewMany{std::move(grants), ttl}, std::move(call));
}

Result<ReleaseMany::Reply> Client::release_many(std::vector<Holding> grants, CallOptions call) {
  return execute(ReleaseMany{std::move(grants)}, std::move(call));
}

Result<Token> Client::revoke(std::string_view name, CallOptions call) {
  return execute(Revoke{std::string(name)}, std::move(call));
}

Result<LeaseState> Client::inspect(std::string_view name, CallOptions call) {
  return execute(Inspect{std::string(name)}, std::move(call));
}

Result<std::vector<LeaseWaiter>> Client::waiters(std::string_view name, CallOptions call) {
  return execute(ListWaiters{std::string(name)}, std::move(call));
}

Result<std::optional<LeaseEvent>> Client::wait_for_change(std::string_view name, Token token,
                                                          std::chrono::milliseconds timeout,
                                                          CallOptions call) {
  return execute(Await{std::string(name), token, timeout}, std::move(call));
}

Result<ScanLeases::Reply> Client::scan_leases(ScanLeases command, CallOptions call) {
  return execute(std::move(command), std::move(call));
}

Result<std::uint64_t> Client::exists(std::vector<std::string> keys, CallOptions call) {
  return execute(Exists{std::move(keys)}, std::move(call));
}

Result<std::uint64_t> Client::strlen(std::string_view key, CallOptions call) {
  return execute(Strlen{std::string(key)}, std::move(call));
}

Result<std::string> Client::type(std::string_view key, CallOptions call) {
  return execute(TypeOf{std::string(key)}, std::move(call));
}

Result<ScanKeys::Reply> Client::scan(ScanKeys command, CallOptions call) {
  return execute(std::move(command), std::move(call));
}

Result<std::uint64_t> Client::dbsize(CallOptions call) {
  return execute(CountKeys{}, std::move(call));
}

Result<std::string> Client::ping(CallOptions call) {
  return execute(Ping{}, std::move(call));
}

Result<std::string> Client::echo(std::string_view message, CallOptions call) {
  return execute(Echo{std::string(message)}, std::move(call));
}

Result<RawReply> Client::call(std::vector<std::string> words, CallOptions call) {
  return execute(Raw{std::move(words)}, std::move(call));
}

}  // namespace fencekv
