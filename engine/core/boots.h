// SPDX-License-Identifier: Apache-2.0
/// What a deadline means after the machine was started anew.
///
/// A lease's deadline counts from the boot in which it was granted. In the same boot it goes on
/// with exactly the time it had. In a new boot nobody knows how long the machine was off, so a
/// lease that was running gets its whole ttl again, once per boot, counted from the first opening
/// of the store in that boot. A lease whose time was over by the last clock reading that reached
/// the disk stays over: an expired lease is never revived.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fencekv::core {

/// One boot of the machine, as this store saw it.
struct Boot {
  std::string id;
  std::chrono::nanoseconds opened{0};  ///< since_boot() at the first opening in this boot.
  std::chrono::nanoseconds last{0};    ///< The last durable reading; of a boot that is over.

  friend bool operator==(const Boot&, const Boot&) = default;
};

/// A point of time in a boot, as a lease record keeps it.
struct Deadline {
  std::uint32_t boot = 0;  ///< Ordinal of the boot.
  std::chrono::nanoseconds at{0};

  friend bool operator==(const Deadline&, const Deadline&) = default;
};

class Boots {
 public:
  /// Older boots are forgotten; a lease that ran in one of them is over.
  static constexpr std::size_t kRemembered = 256;

  Boots() = default;
  /// `first` is the ordinal of the oldest of `boots`.
  Boots(std::uint32_t first, std::vector<Boot> boots) : first_(first), boots_(std::move(boots)) {}

  /// Goes on in the boot `id`, now at `now`. `last` is the last durable reading of the clock.
  /// Returns false if the store was already opened in this boot: then nothing changes.
  bool enter(const std::string& id, std::chrono::nanoseconds now, std::chrono::nanoseconds last);

  /// The ordinal of the running boot. Only after enter().
  std::uint32_t current() const { return first_ + static_cast<std::uint32_t>(boots_.size()) - 1; }

  /// When a lease with this deadline and ttl ends, on the running boot's clock; nullopt: it was
  /// over before this boot began.
  std::optional<std::chrono::nanoseconds> resolve(Deadline deadline,
                                                  std::chrono::nanoseconds ttl) const;

  /// When the `delay` after that end is over; nullopt: it was over before this boot began. A delay
  /// that was running when the machine stopped begins anew, as a lease does.
  std::optional<std::chrono::nanoseconds> resolve_delay(Deadline deadline,
                                                        std::chrono::nanoseconds ttl,
                                                        std::chrono::nanoseconds delay) const;

  /// since_boot() at the first opening in the running boot.
  std::chrono::nanoseconds opened() const { return boots_.back().opened; }

  std::uint32_t first() const { return first_; }
  const std::vector<Boot>& all() const { return boots_; }

  friend bool operator==(const Boots&, const Boots&) = default;

 private:
  std::uint32_t first_ = 0;
  std::vector<Boot> boots_;
};

}  // namespace fencekv::core
