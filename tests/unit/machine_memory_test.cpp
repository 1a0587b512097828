// SPDX-License-Identifier: Apache-2.0
#include "server/machine_memory.h"

#include "fencekv/options.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace fencekv::server {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1024} * 1024;
constexpr std::uint64_t kGiB = 1024 * kMiB;

/// A machine that has nothing but these files.
class MachineMemoryTest : public ::testing::Test {
 protected:
  void write(std::string_view file, std::string_view text) {
    const auto path = root_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void has_physical(std::uint64_t bytes) {
    write("proc/meminfo", "MemFree:            1000 kB\nMemTotal:       " +
                              std::to_string(bytes / 1024) + " kB\nMemAvailable: 7 kB\n");
  }
  void is_in(std::string_view lines) { write("proc/self/cgroup", lines); }

  std::optional<std::uint64_t> usable() const { return usable_memory(root_.path()); }
  std::uint64_t budget() const { return default_memory_budget(root_.path()); }

 private:
  const testing::TemporaryDirectory root_;
};

TEST_F(MachineMemoryTest, IsThatOfTheMachine) {
  has_physical(8 * kGiB);
  EXPECT_EQ(usable(), 8 * kGiB);
  is_in("0::/\n");
  EXPECT_EQ(usable(), 8 * kGiB);
}

TEST_F(MachineMemoryTest, IsUnknownWhereNothingSaysIt) {
  EXPECT_EQ(usable(), std::nullopt);
  EXPECT_EQ(budget(), Options().memory_budget);
}

TEST_F(MachineMemoryTest, IsBoundedByItsGroup) {
  has_physical(8 * kGiB);
  is_in("0::/system.slice/a b.service\n");
  write("sys/fs/cgroup/system.slice/a b.service/memory.max", "1073741824\n");
  EXPECT_EQ(usable(), kGiB);
  write("sys/fs/cgroup/system.slice/a b.service/memory.max", "max\n");
  EXPECT_EQ(usable(), 8 * kGiB);
  write("sys/fs/cgroup/system.slice/a b.service/memory.max", "99999999999999\n");
  EXPECT_EQ(usable(), 8 * kGiB);
  write("sys/fs/cgroup/other.slice/memory.max", "5\n");
  EXPECT_EQ(usable(), 8 * kGiB);
}

TEST_F(MachineMemoryTest, IsBoundedByTheGroupsAboveIt) {
  has_physical(8 * kGiB);
  is_in("0::/a/b/c\n");
  write("sys/fs/cgroup/a/b/c/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.max", "3221225472\n");
  EXPECT_EQ(usable(), 3 * kGiB);
  write("sys/fs/cgroup/a/memory.max", "2147483648\n");
  EXPECT_EQ(usable(), 2 * kGiB);
}

// Its own group is what it sees as the topmost one, whatever that is called outside.
TEST_F(MachineMemoryTest, IsBoundedInAContainer) {
  has_physical(8 * kGiB);
  write("sys/fs/cgroup/memory.max", "536870912\n");
  for (const auto* lines : {"0::/\n", "0::/docker/0123abcd\n", "0::/../../other\n"}) {
    is_in(lines);
    EXPECT_EQ(usable(), 512 * kMiB) << lines;
  }
}

TEST_F(MachineMemoryTest, IsBoundedByGroupsOfTheFirstVersion) {
  has_physical(8 * kGiB);
  is_in("7:cpu,cpuacct:/x\n6:hugetlb,memory:/y\n1:name=systemd:/z\n0::/\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n");
  write("sys/fs/cgroup/memory/z/memory.limit_in_bytes", "1\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(usable(), 8 * kGiB);
  write("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(usable(), kGiB);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(usable(), 512 * kMiB);
}

TEST_F(MachineMemoryTest, IsBoundedByItsAddressSpace) {
  has_physical(8 * kGiB);
  const std::string header =
      "Limit                     Soft Limit           Hard Limit         Units\n";
  const auto limits = [&](const std::string& line) { write("proc/self/limits", header + line); };
  limits(
      "Max data size             5                    5                    bytes\n"
      "Max address space         1073741824           2147483648           bytes\n");
  EXPECT_EQ(usable(), kGiB);
  for (const auto* line :
       {"Max address space         unlimited            unlimited            bytes\n",
        "Max address space\n", "Max address space  \n", "Max address space -5 -5 bytes\n"}) {
    limits(line);
    EXPECT_EQ(usable(), 8 * kGiB) << line;
  }
}

TEST_F(MachineMemoryTest, NonsenseLimitsNothing) {
  has_physical(8 * kGiB);
  for (const auto* lines : {"", "\n", "0\n", "0:\n", "::\n", "0::\n", "memory\n", "0:mem:/a\n"}) {
    is_in(lines);
    EXPECT_EQ(usable(), 8 * kGiB) << lines;
  }
  is_in("0::/a\n");
  for (const auto* text : {"", "\n", "-1\n", "1e6\n", "100 kB\n", "99999999999999999999\n"}) {
    write("sys/fs/cgroup/a/memory.max", text);
    EXPECT_EQ(usable(), 8 * kGiB) << text;
  }
  write("sys/fs/cgroup/a/memory.max", "1073741824\n");
  for (const auto* text :
       {"", "MemTotal:\n", "MemTotal: kB\n", "MemTotal:  kB\n", "MemTotal: 1 MB\n",
        "MemTotal: x kB\n", "MemTotal: 18014398509481985 kB\n", "MemTotals: 1 kB\n"}) {
    write("proc/meminfo", text);
    EXPECT_EQ(usable(), kGiB) << text;
  }
}

TEST_F(MachineMemoryTest, AQuarterOfItIsTheBudgetWithinBounds) {
  has_physical(8 * kGiB);
  EXPECT_EQ(budget(), 2 * kGiB);
  has_physical(100 * kMiB);
  EXPECT_EQ(budget(), 64 * kMiB);
  has_physical(1024 * kGiB);
  EXPECT_EQ(budget(), 16 * kGiB);
  is_in("0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1073741824\n");
  EXPECT_EQ(budget(), 256 * kMiB);
}

// Wherever this test runs.
TEST(MachineMemory, OfThisMachineIsKnown) {
  ASSERT_TRUE(usable_memory());
  EXPECT_GT(*usable_memory(), kMiB);
  EXPECT_GE(default_memory_budget(), 64 * kMiB);
  EXPECT_LE(default_memory_budget(), 16 * kGiB);
}

}  // namespace
}  // namespace fencekv::server
