// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/fence_stories.h"

#include <gtest/gtest.h>

#include <tuple>

namespace fencekv::testing {
namespace {

#ifdef FENCEKV_CONTROL_WITHOUT_FENCE
constexpr bool kLateWritesLand = true;
#else
constexpr bool kLateWritesLand = false;
#endif

using Told = std::tuple<WorldKind, FenceStory>;

class FenceStories : public ::testing::TestWithParam<Told> {};

TEST_P(FenceStories, LateWriteLandsOnlyInTheControl) {
  const auto& [kind, story] = GetParam();
  const auto world = kind.make({});

  EXPECT_EQ(story.late_write_lands(*world), kLateWritesLand);
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, FenceStories,
                         ::testing::Combine(::testing::ValuesIn(every_world()),
                                            ::testing::ValuesIn(fence_stories())),
                         [](const auto& told) {
                           return std::get<0>(told.param).name + std::get<1>(told.param).name;
                         });

}  // namespace

void PrintTo(const FenceStory& story, std::ostream* out) {
  *out << story.name;
}

}  // namespace fencekv::testing
