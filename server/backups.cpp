// SPDX-License-Identifier: Apache-2.0

#include "server/backups.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace fencekv::server {
namespace {

constexpr std::size_t kNameBytes = 64;

Error no_root() {
  return {Errc::invalid, "this server makes no backups: start it with --backup-root DIR"};
}

/// What the caller of the protocol can do about it.
Error on_the_wire(const Error& error) {
  switch (error.code()) {
    case Errc::no_space:
      return {Errc::misconf, error.detail() + "; nothing is left of the backup"};
    case Errc::in_use:
    case Errc::unreachable:
      return {Errc::overloaded, error.detail()};
    default:
      return error;
  }
}

}  // namespace

bool is_backup_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= kNameBytes && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

Backups::Backups(Store& store, std::filesystem::path root, spdlog::logger& log)
    : store_(store), root_(std::move(root)), log_(log) {}

Backups::~Backups() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

Result<void> Backups::begin(std::string_view name, Done done) {
  if (root_.empty()) return no_root();
  if (!is_backup_name(name)) {
    return Error(Errc::invalid,
                 "a backup has a name of 1 to 64 letters, digits, dots, underscores and hyphens, "
                 "without a dot in front");
  }
  const std::lock_guard lock(mutex_);
  if (is_busy_) return Error(Errc::overloaded, "another backup is being made; not executed");
  // Its work is done; only its end is waited for.
  if (thread_.joinable()) thread_.join();
  try {
    thread_ =
        std::thread([this, name = std::string(name), done = std::move(done)] { make(name, done); });
  } catch (const std::system_error&) {
    return Error(Errc::overloaded, "no thread can be started now; not executed");
  }
  is_busy_ = true;
  return {};
}

void Backups::make(const std::string& name, const Done& done) {
  const auto began = std::chrono::steady_clock::now();
  auto made = store_.backup(root_ / name, stop_.get_token());
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::steady_clock::now() - began)
                        .count();
  if (made) {
    log_.info("backup {}: {} records, {} bytes, up to group {}, in {} ms", name, made->records,
              made->bytes, made->group, took);
  } else {
    log_.error("no backup {}: {}", name, made.error().line());
  }
  {
    const std::lock_guard lock(mutex_);
    is_busy_ = false;
  }
  done(made ? std::move(made) : Result<Backup>(on_the_wire(made.error())));
}

Result<std::vector<Backup>> Backups::list() const {
  if (root_.empty()) return no_root();
  return list_backups(root_);
}

void Backups::cancel() {
  stop_.request_stop();
}

}  // namespace fencekv::server
