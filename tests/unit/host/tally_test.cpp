// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "host/sampling.h"

namespace servedby {
namespace {

using Look = std::map<std::uint32_t, ProcessLook>;

ProcessLook process(std::uint32_t parent, std::uint64_t bytes, std::uint64_t faults, std::uint64_t faults_children = 0,
                    std::uint64_t start = 100) {
  ProcessLook look;
  look.parent = parent;
  look.start_ticks = start;
  look.rchar = 2 * bytes;
  look.syscr = bytes / 10;
  look.read_bytes = bytes;
  look.faults_minor = faults;
  look.faults_minor_children = faults_children;
  return look;
}

TreeReads after(const std::vector<Look>& looks) {
  TreeTally tally;
  for (const Look& look : looks) tally.add(look);
  return tally.reads();
}

TEST(TreeTally, what_was_there_before_does_not_count) {
  const TreeReads reads = after({{{10, process(1, 1000, 50)}}, {{10, process(1, 1500, 60)}}});
  EXPECT_EQ(reads.read_bytes, 500U);
  EXPECT_EQ(reads.rchar, 1000U);
  EXPECT_EQ(reads.syscr, 50U);
  EXPECT_EQ(reads.faults_minor, 10U);
  EXPECT_TRUE(reads.known);
}

TEST(TreeTally, a_new_child_counts_whole) {
  EXPECT_EQ(after({{{10, process(1, 1000, 50)}}, {{10, process(1, 1000, 50)}, {11, process(10, 70, 5)}}}).read_bytes,
            70U);
}

TEST(TreeTally, a_child_waited_for_is_in_its_parent) {
  // Between the looks the child read 30 more and ended; its parent waited for it.
  const TreeReads reads = after({{{10, process(1, 1000, 50)}},
                                 {{10, process(1, 1000, 50)}, {11, process(10, 70, 5)}},
                                 {{10, process(1, 1100, 50, 6)}}});
  EXPECT_EQ(reads.read_bytes, 100U);
  EXPECT_EQ(reads.ended_unseen, 0U);
}

TEST(TreeTally, a_child_nobody_waited_for_is_kept) {
  // The parent ignores SIGCHLD: its faults of children do not grow, and neither does its io.
  const TreeReads reads = after({{{10, process(1, 1000, 50)}},
                                 {{10, process(1, 1000, 50)}, {11, process(10, 70, 5)}},
                                 {{10, process(1, 1000, 50)}}});
  EXPECT_EQ(reads.read_bytes, 70U);
  EXPECT_EQ(reads.ended_unseen, 1U);
}

TEST(TreeTally, a_grandchild_goes_up_through_a_parent_that_ended_too) {
  const TreeReads reads = after(
      {{{10, process(1, 0, 50)}, {11, process(10, 40, 5)}, {12, process(11, 60, 7)}}, {{10, process(1, 110, 50, 13)}}});
  EXPECT_EQ(reads.read_bytes, 10U);
  EXPECT_EQ(reads.ended_unseen, 0U);
}

TEST(TreeTally, an_orphan_that_ends_is_kept) {
  const TreeReads reads = after({{{10, process(1, 0, 50)}, {11, process(10, 0, 5)}, {12, process(11, 0, 7)}},
                                 {{10, process(1, 0, 50, 5)}, {12, process(1, 600, 7)}},
                                 {{10, process(1, 0, 50, 5)}}});
  EXPECT_EQ(reads.read_bytes, 600U);
  EXPECT_EQ(reads.ended_unseen, 1U);
}

TEST(TreeTally, a_pid_used_again_is_another_process) {
  const TreeReads reads = after({{{10, process(1, 0, 50)}, {11, process(10, 500, 5)}},
                                 {{10, process(1, 500, 50, 5)}, {11, process(10, 20, 3, 0, 200)}}});
  EXPECT_EQ(reads.read_bytes, 20U);
  EXPECT_EQ(reads.ended_unseen, 0U);
}

TEST(TreeTally, the_root_ends_unseen) {
  const TreeReads reads = after({{{10, process(1, 100, 50)}}, {{10, process(1, 400, 50)}}, {}});
  EXPECT_EQ(reads.read_bytes, 300U);
  EXPECT_EQ(reads.ended_unseen, 1U);
}

TEST(TreeTally, refused_counters_are_said) {
  Look refused{{10, process(1, 0, 50)}};
  refused[10].io_known = false;
  EXPECT_FALSE(after({refused}).known);
  EXPECT_EQ(after({refused}).refused, 1U);
  EXPECT_FALSE(after({}).known);
}

TEST(TreeTally, a_refused_zombie_keeps_what_it_was_last_seen_with) {
  Look zombie{{10, process(1, 0, 50)}};
  zombie[10].io_known = false;
  const TreeReads reads = after({{{10, process(1, 100, 50)}}, {{10, process(1, 400, 50)}}, zombie});
  EXPECT_EQ(reads.read_bytes, 300U);
  EXPECT_EQ(reads.refused, 1U);
}

TEST(TreeTally, a_refused_child_that_was_waited_for_is_in_its_parent) {
  ProcessLook child = process(10, 0, 5);
  child.io_known = false;
  const TreeReads reads =
      after({{{10, process(1, 1000, 50)}}, {{10, process(1, 1000, 50)}, {11, child}}, {{10, process(1, 1100, 50, 6)}}});
  EXPECT_EQ(reads.read_bytes, 100U);
  EXPECT_TRUE(reads.known);
}

TEST(TreeTally, a_refused_child_nobody_waited_for_is_said) {
  ProcessLook child = process(10, 0, 5);
  child.io_known = false;
  const TreeReads reads =
      after({{{10, process(1, 1000, 50)}}, {{10, process(1, 1000, 50)}, {11, child}}, {{10, process(1, 1000, 50)}}});
  EXPECT_EQ(reads.refused, 1U);
  EXPECT_FALSE(reads.known);
}

}  // namespace
}  // namespace servedby
