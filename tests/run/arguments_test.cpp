// SPDX-License-Identifier: Apache-2.0
// What fencekv-run understands, and what it tells the command.
#include "tests/support/temporary_directory.h"
#include "tools/run/command_path.h"
#include "tools/run/duration.h"
#include "tools/run/environment.h"
#include "tools/run/label.h"
#include "tools/run/options.h"
#include "tools/run/password_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <variant>
#include <vector>

namespace fencekv::run {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

TEST(RunDuration, IsANumberWithAUnit) {
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("10s"), 10s);
  EXPECT_EQ(parse_duration("5m"), 5min);
  EXPECT_EQ(parse_duration("2h"), 2h);
  EXPECT_EQ(parse_duration("7d"), 168h);
  EXPECT_EQ(parse_duration("0s"), 0ms);
}

TEST(RunDuration, IsNothingElse) {
  for (const char* text : {"", "10", "s", "-1s", "+1s", "1.5s", " 1s", "1 s", "1S", "01s", "1sec",
                           "1s2", "99999999999999999999s", "3651d"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(RunDuration, IsShownInTheLongestUnitThatFits) {
  for (const char* text : {"1ms", "1500ms", "90s", "5m", "2h", "7d", "0s"}) {
    EXPECT_EQ(to_text(*parse_duration(text)), text);
  }
}

RunOptions accepted(const Words& words) {
  auto parsed = parse_options(words);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    ADD_FAILURE() << early->err;
    return {};
  }
  return std::get<RunOptions>(std::move(parsed));
}

/// Why the arguments are refused.
std::string refused(const Words& words) {
  const auto parsed = parse_options(words);
  const auto* early = std::get_if<EarlyExit>(&parsed);
  if (early == nullptr) return "accepted";
  EXPECT_EQ(early->code, 125);
  EXPECT_EQ(early->out, "");
  return early->err;
}

TEST(RunOptions, HaveDefaults) {
  const auto options = accepted({"--lease", "job", "--", "true"});

  EXPECT_EQ(options.lease, "job");
  EXPECT_EQ(options.ttl, 10s);
  EXPECT_EQ(options.wait, std::nullopt);
  EXPECT_EQ(options.mode, LeaseMode::exclusive);
  EXPECT_EQ(options.grace, 2500ms);
  EXPECT_EQ(options.address.host, "127.0.0.1");
  EXPECT_EQ(options.address.port, 7433);
  EXPECT_EQ(options.command, Words{"true"});
}

TEST(RunOptions, AreAllUnderstood) {
  const auto options =
      accepted({"--lease=job", "--ttl",   "4s",  "--wait",    "1m",       "--permits",
                "3",           "--delay", "5s",  "--payload", "who",      "--grace",
                "2s",          "--host",  "::1", "--port",    "1234",     "--password-file",
                "secret",      "--",      "run", "--lease",   "not ours", "--"});

  EXPECT_EQ(options.lease, "job");
  EXPECT_EQ(options.ttl, 4s);
  EXPECT_EQ(options.wait, 1min);
  EXPECT_EQ(options.mode, LeaseMode::permit);
  EXPECT_EQ(options.permits, 3U);
  EXPECT_EQ(options.delay, 5s);
  EXPECT_EQ(options.payload, "who");
  EXPECT_EQ(options.grace, 2s);
  EXPECT_EQ(options.address.host, "::1");
  EXPECT_EQ(options.address.port, 1234);
  EXPECT_EQ(options.password_file, "secret");
  EXPECT_EQ(options.command, (Words{"run", "--lease", "not ours", "--"}));
  EXPECT_EQ(accepted({"--lease", "j", "--shared", "--", "c"}).mode, LeaseMode::shared);
  EXPECT_EQ(accepted({"--lease", "j", "--no-wait", "--", "c"}).wait, 0ms);
  EXPECT_EQ(accepted({"--lease", "j", "--unix", "s", "--", "c"}).address.unix_path, "s");
}

TEST(RunOptions, AreRefusedWithTheReason) {
  EXPECT_THAT(refused({"--lease", "j", "true"}), HasSubstr("fencekv-run: "));
  EXPECT_THAT(refused({"--lease", "j"}), HasSubstr("a command is missing"));
  EXPECT_THAT(refused({"--lease", "j", "--"}), HasSubstr("a command is missing"));
  EXPECT_THAT(refused({"--", "true"}), HasSubstr("--lease"));
  EXPECT_THAT(refused({"--lease", "", "--", "true"}), HasSubstr("1 to 1024 bytes"));
  EXPECT_THAT(refused({"--lease", std::string(1025, 'n'), "--", "true"}), HasSubstr("1024"));
  EXPECT_THAT(refused({"--lease", "j", "--ttl", "10", "--", "true"}), HasSubstr("a duration"));
  EXPECT_THAT(refused({"--lease", "j", "--ttl", "999ms", "--", "true"}), HasSubstr("1s to 7d"));
  EXPECT_THAT(refused({"--lease", "j", "--ttl", "8d", "--", "true"}), HasSubstr("1s to 7d"));
  EXPECT_THAT(refused({"--lease", "j", "--ttl", "4s", "--grace", "2001ms", "--", "true"}),
              HasSubstr("at most half of --ttl, here 2s"));
  EXPECT_THAT(refused({"--lease", "j", "--delay", "8d", "--", "true"}), HasSubstr("--delay"));
  EXPECT_THAT(refused({"--lease", "j", "--payload", std::string(1025, 'p'), "--", "true"}),
              HasSubstr("1024 bytes"));
  EXPECT_THAT(refused({"--lease", "j", "--wait", "1s", "--no-wait", "--", "true"}),
              HasSubstr("--no-wait"));
  EXPECT_THAT(refused({"--lease", "j", "--shared", "--permits", "2", "--", "true"}),
              HasSubstr("--permits"));
  EXPECT_THAT(refused({"--lease", "j", "--permits", "0", "--", "true"}), HasSubstr("--permits"));
  EXPECT_THAT(refused({"--lease", "j", "--unix", "s", "--port", "1", "--", "true"}),
              HasSubstr("--unix"));
  EXPECT_THAT(refused({"--lease", "j", "--nosuch", "--", "true"}), HasSubstr("--nosuch"));
}

TEST(RunOptions, ExplainThemselves) {
  const auto help = std::get<EarlyExit>(parse_options({"--help"}));

  EXPECT_EQ(help.code, 0);
  for (const char* word : {"--lease",
                           "--ttl",
                           "--wait",
                           "--no-wait",
                           "--shared",
                           "--permits",
                           "--delay",
                           "--payload",
                           "--grace",
                           "--host",
                           "--port",
                           "--unix",
                           "--password-file",
                           "122",
                           "123",
                           "124",
                           "125",
                           "126",
                           "127",
                           "128+N",
                           "FENCEKV_TOKEN",
                           "FENCEKV_LEASE",
                           "FENCEKV_UNIX"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string(word) == "128+N" ? "128+N" : word));
  }
  EXPECT_THAT(std::get<EarlyExit>(parse_options({"--version"})).out, HasSubstr("fencekv-run 0."));
}

TEST(RunEnvironment, TellsTokenLeaseAndAddress) {
  const auto entries =
      child_environment({"PATH=/bin", "A=b=c"}, "nightly", Token{34}, {.host = "db", .port = 7});

  EXPECT_EQ(entries, (Words{"PATH=/bin", "A=b=c", "FENCEKV_TOKEN=34", "FENCEKV_LEASE=nightly",
                            "FENCEKV_HOST=db", "FENCEKV_PORT=7"}));
}

TEST(RunEnvironment, ForgetsWhatAnOuterRunnerSaid) {
  const auto entries =
      child_environment({"FENCEKV_TOKEN=1", "FENCEKV_LEASE=outer", "FENCEKV_HOST=h",
                         "FENCEKV_PORT=1", "FENCEKV_TOKENS=others"},
                        "inner", Token{2}, {.unix_path = "/run/socket"});

  EXPECT_EQ(entries, (Words{"FENCEKV_TOKENS=others", "FENCEKV_TOKEN=2", "FENCEKV_LEASE=inner",
                            "FENCEKV_UNIX=/run/socket"}));
}

TEST(RunLabel, NamesWhoWhereAndWhatButNoArguments) {
  const auto label = default_label("/usr/bin/settle");

  EXPECT_THAT(label, HasSubstr("@"));
  EXPECT_THAT(label, HasSubstr(" " + std::to_string(getpid()) + " /usr/bin/settle"));
}

TEST(RunLabel, IsCutBetweenCharacters) {
  for (std::size_t filler = 0; filler < 4; ++filler) {
    std::string command(filler, 'x');
    while (command.size() < 2000) command += "\u20ac";
    const auto label = default_label(command);
    EXPECT_LE(label.size(), 1024U);
    EXPECT_GT(label.size(), 1020U);
    EXPECT_EQ(label.substr(label.size() - 3), "\u20ac");
  }
}

TEST(RunCommandPath, SaysBeforehandWhatExecWouldSay) {
  EXPECT_EQ(why_not_runnable("sh"), std::nullopt);
  EXPECT_EQ(why_not_runnable("/bin/sh"), std::nullopt);
  EXPECT_EQ(why_not_runnable(""), exit_not_found);
  EXPECT_EQ(why_not_runnable("no-such-command-anywhere"), exit_not_found);
  EXPECT_EQ(why_not_runnable("/no/such/command"), exit_not_found);
  EXPECT_EQ(why_not_runnable("/etc/passwd"), exit_not_executable);
  EXPECT_EQ(why_not_runnable("/etc"), exit_not_executable);
}

TEST(RunPasswordFile, IsForItsOwnerOnly) {
  const testing::TemporaryDirectory folder;
  const auto file = (folder.path() / "password").string();
  const auto write = [&](const std::string& text, mode_t mode) {
    std::ofstream(file) << text;
    ::chmod(file.c_str(), mode);
    return read_password(file);
  };

  EXPECT_EQ(*write("secret\r\nmore\n", 0600), "secret");
  EXPECT_THAT(write("secret\n", 0640).error().detail(), HasSubstr("chmod 600"));
  EXPECT_THAT(write("\n", 0600).error().detail(), HasSubstr("is empty"));
  EXPECT_THAT(write(std::string(513, 'x'), 0600).error().detail(), HasSubstr("512"));
  EXPECT_THAT(read_password(folder.path().string()).error().detail(), HasSubstr("regular file"));
  EXPECT_THAT(read_password(file + "-not-there").error().detail(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace fencekv::run
