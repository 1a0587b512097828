// SPDX-License-Identifier: Apache-2.0
#include "fencekv/client.h"

#include "client/command_codec.h"
#include "client/connection.h"

#include <future>
#include <utility>

namespace fencekv {
namespace {

const Error& closed_error() {
  static const Error error(Errc::unreachable, "not sent: the client was closed");
  return error;
}

}  // namespace

Client::Client(ClientOptions options)
    : connection_(std::make_shared<Connection>(std::move(options))) {}

Result<Client> Client::connect(ClientOptions options) {
  const CallOptions call{.timeout = options.connect_timeout};
  Client client(std::move(options));
  if (auto answered = client.ping(call); !answered) return std::move(answered).error();
  return client;
}

Client::~Client() {
  if (connection_) connection_->close();
}

Client::Client(Client&& other) noexcept = default;

Client& Client::operator=(Client&& other) noexcept {
  if (this == &other) return *this;
  if (connection_) connection_->close();
  connection_ = std::move(other.connection_);
  return *this;
}

template <class C>
void Client::submit(C command, std::function<void(Result<AnswerOf<C>>)> done, CallOptions call) {
  auto bytes = encode(command);
  if (!bytes) {
    // By the same thread as every other answer: the caller may hold a lock that `done` takes.
    auto error = std::move(bytes).error();
    if (!connection_->post([done, error] { done(error); })) done(closed_error());
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
  if (!connection_->send(std::move(request))) done(closed_error());
}

template <class C>
Result<AnswerOf<C>> Client::execute(C command, CallOptions call) {
  if (connection_->is_own_thread()) {
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
                                             std::chrono::milliseconds ttl, CallOptions call) {
  return execute(Acquire{std::string(name), std::string(owner), ttl}, std::move(call));
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

Result<Token> Client::revoke(std::string_view name, CallOptions call) {
  return execute(Revoke{std::string(name)}, std::move(call));
}

Result<LeaseState> Client::inspect(std::string_view name, CallOptions call) {
  return execute(Inspect{std::string(name)}, std::move(call));
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
