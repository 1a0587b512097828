// SPDX-License-Identifier: Apache-2.0

#include "server/round.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <string_view>
#include <utility>

namespace fencekv::server {

namespace net = boost::asio;

Round::Round(Lane& lane) : lane_(lane), wake_(lane.executor()) {
  wake_.expires_at(MonotonicTime::max());
}

void Round::add(StoreCall call, resp::Protocol protocol, bool wanted) {
  if (const auto* read = std::get_if<Read>(&call.command)) queued_reads_ += read->keys.size();
  if (std::holds_alternative<FencedRead>(call.command)) ++queued_reads_;
  calls_.push_back({std::move(call), protocol, wanted, text_.size(), std::nullopt});
}

void Round::start(Store& store, const Caller& caller, bool alone) {
  under_way_ = true;
  holds_share_ = true;
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
      if (pending.call.work) {
        pending.call.work(done);
      } else if (!alone) {
        lane_.submit({std::move(pending.call.command), done, caller});
      } else {
        newest_ticket_ = store.enqueue(std::move(pending.call.command), done, caller);
      }
    } catch (...) {
      open_.fetch_sub(1);
      throw;
    }
  }
  give_up_share();
}

void Round::give_up_share() {
  if (std::exchange(holds_share_, false) && open_.fetch_sub(1) == 1) all_answered_ = true;
}

// Called on any thread. After the count has reached zero the session may go on and destroy the
// round as soon as the message is under way, so nothing of it is touched after that.
void Round::answered() {
  if (open_.fetch_sub(1) != 1) return;
  lane_.tell(*this);
}

void Round::on_answered() {
  all_answered_ = true;
  if (answers_.is_suspended()) {
    answers_.resume();
  } else {
    wake_.cancel();
  }
}

net::awaitable<void> Round::wait() {
  give_up_share();  // start() has thrown
  // The last answer's message may already have been here, or comes later: both on this thread.
  if (!is_answered()) co_await answers_.suspend();
  under_way_ = false;
}

net::awaitable<void> Round::pause(MonotonicTime until) {
  if (is_answered()) co_return;
  wake_.expires_at(until);
  co_await wake_.async_wait(net::as_tuple(net::use_awaitable));
  wake_.expires_at(MonotonicTime::max());
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
  if (text_.capacity() > 2 * kReplyBytes) std::string().swap(text_);
  calls_.clear();
  requests_ = 0;
  queued_reads_ = 0;
}

}  // namespace fencekv::server
