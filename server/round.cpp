// SPDX-License-Identifier: Apache-2.0

#include "server/round.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <string_view>
#include <utility>

namespace fencekv::server {

namespace net = boost::asio;

Round::Round(net::any_io_executor executor) : executor_(std::move(executor)), wake_(executor_) {
  wake_.expires_at(MonotonicTime::max());
}

void Round::add(StoreCall call, resp::Protocol protocol, bool wanted) {
  if (const auto* read = std::get_if<Read>(&call.command)) queued_reads_ += read->keys.size();
  if (std::holds_alternative<FencedRead>(call.command)) ++queued_reads_;
  calls_.push_back({std::move(call), protocol, wanted, text_.size(), std::nullopt});
}

void Round::start(Store& store, const ClientName& client) {
  started_ = true;
  all_answered_ = false;
  open_.store(1);
  for (PendingCall& pending : calls_) {
    open_.fetch_add(1);
    // Two pointers, so that std::function allocates nothing. calls_ does not grow any more.
    auto done = [this, &pending](Result<Reply> answer) {
      pending.answer.emplace(std::move(answer));
      answered();
    };
    try {
      store.enqueue(std::move(pending.call.command), done, client);
    } catch (...) {
      open_.fetch_sub(1);
      throw;
    }
  }
}

// Called on any thread. After the count has reached zero the session may go on and destroy the
// round as soon as the message is under way, so nothing of it is touched after that.
void Round::answered() {
  if (open_.fetch_sub(1) != 1) return;
  const net::any_io_executor executor = executor_;
  net::post(executor, [this] {
    all_answered_ = true;
    wake_.cancel();
  });
}

net::awaitable<void> Round::wait() {
  if (!std::exchange(started_, false)) co_return;
  if (open_.fetch_sub(1) == 1) co_return;
  // The last answer's message may already have been here, or comes later: both on this thread.
  while (!all_answered_) co_await wake_.async_wait(net::as_tuple(net::use_awaitable));
}

void Round::finish(std::string& out) {
  if (calls_.empty()) {
    out.swap(text_);
  } else {
    std::size_t at = 0;
    for (PendingCall& pending : calls_) {
      out.append(text_, at, pending.text_before - at);
      at = pending.text_before;
      resp::ReplyWriter reply(out, pending.protocol);
      const std::size_t before = out.size();
      if (*pending.answer) {
        pending.call.format(reply, **pending.answer);
      } else {
        reply.error(pending.answer->error().line());
      }
      if (!pending.wanted) out.resize(before);
    }
    out.append(text_, at);
  }
  text_.clear();
  calls_.clear();
  requests_ = 0;
  queued_reads_ = 0;
}

}  // namespace fencekv::server
