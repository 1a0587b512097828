// SPDX-License-Identifier: Apache-2.0
#include "tests/model/store_model.h"

#include <algorithm>

namespace fencekv::testing {
namespace {

std::string words(std::initializer_list<std::string> parts) {
  std::string line;
  for (const auto& part : parts) line += (line.empty() ? "" : " ") + part;
  return line;
}

std::string text(std::uint64_t number) {
  return std::to_string(number);
}
std::string text(std::int64_t number) {
  return std::to_string(number);
}
std::string text(const std::optional<std::string>& maybe) {
  return maybe.value_or("(none)");
}

}  // namespace

bool StoreModel::is_held(const Lease& lease) const {
  return lease.closed.empty() && !lease.expired && now_ < lease.deadline;
}

void StoreModel::reboot() {
  boot_began_ = now_;
  for (auto& [name, lease] : leases_) {
    if (now_ >= lease.deadline) lease.expired = true;
    lease.deadline = lease.expired ? now_ : now_ + lease.ttl;
  }
}

void StoreModel::skip_to(std::uint64_t token) {
  skipped_ = std::max(skipped_, token);
}

std::string StoreModel::lease_refusal(const std::string& name, std::uint64_t token,
                                      bool live) const {
  const auto found = leases_.find(name);
  if (found == leases_.end()) return "NOLEASE " + name;
  const auto& lease = found->second;
  const auto numbers = text(lease.fence) + " " + text(token);
  if (token > lease.fence) return "UNISSUED " + numbers;
  if (token < lease.fence) return "FENCED " + numbers + " superseded";
  if (!lease.closed.empty()) return "FENCED " + numbers + " " + lease.closed;
  if (live && !is_held(lease)) {
    return "EXPIRED " + text(now_ - std::max(lease.deadline, boot_began_));
  }
  return "";
}

std::string StoreModel::refusal(const std::string& name, const Write& write) const {
  const auto found = keys_.find(name);
  const auto key = found == keys_.end() ? Key{} : found->second;

  if (key.guard && write.lease && *write.lease != *key.guard) return "WRONGLEASE " + *key.guard;
  const auto lease = key.guard ? key.guard : write.lease;
  if (lease) {
    const auto refused = lease_refusal(*lease, write.token, write.live);
    if (!refused.empty()) return refused;
  } else if (write.token > newest_) {
    return words({"UNISSUED", text(newest_), text(write.token)});
  }
  if (write.token < key.fence)
    return words({"FENCED", text(key.fence), text(write.token), "stale"});
  if (write.once && write.token == key.fence) {
    return words({"FENCED", text(key.fence), text(write.token), "once"});
  }
  if (write.if_version) {
    const bool fits =
        *write.if_version == 0 ? !key.value.has_value() : *write.if_version == key.version;
    if (!fits) return words({"VERSION", text(key.version), text(*write.if_version)});
  }
  return "";
}

std::string StoreModel::write(const Write& write) {
  std::size_t remembered = 0;
  std::string replay = "OK";
  for (const auto& [name, value] : write.entries) {
    const auto found = keys_.find(name);
    const bool has_guard = found != keys_.end() && found->second.guard;
    if (write.live && !write.lease && !has_guard) return "ERR";
    if (found == keys_.end() || !write.request) continue;
    if (found->second.writer == write.token && found->second.request == write.request) {
      ++remembered;
      replay += " " + text(found->second.version);
    }
  }
  if (remembered == write.entries.size()) return replay;
  if (remembered > 0) return "ERR";

  std::string refused;
  std::string offending;
  for (const auto& [name, value] : write.entries) {
    const auto why = refusal(name, write);
    if (why.empty()) continue;
    if (refused.empty()) refused = why;
    const auto found = keys_.find(name);
    offending += " " + name + "=" + text(found == keys_.end() ? 0 : found->second.fence);
  }
  if (!refused.empty()) return write.entries.size() > 1 ? refused + offending : refused;

  std::string line = "OK";
  for (const auto& [name, value] : write.entries) {
    auto& key = keys_[name];
    key.fence = write.token;
    key.writer = write.token;
    ++key.version;
    if (!key.guard) key.guard = write.lease;
    key.request = write.request;
    key.value = value;
    line += " " + text(key.version);
  }
  return line;
}

std::string StoreModel::raise(const std::string& key, std::uint64_t token,
                              const std::optional<std::string>& lease) {
  Write as_write;
  as_write.token = token;
  as_write.lease = lease;
  const auto refused = refusal(key, as_write);
  if (!refused.empty()) return refused;
  keys_[key].fence = token;
  return "OK " + text(token);
}

std::string StoreModel::reset(const std::string& key, std::uint64_t token) {
  if (token > newest_) return words({"UNISSUED", text(newest_), text(token)});
  const auto before = keys_[key].fence;
  keys_[key].fence = token;
  return words({"OK", text(before), text(token)});
}

std::string StoreModel::read(const std::string& name) const {
  const auto found = keys_.find(name);
  const auto key = found == keys_.end() ? Key{} : found->second;
  return words({"OK", text(key.value), text(key.version), text(key.fence), text(key.guard),
                text(key.request)});
}

std::string StoreModel::acquire(const std::string& name, const std::string& owner,
                                Milliseconds ttl) {
  const auto found = leases_.find(name);
  if (found != leases_.end() && is_held(found->second)) {
    auto& lease = found->second;
    if (lease.owner != owner) return "OK (none)";
    lease.deadline = now_ + ttl;
    lease.ttl = ttl;
    return words({"OK", text(lease.fence), text(ttl)});
  }
  newest_ = std::max(newest_, skipped_) + 1;
  leases_[name] = {.fence = newest_,
                   .owner = owner,
                   .deadline = now_ + ttl,
                   .ttl = ttl,
                   .closed = "",
                   .expired = false};
  return words({"OK", text(newest_), text(ttl)});
}

std::string StoreModel::own_refusal(const std::string& name, const std::string& owner,
                                    std::uint64_t token) const {
  const auto found = leases_.find(name);
  if (found == leases_.end()) return "LEASELOST unknown";
  const auto& lease = found->second;
  if (token < lease.fence) return "LEASELOST superseded";
  if (token > lease.fence || owner != lease.owner) return "LEASELOST unknown";
  if (!lease.closed.empty()) return "LEASELOST " + lease.closed;
  if (!is_held(lease)) return "LEASELOST expired";
  return "";
}

std::string StoreModel::renew(const std::string& name, const std::string& owner,
                              std::uint64_t token, Milliseconds ttl) {
  const auto refused = own_refusal(name, owner, token);
  if (!refused.empty()) return refused;
  leases_[name].deadline = now_ + ttl;
  leases_[name].ttl = ttl;
  return "OK " + text(ttl);
}

std::string StoreModel::release(const std::string& name, const std::string& owner,
                                std::uint64_t token) {
  const auto refused = own_refusal(name, owner, token);
  if (refused == "LEASELOST released") return "OK";
  if (!refused.empty()) return refused;
  leases_[name].closed = "released";
  return "OK";
}

std::string StoreModel::revoke(const std::string& name) {
  const auto found = leases_.find(name);
  if (found == leases_.end()) return "LEASELOST unknown";
  if (found->second.closed.empty()) found->second.closed = "revoked";
  return "OK " + text(found->second.fence);
}

std::string StoreModel::inspect(const std::string& name) {
  const auto found = leases_.find(name);
  if (found == leases_.end()) return "OK 0 free";
  const auto& lease = found->second;
  if (!is_held(lease)) return words({"OK", text(lease.fence), "free"});
  return words({"OK", text(lease.fence), "held", text(lease.deadline - now_)});
}

}  // namespace fencekv::testing
