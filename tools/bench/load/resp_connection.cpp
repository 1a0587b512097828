// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/resp_connection.h"

#include "tools/bench/load/reply_scan.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <utility>

namespace fencekv::bench {

namespace net = boost::asio;

namespace {

constexpr std::size_t kFirstRoom = std::size_t{16} * 1024;
/// With less room left, the buffer grows.
constexpr std::size_t kLeastRoom = std::size_t{4} * 1024;

bool begins_right(const Requests::Expected& expected, std::string_view reply) {
  return reply.starts_with(expected.begin) ||
         (!expected.or_begin.empty() && reply.starts_with(expected.or_begin));
}

}  // namespace

RespConnection::RespConnection(net::io_context& context, Director& director, Requests& requests,
                               Place place, const net::ip::tcp::endpoint& server)
    : director_(director),
      requests_(requests),
      place_(place),
      server_(server),
      socket_(context.get_executor()),
      in_(kFirstRoom) {
  in_flight_.reserve(place.pipeline);
  next_in_flight_.reserve(place.pipeline);
}

bool RespConnection::connect(std::string& why) {
  boost::system::error_code failure;
  socket_.connect(server_, failure);
  if (!failure) socket_.set_option(net::ip::tcp::no_delay(true), failure);
  if (!failure) socket_.non_blocking(true, failure);
  if (failure) {
    why = failure.message();
    return false;
  }
  receive();
  return true;
}

void RespConnection::begin(Clock::time_point now) {
  if (is_broken_ || is_busy()) return;
  if (!fill(now)) return;
  director_.on_busy();
  send();
}

/// False: there is nothing to do.
bool RespConnection::fill(Clock::time_point now) {
  const auto count = director_.take(place_.index, place_.pipeline, now);
  out_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const auto intended = director_.intended_start(place_.index, now);
    if (!requests_.is_lease()) {
      in_flight_.push_back({requests_.append(out_), intended, 0, false});
      continue;
    }
    const auto lease = requests_.lease_number(place_.index * place_.pipeline + i,
                                              place_.connections * place_.pipeline);
    in_flight_.push_back({requests_.append_acquire(out_, lease), intended, lease, true});
  }
  return count > 0;
}

void RespConnection::send() {
  boost::system::error_code failure;
  auto sent = socket_.write_some(net::buffer(out_), failure);
  if (failure == net::error::would_block) {
    sent = 0;
  } else if (failure) {
    give_up(failure.message());
    return;
  }
  if (sent == out_.size()) return;
  // Replies may arrive meanwhile, but not the last one: out_ stays as it is.
  net::async_write(socket_, net::buffer(out_) + sent,
                   [this](const boost::system::error_code& why, std::size_t) {
                     if (why) give_up(why.message());
                   });
}

void RespConnection::receive() {
  if (in_.size() - filled_ < kLeastRoom) in_.resize(in_.size() * 2);
  socket_.async_read_some(net::buffer(in_.data() + filled_, in_.size() - filled_),
                          [this](const boost::system::error_code& failure, std::size_t bytes) {
                            if (failure) {
                              give_up(failure.message());
                            } else {
                              on_received(bytes);
                            }
                          });
}

void RespConnection::on_received(std::size_t bytes) {
  if (is_broken_) return;
  const auto now = Clock::now();
  filled_ += bytes;

  const std::string_view received(in_.data(), filled_);
  std::size_t consumed = 0;
  while (answered_ < in_flight_.size()) {
    const auto reply = scan_reply(received.substr(consumed));
    if (reply.state == Scan::incomplete) break;
    if (reply.state == Scan::broken) return give_up("what came is not a reply");
    on_reply(in_flight_[answered_], received.substr(consumed, reply.bytes), now);
    ++answered_;
    consumed += reply.bytes;
  }
  const bool is_done = answered_ == in_flight_.size();
  if (is_done && consumed != filled_) return give_up("a reply to nothing");

  std::copy(in_.begin() + static_cast<std::ptrdiff_t>(consumed),
            in_.begin() + static_cast<std::ptrdiff_t>(filled_), in_.begin());
  filled_ -= consumed;
  if (is_done) on_batch_done(now);
  if (!is_broken_) receive();
}

void RespConnection::on_reply(const InFlight& request, std::string_view reply,
                              Clock::time_point now) {
  if (!begins_right(request.expected, reply)) {
    director_.on_wrong_reply(reply);
  } else if (request.is_acquisition) {
    next_in_flight_.push_back({requests_.append_release(next_out_, request.lease, reply),
                               request.intended, request.lease, false});
  } else {
    director_.on_done(request.intended, now);
  }
}

void RespConnection::on_batch_done(Clock::time_point now) {
  in_flight_.clear();
  answered_ = 0;
  if (!next_in_flight_.empty()) {
    std::swap(in_flight_, next_in_flight_);
    std::swap(out_, next_out_);
    next_out_.clear();
    send();
  } else if (fill(now)) {
    send();
  } else {
    director_.on_idle();
  }
}

void RespConnection::give_up(std::string_view why) {
  if (is_broken_) return;
  is_broken_ = true;
  const auto lost = in_flight_.size() - answered_;
  const bool was_busy = is_busy();
  in_flight_.clear();
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (was_busy) director_.on_idle();
  director_.on_broken(why, lost);
}

}  // namespace fencekv::bench
