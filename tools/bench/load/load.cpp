// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/load.h"

#include "tools/bench/load/connection.h"
#include "tools/bench/load/disk_load.h"
#include "tools/bench/load/etcd_connection.h"
#include "tools/bench/load/postgres_connection.h"
#include "tools/bench/load/processor_time.h"
#include "tools/bench/load/reply_scan.h"
#include "tools/bench/load/resp_connection.h"

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace fencekv::bench {

namespace net = boost::asio;

namespace {

constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::chrono::seconds kWatchInterval{1};

Clock::duration to_clock(std::chrono::duration<double> time) {
  return std::chrono::duration_cast<Clock::duration>(time);
}

/// One request at a time, waited for.
class Dialogue {
 public:
  explicit Dialogue(const net::ip::tcp::endpoint& server) : socket_(context_) {
    socket_.connect(server, failure_);
  }

  /// The whole reply if it begins so. Otherwise empty, and error() says why.
  std::string ask(const std::vector<std::string_view>& arguments, std::string_view expected) {
    if (!error().empty()) return {};
    net::write(socket_, net::buffer(to_request(arguments)), failure_);
    std::string reply;
    while (!failure_) {
      const auto scanned = scan_reply(reply);
      if (scanned.state == Scan::complete && reply.starts_with(expected)) return reply;
      if (scanned.state != Scan::incomplete) {
        wrong_ = reply;
        return {};
      }
      std::array<char, 1024> piece{};
      const auto bytes = socket_.read_some(net::buffer(piece), failure_);
      reply.append(piece.data(), bytes);
    }
    return {};
  }

  std::string error() const { return failure_ ? failure_.message() : wrong_; }

 private:
  net::io_context context_;
  net::ip::tcp::socket socket_;
  boost::system::error_code failure_;
  std::string wrong_;
};

/// Nothing: `error` says why.
std::optional<Preparation> prepare(Target target, const net::ip::tcp::endpoint& server,
                                   std::string& error) {
  Preparation preparation;
  if (target == Target::etcd) return preparation;      // there is nothing to prepare
  if (target == Target::postgres) return preparation;  // its connections prepare themselves
  Dialogue dialogue(server);
  if (target == Target::redis) {
    constexpr std::string_view kDigestHeader = "$40\r\n";
    constexpr std::size_t kDigestBytes = 40;
    for (const auto& [script, digest] : {std::pair{kWriteScript, &preparation.write_script},
                                         std::pair{kReleaseScript, &preparation.release_script}}) {
      const auto reply = dialogue.ask({"SCRIPT", "LOAD", script}, kDigestHeader);
      if (!reply.empty()) *digest = reply.substr(kDigestHeader.size(), kDigestBytes);
    }
  } else {
    constexpr std::string_view kName = "bench/token";
    const auto owner = fmt::format("bench-{}", Clock::now().time_since_epoch().count());
    // Twice, so that the first token of all, which is 1, is older than what any load writes with.
    for (int i = 0; i < 2; ++i) {
      const auto granted = dialogue.ask({"LEASE.ACQUIRE", kName, owner, "60000"}, "*2\r\n$");
      if (granted.empty()) break;
      preparation.token = granted_token(granted);
      dialogue.ask({"LEASE.RELEASE", kName, owner, preparation.token}, "+OK");
    }
  }
  error = dialogue.error();
  if (!error.empty()) return std::nullopt;
  return preparation;
}

class Load final : public Director {
 public:
  Load(const LoadOptions& options, const Preparation& preparation)
      : options_(options),
        context_(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE),
        requests_(options.requests, preparation),
        left_(options.operations == 0 ? kUnlimited : options.operations),
        clients_(options.connections),
        pace_(context_.get_executor()),
        watch_(context_.get_executor()),
        window_(context_.get_executor()),
        warm_up_(context_.get_executor()) {}

  LoadReport run(const net::ip::tcp::endpoint& server) {
    if (connect(server)) {
      start();
      context_.run();
      finish();
    }
    return std::move(report_);
  }

 private:
  using Timer =
      net::basic_waitable_timer<Clock, net::wait_traits<Clock>, net::io_context::executor_type>;

  /// What the open loop knows of a connection.
  struct Client {
    std::unique_ptr<Connection> connection;
    std::uint64_t due = 0;   // not sent yet
    std::uint64_t sent = 0;  // requests, ever
  };

  bool is_open_loop() const { return options_.rate > 0; }

  bool connect(const net::ip::tcp::endpoint& server) {
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      clients_[i].connection = make_connection(server, i);
      std::string why;
      if (clients_[i].connection->connect(why)) continue;
      note_error(fmt::format("connection {}: {}", i + 1, why), 1);
      return false;
    }
    return true;
  }

  std::unique_ptr<Connection> make_connection(const net::ip::tcp::endpoint& server,
                                              std::size_t index) {
    const Connection::Place place{
        .index = index, .connections = clients_.size(), .pipeline = options_.pipeline};
#ifdef FENCEKV_BENCH_POSTGRES
    if (options_.requests.target == Target::postgres) {
      return make_postgres_connection(context_, *this, requests_, place,
                                      {.host = options_.host, .port = options_.port});
    }
#endif
#ifdef FENCEKV_BENCH_ETCD
    if (options_.requests.target == Target::etcd) {
      return make_etcd_connection(context_, *this, requests_, place, server);
    }
#endif
    return std::make_unique<RespConnection>(context_, *this, requests_, place, server);
  }

  void start() {
    began_ = Clock::now();
    counts_from_ = began_ + to_clock(options_.warm_up);
    last_reply_ = last_counted_ = counts_from_;
    ends_ = options_.duration.count() > 0 ? counts_from_ + to_clock(options_.duration)
                                          : Clock::time_point::max();
    note_costs();
    if (options_.warm_up.count() > 0) {
      warm_up_.expires_at(counts_from_);
      warm_up_.async_wait([this](const boost::system::error_code& why) {
        if (!why) note_costs();
      });
    }
    watch();
    if (options_.window.count() > 0) watch_window(1);
    if (is_open_loop()) {
      pace();
      return;
    }
    for (auto& client : clients_) client.connection->begin(began_);
  }

  void note_costs() {
    own_before_ = own_processor_seconds();
    if (options_.server != 0) server_before_ = cost_of_process(options_.server);
  }

  void finish() {
    for (const auto& client : clients_) report_.unsent += client.due;
    report_.seconds = std::chrono::duration<double>(last_counted_ - counts_from_).count();
    report_.own_processor_seconds = own_processor_seconds() - own_before_;
    if (options_.server == 0) return;
    const auto server_now = cost_of_process(options_.server);
    if (!server_now || !server_before_) return note_error("--server-pid: no such process", 1);
    // What a child of it has cost is gone with the child.
    report_.server_processor_seconds =
        std::max(server_now->processor_seconds - server_before_->processor_seconds, 0.0);
    report_.server_written_bytes =
        std::max(server_now->written_bytes, server_before_->written_bytes) -
        server_before_->written_bytes;
  }

  /// The moment of the request `number`, counted over all connections.
  Clock::time_point moment(std::uint64_t number) const {
    return began_ +
           to_clock(std::chrono::duration<double>(static_cast<double>(number) / options_.rate));
  }

  /// Hands out what is due by now, to the connections in turn, and waits for the next.
  void pace() {
    const auto now = Clock::now();
    const auto first = handed_out_;
    while (left_ > 0 && moment(handed_out_) <= now && moment(handed_out_) < ends_) {
      ++clients_[handed_out_ % clients_.size()].due;
      ++handed_out_;
      if (left_ != kUnlimited) --left_;
    }
    const auto touched = std::min<std::uint64_t>(handed_out_ - first, clients_.size());
    for (std::uint64_t i = 0; i < touched; ++i) {
      clients_[(first + i) % clients_.size()].connection->begin(now);
    }
    if (left_ == 0 || now >= ends_) {
      is_over_ = true;
      return stop_if_done();
    }
    pace_.expires_at(std::min(moment(handed_out_), ends_));
    pace_.async_wait([this](const boost::system::error_code& why) {
      if (!why) pace();
    });
  }

  void watch() {
    watch_.expires_after(kWatchInterval);
    watch_.async_wait([this](const boost::system::error_code& why) {
      if (why) return;
      if (busy_ > 0 && Clock::now() - last_reply_ > options_.patience) {
        note_error(fmt::format("no reply for {} s", options_.patience.count()), busy_);
        context_.stop();
        return;
      }
      watch();
    });
  }

  void watch_window(std::uint64_t number) {
    // From the beginning, not from the last one: they must not drift.
    window_.expires_at(counts_from_ + to_clock(options_.window * static_cast<double>(number)));
    window_.async_wait([this, number](const boost::system::error_code& why) {
      if (why) return;
      const auto seconds = options_.window.count();
      options_.on_window({.begin_seconds = seconds * static_cast<double>(number - 1),
                          .seconds = seconds,
                          .latency = std::exchange(in_window_, Histogram())});
      watch_window(number + 1);
    });
  }

  void stop_if_done() {
    if (is_over_ && busy_ == 0) context_.stop();
  }

  void note_error(std::string_view what, std::uint64_t count) {
    constexpr std::size_t kShown = 200;
    if (report_.errors == 0) report_.first_error = what.substr(0, kShown);
    report_.errors += count;
  }

  std::size_t take(std::size_t connection, std::size_t at_most, Clock::time_point now) override {
    if (is_open_loop()) {
      auto& client = clients_[connection];
      // What was due when the time was over would go on for as long as the server is behind.
      if (now >= ends_) return 0;
      const auto count = std::min<std::uint64_t>(client.due, at_most);
      client.due -= count;
      return count;
    }
    const auto count = now >= ends_ ? 0 : std::min<std::uint64_t>(left_, at_most);
    if (left_ != kUnlimited) left_ -= count;
    if (count == 0) is_over_ = true;
    return count;
  }

  Clock::time_point intended_start(std::size_t connection, Clock::time_point now) override {
    if (!is_open_loop()) return now;
    auto& client = clients_[connection];
    return moment(connection + client.sent++ * clients_.size());
  }

  void on_done(Clock::time_point intended, Clock::time_point now) override {
    last_reply_ = now;
    if (intended < counts_from_) return;
    last_counted_ = now;
    ++report_.operations;
    report_.latency.record(now - intended);
    if (options_.window.count() > 0) in_window_.record(now - intended);
  }

  void on_wrong_reply(std::string_view reply) override {
    last_reply_ = Clock::now();
    note_error(reply, 1);
  }

  void on_busy() override {
    ++busy_;
  }

  void on_idle() override {
    --busy_;
    stop_if_done();
  }

  void on_broken(std::string_view why, std::size_t lost) override {
    note_error(why, std::max<std::size_t>(lost, 1));
    if (++broken_ == clients_.size()) context_.stop();
  }

  const LoadOptions& options_;
  net::io_context context_;
  Requests requests_;
  std::uint64_t left_;  // requests that nobody has taken yet
  std::vector<Client> clients_;
  Timer pace_;
  Timer watch_;
  Timer window_;
  Timer warm_up_;
  LoadReport report_;
  Histogram in_window_;

  std::uint64_t handed_out_ = 0;
  std::size_t busy_ = 0;
  std::size_t broken_ = 0;
  bool is_over_ = false;
  Clock::time_point began_;
  Clock::time_point counts_from_;
  Clock::time_point ends_;
  Clock::time_point last_reply_;
  Clock::time_point last_counted_;
  double own_before_ = 0;
  std::optional<ProcessCost> server_before_;
};

LoadReport failed(std::string why) {
  LoadReport report;
  report.errors = 1;
  report.first_error = std::move(why);
  return report;
}

}  // namespace

LoadReport run_load(const LoadOptions& options) {
  if (options.requests.target == Target::disk) return run_disk(options);
  boost::system::error_code failure;
  const auto address = net::ip::make_address(options.host, failure);
  if (failure) return failed(fmt::format("{}: {}", options.host, failure.message()));
  const net::ip::tcp::endpoint server(address, options.port);

  std::string error;
  const auto preparation = prepare(options.requests.target, server, error);
  if (!preparation) return failed(std::move(error));
  return Load(options, *preparation).run(server);
}

}  // namespace fencekv::bench
