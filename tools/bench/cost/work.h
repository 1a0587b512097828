// SPDX-License-Identifier: Apache-2.0
/// The kinds of commands whose cost is kept.

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace fencekv::bench {

/// Runs commands of one kind, a group at a time, each group through all that the product does with
/// it, in one thread and always in the same way.
///
///     work->prepare();   // not measured
///     work->run();       // measured
///     if (!work->is_right()) …
class Work {
 public:
  virtual ~Work() = default;

  /// Makes what the next group consists of, as a caller or a client would.
  virtual void prepare() = 0;
  virtual void run() = 0;
  /// Whether each command of the group had the answer that it must have.
  virtual bool is_right() = 0;
};

struct WorkKind {
  std::string_view name;  ///< `store/write/1`: by what, which command, how many a group.
  std::size_t group = 1;
  /// Opens what it needs in `directory`, which is empty.
  std::unique_ptr<Work> (*make)(const std::filesystem::path& directory, std::size_t group);
};

/// Through the public interface of the embedded store.
std::vector<WorkKind> engine_works();

/// From the bytes of the requests on a socket to the bytes of the replies.
std::vector<WorkKind> server_works();

}  // namespace fencekv::bench
