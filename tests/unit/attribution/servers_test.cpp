// SPDX-License-Identifier: Apache-2.0
// File systems whose bytes a server has: no drive may be blamed for them, and no hit may be claimed.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

struct Served : testing::Test {
  Served() {
    scene.stack.file_systems[kShare] = {.type = "9p", .server = "9p:share"};
    model.id.dev = kShare;
  }
  static constexpr DeviceNumber kShare = device_number(0, 41);
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 0, 4 * M + 100);
};

TEST_F(Served, FirstTheServerThenThePageCache) {
  scene.fill(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"9p:share"}, M), Pair(Via{"page-cache"}, M)));
  EXPECT_TRUE(result.complete);
}

TEST_F(Served, WhatTheKernelCountsOfItIsNoLoss) {
  scene.fill(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.task_bytes[100] = M;  // netfs does, FUSE does not
  const AttributionResult result = scene.result();
  EXPECT_EQ(result.ledger[0].residual_bytes, M);
  EXPECT_EQ(result.ledger[0].server_bytes, M);
  EXPECT_EQ(result.ledger[0].bracket_bytes, M);
  EXPECT_TRUE(result.complete);
}

TEST_F(Served, MoreThanTheServerHadIsALoss) {
  scene.fill(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.task_bytes[100] = M + 4 * K;
  EXPECT_FALSE(scene.result().complete);
}

TEST_F(Served, ReadAheadAndNeverReturnedIsWasted) {
  scene.fill(model, 4 * M - 4 * K, 8 * K, target(100, 1));  // the last 100 bytes are past what is returned
  scene.read(model, 4 * M - 4 * K, 4 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_EQ(result.wasted_bytes, 100U);
}

TEST_F(Served, FaultsAreFilledByTheServer) {
  scene.fill(model, 0, 64 * K, target(100, 0));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.mmap.filled_by), ElementsAre(Pair(Via{"9p:share"}, 64 * K)));
  EXPECT_EQ(result.wasted_bytes, 0U);
}

TEST_F(Served, OthersFillsAreTheServersOnlyForWhoWaited) {
  const std::uint64_t before = ++scene.now;
  scene.fill(model, 0, M, other());
  scene.read(model, 0, 512 * K, target(100, 1), before);
  scene.read(model, 512 * K, 512 * K, target(100, 2));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"9p:share"}, 512 * K), Pair(Via{"page-cache"}, 512 * K)));
  EXPECT_EQ(result.warmed_by_others_bytes, 512 * K);
  EXPECT_FALSE(result.ledger[0].server_bytes.has_value());
}

TEST_F(Served, AReadPastThePageCacheIsTheServers) {
  sb_read uncached = scene.read_record(model, 0, M, target(100, 1));
  uncached.flags = 0;
  scene.put(uncached, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"9p:share"}, M)));
  EXPECT_EQ(result.ledger[0].bracket_bytes, M);
}

TEST_F(Served, AFileSystemWithADeviceIsNot) {
  model.id.dev = device_number(8, 1);
  scene.fill(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(Via{"unknown"}, M)));
}

}  // namespace
}  // namespace servedby::test
