// SPDX-License-Identifier: Apache-2.0
/// fencekv-admin backup, verify-backup, restore and repair, as a person runs them.

#include "tests/admin/scene.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

namespace fencekv::admin_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class AdminBackupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = open_store(at("store"));
    const auto grant = store->acquire("lease", "me", 1h);
    ASSERT_TRUE(grant && *grant);
    token_ = (*grant)->token;
    for (int i = 0; i < 10; ++i) {
      const auto n = std::to_string(i);
      ASSERT_TRUE(store->set("key-" + n, "value " + n, token_, {.lease = "lease"}));
    }
  }

  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }

  /// Damages the log of the store in the middle.
  void damage() const {
    for (const auto& log : database_files(at("store"), ".log")) {
      if (std::filesystem::file_size(log) > 0) {
        flip_byte(log, std::filesystem::file_size(log) / 2);
      }
    }
  }

  const Folder folder_;
  Token token_;
};

TEST_F(AdminBackupTest, ABackupIsVerifiedAndRestored) {
  const auto before = contents(at("store"));

  const auto made = run_admin({"backup", at("store"), at("backup")});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("newest token " + std::to_string(token_.number())));
  EXPECT_EQ(contents(at("store")), before) << "the store was only read";

  const auto verified = run_admin({"verify-backup", at("backup")});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("no problems"));

  const auto restored = run_admin({"restore", at("backup"), at("new")});
  EXPECT_EQ(restored.code, 0) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr("new history"));
  const auto sound = run_admin({"verify", at("new")});
  EXPECT_EQ(sound.code, 0) << sound.out;
  EXPECT_THAT(sound.out, HasSubstr("no problems"));
  EXPECT_EQ(open_store(at("new"))->get("key-7")->value(), "value 7");
}

TEST_F(AdminBackupTest, ABackupOfAStoreInUseHasWhatWasAnswered) {
  auto store = open_store(at("store"));
  ASSERT_TRUE(store->set("last", "answered", token_));

  const auto made = run_admin({"backup", at("store"), at("backup")});

  EXPECT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(run_admin({"restore", at("backup"), at("new")}).code, 0);
  EXPECT_EQ(open_store(at("new"))->get("last")->value(), "answered");
}

TEST_F(AdminBackupTest, ADamagedBackupIsNotRestored) {
  ASSERT_EQ(run_admin({"backup", at("store"), at("backup")}).code, 0);
  const auto table = database_files(at("backup"), ".sst").front();
  flip_byte(table, 10);

  const auto verified = run_admin({"verify-backup", at("backup")});
  const auto restored = run_admin({"restore", at("backup"), at("new")});

  EXPECT_EQ(verified.code, 4);
  EXPECT_THAT(verified.err, HasSubstr(table.string()));
  EXPECT_EQ(restored.code, 4);
  EXPECT_THAT(restored.err, HasSubstr(table.string()));
  EXPECT_FALSE(std::filesystem::exists(at("new")));
}

TEST_F(AdminBackupTest, NothingIsEverReplaced) {
  ASSERT_EQ(run_admin({"backup", at("store"), at("backup")}).code, 0);
  const auto before = contents(folder_.path());

  EXPECT_EQ(run_admin({"backup", at("store"), at("backup")}).code, 2);
  EXPECT_EQ(run_admin({"restore", at("backup"), at("store")}).code, 2);

  EXPECT_EQ(contents(folder_.path()), before);
}

TEST_F(AdminBackupTest, ADamagedStoreHasNoNewBackup) {
  damage();

  const auto made = run_admin({"backup", at("store"), at("backup")});

  EXPECT_EQ(made.code, 4);
  EXPECT_THAT(made.err, HasSubstr("fencekv-admin repair"));
  EXPECT_FALSE(std::filesystem::exists(at("backup")));
}

TEST_F(AdminBackupTest, RepairSaysFirstWhatItWouldDo) {
  damage();
  const auto before = contents(folder_.path());

  const auto dry = run_admin({"repair", at("store"), "--dry-run"});
  EXPECT_EQ(dry.code, 4);
  EXPECT_THAT(dry.out,
              AllOf(HasSubstr("damage: "), HasSubstr("loss: group"), HasSubstr("plan: "),
                    HasSubstr("unguarded_tokens = any"), HasSubstr("nothing was changed")));
  const auto refused = run_admin({"repair", at("store")});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.out, HasSubstr("--accept-loss"));
  EXPECT_EQ(contents(folder_.path()), before);
}

TEST_F(AdminBackupTest, RepairMakesACopyThatIsSound) {
  damage();
  const auto before = contents(at("store"));

  const auto repaired = run_admin({"repair", at("store"), "--accept-loss"});

  EXPECT_EQ(repaired.code, 0) << repaired.out << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("done: " + at("store.repaired") + ": repaired"));
  EXPECT_EQ(contents(at("store")), before);
  EXPECT_EQ(run_admin({"verify", at("store.repaired")}).code, 0);
  EXPECT_EQ(
      run_admin({"repair", at("store.repaired")}).out,
      "done: " + at("store.repaired") + ": no damage was found, there is nothing to repair\n");
  auto store = open_store(at("store.repaired"));
  EXPECT_EQ(store->stats().live_keys, 9U) << "one group of one key was lost";
  EXPECT_GT(store->stats().floor, token_);
}

TEST_F(AdminBackupTest, RepairInPlaceKeepsTheDamagedParts) {
  damage();

  const auto repaired = run_admin({"repair", at("store"), "--in-place", "--accept-loss"});

  EXPECT_EQ(repaired.code, 0) << repaired.out << repaired.err;
  EXPECT_TRUE(std::filesystem::exists(at("store") + "/damaged/db"));
  EXPECT_EQ(run_admin({"verify", at("store")}).code, 0);
  EXPECT_EQ(open_store(at("store"))->stats().live_keys, 9U);
}

TEST_F(AdminBackupTest, RepairIsForProgramsToo) {
  write_whole(at("store") + "/FORMAT", "");

  const auto repaired = run_admin({"repair", at("store"), "--to", at("copy"), "--format", "json"});

  EXPECT_EQ(repaired.code, 0) << repaired.err;
  const auto json = nlohmann::json::parse(repaired.out);
  EXPECT_EQ(json["result"], "repaired");
  EXPECT_EQ(json["new_history"], false) << "the stamp holds no fact";
  EXPECT_THAT(json["damage"][0].get<std::string>(), HasSubstr("FORMAT"));
  EXPECT_EQ(json["losses"].size(), 0U);
  EXPECT_EQ(json["kept"]["live_keys"], 10);
  EXPECT_EQ(open_store(at("copy"))->stats().live_keys, 10U);
}

TEST_F(AdminBackupTest, WrongWordsAreRefused) {
  EXPECT_EQ(run_admin({"backup", at("store")}).code, 2);
  EXPECT_EQ(run_admin({"verify-backup"}).code, 2);
  EXPECT_EQ(run_admin({"restore", at("store")}).code, 2);
  EXPECT_EQ(run_admin({"repair", at("store"), "--to", at("x"), "--in-place"}).code, 2);
  const auto none = run_admin({"repair", at("nowhere")});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("there is no store"));
  EXPECT_EQ(run_admin({"verify-backup", at("store")}).code, 4);
}

}  // namespace
}  // namespace fencekv::admin_test
