// SPDX-License-Identifier: Apache-2.0
#include "tests/model/store_model.h"

#include <initializer_list>

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
std::string text(const std::optional<std::string>& maybe) {
  return maybe.value_or("(none)");
}

}  // namespace

std::string StoreModel::refusal(const std::string& name, const Write& write) const {
  const auto found = keys_.find(name);
  const auto key = found == keys_.end() ? Key{} : found->second;

  if (write.token < leases_.floor()) {
    return words({"FENCED", text(leases_.floor()), text(write.token), "floor"});
  }
  if (key.guard && write.lease && *write.lease != *key.guard) return "WRONGLEASE " + *key.guard;
  const auto lease = key.guard ? key.guard : write.lease;
  if (lease) {
    const auto refused = leases_.write_refusal(*lease, write.token, write.live);
    if (!refused.empty()) return refused;
  } else if (write.token > leases_.newest()) {
    return words({"UNISSUED", text(leases_.newest()), text(write.token)});
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
  // What an ERR says is for people.
  if (refused == "ERR") return refused;
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

std::string StoreModel::reset(const std::string& key, std::uint64_t token,
                              const std::optional<std::string>& guard) {
  if (token > leases_.newest()) return words({"UNISSUED", text(leases_.newest()), text(token)});
  const auto before = keys_[key].fence;
  keys_[key].fence = token;
  if (guard) keys_[key].guard = guard->empty() ? std::nullopt : guard;
  return words({"OK", text(before), text(token)});
}

std::uint64_t StoreModel::reclaim() {
  return std::erase_if(keys_, [this](const auto& key) {
    return !key.second.value && key.second.fence < leases_.floor();
  });
}

std::string StoreModel::read(const std::string& name) const {
  const auto found = keys_.find(name);
  const auto key = found == keys_.end() ? Key{} : found->second;
  return words({"OK", text(key.value), text(key.version), text(key.fence), text(key.guard),
                text(key.request)});
}

}  // namespace fencekv::testing
