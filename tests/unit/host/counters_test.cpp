// SPDX-License-Identifier: Apache-2.0
#include "host/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../stack/machine_tree.h"
#include "host/facts.h"
#include "host/group.h"
#include "host/sampling.h"
#include "stack/layers.h"

namespace servedby {
namespace {

using test::MachineTree;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::string fixture(const std::string& name) {
  return std::string(SOURCE_DIR) + "/tests/unit/stack/fixtures/" + name + ".tree";
}

constexpr const char* stat_tail = " S 7 1 1 0 -1 4194304 124 31 5 2 0 0 0 0 20 0 1 0 63662 3133440 382\n";
constexpr const char* io =
    "rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 0\ncancelled_write_bytes: 0\n";

TEST(Counters, stat_of_a_task_with_a_hostile_name) {
  const auto stat = parse_task_stat(std::string("42 (a) S 1 (b)") + stat_tail);
  ASSERT_TRUE(stat);
  EXPECT_EQ(*stat, (TaskStat{"a) S 1 (b", 'S', 7, 124, 31, 5, 2, 63662}));
  for (const char* bad : {"", "42 (a", "42 (a) S", "42 (a) S x 1 1 0 -1 4194304 124 31 5 2 0 0 0 0 20 0 1 0 63662",
                          "42 (a) S 7 1 1 0 -1 4194304 124 31 5 2 0 0 0 0 20 0 1 0 -5"}) {
    EXPECT_FALSE(parse_task_stat(bad)) << bad;
  }
}

TEST(Counters, io_of_a_task) {
  const auto counters = parse_task_io(io);
  ASSERT_TRUE(counters);
  EXPECT_EQ(counters->rchar, 6976U);
  EXPECT_EQ(counters->syscr, 10U);
  EXPECT_EQ(counters->read_bytes, 4096U);
  for (const char* bad :
       {"", "rchar: 1\nsyscr: 2\n", "rchar: x\nsyscr: 1\nread_bytes: 2\n", "rchar: 1\nsyscr: 1\nread_bytes:"}) {
    EXPECT_FALSE(parse_task_io(bad)) << bad;
  }
}

TEST(Counters, stat_of_a_device_counts_sectors_of_512_bytes) {
  const auto block = parse_block_stat("   10  2  80  4  5  6  16  8  1  9  12 0 0 0 0 0 0\n");
  ASSERT_TRUE(block);
  EXPECT_EQ(*block, (BlockCounters{10, 2, 40960, 4, 5, 6, 8192, 8, 1, 9, true}));
  EXPECT_FALSE(parse_block_stat("1 2 3"));
  EXPECT_FALSE(parse_block_stat("1 2 3 4 5 6 7 8 9 x 11"));
}

TEST(Counters, a_snapshot_of_devices_and_tasks) {
  const MachineTree tree(fixture("partition"));
  const Root root = tree.root();
  const StorageStack stack = whole_machine(root);
  const std::string disk = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/nvme/nvme0/nvme0n1";
  tree.put(disk + "/stat", "10 2 80 4 5 6 16 8 1 9 12\n");
  tree.put(disk + "/nvme0n1p2/stat", "9 0 72 4 0 0 0 0 0 9 12\n");
  tree.put(disk + "/queue/iostats", "0\n");
  tree.put("/proc/42/task/42/stat", std::string("42 (main)") + stat_tail);
  tree.put("/proc/42/task/42/io", io);
  tree.put("/proc/42/task/43/stat", std::string("43 (worker)") + stat_tail);
  tree.put("/proc/43/task/43/stat", std::string("43 (worker)") + stat_tail);
  tree.put("/proc/43/task/43/io", "rchar: 1\nsy");  // cut short
  tree.put("/proc/43/status", "Name:\tworker\nTgid:\t42\nPid:\t43\n");
  tree.put("/proc/42/status", "Name:\tmain\nTgid:\t42\nPid:\t42\n");
  tree.put("/proc/42/cgroup", "0::/a\n");
  const std::vector<std::uint32_t> tasks{42, 43, 44};  // 44 has gone
  const CountersSnapshot snapshot = take_counters(root, stack, tasks);
  EXPECT_GT(snapshot.monotonic_ns, 0U);
  EXPECT_EQ(snapshot.block.at(device_number(259, 0)), (BlockCounters{10, 2, 40960, 4, 5, 6, 8192, 8, 1, 9, false}));
  EXPECT_EQ(snapshot.block.at(device_number(259, 2)).read_bytes, 36864U);
  EXPECT_FALSE(snapshot.block.at(device_number(259, 2)).counting) << "a partition counts when its disk does";
  ASSERT_EQ(snapshot.tasks.size(), 2U);
  EXPECT_EQ(snapshot.tasks.at(42), (TaskCounters{6976, 10, 4096, 5, 124, 42, 63662, true}));
  EXPECT_FALSE(snapshot.tasks.at(43).io_known);
  EXPECT_EQ(snapshot.tasks.at(43).process, 42U);
  EXPECT_EQ(snapshot.notes.at("/proc/PID/io"), "cut short");
  EXPECT_THAT(tasks_of(root, 42), ElementsAre(42, 43));
  EXPECT_EQ(nlohmann::json::parse(nlohmann::json(snapshot).dump()).get<CountersSnapshot>(), snapshot);
}

TEST(Counters, a_device_that_has_gone_is_noted) {
  const MachineTree tree(fixture("partition"));
  const StorageStack stack = whole_machine(tree.root());
  tree.remove("/sys/block/nvme0n1");
  const CountersSnapshot snapshot = take_counters(tree.root(), stack, {});
  EXPECT_THAT(snapshot.block, IsEmpty());
  EXPECT_TRUE(snapshot.notes.contains("nvme0n1 stat"));
}

TEST(Counters, process_tree_by_children_and_by_parents) {
  const MachineTree tree(fixture("partition"));
  const auto put = [&](int pid, int parent) {
    tree.put("/proc/" + std::to_string(pid) + "/stat",
             std::to_string(pid) + " (x) S " + std::to_string(parent) + std::string(stat_tail).substr(4));
  };
  put(1, 0);
  put(10, 1);
  put(11, 10);
  put(12, 11);
  put(20, 1);
  EXPECT_THAT(process_tree(tree.root(), 10), ElementsAre(10, 11, 12));
  tree.put("/proc/10/task/10/children", "13 \n");
  tree.put("/proc/13/task/13/children", "");
  tree.put("/proc/13/task/14/children", "15 16 \n");
  EXPECT_THAT(process_tree(tree.root(), 10), ElementsAre(10, 13, 15, 16));
  EXPECT_THAT(process_tree(tree.root(), 99), ElementsAre(99));
}

TEST(Counters, io_of_the_control_group) {
  const auto groups =
      parse_group_io("7:0 rbytes=4096 wbytes=8 rios=2 wios=1 dbytes=0 dios=0\n259:0 rbytes=1\nx rbytes=1\n\n");
  EXPECT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups.at(device_number(7, 0)), (GroupIo{4096, 2, 8, 1}));
  const MachineTree tree(fixture("partition"));
  tree.put("/proc/42/cgroup", "1:cpu:/x\n0::/docker/abc/inner\n");
  tree.put("/proc/self/mountinfo", "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  EXPECT_EQ(group_directory(tree.root(), 42), "/sys/fs/cgroup/inner");
  tree.put("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  EXPECT_EQ(group_directory(tree.root(), 42), "/sys/fs/cgroup/docker/abc/inner");
  tree.put("/proc/42/cgroup", "1:cpu:/x\n");
  EXPECT_EQ(group_directory(tree.root(), 42), std::nullopt);
}

TEST(HostFacts, of_a_made_up_machine) {
  const MachineTree tree(fixture("container_hidden"));
  tree.put("/proc/sys/kernel/osrelease", "6.12.0-example\n");
  tree.put("/proc/sys/kernel/arch", "x86_64\n");
  tree.put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Example CPU\nflags\t\t: fpu hypervisor sse\n");
  tree.put("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
  tree.put("/sys/devices/system/cpu/online", "0-3,8\n");
  tree.put("/proc/self/cgroup", "0::/\n");
  const nlohmann::json facts = host_facts(tree.root());
  EXPECT_EQ(facts, nlohmann::json::parse(R"({"kernel": {"release": "6.12.0-example"}, "machine": "x86_64", "cpus": 5,
    "cpu_model": "Example CPU", "memory_bytes": 16777216, "virtual": "unknown hypervisor", "container": "unknown container",
    "cgroup": "/"})"));
}

TEST(HostFacts, of_this_machine) {
  const nlohmann::json facts = host_facts();
  EXPECT_TRUE(facts.contains("memory_bytes"));
  EXPECT_TRUE(facts.at("kernel").contains("release"));
}

TEST(Sampler, a_child_of_ours_is_counted_to_its_last_byte) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte = 0;
    if (::read(gate[0], &byte, 1) != 1) ::_exit(1);
    // A shell whose children read files and end between two looks.
    ::execl("/bin/sh", "sh", "-c", "for i in 1 2 3; do head -c 100000 /dev/zero > /dev/null; done", nullptr);
    ::_exit(127);
  }
  Sampler sampler(Root(), {}, static_cast<std::uint32_t>(child));
  sampler.start();
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const Sampled sampled = sampler.stop();
  const auto own = process_counters(Root(), static_cast<std::uint32_t>(child));
  ::waitpid(child, nullptr, 0);
  ::close(gate[0]);
  ::close(gate[1]);
  if (!sampled.reads.known) {
    EXPECT_TRUE(own.has_value()) << "this kernel has no task I/O accounting, and the sampler said so";
    return;
  }
  EXPECT_GE(sampled.reads.rchar, 300000U);
  EXPECT_EQ(sampled.reads.ended_unseen, 0U);
  EXPECT_GE(sampled.points.size(), 2U);
  ASSERT_TRUE(own);
  EXPECT_LE(sampled.reads.rchar, own->rchar) << "a zombie still has its counters";
}

TEST(Sampler, a_process_that_does_not_exist) {
  Sampler sampler(Root(), {}, 0x3ffffff0);
  sampler.start();
  const Sampled sampled = sampler.stop();
  EXPECT_EQ(sampled.reads.read_bytes, 0U);
  EXPECT_THAT(sampled.before.tasks, IsEmpty());
}

}  // namespace
}  // namespace servedby
