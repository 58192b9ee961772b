// SPDX-License-Identifier: Apache-2.0
// dm and md: bytes are carried through to the member that had them, or are unknown.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr std::uint32_t kStacked = SB_BIO_FILE | SB_BIO_STACKED;

struct StackedDevices : testing::Test {
  StackedDevices() { model.dev = kDm0; }

  /// The stacked device counts what it passes on.
  void counts(DeviceNumber dev, std::uint64_t bytes) {
    scene.session.before.block[dev];
    scene.session.after.block[dev].read_bytes += bytes;
    scene.session.counts.devices[dev].target_read_bytes += bytes;
    ++scene.session.counts.devices[dev].target_read_requests;
  }

  Scene scene;
  TestFile model = scene.file(11, kDm0, 8 * M, 64 * M);
};

TEST_F(StackedDevices, EachMemberHasItsShare) {
  scene.fill(model, 0, M, target(100, 1));
  scene.bio(model, 0, M, target(100, 1), kStacked);
  counts(kDm0, M);
  scene.remap(kDm0, 8 * M, kNvme0, 100 * M, 256 * K);
  scene.remap(kDm0, 8 * M + 256 * K, kNvme1, 200 * M, 768 * K);
  scene.done(kNvme1, 200 * M, 768 * K);
  scene.done(kNvme0, 100 * M, 256 * K);
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"dm-0", "nvme0n1"}, 256 * K), Pair(Via{"dm-0", "nvme1n1"}, 768 * K)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, 0U);
  EXPECT_EQ(result.served_by[0].reads, 1U);
  EXPECT_EQ(result.ledger[0].traced_target_bytes, M);
  EXPECT_EQ(result.ledger[1].boundary, "dm");
  EXPECT_EQ(result.ledger[1].traced_target_bytes, M);
}

TEST_F(StackedDevices, MembersRequestsMayMergeWhatTheArraySplit) {
  scene.fill(model, 0, 512 * K, target(100, 1));
  scene.bio(model, 0, 512 * K, target(100, 1), kStacked);
  counts(kDm0, 512 * K);
  for (std::uint64_t chunk = 0; chunk < 8; ++chunk)
    scene.remap(kDm0, 8 * M + chunk * 64 * K, chunk % 2 == 0 ? kNvme0 : kNvme1, 4 * M + chunk / 2 * 64 * K, 64 * K);
  scene.done(kNvme0, 4 * M, 256 * K);
  scene.done(kNvme1, 4 * M, 256 * K);
  scene.read(model, 0, 512 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"dm-0", "nvme0n1"}, 256 * K), Pair(Via{"dm-0", "nvme1n1"}, 256 * K)));
}

TEST_F(StackedDevices, DirectReadsToo) {
  scene.bio(model, 0, M, target(100, 1), SB_BIO_DIRECT | SB_BIO_STACKED);
  counts(kDm0, M);
  scene.remap(kDm0, 8 * M, kNvme1, 64 * M, M);
  scene.done(kNvme1, 64 * M, M);
  sb_read read = scene.read_record(model, 0, M, target(100, 1));
  read.flags = SB_READ_DIRECT;
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"dm-0", "nvme1n1"}, M)));
}

TEST_F(StackedDevices, StackedOnStacked) {
  constexpr DeviceNumber kDm1 = device_number(253, 1);
  scene.stack.devices[kDm1].dev = kDm1;
  scene.stack.devices[kDm1].name = "dm-1";
  scene.stack.devices[kDm1].kind = DeviceKind::dm;
  scene.fill(model, 0, M, target(100, 1));
  scene.bio(model, 0, M, target(100, 1), kStacked);
  counts(kDm0, M);
  scene.remap(kDm0, 8 * M, kDm1, M, M, SB_FOR_TARGET | SB_BIO_STACKED);
  counts(kDm1, M);
  scene.remap(kDm1, M, kNvme0, 2 * M, 512 * K);
  scene.remap(kDm1, M + 512 * K, kNvme1, 2 * M, 512 * K);
  scene.done(kNvme0, 2 * M, 512 * K);
  scene.done(kNvme1, 2 * M, 512 * K);
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"dm-0", "dm-1", "nvme0n1"}, 512 * K),
                                                      Pair(Via{"dm-0", "dm-1", "nvme1n1"}, 512 * K)));
}

TEST_F(StackedDevices, WhereItWasPassedOnToWasNotSeen) {
  scene.fill(model, 0, M, target(100, 1));
  scene.bio(model, 0, M, target(100, 1), kStacked);
  counts(kDm0, M);
  scene.remap(kDm0, 8 * M, kNvme0, 100 * M, 512 * K);
  scene.done(kNvme0, 100 * M, 512 * K);
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"dm-0", "nvme0n1"}, 512 * K), Pair(Via{"dm-0", "unknown"}, 512 * K)));
}

TEST_F(StackedDevices, ADeviceMapperWithRequestsOfItsOwnIsALayerLikeADrive) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"dm-0"}, M)));
}

TEST_F(StackedDevices, ALoopOnAnArray) {
  TestFile image = scene.file(50, kDm0, 32 * M, 512 * M);
  TestFile inner = scene.file(11, kLoop0, 0, 16 * M);
  inner.id.dev = kLoop0;
  scene.fill(inner, 0, M, target(100, 1));
  scene.bio(inner, 0, M, target(100, 1));
  scene.backing(inner, 0, M, 0x7000, image);
  scene.fill(image, 0, M, worker(0x7000));
  scene.bio(image, 0, M, worker(0x7000), kStacked);
  counts(kDm0, M);
  scene.remap(kDm0, 32 * M, kNvme0, M, M);
  scene.done(kNvme0, M, M);
  Scene::Done how;
  how.request = 0x7000;
  scene.done(kLoop0, 0, M, how);
  scene.read(inner, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"loop0", "dm-0", "nvme0n1"}, M)));
}

TEST_F(StackedDevices, RemapsOfNobodysBytesAndDamagedOnesChangeNothing) {
  scene.remap(kDm0, 8 * M, kNvme0, 100 * M, M, 0);
  scene.cold(scene.file(12, kNvme0, 0, M), 0, M, target(100, 1));
  EXPECT_TRUE(scene.result().complete);
  scene.remap(kDm0, 8 * M, kDm0, 100 * M, M);  // onto itself
  scene.remap(kDm0, 8 * M, kNvme0, 100 * M, 0);
  sb_remap far{};
  far.old_sector = UINT64_MAX;
  far.old_dev = kDm0;
  far.dev = kNvme0;
  far.bytes = 4096;
  scene.put(far, SB_REMAP, 100);
  EXPECT_EQ(scene.result().losses.at("malformed"), 3U);
}

}  // namespace
}  // namespace servedby::test
