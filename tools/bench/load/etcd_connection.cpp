// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/etcd_connection.h"

#include "tools/bench/load/etcd_messages.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nghttp2/nghttp2.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::bench {

namespace net = boost::asio;

namespace {

constexpr std::uint64_t kToken = 2;
constexpr std::uint64_t kOlderToken = 1;
constexpr std::string_view kOwner = "bench-owner-0001";
constexpr std::uint64_t kTtlSeconds = 60;
/// Nobody keeps the lease of a connection alive: it has to last as long as any run.
constexpr std::uint64_t kSharedTtlSeconds = 24UL * 3600;

constexpr std::size_t kRoom = std::size_t{64} * 1024;
/// So much that no reply waits for a window to be opened.
constexpr std::int32_t kWindowBytes = 64 * 1024 * 1024;

using Session = std::unique_ptr<nghttp2_session, decltype(&nghttp2_session_del)>;

nghttp2_nv header(std::string_view name, std::string_view value) {
  // The library takes them as it would change them, but only reads them.
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

class EtcdConnection final : public Connection {
 public:
  EtcdConnection(net::io_context& context, Director& director, Requests& requests, Place place,
                 const net::ip::tcp::endpoint& server)
      : director_(director),
        requests_(requests),
        place_(place),
        server_(server),
        authority_(fmt::format("{}:{}", server.address().to_string(), server.port())),
        socket_(context.get_executor()),
        session_(nullptr, &nghttp2_session_del),
        slots_(place.pipeline),
        in_(kRoom) {
    answered_.reserve(place.pipeline);
  }

  bool connect(std::string& why) override {
    boost::system::error_code failure;
    socket_.connect(server_, failure);
    if (!failure) socket_.set_option(net::ip::tcp::no_delay(true), failure);
    if (!failure) socket_.non_blocking(true, failure);
    if (failure) {
      why = failure.message();
      return false;
    }
    if (const int code = make_session(); code != 0) {
      why = nghttp2_strerror(code);
      return false;
    }
    receive();
    return true;
  }

  void begin(Clock::time_point now) override {
    if (is_broken_ || in_flight_ > 0) return;
    if (!fill(now)) return;
    is_busy_ = true;
    director_.on_busy();
    flush();
  }

 private:
  using Socket = net::basic_stream_socket<net::ip::tcp, net::io_context::executor_type>;

  enum class Step { write, stale_write, read, grant, take, revoke, give_back };

  /// A request of a batch, and those that follow from it; one stream after the other.
  struct Slot {
    Step step = Step::write;
    std::uint64_t number = 0;  // of the key or of the lease
    std::uint64_t lease = 0;   // what etcd calls so
    Clock::time_point intended;

    EtcdCall call;
    std::size_t sent = 0;  // of call.body
    std::string reply;
    std::string status;  // gRPC's
    std::string complaint;
  };

  int make_session() {
    nghttp2_session_callbacks* made = nullptr;
    if (const int code = nghttp2_session_callbacks_new(&made); code != 0) return code;
    const std::unique_ptr<nghttp2_session_callbacks, decltype(&nghttp2_session_callbacks_del)>
        callbacks(made, &nghttp2_session_callbacks_del);
    nghttp2_session_callbacks_set_on_header_callback(made, &on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, &on_piece);
    nghttp2_session_callbacks_set_on_stream_close_callback(made, &on_closed);

    nghttp2_session* session = nullptr;
    if (const int code = nghttp2_session_client_new(&session, made, this); code != 0) return code;
    session_.reset(session);
    const std::array settings{
        nghttp2_settings_entry{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        nghttp2_settings_entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindowBytes}};
    if (const int code =
            nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
        code != 0) {
      return code;
    }
    return nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, kWindowBytes);
  }

  /// False: there is nothing to do.
  bool fill(Clock::time_point now) {
    const auto count = director_.take(place_.index, place_.pipeline, now);
    for (std::size_t i = 0; i < count && !is_broken_; ++i) {
      auto& slot = slots_[i];
      slot.intended = director_.intended_start(place_.index, now);
      if (requests_.is_lease()) {
        slot.number = requests_.lease_number(place_.index * place_.pipeline + i,
                                             place_.connections * place_.pipeline);
        slot.lease = shared_lease_;
        slot.step = shared_lease_ == 0 ? Step::grant : Step::take;
      } else {
        slot.number = requests_.next_key();
        slot.step = step_of_key();
      }
      submit(slot);
    }
    return count > 0 && !is_broken_;
  }

  Step step_of_key() {
    switch (requests_.options().workload) {
      case Workload::write:
        return requests_.next_is_read() ? Step::read : Step::write;
      case Workload::stale:
        return Step::stale_write;
      default:
        return Step::read;
    }
  }

  EtcdCall call_of(const Slot& slot) {
    const KeyText key(requests_.is_lease() ? kLeaseKind : kKeyKind, slot.number);
    switch (slot.step) {
      case Step::write:
        return fenced_put(key.view(), kToken, requests_.next_value());
      case Step::stale_write:
        return fenced_put(key.view(), kOlderToken, requests_.next_value());
      case Step::read:
        return read_key(key.view());
      case Step::grant:
        return grant_lease(requests_.options().shares_lease ? kSharedTtlSeconds : kTtlSeconds);
      case Step::take:
        return take_name(key.view(), kOwner, slot.lease);
      case Step::revoke:
        return revoke_lease(slot.lease);
      case Step::give_back:
        break;
    }
    return delete_key(key.view());
  }

  void submit(Slot& slot) {
    slot.call = call_of(slot);
    slot.sent = 0;
    slot.reply.clear();
    slot.status.clear();
    slot.complaint.clear();
    // After the first request on a connection these are an index or two each.
    const std::array headers{
        header(":method", "POST"),       header(":scheme", "http"),
        header(":path", slot.call.path), header(":authority", authority_),
        header("te", "trailers"),        header("content-type", "application/grpc")};
    nghttp2_data_provider body{};
    body.source.ptr = &slot;
    body.read_callback = &read_body;
    const auto stream = nghttp2_submit_request(session_.get(), nullptr, headers.data(),
                                               headers.size(), &body, &slot);
    if (stream < 0) return give_up(nghttp2_strerror(stream));
    ++in_flight_;
  }

  static Slot* slot_of(nghttp2_session* session, std::int32_t stream) {
    return static_cast<Slot*>(nghttp2_session_get_stream_user_data(session, stream));
  }

  static ssize_t read_body(nghttp2_session*, std::int32_t, std::uint8_t* to, std::size_t room,
                           std::uint32_t* flags, nghttp2_data_source* source, void*) {
    auto& slot = *static_cast<Slot*>(source->ptr);
    const auto piece = std::string_view(slot.call.body).substr(slot.sent, room);
    std::copy(piece.begin(), piece.end(), to);
    slot.sent += piece.size();
    if (slot.sent == slot.call.body.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(piece.size());
  }

  static int on_header(nghttp2_session* session, const nghttp2_frame* frame,
                       const std::uint8_t* name, std::size_t name_bytes, const std::uint8_t* value,
                       std::size_t value_bytes, std::uint8_t, void*) {
    auto* const slot = slot_of(session, frame->hd.stream_id);
    if (slot == nullptr) return 0;
    const std::string_view its_name(reinterpret_cast<const char*>(name), name_bytes);
    const std::string_view its_value(reinterpret_cast<const char*>(value), value_bytes);
    if (its_name == "grpc-status") slot->status = its_value;
    if (its_name == "grpc-message") slot->complaint = its_value;
    return 0;
  }

  static int on_piece(nghttp2_session* session, std::uint8_t, std::int32_t stream,
                      const std::uint8_t* bytes, std::size_t count, void*) {
    auto* const slot = slot_of(session, stream);
    if (slot != nullptr) slot->reply.append(reinterpret_cast<const char*>(bytes), count);
    return 0;
  }

  static int on_closed(nghttp2_session* session, std::int32_t stream, std::uint32_t why,
                       void* connection) {
    auto* const slot = slot_of(session, stream);
    if (slot == nullptr) return 0;
    if (why != NGHTTP2_NO_ERROR) slot->complaint = nghttp2_http2_strerror(why);
    static_cast<EtcdConnection*>(connection)->answered_.push_back(slot);
    return 0;
  }

  /// Sends what the session has; what is submitted while that is on its way goes after it.
  void flush() {
    if (is_broken_ || is_writing_) return;
    out_.clear();
    for (;;) {
      const std::uint8_t* piece = nullptr;
      const auto bytes = nghttp2_session_mem_send(session_.get(), &piece);
      if (bytes < 0) return give_up(nghttp2_strerror(static_cast<int>(bytes)));
      if (bytes == 0) break;
      out_.append(reinterpret_cast<const char*>(piece), static_cast<std::size_t>(bytes));
    }
    if (out_.empty()) return;
    boost::system::error_code failure;
    auto sent = socket_.write_some(net::buffer(out_), failure);
    if (failure == net::error::would_block) {
      sent = 0;
    } else if (failure) {
      return give_up(failure.message());
    }
    if (sent == out_.size()) return;
    is_writing_ = true;
    net::async_write(socket_, net::buffer(out_) + sent,
                     [this](const boost::system::error_code& why, std::size_t) {
                       is_writing_ = false;
                       if (why) {
                         give_up(why.message());
                       } else {
                         flush();
                       }
                     });
  }

  void receive() {
    socket_.async_read_some(net::buffer(in_),
                            [this](const boost::system::error_code& failure, std::size_t bytes) {
                              if (failure) {
                                give_up(failure.message());
                              } else {
                                on_received(bytes);
                              }
                            });
  }

  void on_received(std::size_t bytes) {
    if (is_broken_) return;
    const auto now = Clock::now();
    const auto taken = nghttp2_session_mem_recv(
        session_.get(), reinterpret_cast<const std::uint8_t*>(in_.data()), bytes);
    if (taken < 0) return give_up(nghttp2_strerror(static_cast<int>(taken)));

    // Not in the callbacks: what follows may submit streams, and end the connection.
    for (auto* const slot : answered_) {
      --in_flight_;
      on_answer(*slot, now);
    }
    const bool is_done = !answered_.empty() && in_flight_ == 0;
    answered_.clear();
    if (is_broken_) return;
    if (is_done && !fill(now) && std::exchange(is_busy_, false)) director_.on_idle();
    flush();
    if (is_broken_) return;
    if (nghttp2_session_want_read(session_.get()) == 0) {
      return give_up("the server ended the connection");
    }
    receive();
  }

  void on_answer(Slot& slot, Clock::time_point now) {
    if (slot.status != "0") {
      return director_.on_wrong_reply(
          fmt::format("gRPC status '{}': {}", slot.status, slot.complaint));
    }
    const auto message = message_in(slot.reply);
    if (!is_right(slot, message)) {
      return director_.on_wrong_reply("another response than it must be");
    }
    const bool shares = requests_.options().shares_lease;
    switch (slot.step) {
      case Step::grant:
        slot.lease = granted_lease(message);
        if (shares) shared_lease_ = slot.lease;
        slot.step = Step::take;
        return submit(slot);
      case Step::take:
        slot.step = shares ? Step::give_back : Step::revoke;
        return submit(slot);
      default:
        director_.on_done(slot.intended, now);
    }
  }

  bool is_right(const Slot& slot, std::string_view message) const {
    const auto& options = requests_.options();
    if (message.empty()) return false;  // every response has at least a header
    switch (slot.step) {
      case Step::write:
        return !has_succeeded(message);
      case Step::stale_write:
      case Step::take:
        return has_succeeded(message);
      case Step::read: {
        const auto [is_there, stored_bytes] = found(message);
        return is_there ? stored_bytes == kFenceBytes + options.value_bytes
                        : options.allows_missing;
      }
      case Step::grant:
        return granted_lease(message) != 0;
      case Step::give_back:
        return deleted_keys(message) == 1;
      case Step::revoke:
        break;
    }
    return true;
  }

  void give_up(std::string_view why) {
    if (is_broken_) return;
    is_broken_ = true;
    const auto lost = std::exchange(in_flight_, 0);
    boost::system::error_code ignored;
    socket_.close(ignored);
    if (std::exchange(is_busy_, false)) director_.on_idle();
    director_.on_broken(why, lost);
  }

  Director& director_;
  Requests& requests_;
  const Place place_;
  const net::ip::tcp::endpoint server_;
  const std::string authority_;
  Socket socket_;
  Session session_;
  bool is_broken_ = false;
  bool is_busy_ = false;  // as the director has been told

  std::vector<Slot> slots_;  // a batch; streams refer to them
  std::vector<Slot*> answered_;
  std::size_t in_flight_ = 0;
  std::uint64_t shared_lease_ = 0;  // 0: there is none

  std::string out_;
  bool is_writing_ = false;  // out_ must stay
  std::vector<char> in_;
};

}  // namespace

std::unique_ptr<Connection> make_etcd_connection(net::io_context& context, Director& director,
                                                 Requests& requests, Connection::Place place,
                                                 const net::ip::tcp::endpoint& server) {
  return std::make_unique<EtcdConnection>(context, director, requests, place, server);
}

}  // namespace fencekv::bench
