// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/load/postgres_connection.h"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace fencekv::bench {

namespace net = boost::asio;

namespace {

constexpr const char* kTable =
    "CREATE TABLE IF NOT EXISTS bench "
    "(key text PRIMARY KEY, fence bigint NOT NULL, value bytea NOT NULL)";

struct Statement {
  const char* name;
  const char* text;
};
constexpr Statement kWrite{"write",
                           "INSERT INTO bench AS b (key, fence, value) VALUES ($1, 1, $2) "
                           "ON CONFLICT (key) DO UPDATE SET fence = excluded.fence, "
                           "value = excluded.value WHERE b.fence <= excluded.fence"};
constexpr Statement kRead{"read", "SELECT value FROM bench WHERE key = $1"};
constexpr Statement kLock{"lock", "SELECT pg_try_advisory_lock($1::bigint)"};
constexpr Statement kUnlock{"unlock", "SELECT pg_advisory_unlock($1::bigint)"};
constexpr std::array kStatements{kWrite, kRead, kLock, kUnlock};

using QueryResult = std::unique_ptr<PGresult, decltype(&PQclear)>;

class PostgresConnection final : public Connection {
 public:
  PostgresConnection(net::io_context& context, Director& director, Requests& requests, Place place,
                     PostgresServer server)
      : director_(director),
        requests_(requests),
        place_(place),
        server_(std::move(server)),
        connection_(nullptr, &PQfinish),
        readable_(context) {}

  ~PostgresConnection() override {
    if (readable_.is_open()) readable_.release();  // libpq closes it
  }
  PostgresConnection(const PostgresConnection&) = delete;
  PostgresConnection& operator=(const PostgresConnection&) = delete;

  bool connect(std::string& why) override {
    connection_.reset(PQconnectdb(fmt::format("host={} port={} sslmode=disable gssencmode=disable "
                                              "options='-c client_min_messages=warning'",
                                              server_.host, server_.port)
                                      .c_str()));
    if (PQstatus(connection_.get()) != CONNECTION_OK || !prepare()) {
      why = PQerrorMessage(connection_.get());
      return false;
    }
    readable_.assign(PQsocket(connection_.get()));
    receive();
    return true;
  }

  void begin(Clock::time_point now) override {
    if (is_broken_ || !in_flight_.empty()) return;
    if (!fill(now)) return;
    director_.on_busy();
    send();
  }

 private:
  enum class Kind { write, read, lock, unlock };
  struct InFlight {
    Kind kind;
    std::uint64_t number;
    Clock::time_point intended;
  };

  bool prepare() {
    // Every connection tries; the first one makes it.
    if (place_.index == 0) {
      const QueryResult made(PQexec(connection_.get(), kTable), &PQclear);
      if (PQresultStatus(made.get()) != PGRES_COMMAND_OK) return false;
    }
    for (const auto& [name, text] : kStatements) {
      const QueryResult done(PQprepare(connection_.get(), name, text, 0, nullptr), &PQclear);
      if (PQresultStatus(done.get()) != PGRES_COMMAND_OK) return false;
    }
    return PQsetnonblocking(connection_.get(), 1) == 0 &&
           PQenterPipelineMode(connection_.get()) == 1;
  }

  bool fill(Clock::time_point now) {
    const auto count = director_.take(place_.index, place_.pipeline, now);
    const auto workload = requests_.options().workload;
    for (std::size_t i = 0; i < count; ++i) {
      const auto intended = director_.intended_start(place_.index, now);
      if (requests_.is_lease()) {
        const auto lease = requests_.lease_number(place_.index * place_.pipeline + i,
                                                  place_.connections * place_.pipeline);
        in_flight_.push_back({Kind::lock, lease, intended});
        continue;
      }
      const bool reads = workload != Workload::write || requests_.next_is_read();
      in_flight_.push_back({reads ? Kind::read : Kind::write, requests_.next_key(), intended});
    }
    if (is_batch_atomic()) {
      // So that no two transactions wait for each other.
      std::stable_sort(in_flight_.begin(), in_flight_.end(),
                       [](const auto& a, const auto& b) { return a.number < b.number; });
    }
    return count > 0;
  }

  void send() {
    // libpq writes at every sync; the kernel sends all of it at once.
    hold_back(true);
    bool is_sent = true;
    for (std::size_t i = 0; i < in_flight_.size() && is_sent; ++i) {
      is_sent = queue(in_flight_[i]);
      if (is_batch_atomic() && i + 1 < in_flight_.size()) continue;
      is_sent = is_sent && PQpipelineSync(connection_.get()) == 1;
    }
    hold_back(false);
    if (!is_sent) return give_up(PQerrorMessage(connection_.get()));
    flush();
  }

  bool is_batch_atomic() const { return requests_.options().is_batch_atomic; }

  void hold_back(bool is_wanted) {
    if (in_flight_.size() == 1) return;
    const int on = is_wanted ? 1 : 0;
    // Without it the batch is sent in pieces, nothing else.
    (void)setsockopt(PQsocket(connection_.get()), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
  }

  bool queue(const InFlight& request) {
    auto* const connection = connection_.get();
    if (request.kind == Kind::lock || request.kind == Kind::unlock) {
      const auto number = std::to_string(request.number);
      const char* const values[] = {number.c_str()};
      const auto* const name = request.kind == Kind::lock ? kLock.name : kUnlock.name;
      return PQsendQueryPrepared(connection, name, 1, values, nullptr, nullptr, 0) == 1;
    }
    const KeyText key(kKeyKind, request.number);
    const std::string_view value =
        request.kind == Kind::write ? requests_.next_value() : std::string_view();
    const char* const values[] = {key.view().data(), value.data()};
    const int lengths[] = {static_cast<int>(key.view().size()), static_cast<int>(value.size())};
    constexpr int kBinary = 1;
    const int formats[] = {kBinary, kBinary};
    return request.kind == Kind::write
               ? PQsendQueryPrepared(connection, kWrite.name, 2, values, lengths, formats, kBinary)
               : PQsendQueryPrepared(connection, kRead.name, 1, values, lengths, formats, kBinary);
  }

  void flush() {
    const int left = PQflush(connection_.get());
    if (left < 0) return give_up(PQerrorMessage(connection_.get()));
    if (left == 0) return;
    readable_.async_wait(net::posix::stream_descriptor::wait_write,
                         [this](const boost::system::error_code& failure) {
                           if (!failure && !is_broken_) flush();
                         });
  }

  void receive() {
    readable_.async_wait(net::posix::stream_descriptor::wait_read,
                         [this](const boost::system::error_code& failure) {
                           if (failure) {
                             give_up(failure.message());
                           } else {
                             on_readable();
                           }
                         });
  }

  void on_readable() {
    if (is_broken_) return;
    if (PQconsumeInput(connection_.get()) != 1) return give_up(PQerrorMessage(connection_.get()));
    const auto now = Clock::now();
    // After each statement's result comes a null, and after each transaction its end.
    while (!in_flight_.empty() && PQisBusy(connection_.get()) == 0) {
      const QueryResult result(PQgetResult(connection_.get()), &PQclear);
      if (!result) continue;
      if (PQresultStatus(result.get()) == PGRES_PIPELINE_SYNC) {
        on_committed(now);
      } else if (answered_ < in_flight_.size()) {
        on_result(in_flight_[answered_++], result.get());
      } else {
        return give_up("a result of nothing");
      }
    }
    if (!is_broken_) receive();
  }

  /// A write counts when its transaction ends: that is when it is committed.
  void on_result(const InFlight& request, PGresult* result) {
    bool is_right = false;
    switch (request.kind) {
      case Kind::write:
        is_right = PQresultStatus(result) == PGRES_COMMAND_OK &&
                   std::string_view(PQcmdTuples(result)) == "1";
        break;
      case Kind::read:
        is_right = is_read_right(result);
        break;
      case Kind::lock:
      case Kind::unlock:
        is_right = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
                   std::string_view(PQgetvalue(result, 0, 0)) == "t";
        break;
    }
    if (!is_right) {
      const std::string_view error = PQresultErrorMessage(result);
      director_.on_wrong_reply(error.empty() ? "another result than it must be" : error);
    } else {
      right_.push_back(request);
    }
  }

  bool is_read_right(PGresult* result) const {
    if (PQresultStatus(result) != PGRES_TUPLES_OK) return false;
    const auto& options = requests_.options();
    if (PQntuples(result) == 0) return options.allows_missing;
    return static_cast<std::size_t>(PQgetlength(result, 0, 0)) == options.value_bytes;
  }

  void on_committed(Clock::time_point now) {
    for (const auto& request : right_) {
      if (request.kind == Kind::lock) {
        next_in_flight_.push_back({Kind::unlock, request.number, request.intended});
      } else {
        director_.on_done(request.intended, now);
      }
    }
    right_.clear();
    if (answered_ == in_flight_.size()) on_batch_done(now);
  }

  void on_batch_done(Clock::time_point now) {
    in_flight_.clear();
    std::swap(in_flight_, next_in_flight_);
    answered_ = 0;
    if (!in_flight_.empty() || fill(now)) {
      send();
    } else {
      director_.on_idle();
    }
  }

  void give_up(std::string_view why) {
    if (is_broken_) return;
    is_broken_ = true;
    const auto lost = in_flight_.size() - answered_ + right_.size();
    const bool was_busy = !in_flight_.empty();
    in_flight_.clear();
    if (readable_.is_open()) readable_.release();
    if (was_busy) director_.on_idle();
    director_.on_broken(why, lost);
  }

  Director& director_;
  Requests& requests_;
  const Place place_;
  const PostgresServer server_;
  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
  net::posix::stream_descriptor readable_;  // connection_'s socket, which is not closed by it
  bool is_broken_ = false;
  std::vector<InFlight> in_flight_;
  std::size_t answered_ = 0;              // of in_flight_
  std::vector<InFlight> right_;           // answered, and not committed
  std::vector<InFlight> next_in_flight_;  // the second half of cycles
};

}  // namespace

std::unique_ptr<Connection> make_postgres_connection(net::io_context& context, Director& director,
                                                     Requests& requests, Connection::Place place,
                                                     PostgresServer server) {
  return std::make_unique<PostgresConnection>(context, director, requests, place,
                                              std::move(server));
}

}  // namespace fencekv::bench
