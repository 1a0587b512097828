// SPDX-License-Identifier: Apache-2.0
#include "fencekv/command.h"
#include "tools/bench/cost/scene.h"
#include "tools/bench/cost/work.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencekv::bench {
namespace {

/// Which keys a group is about.
enum class Keys : std::uint8_t { known, fresh };

/// Writes of one key each. One alone is the caller's own and led by it; several are queued, as by
/// connections, and decided together.
class WriteWork final : public Work {
 public:
  WriteWork(const std::filesystem::path& directory, std::size_t group, Keys keys, bool is_stale)
      : scene_(directory),
        group_(group),
        keys_(keys),
        expected_(is_stale ? std::optional(Errc::fenced) : std::nullopt),
        token_(is_stale ? scene_.older() : scene_.newer()) {}

  void prepare() override {
    right_ = 0;
    names_.clear();
    for (std::size_t i = 0; i < group_; ++i, ++number_) {
      names_.push_back(keys_ == Keys::known ? known_key(number_) : new_key(number_));
    }
  }

  void run() override {
    if (group_ == 1) {
      take(scene_.store().set(names_.front(), scene_.value(), token_));
      return;
    }
    for (const auto& name : names_) {
      Write write;
      write.entries.push_back({.key = name, .value = scene_.value()});
      write.token = token_;
      scene_.store().enqueue(std::move(write), [this](Result<Reply> reply) { take(reply); });
    }
    scene_.drain();
  }

  bool is_right() override { return right_ == group_; }

 private:
  template <class Answer>
  void take(const Result<Answer>& answer) {
    const auto refusal = answer ? std::nullopt : std::optional(answer.error().code());
    if (refusal == expected_) ++right_;
  }

  Scene scene_;
  const std::size_t group_;
  const Keys keys_;
  const std::optional<Errc> expected_;
  const Token token_;
  std::uint64_t number_ = 0;
  std::vector<std::string> names_;
  std::size_t right_ = 0;
};

/// Reads of what is committed: one key, or several at one point in time.
class ReadWork final : public Work {
 public:
  ReadWork(const std::filesystem::path& directory, std::size_t group)
      : scene_(directory), group_(group) {}

  void prepare() override {
    right_ = 0;
    names_.keys.clear();
    for (std::size_t i = 0; i < group_; ++i) names_.keys.push_back(known_key(number_++));
  }

  void run() override {
    if (group_ == 1) {
      const auto value = scene_.store().get(names_.keys.front());
      if (value && *value == scene_.value()) ++right_;
      return;
    }
    const auto states = scene_.store().read_committed(names_);
    if (!states) return;
    for (const auto& state : *states) {
      if (state.value == scene_.value()) ++right_;
    }
  }

  bool is_right() override { return right_ == group_; }

 private:
  Scene scene_;
  const std::size_t group_;
  std::uint64_t number_ = 0;
  Read names_;
  std::size_t right_ = 0;
};

/// Groups of acquisitions and groups that release what those got, in turn.
class LeaseWork final : public Work {
 public:
  LeaseWork(const std::filesystem::path& directory, std::size_t group)
      : scene_(directory), group_(group) {}

  void prepare() override {
    is_release_ = !is_release_;
    right_ = 0;
    if (is_release_) return;
    tokens_.clear();
    tokens_.reserve(group_);
    names_.clear();
    for (std::size_t i = 0; i < group_; ++i) names_.push_back(known_key(number_++));
  }

  void run() override {
    auto& store = scene_.store();
    if (group_ == 1 && is_release_) {
      if (store.release(names_.front(), kOwner, tokens_.front())) ++right_;
    } else if (group_ == 1) {
      const auto grant = store.acquire(names_.front(), kOwner, kTtl);
      if (!grant || !*grant) return;
      tokens_.push_back((*grant)->token);
      ++right_;
    } else if (is_release_) {
      for (std::size_t i = 0; i < group_; ++i) {
        store.enqueue(Release{.name = names_[i], .owner = std::string(kOwner), .token = tokens_[i]},
                      [this](Result<Reply> reply) {
                        if (reply) ++right_;
                      });
      }
    } else {
      for (const auto& name : names_) {
        // Answered in the order in which they are asked.
        store.enqueue(make_acquire(name, kOwner, kTtl), [this](Result<Reply> reply) {
          if (!reply || !std::get<Acquire::Reply>(*reply)) return;
          tokens_.push_back(std::get<Acquire::Reply>(*reply)->token);
          ++right_;
        });
      }
    }
    scene_.drain();
  }

  bool is_right() override { return right_ == group_; }

 private:
  Scene scene_;
  const std::size_t group_;
  bool is_release_ = true;
  std::uint64_t number_ = 0;
  std::vector<std::string> names_;
  std::vector<Token> tokens_;
  std::size_t right_ = 0;
};

template <Keys keys, bool is_stale>
std::unique_ptr<Work> make_write(const std::filesystem::path& directory, std::size_t group) {
  return std::make_unique<WriteWork>(directory, group, keys, is_stale);
}

template <class Kind>
std::unique_ptr<Work> make(const std::filesystem::path& directory, std::size_t group) {
  return std::make_unique<Kind>(directory, group);
}

}  // namespace

std::vector<WorkKind> engine_works() {
  return {{"store/write/1", 1, make_write<Keys::known, false>},
          {"store/write/64", 64, make_write<Keys::known, false>},
          {"store/write-new/1", 1, make_write<Keys::fresh, false>},
          {"store/write-new/64", 64, make_write<Keys::fresh, false>},
          {"store/stale/1", 1, make_write<Keys::known, true>},
          {"store/stale/64", 64, make_write<Keys::known, true>},
          {"store/read/1", 1, make<ReadWork>},
          {"store/read/64", 64, make<ReadWork>},
          {"store/lease/1", 1, make<LeaseWork>},
          {"store/lease/64", 64, make<LeaseWork>}};
}

}  // namespace fencekv::bench
