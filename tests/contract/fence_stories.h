// SPDX-License-Identifier: Apache-2.0
/// The stories for which fencekv exists: somebody slept through the end of its time and writes.
///
/// Each story is told twice. With the store as it is, the late write must not land. In the control,
/// built from the same sources with the comparison of fences left out, it must: a story whose late
/// write is lost for another reason would prove nothing.

#pragma once

#include "tests/contract/world.h"

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace fencekv::testing {

struct FenceStory {
  std::string name;
  /// Tells the story; returns whether the late write landed.
  std::function<bool(World&)> late_write_lands;
};

void PrintTo(const FenceStory& story, std::ostream* out);

std::vector<FenceStory> fence_stories();

}  // namespace fencekv::testing
