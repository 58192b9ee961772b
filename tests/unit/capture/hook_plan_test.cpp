// SPDX-License-Identifier: Apache-2.0
#include "capture/hook_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "capture/preemption.h"

namespace servedby::test {
namespace {

const Hook* find(const std::vector<Hook>& plan, const std::string& name) {
  const auto found = std::ranges::find(plan, name, &Hook::name);
  return found == plan.end() ? nullptr : &*found;
}

TEST(Preemption, a_kernel_built_without_does_not) { EXPECT_FALSE(preempts("#1 SMP Debian 5.10.1", std::nullopt, "")); }

TEST(Preemption, a_kernel_built_for_it_does) {
  EXPECT_TRUE(preempts("#1 SMP PREEMPT Debian", std::nullopt, "preempt=none"));
  EXPECT_TRUE(preempts("#1 SMP PREEMPT_RT Debian", std::nullopt, ""));
}

TEST(Preemption, a_dynamic_one_as_debugfs_says) {
  const char* build = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.118";
  EXPECT_FALSE(preempts(build, "none (voluntary) full\n", ""));
  EXPECT_FALSE(preempts(build, "(none) voluntary full", ""));
  EXPECT_TRUE(preempts(build, "none voluntary (full)", "preempt=none"));
  EXPECT_TRUE(preempts(build, "full (lazy)", ""));
}

TEST(Preemption, without_debugfs_as_it_was_booted_else_yes) {
  const char* build = "#1 SMP PREEMPT_DYNAMIC";
  EXPECT_FALSE(preempts(build, std::nullopt, "root=/dev/sda1 preempt=voluntary quiet\n"));
  EXPECT_FALSE(preempts(build, std::nullopt, "preempt=none\n"));
  EXPECT_TRUE(preempts(build, std::nullopt, "preempt=full\n"));
  EXPECT_TRUE(preempts(build, std::nullopt, "xpreempt=none\n"));
  EXPECT_TRUE(preempts(build, std::nullopt, ""));
  EXPECT_TRUE(preempts(build, "", ""));
}

TEST(HookPlan, where_programs_are_preempted_process_context_is_for_kprobes) {
  const auto plan = hook_plan(Tier::automatic, true);
  EXPECT_EQ(find(plan, "bio-submit")->ways.front().tier, "kprobe");
  EXPECT_EQ(find(plan, "request-done")->ways.front().tier, "fentry");
  ASSERT_NE(find(plan, "read-return"), nullptr);  // two sights of a return
  ASSERT_NE(find(plan, "read-end"), nullptr);
  EXPECT_TRUE(find(plan, "read-end")->second_sight);
}

TEST(HookPlan, where_they_are_not_fentry_is_for_all_and_one_sight_of_a_return_is_enough) {
  const auto plan = hook_plan(Tier::automatic, false);
  for (const char* name :
       {"read-entry", "read-lookup", "fill-readahead", "fill-folio", "bio-submit", "request-issue"}) {
    EXPECT_EQ(find(plan, name)->ways.front().tier, "fentry") << name;
    EXPECT_EQ(find(plan, name)->ways.back().tier, "kprobe") << name;  // where the kernel refuses the first
  }
  EXPECT_EQ(find(plan, "read-return"), nullptr);
  const Hook* end = find(plan, "read-end");
  ASSERT_NE(end, nullptr);
  EXPECT_FALSE(end->second_sight);
  ASSERT_EQ(end->ways.size(), 2U);
  EXPECT_EQ(end->ways[0].how, "fexit vfs_read, vfs_readv");
}

TEST(HookPlan, a_forced_tier_is_that_tier_wherever_there_is_a_way) {
  for (const bool preempted : {false, true}) {
    for (const Hook& hook : hook_plan(Tier::kprobe, preempted)) {
      if (hook.ways.size() == 1 && hook.ways[0].tier == "fentry") ADD_FAILURE() << hook.name;
      EXPECT_NE(hook.ways.front().tier, "fentry") << hook.name;
    }
    EXPECT_EQ(find(hook_plan(Tier::kprobe, preempted), "read-end"), nullptr);
    EXPECT_EQ(find(hook_plan(Tier::fentry, preempted), "read-return"), nullptr);
  }
  for (const Hook& hook : hook_plan(Tier::fentry, false)) EXPECT_NE(hook.ways.front().tier, "kprobe") << hook.name;
  EXPECT_TRUE(hook_plan(Tier::counters, true).empty());
}

TEST(HookPlan, names_are_unique_and_every_way_has_programs) {
  for (const bool preempted : {false, true}) {
    std::set<std::string> names;
    for (const Hook& hook : hook_plan(Tier::automatic, preempted)) {
      EXPECT_TRUE(names.insert(hook.name).second) << hook.name;
      EXPECT_FALSE(hook.ways.empty()) << hook.name;
      for (const Way& way : hook.ways) EXPECT_FALSE(way.programs.empty()) << hook.name << " " << way.how;
    }
  }
}

TEST(HookPlan, a_hook_is_named_in_full_or_by_its_family) {
  Hook hook;
  hook.name = "fill-folio";
  EXPECT_TRUE(hook_is(hook, "fill-folio"));
  EXPECT_TRUE(hook_is(hook, "fill"));
  EXPECT_FALSE(hook_is(hook, "fill-"));
  EXPECT_FALSE(hook_is(hook, "folio"));
}

}  // namespace
}  // namespace servedby::test
