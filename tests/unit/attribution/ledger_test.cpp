// SPDX-License-Identifier: Apache-2.0
// The traced bytes against the kernel's own counters, boundary by boundary.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

struct LedgerOf : testing::Test {
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 64 * M, 64 * M);
};

TEST_F(LedgerOf, EveryByteOfTheProcessHasOnePart) {
  model.size = 4 * M + 100;
  scene.cold(model, 0, 2 * M, target(100, 1));  // half of it is returned
  scene.read(model, 0, M, target(100, 1));
  scene.cold(model, 4 * M, 4 * K, target(100, 2));              // past the end
  scene.cold(model, 3 * M, 64 * K, target(100, 0));             // a fault
  scene.bio(model, 0, 512 * K, target(100, 3), SB_BIO_DIRECT);  // direct
  scene.done(model, 0, 512 * K);
  TestFile inode_table = scene.file(0, kNvme0, 0, 0);
  scene.bio(inode_table, 16 * K, 16 * K, target(100, 4), SB_BIO_META);
  scene.done(inode_table, 16 * K, 16 * K);
  scene.bio(inode_table, 64 * K, 8 * K, target(100, 5), SB_BIO_CUT);
  scene.done(inode_table, 64 * K, 8 * K);
  scene.bio(model, 2 * M, 32 * K, target(100, 6));
  Scene::Done failed;
  failed.status = 10;
  scene.done(model, 2 * M, 32 * K, failed);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(
      result.ledger[0].parts,
      ElementsAre(Pair("compressed", 0), Pair("direct", 512 * K), Pair("exec_mmap", 64 * K), Pair("failed", 32 * K),
                  Pair("first_returned", M), Pair("metadata", 16 * K), Pair("never_returned", M + 100),
                  Pair("other", 8 * K), Pair("past_end", 4 * K - 100), Pair("swap", 0)));
  EXPECT_EQ(result.ledger[0].traced_target_bytes, 2 * M + 4 * K + 64 * K + 512 * K + 16 * K + 8 * K + 32 * K);
  EXPECT_EQ(result.wasted_bytes, M + 100);
}

TEST_F(LedgerOf, OtherProcessesAreCountedNotComputed) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  const TestFile elsewhere = scene.file(99, kNvme0, 1024 * M, 64 * M);
  Scene::Done unwatched;
  unwatched.seen = false;
  unwatched.target = false;
  scene.done(elsewhere, 0, 3 * M, unwatched);
  scene.session.counts.devices[kNvme0].unseen_read_bytes = 128 * K;
  scene.session.after.block[kNvme0].read_bytes += 128 * K;
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_EQ(result.ledger[1].traced_target_bytes, M);
  EXPECT_EQ(result.ledger[1].traced_other_bytes, 3 * M + 128 * K);
  EXPECT_THAT(result.ledger[1].parts, ElementsAre(Pair("issue_unseen", 128 * K)));
  EXPECT_EQ(result.ledger[1].kernel_bytes, 4 * M + 128 * K);
}

TEST_F(LedgerOf, DroppedCompletionsAreTheResidual) {
  scene.fill(model, 0, M, target(100, 1));
  scene.bio(model, 0, 512 * K, target(100, 1));
  scene.bio(model, 512 * K, 512 * K, target(100, 1));
  scene.done(model, 0, 512 * K);
  scene.session.after.block[kNvme0].read_bytes += 512 * K;  // dropped on purpose: neither recorded nor counted
  scene.session.counts.losses[SB_LOSS_DROPPED] = 1;
  scene.session.counts.notes[SB_NOTE_DROPPED_BYTES] = 512 * K;
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.ledger[1].residual_bytes, 512 * K);
  EXPECT_EQ(result.losses.at("residual"), 1U);
  EXPECT_EQ(result.losses.at("dropped"), 1U);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"nvme0n1"}, M)));
}

TEST_F(LedgerOf, AResidualWithinTheBracketIsAllowed) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.session.after.block[kNvme0].read_bytes += 4 * K;
  EXPECT_FALSE(scene.result().complete);
  scene.session.attached_live = true;
  EXPECT_FALSE(scene.result().complete);
  scene.session.bracket.device_bytes[kNvme0] = 4 * K;
  EXPECT_TRUE(scene.result().complete);
  EXPECT_EQ(scene.result().ledger[1].bracket_bytes, 4 * K);
  scene.session.after.block[kNvme0].read_bytes -= 8 * K;
  EXPECT_TRUE(scene.result().complete);
  EXPECT_EQ(scene.result().ledger[1].residual_bytes, -4 * static_cast<std::int64_t>(K));
  scene.session.bracket.device_bytes[kNvme0] = 4 * K - 1;
  EXPECT_FALSE(scene.result().complete);
  EXPECT_EQ(scene.result().losses.at("residual"), 1U);
}

TEST_F(LedgerOf, CounterThatIsOffIsNotChecked) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.session.after.block[kNvme0] = {};
  scene.session.after.block[kNvme0].counting = false;
  const AttributionResult result = scene.result();
  EXPECT_TRUE(result.complete);
  EXPECT_FALSE(result.ledger[1].kernel_bytes.has_value());
  EXPECT_FALSE(result.ledger[1].residual_bytes.has_value());
  EXPECT_THAT(result.ledger[1].kernel_source, testing::HasSubstr("not checked"));
  scene.session.after.block.clear();
  EXPECT_FALSE(scene.result().ledger[1].kernel_bytes.has_value());
}

TEST_F(LedgerOf, CounterThatMovesThoughItIsSaidToBeOffIsChecked) {
  // dm devices of kernels before 6.2.
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.session.before.block[kNvme0].counting = scene.session.after.block[kNvme0].counting = false;
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_EQ(result.ledger[1].kernel_bytes, M);
  scene.session.before.block[kNvme0].counting = true;  // switched off meanwhile
  EXPECT_FALSE(scene.result().ledger[1].kernel_bytes.has_value());
}

TEST_F(LedgerOf, TasksThatEndBringTheirOwnAccounting) {
  // 100 runs throughout and had read before; 101 begins and ends; 102 was there before and ends; 103 begins and stays.
  scene.task(SB_TASK_FORK, 101, 100);
  scene.task(SB_TASK_FORK, 103, 103);
  for (const std::uint32_t tid : {100U, 101U, 102U, 103U}) {
    scene.cold(model, (tid - 100) * M, M, target(tid, 1));
    scene.read(model, (tid - 100) * M, M, target(tid, 1));
  }
  scene.task(SB_TASK_EXIT, 101, 100, M);
  scene.task(SB_TASK_EXIT, 102, 102, 5 * M);
  scene.task_bytes = {{100, 8 * M}, {103, M}};
  scene.session.before.tasks[100].read_bytes = 7 * M;
  scene.session.before.tasks[102].read_bytes = 4 * M;
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_EQ(result.ledger[0].kernel_bytes, 4 * M);
  EXPECT_THAT(result.children, ElementsAre(102U, 103U));
}

TEST_F(LedgerOf, TaskWithoutAccountingAtTheEndIsNotChecked) {
  scene.task(SB_TASK_FORK, 101, 100);
  scene.cold(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_FALSE(result.ledger[0].kernel_bytes.has_value());
  EXPECT_EQ(result.ledger[0].kernel_source, "not checked: the accounting of task 101 was not seen at its end");
  EXPECT_FALSE(result.mmap.faults_major.has_value());
}

TEST_F(LedgerOf, TidUsedAgainIsCountedTwice) {
  scene.task(SB_TASK_FORK, 101, 100);
  scene.task(SB_TASK_EXIT, 101, 100, M);
  scene.task(SB_TASK_FORK, 101, 100);
  scene.task_bytes = {{101, 2 * M}};
  EXPECT_EQ(scene.result().ledger[0].kernel_bytes, 3 * M);
}

TEST_F(LedgerOf, BoundariesHaveTheirKinds) {
  const std::pair<DeviceNumber, const char*> devices[] = {
      {kLoop0, "loop"}, {kDm0, "dm"}, {kVirtio, "drive"}, {kNvme1, "drive"}, {device_number(8, 0), "other"}};
  for (const auto& [dev, boundary] : devices) {
    Scene one;
    one.session.counts.devices[dev].other_read_requests = 1;
    const AttributionResult result = one.result();
    ASSERT_EQ(result.ledger.size(), 2U);
    EXPECT_EQ(result.ledger[1].boundary, boundary);
  }
  Scene one;
  one.session.counts.devices[device_number(8, 0)].other_read_requests = 1;
  EXPECT_EQ(one.result().ledger[1].device, "8:0");
  EXPECT_THAT(one.result().ledger[1].kernel_source, testing::StartsWith("not checked"));
}

TEST_F(LedgerOf, WritesAreNeverAttributed) {
  scene.bio(model, 0, M, target(100, 1));
  Scene::Done write;
  write.flags = SB_REQUEST_WRITE;
  write.target = false;
  scene.done(model, 0, M, write);
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_EQ(result.recovered.at("completion_by_return"), 1U);
  EXPECT_EQ(result.ledger[1].traced_target_bytes, 0U);
}

}  // namespace
}  // namespace servedby::test
