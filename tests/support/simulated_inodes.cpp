// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simulated_inodes.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fencekv::testing {

/// A file or a directory. Its durable half is what a power cut leaves for certain.
struct SimulatedInodes::Inode {
  using Names = std::map<std::string, InodePtr, std::less<>>;

  struct Change {
    std::uint64_t offset = 0;
    std::string bytes;
    bool is_truncation = false;  // To `offset`.
  };

  /// A name that went and one that came, in one step; either may be empty.
  struct NameChange {
    std::string removed;
    std::string added;
    InodePtr inode;
    /// Of a rename between two directories, which journals write down in one step: its number, the
    /// same in both, and the other directory.
    std::uint64_t step = 0;
    std::weak_ptr<Inode> other{};
  };

  bool is_directory = false;
  std::uint64_t modified = 0;

  std::string content;
  std::string durable;
  std::vector<Change> unsynced;

  Names names;
  Names durable_names;
  std::vector<NameChange> unsynced_names;
};

struct SimulatedInodes::Place {
  InodePtr parent;       // nullptr: no such directory.
  std::string name;      // In it.
  InodePtr inode;        // nullptr: no such name.
  int missing = ENOENT;  // Why there is no parent.
};

namespace {

using Inode = SimulatedInodes::Inode;
using InodePtr = SimulatedInodes::InodePtr;

/// The next name of a path, which is cut off; empty: there is none.
std::string_view next_name(std::string_view& path) {
  while (true) {
    const auto begin = path.find_first_not_of('/');
    if (begin == std::string_view::npos) return {};
    path.remove_prefix(begin);
    const auto end = std::min(path.find('/'), path.size());
    const auto name = path.substr(0, end);
    path.remove_prefix(end);
    if (name != ".") return name;
  }
}

void put(std::string& content, std::uint64_t offset, std::string_view bytes) {
  const auto end = static_cast<std::size_t>(offset) + bytes.size();
  if (content.size() < end) content.resize(end, '\0');
  std::copy(bytes.begin(), bytes.end(),
            content.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(offset)));
}

void apply(std::string& content, const Inode::Change& change) {
  if (change.is_truncation) {
    content.resize(static_cast<std::size_t>(change.offset), '\0');
  } else {
    put(content, change.offset, change.bytes);
  }
}

void apply(Inode::Names& names, const Inode::NameChange& change) {
  if (!change.removed.empty()) names.erase(change.removed);
  if (!change.added.empty()) names[change.added] = change.inode;
}

std::uint64_t pick(std::mt19937_64& random, std::uint64_t below) {
  return random() % below;
}

/// The first changes, the last of them perhaps only up to the end of a sector.
std::string torn_in_order(const Inode& file, std::mt19937_64& random, std::uint64_t sector) {
  auto content = file.durable;
  const auto whole = pick(random, file.unsynced.size());
  for (std::size_t i = 0; i < whole; ++i) apply(content, file.unsynced[i]);
  const auto& torn = file.unsynced[whole];
  if (torn.is_truncation) return content;
  const auto first = torn.offset / sector;
  const auto last = (torn.offset + torn.bytes.size()) / sector;
  const auto end = (first + pick(random, last - first + 1)) * sector;
  if (end > torn.offset) {
    put(content, torn.offset, std::string_view(torn.bytes).substr(0, end - torn.offset));
  }
  return content;
}

/// Each sector in one of the states that it went through.
std::string out_of_order(const Inode& file, std::mt19937_64& random, std::uint64_t sector) {
  std::map<std::uint64_t, std::uint64_t> states;
  const auto each_part = [&](const auto& visit) {
    for (const auto& change : file.unsynced) {
      if (change.is_truncation) continue;
      for (std::uint64_t done = 0; done < change.bytes.size();) {
        const auto at = change.offset + done;
        const auto part = std::min<std::uint64_t>(sector - at % sector, change.bytes.size() - done);
        visit(at, std::string_view(change.bytes).substr(done, part));
        done += part;
      }
    }
  };
  each_part([&](std::uint64_t at, std::string_view) { ++states[at / sector]; });
  for (auto& [number, count] : states) count = pick(random, count + 1);

  auto content = file.durable;
  each_part([&](std::uint64_t at, std::string_view bytes) {
    auto& left = states[at / sector];
    if (left == 0) return;
    --left;
    put(content, at, bytes);
  });
  // The size is of another block than the bytes.
  if (content.size() < file.content.size() && pick(random, 2) == 0) {
    content.resize(file.content.size(), '\0');
  }
  return content;
}

std::string surviving_content(const Inode& file, std::mt19937_64& random) {
  if (file.unsynced.empty()) return file.durable;
  const std::uint64_t sector = pick(random, 2) == 0 ? 512 : 4096;
  switch (pick(random, 4)) {
    case 0:
      return file.durable;
    case 1:
      return file.content;
    case 2:
      return torn_in_order(file, random, sector);
    default:
      return out_of_order(file, random, sector);
  }
}

/// Which renames between two directories survive, by their number.
using Renames = std::map<std::uint64_t, bool>;

Inode::Names surviving_names(const Inode& directory, std::mt19937_64& random, Renames& renames) {
  auto names = directory.durable_names;
  const auto& changes = directory.unsynced_names;
  if (changes.empty()) return names;
  const bool is_in_order = pick(random, 2) == 0;
  const auto kept = pick(random, changes.size() + 1);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    bool survives = is_in_order ? i < kept : pick(random, 2) == 0;
    // Whichever of the two directories comes first has decided.
    if (changes[i].step != 0)
      survives = renames.try_emplace(changes[i].step, survives).first->second;
    if (survives) apply(names, changes[i]);
  }
  return names;
}

/// And with it what is in one step with one of its changes.
void make_names_durable(Inode& directory) {
  directory.durable_names = directory.names;
  for (const auto& change : std::exchange(directory.unsynced_names, {})) {
    if (const auto other = change.other.lock()) make_names_durable(*other);
  }
}

using Copies = std::map<const Inode*, InodePtr>;

InodePtr copy_of(const InodePtr& inode, Copies& copies) {
  auto& copy = copies[inode.get()];
  if (copy) return copy;
  copy = std::make_shared<Inode>(*inode);
  const auto result = copy;  // `copies` grows below.
  for (auto& [name, child] : result->names) child = copy_of(child, copies);
  for (auto& [name, child] : result->durable_names) child = copy_of(child, copies);
  for (auto& change : result->unsynced_names) {
    if (change.inode) change.inode = copy_of(change.inode, copies);
    if (const auto other = change.other.lock()) change.other = copy_of(other, copies);
  }
  return result;
}

InodePtr survivor_of(const InodePtr& inode, std::mt19937_64& random, Copies& copies,
                     Renames& renames) {
  auto& copy = copies[inode.get()];
  if (copy) return copy;
  copy = std::make_shared<Inode>();
  const auto result = copy;
  result->is_directory = inode->is_directory;
  result->modified = inode->modified;
  if (inode->is_directory) {
    result->names = surviving_names(*inode, random, renames);
    for (auto& [name, child] : result->names) {
      child = survivor_of(child, random, copies, renames);
    }
    result->durable_names = result->names;
  } else {
    result->content = surviving_content(*inode, random);
    result->durable = result->content;
  }
  return result;
}

void visit_files(const Inode& directory, const std::string& path,
                 const std::function<void(const std::string&, const InodePtr&)>& visit) {
  for (const auto& [name, child] : directory.names) {
    const auto where = path + "/" + name;
    if (child->is_directory) {
      visit_files(*child, where, visit);
    } else {
      visit(where, child);
    }
  }
}

}  // namespace

std::string_view to_string(DiskOperation operation) {
  switch (operation) {
    case DiskOperation::create:
      return "create";
    case DiskOperation::open:
      return "open";
    case DiskOperation::read:
      return "read";
    case DiskOperation::write:
      return "write";
    case DiskOperation::sync:
      return "sync";
    case DiskOperation::truncate:
      return "truncate";
    case DiskOperation::rename:
      return "rename";
    case DiskOperation::link:
      return "link";
    case DiskOperation::remove:
      return "remove";
    case DiskOperation::make_directory:
      return "make_directory";
    case DiskOperation::sync_directory:
      return "sync_directory";
    case DiskOperation::look:
      return "look";
    case DiskOperation::lock:
      return "lock";
  }
  return "?";
}

bool is_change(DiskOperation operation) {
  return operation != DiskOperation::open && operation != DiskOperation::read &&
         operation != DiskOperation::look && operation != DiskOperation::lock;
}

SimulatedInodes::SimulatedInodes() : root_(std::make_shared<Inode>()), full_number_(ENOSPC) {
  root_->is_directory = true;
}

std::optional<DiskFailure> SimulatedInodes::begin(DiskOperation operation, std::string_view path,
                                                  std::uint64_t offset, std::string_view bytes) {
  ++calls_;
  ++moment_;
  if (!hook_) return std::nullopt;
  return hook_({calls_, operation, path, offset, bytes});
}

SimulatedInodes::Place SimulatedInodes::find(std::string_view path) const {
  Place place{.parent = nullptr, .name = "", .inode = root_};
  while (true) {
    const auto name = next_name(path);
    if (name.empty()) return place;
    if (!place.inode) return {};
    if (!place.inode->is_directory)
      return {.parent = nullptr, .name = "", .inode = nullptr, .missing = ENOTDIR};
    place.parent = place.inode;
    place.name = name;
    const auto found = place.parent->names.find(name);
    place.inode = found == place.parent->names.end() ? nullptr : found->second;
  }
}

int SimulatedInodes::create(std::string_view path, bool exclusive, InodePtr* file) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::create, path)) return failed->number;
  const auto place = find(path);
  if (!place.parent) return place.missing;
  if (place.inode && exclusive) return EEXIST;
  if (place.inode && place.inode->is_directory) return EISDIR;
  if (place.inode) {
    *file = place.inode;
    if (place.inode->content.empty()) return 0;
    place.inode->content.clear();
    place.inode->unsynced.push_back({.offset = 0, .bytes = "", .is_truncation = true});
    return 0;
  }
  *file = std::make_shared<Inode>();
  (*file)->modified = moment_;
  place.parent->names[place.name] = *file;
  place.parent->unsynced_names.push_back({.removed = "", .added = place.name, .inode = *file});
  return 0;
}

int SimulatedInodes::open(std::string_view path, InodePtr* file) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::open, path)) return failed->number;
  const auto place = find(path);
  if (!place.inode) return place.missing;
  *file = place.inode;
  return 0;
}

int SimulatedInodes::read(const InodePtr& file, std::string_view path, std::uint64_t offset,
                          std::size_t size, std::string* bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::read, path, offset)) return failed->number;
  if (file->is_directory) return EISDIR;
  bytes->clear();
  if (offset < file->content.size()) {
    bytes->assign(file->content, static_cast<std::size_t>(offset), size);
  }
  return 0;
}

int SimulatedInodes::write_locked(Inode& file, std::string_view path, std::uint64_t offset,
                                  std::string_view bytes) {
  const auto failed = begin(DiskOperation::write, path, offset, bytes);
  int number = 0;
  if (failed) {
    number = failed->number;
    bytes = bytes.substr(0, failed->written);
  } else if (capacity_ != UINT64_MAX && offset + bytes.size() > file.content.size()) {
    const auto grows = offset + bytes.size() - file.content.size();
    const auto in_use = used();
    const auto left = capacity_ - std::min(capacity_, in_use);
    if (grows > left) {
      number = full_number_;
      const auto missing = std::min<std::uint64_t>(grows - left, bytes.size());
      bytes.remove_suffix(static_cast<std::size_t>(missing));
    }
  }
  if (bytes.empty()) return number;
  put(file.content, offset, bytes);
  file.unsynced.push_back({.offset = offset, .bytes = std::string(bytes)});
  file.modified = moment_;
  return number;
}

int SimulatedInodes::write(const InodePtr& file, std::string_view path, std::uint64_t offset,
                           std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  return write_locked(*file, path, offset, bytes);
}

int SimulatedInodes::append(const InodePtr& file, std::string_view path, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  return write_locked(*file, path, file->content.size(), bytes);
}

int SimulatedInodes::sync(const InodePtr& file, std::string_view path) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::sync, path)) return failed->number;
  for (const auto& change : file->unsynced) apply(file->durable, change);
  file->unsynced.clear();
  return 0;
}

int SimulatedInodes::truncate(const InodePtr& file, std::string_view path, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::truncate, path, size)) return failed->number;
  if (file->content.size() == size) return 0;
  file->content.resize(static_cast<std::size_t>(size), '\0');
  file->unsynced.push_back({.offset = size, .bytes = "", .is_truncation = true});
  return 0;
}

int SimulatedInodes::rename(std::string_view from, std::string_view to) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::rename, to)) return failed->number;
  const auto source = find(from);
  const auto target = find(to);
  if (!source.inode) return source.missing;
  if (!source.parent) return EBUSY;
  if (!target.parent) return target.missing;
  if (source.inode == target.inode) return 0;
  if (target.inode && target.inode->is_directory != source.inode->is_directory) {
    return target.inode->is_directory ? EISDIR : ENOTDIR;
  }
  if (target.inode && !target.inode->names.empty()) return ENOTEMPTY;
  source.parent->names.erase(source.name);
  target.parent->names[target.name] = source.inode;
  if (source.parent == target.parent) {
    source.parent->unsynced_names.push_back({source.name, target.name, source.inode});
  } else {
    const auto step = ++moment_;
    target.parent->unsynced_names.push_back({"", target.name, source.inode, step, source.parent});
    source.parent->unsynced_names.push_back({source.name, "", nullptr, step, target.parent});
  }
  return 0;
}

int SimulatedInodes::link(std::string_view from, std::string_view to) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::link, to)) return failed->number;
  const auto source = find(from);
  const auto target = find(to);
  if (!source.inode) return source.missing;
  if (source.inode->is_directory) return EPERM;
  if (!target.parent) return target.missing;
  if (target.inode) return EEXIST;
  target.parent->names[target.name] = source.inode;
  target.parent->unsynced_names.push_back({"", target.name, source.inode});
  return 0;
}

int SimulatedInodes::remove(std::string_view path) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::remove, path)) return failed->number;
  const auto place = find(path);
  if (!place.inode) return place.missing;
  if (!place.parent) return EBUSY;
  if (!place.inode->names.empty()) return ENOTEMPTY;
  place.parent->names.erase(place.name);
  place.parent->unsynced_names.push_back({place.name, "", nullptr});
  return 0;
}

int SimulatedInodes::make_directory(std::string_view path) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::make_directory, path)) return failed->number;
  const auto place = find(path);
  if (place.inode) return EEXIST;
  if (!place.parent) return place.missing;
  auto made = std::make_shared<Inode>();
  made->is_directory = true;
  place.parent->names[place.name] = made;
  place.parent->unsynced_names.push_back({"", place.name, std::move(made)});
  return 0;
}

int SimulatedInodes::sync_directory(std::string_view path) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::sync_directory, path)) return failed->number;
  const auto place = find(path);
  if (!place.inode) return place.missing;
  if (!place.inode->is_directory) return ENOTDIR;
  make_names_durable(*place.inode);
  return 0;
}

int SimulatedInodes::list(std::string_view path, std::vector<std::string>* names) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::look, path)) return failed->number;
  const auto place = find(path);
  if (!place.inode) return place.missing;
  if (!place.inode->is_directory) return ENOTDIR;
  names->clear();
  for (const auto& [name, child] : place.inode->names) names->push_back(name);
  return 0;
}

int SimulatedInodes::look(std::string_view path, bool* is_directory, std::uint64_t* size,
                          std::uint64_t* modified) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::look, path)) return failed->number;
  const auto place = find(path);
  if (!place.inode) return place.missing;
  if (is_directory != nullptr) *is_directory = place.inode->is_directory;
  if (size != nullptr) *size = place.inode->content.size();
  if (modified != nullptr) *modified = place.inode->modified;
  return 0;
}

int SimulatedInodes::lock(std::string_view path, std::string_view kind, bool exclusive) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = begin(DiskOperation::lock, path)) return failed->number;
  auto& holders = locks_[std::string(kind) + ":" + std::string(path)];
  if (holders < 0 || (exclusive && holders > 0)) return EWOULDBLOCK;
  holders = exclusive ? -1 : holders + 1;
  return 0;
}

void SimulatedInodes::unlock(std::string_view path, std::string_view kind, bool exclusive) {
  const std::lock_guard lock(mutex_);
  auto& holders = locks_[std::string(kind) + ":" + std::string(path)];
  holders = exclusive ? 0 : holders - 1;
}

bool SimulatedInodes::are_same(std::string_view first, std::string_view second) {
  const std::lock_guard lock(mutex_);
  const auto one = find(first).inode;
  return one && one == find(second).inode;
}

std::uint64_t SimulatedInodes::size_of(const InodePtr& file) const {
  const std::lock_guard lock(mutex_);
  return file->content.size();
}

std::uint64_t SimulatedInodes::used() const {
  const std::lock_guard lock(mutex_);
  std::map<const Inode*, std::uint64_t> sizes;  // A file of two names counts once.
  visit_files(*root_, "", [&](const std::string&, const InodePtr& file) {
    sizes[file.get()] = file->content.size();
  });
  std::uint64_t sum = 0;
  for (const auto& [file, size] : sizes) sum += size;
  return sum;
}

std::uint64_t SimulatedInodes::capacity() const {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

void SimulatedInodes::set_capacity(std::uint64_t bytes, int number) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
  full_number_ = number;
}

void SimulatedInodes::set_hook(Hook hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

std::uint64_t SimulatedInodes::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::unique_ptr<SimulatedInodes> SimulatedInodes::after_process_crash() const {
  const std::lock_guard lock(mutex_);
  auto image = std::make_unique<SimulatedInodes>();
  Copies copies;
  image->root_ = copy_of(root_, copies);
  image->moment_ = moment_;
  image->capacity_ = capacity_;
  image->full_number_ = full_number_;
  return image;
}

std::unique_ptr<SimulatedInodes> SimulatedInodes::after_power_loss(std::mt19937_64& random) const {
  const std::lock_guard lock(mutex_);
  auto image = std::make_unique<SimulatedInodes>();
  Copies copies;
  Renames renames;
  image->root_ = survivor_of(root_, random, copies, renames);
  image->moment_ = moment_;
  image->capacity_ = capacity_;
  image->full_number_ = full_number_;
  return image;
}

std::optional<std::string> SimulatedInodes::content(std::string_view path) const {
  const std::lock_guard lock(mutex_);
  const auto place = find(path);
  if (!place.inode || place.inode->is_directory) return std::nullopt;
  return place.inode->content;
}

bool SimulatedInodes::replace(std::string_view path, std::string_view content) {
  const std::lock_guard lock(mutex_);
  const auto place = find(path);
  if (!place.inode || place.inode->is_directory) return false;
  place.inode->content = content;
  place.inode->durable = content;
  place.inode->unsynced.clear();
  return true;
}

bool SimulatedInodes::erase(std::string_view path) {
  const std::lock_guard lock(mutex_);
  const auto place = find(path);
  if (!place.inode || !place.parent) return false;
  place.parent->names.erase(place.name);
  place.parent->durable_names.erase(place.name);
  auto& changes = place.parent->unsynced_names;
  changes.erase(std::remove_if(changes.begin(), changes.end(),
                               [&](const auto& change) { return change.inode == place.inode; }),
                changes.end());
  return true;
}

std::vector<std::string> SimulatedInodes::files() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> paths;
  visit_files(*root_, "", [&](const std::string& path, const InodePtr&) { paths.push_back(path); });
  return paths;
}

bool SimulatedInodes::is_durable(std::string_view path) const {
  const std::lock_guard lock(mutex_);
  const auto place = find(path);
  if (!place.inode || !place.parent || !place.inode->unsynced.empty()) return false;
  const auto found = place.parent->durable_names.find(place.name);
  return found != place.parent->durable_names.end() && found->second == place.inode;
}

}  // namespace fencekv::testing
