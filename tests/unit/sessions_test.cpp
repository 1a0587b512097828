// SPDX-License-Identifier: Apache-2.0
/// Sessions, and which of them were open at a moment.

#include "engine/core/sessions.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace fencekv::core {
namespace {

using View = Sessions::View;

TEST(SessionsTest, AreOpenUntilTheyLeave) {
  Sessions sessions;
  const auto one = sessions.enter({});
  const auto two = sessions.enter({});
  EXPECT_NE(one, two);
  sessions.leave(one);
  EXPECT_FALSE(sessions.is_open(one));
  EXPECT_TRUE(sessions.is_open(two));
  EXPECT_TRUE(sessions.is_open(0)) << "the process itself";
  EXPECT_EQ(sessions.size(), 1);
}

TEST(SessionsView, ShowsWhoWasOpenWhenItWasMade) {
  Sessions sessions;
  const auto before = sessions.enter({});
  const auto stays = sessions.enter({});
  const auto meanwhile = sessions.enter({});
  sessions.leave(before);
  const View view(sessions);
  EXPECT_TRUE(view.is_current());

  sessions.leave(meanwhile);

  EXPECT_FALSE(view.is_current());
  EXPECT_FALSE(sessions.is_open(meanwhile));
  EXPECT_TRUE(view.is_open(meanwhile));
  EXPECT_TRUE(view.is_open(stays));
  EXPECT_TRUE(view.is_open(0));
  EXPECT_FALSE(view.is_open(before));
  EXPECT_FALSE(View(sessions).is_open(meanwhile));
}

TEST(SessionsView, IsItsOwnBesideAnOlderAndANewerOne) {
  Sessions sessions;
  const auto first = sessions.enter({});
  const auto second = sessions.enter({});
  const View older(sessions);
  sessions.leave(first);
  const View newer(sessions);
  sessions.leave(second);

  EXPECT_TRUE(older.is_open(first));
  EXPECT_TRUE(older.is_open(second));
  EXPECT_FALSE(newer.is_open(first));
  EXPECT_TRUE(newer.is_open(second));
}

TEST(SessionsView, SomeoneWhoEntersMakesItNoLessCurrent) {
  Sessions sessions;
  const View view(sessions);
  sessions.enter({});
  EXPECT_TRUE(view.is_current());
}

TEST(SessionsView, NobodyIsRememberedWithoutOne) {
  Sessions sessions;
  const auto one = sessions.enter({});
  const auto two = sessions.enter({});
  sessions.leave(one);
  EXPECT_EQ(sessions.remembered(), 0);
  {
    const View view(sessions);
    sessions.leave(two);
    EXPECT_EQ(sessions.remembered(), 1);
  }
  EXPECT_EQ(sessions.remembered(), 0);
}

TEST(SessionsView, ThoseThatOverlapWithoutEndKeepOnlyWhoLeftSinceTheOldest) {
  Sessions sessions;
  auto view = std::make_unique<View>(sessions);
  for (int i = 0; i < 1000; ++i) {
    const auto session = sessions.enter({});
    auto next = std::make_unique<View>(sessions);
    sessions.leave(session);
    EXPECT_TRUE(next->is_open(session));
    view = std::move(next);
    ASSERT_LE(sessions.remembered(), 1);
  }
}

}  // namespace
}  // namespace fencekv::core
