// SPDX-License-Identifier: Apache-2.0
/// The whole store in one thread under one seed: committer, rules, leases and RocksDB on a disk
/// that forgets, beside the model that says what it must answer. Between and in the midst of
/// commands the process dies, the power is cut, writes fail, background work runs, time passes.
///
/// After every opening the store must be what the model was after some group: not before the last
/// group that was answered, and as a whole. Which one it is, the store says by its position, and a
/// position that is wrong gives another content than the model's.
///
/// What is checked, by the numbers of the contract's invariants: I1 (tokens), I2 and I5 to I12 by
/// comparing every answer and every listing with the model, I3 and I4 over every crash.

#pragma once

#include "engine/core/make_store.h"
#include "tests/model/store_model.h"
#include "tests/support/manual_clock.h"
#include "tests/support/simulated_disk.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::testing {

/// What has happened in one or more lives.
struct SimulationCounts {
  std::uint64_t commands = 0;
  std::uint64_t groups = 0;
  std::uint64_t process_crashes = 0;
  std::uint64_t power_losses = 0;
  std::uint64_t crashes_while_opening = 0;
  std::uint64_t clean_stops = 0;
  std::uint64_t write_errors = 0;
  std::uint64_t floors_lifted = 0;
  std::uint64_t disk_calls = 0;

  SimulationCounts& operator+=(const SimulationCounts& other);
};

/// One life. Thread safety: none.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed);
  ~Simulation();

  /// Lives for so many rounds. nullopt: nothing was wrong; else what, with what came before it.
  std::optional<std::string> run(std::uint64_t rounds);

  const SimulationCounts& counts() const { return counts_; }
  /// Of everything that was asked and answered, in order.
  std::uint64_t trace() const { return trace_; }

 private:
  using Number = LeaseModel::Number;
  using Text = LeaseModel::Answer;
  /// A command, and what the model does with it: nullopt, it waits.
  struct Asked {
    Command command;
    std::string words;
    std::function<std::optional<Text>(StoreModel&, Number)> apply;
  };
  /// A command on its way.
  struct Pending {
    std::string words;
    std::optional<Result<Reply>> reply;
    int answers = 0;
    Ticket ticket = 0;
  };
  struct Visitor {
    std::unique_ptr<Session> session;
    LeaseModel::User number = 0;
    std::shared_ptr<std::vector<LeaseModel::Event>> told;
  };
  enum class Crash : std::uint8_t { process, power };
  /// The model, and when a group made it durable.
  struct Content {
    StoreModel model;
    int boot = 0;
    std::chrono::nanoseconds at{0};
  };
  /// What a group left, if it landed; `without_grant`: a token could not be reserved in it.
  struct Doubt {
    StoreModel after;
    StoreModel without_grant;
  };

  LeaseModel& leases() { return model_.leases(); }

  // Choices.
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  bool maybe(std::uint64_t one_in) { return pick(one_in) == 0; }
  std::string key();
  std::string lease();
  std::string owner();
  std::chrono::milliseconds ttl();
  std::chrono::milliseconds wait();
  Token token();
  Holding holding();
  std::vector<std::string> some_names();

  // Commands.
  enum class Kind : std::uint8_t { any, without_wait };
  Asked any_command(Kind kind, LeaseModel::User user);
  Asked acquire(Kind kind, LeaseModel::User user);
  Asked acquire_many(Kind kind, LeaseModel::User user);
  Asked await(LeaseModel::User user);
  Asked renew();
  Asked release();
  Asked renew_many();
  Asked release_many();
  Asked revoke();
  Asked raise();
  Asked reset();
  Asked read();
  Asked write();

  // A life.
  void round();
  std::size_t visitor();
  std::shared_ptr<Pending> submit(const Asked& asked, std::uint64_t session);
  void burst();
  void advance();
  void cancel();
  void watch();
  void leave(std::size_t index);
  void leave_all();
  void work_in_background();
  void reclaim();
  void fail_writes();
  void burst_in_danger(std::vector<Asked> commands);
  void look_while_suspended();
  void settle_doubt();

  // Beside the model.
  void step_until_idle();
  void settle();
  void compare(const std::string& words, const Result<Reply>& reply, const Text& expected);
  void compare_tokens();
  void compare_events();
  void compare_everything();
  void learn_ends();
  static std::string shown(const LeaseState& state);
  void keep(std::uint64_t content, std::uint64_t epoch, const StoreModel& model);
  const Content* find(std::uint64_t content, std::uint64_t epoch) const;
  void remember_content();
  void acknowledge(std::uint64_t content);

  // Ends and beginnings.
  void arm(std::uint64_t within);
  std::optional<DiskFailure> before_call(const DiskCall& call);
  bool handle_crash();
  void end_store();
  void lose_power();
  void stop_and_start();
  void open_somehow();
  std::optional<Error> open_store();
  void forget_visitors();

  bool check(bool holds, const std::string& what);
  void note(const std::string& line);

  std::mt19937_64 random_;
  std::mt19937_64 disk_random_;  // Its own: how much the disk asks for changes nothing else.
  SimulationCounts counts_;
  std::uint64_t trace_ = 14695981039346656037U;
  std::vector<std::string> last_;
  std::optional<std::string> failure_;

  const std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  int boot_ = 0;
  std::shared_ptr<SimulatedDisk> disk_ = std::make_shared<SimulatedDisk>(BackgroundWork::queued);
  core::DrivenStore store_;
  Durability durability_ = Durability::sync;
  std::uint64_t flush_after_ = 30;

  StoreModel model_;
  /// What may still be found on the disk, by how many groups of content it has, and its epoch.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Content> contents_;
  std::uint64_t groups_ = 0;  // Of the running store, as last seen.
  std::uint64_t epoch_ = 0;
  bool was_new_ = false;            // The store that was opened last.
  bool exists_ = false;             // A store was opened once.
  std::uint64_t acknowledged_ = 0;  // Content that a crash of the process may not undo.
  std::uint64_t durable_ = 0;       // Content that a power cut may not undo.
  std::uint64_t newest_seen_ = 0;   // Of all tokens that anybody was told.
  bool may_lift_ = false;           // The floor, at the next opening after a power cut.
  bool must_lift_ = false;
  bool power_lost_ = false;    // Since the last opening.
  bool gap_possible_ = false;  // Before the next token.
  std::optional<Doubt> doubt_;

  // What is to come.
  std::uint64_t crash_at_ = 0;  // The number of a disk call; 0: none.
  Crash crash_ = Crash::process;
  std::shared_ptr<SimulatedDisk> image_;
  bool answered_before_image_ = false;  // Something in this round.
  std::uint64_t fail_from_ = 0;         // The number of a disk call; 0: none.
  bool fail_for_good_ = false;
  int failure_number_ = 0;

  std::array<Visitor, 4> visitors_;
  LeaseModel::User users_ = 0;
  Number numbers_ = 0;
  std::map<Number, std::shared_ptr<Pending>> waiting_;
  std::vector<std::shared_ptr<Pending>> all_;
  std::uint64_t newest_before_ = 0;
  std::map<std::uint64_t, std::uint64_t> drawn_;  // In this round: the model's, the store's.
  std::optional<std::string> incarnation_;
};

}  // namespace fencekv::testing
