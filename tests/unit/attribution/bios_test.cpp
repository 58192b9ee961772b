// SPDX-License-Identifier: Apache-2.0
// Devices without requests: what they pass on to a path, serve themselves, rebuild, or do not have.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr DeviceNumber kZram = device_number(251, 0), kMd = device_number(9, 77);

struct Bios : testing::Test {
  Bios() {
    add(kZram, "zram0", DeviceKind::zram, {});
    add(kMd, "md77", DeviceKind::md, {kNvme0, kNvme1});
  }

  void add(DeviceNumber dev, const char* name, DeviceKind kind, std::vector<DeviceNumber> below) {
    Device device;
    device.dev = dev;
    device.name = name;
    device.kind = kind;
    device.bio_based = true;
    device.below = std::move(below);
    scene.stack.devices[dev] = device;
  }
  void counts(DeviceNumber dev, std::uint64_t bytes, bool by_kernel = true) {
    scene.session.before.block[dev].counting = scene.session.after.block[dev].counting = by_kernel;
    if (by_kernel) scene.session.after.block[dev].read_bytes += bytes;
    scene.session.counts.devices[dev].target_read_bytes += bytes;
    ++scene.session.counts.devices[dev].target_read_requests;
  }

  Scene scene;
};

TEST_F(Bios, ADiskInMemoryServesThemAsTheyCome) {
  const TestFile model = scene.file(11, kZram, 8 * M, 64 * M);
  scene.fill(model, 0, M, target(100, 1));
  scene.bio(model, 0, M, target(100, 1), SB_BIO_FILE | SB_BIO_SERVED);
  counts(kZram, M);
  scene.read(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"page-cache"}, M), Pair(Via{"zram0"}, M)));
  EXPECT_EQ(result.ledger[1].boundary, "zram");
  EXPECT_EQ(result.ledger[1].traced_target_bytes, M);
  for (const auto& [how, count] : result.recovered) EXPECT_EQ(count, 0U) << how;
}

TEST_F(Bios, APageThatWasFilledWithoutABioIsNotInTheProcesssAccounting) {
  const TestFile device = scene.file(11, kZram, 0, 64 * M);
  scene.fill(device, 0, 8 * K, target(100, 1));
  for (std::uint64_t at = 0; at < 8 * K; at += 4 * K) {
    sb_bio page = scene.bio_record(device, at, 4 * K, target(100, 1), SB_BIO_META | SB_BIO_SERVED | SB_BIO_NO_ACCOUNT);
    scene.put(page, SB_BIO, 100);
    scene.task_bytes[100] += 0;  // the kernel accounts nothing
    counts(kZram, 4 * K);
  }
  scene.read(device, 0, 4 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"zram0"}, 4 * K)));
  EXPECT_EQ(result.ledger[0].traced_target_bytes, 0U);
  EXPECT_EQ(result.wasted_bytes, 4 * K);
}

TEST_F(Bios, AMappingAboveADiskInMemory) {
  const TestFile model = scene.file(11, kDm0, 8 * M, 64 * M);
  scene.fill(model, 0, M, target(100, 1));
  scene.bio(model, 0, M, target(100, 1), SB_BIO_FILE | SB_BIO_STACKED);
  counts(kDm0, M);
  scene.remap(kDm0, 8 * M, kZram, M, M, SB_FOR_TARGET | SB_BIO_SERVED);
  counts(kZram, M);
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"dm-0", "zram0"}, M)));
}

TEST_F(Bios, MultipathIsOneDriveByEitherPathAndIsCheckedWhereTheKernelCounts) {
  constexpr DeviceNumber kHead = device_number(259, 9);
  for (const bool counted : {true, false}) {
    Scene fresh;
    std::swap(scene, fresh);
    add(kHead, "nvme9n1", DeviceKind::nvme, {kNvme0, kNvme1});
    const TestFile model = scene.file(11, kHead, 8 * M, 64 * M);
    scene.fill(model, 0, M, target(100, 1));
    scene.bio(model, 0, M, target(100, 1), SB_BIO_FILE | SB_BIO_STACKED);
    counts(kHead, M, counted);
    scene.remap(kHead, 8 * M, kNvme0, 8 * M, 512 * K);
    scene.remap(kHead, 8 * M + 512 * K, kNvme1, 8 * M + 512 * K, 512 * K);
    scene.done(kNvme1, 8 * M + 512 * K, 512 * K);
    scene.done(kNvme0, 8 * M, 512 * K);
    scene.read(model, 0, M, target(100, 1));
    const AttributionResult result = scene.result();
    expect_sound(result);
    EXPECT_TRUE(result.complete);
    EXPECT_THAT(bytes_of(result.served_by),
                ElementsAre(Pair(Via{"nvme9n1", "nvme0n1"}, 512 * K), Pair(Via{"nvme9n1", "nvme1n1"}, 512 * K)));
    const LedgerLine& head = result.ledger.back();
    EXPECT_EQ(head.boundary, "multipath");
    EXPECT_EQ(head.residual_bytes.has_value(), counted);
  }
}

TEST_F(Bios, ADegradedArrayRebuildsHasInItsCacheOrAsksAMember) {
  const TestFile model = scene.file(11, kMd, 8 * M, 64 * M);
  scene.fill(model, 0, 16 * K, target(100, 1));
  scene.bio(model, 0, 16 * K, target(100, 1), SB_BIO_FILE | SB_BIO_STACKED);
  counts(kMd, 16 * K);
  scene.given(kMd, 8 * M, 4 * K, SB_GIVEN_REBUILT);
  scene.given(kMd, 8 * M, 4 * K, SB_GIVEN_CACHED);  // the copy of what was rebuilt
  scene.remap(kMd, 8 * M + 4 * K, kNvme0, 4 * M, 4 * K);
  scene.done(kNvme0, 4 * M, 4 * K);
  scene.given(kMd, 8 * M + 4 * K, 4 * K, SB_GIVEN_CACHED);
  scene.given(kMd, 8 * M + 8 * K, 4 * K, SB_GIVEN_CACHED);
  scene.read(model, 0, 16 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"md77", "md-rebuilt"}, 4 * K), Pair(Via{"md77", "md-stripe-cache"}, 4 * K),
                          Pair(Via{"md77", "nvme0n1"}, 4 * K), Pair(Via{"md77", "unknown"}, 4 * K)));
}

TEST_F(Bios, ZerosOfAThinVolumeUnlessItPassesAPartOnAfterAll) {
  const TestFile model = scene.file(11, kDm0, 8 * M, 64 * M);
  scene.fill(model, 0, 12 * K, target(100, 1));
  scene.bio(model, 0, 12 * K, target(100, 1), SB_BIO_FILE | SB_BIO_STACKED);
  counts(kDm0, 12 * K);
  scene.given(kDm0, 8 * M, 12 * K, SB_GIVEN_ZERO);
  scene.remap(kDm0, 8 * M, kNvme0, 4 * M, 4 * K);
  scene.done(kNvme0, 4 * M, 4 * K);
  scene.read(model, 0, 12 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"dm-0", "nvme0n1"}, 4 * K), Pair(Via{"dm-0", "zero"}, 8 * K)));
  for (const auto& [how, count] : result.recovered) EXPECT_EQ(count, 0U) << how;
}

TEST_F(Bios, DamagedRecordsOfWhatIsGivenAreCounted) {
  scene.given(kMd, 0, 0, SB_GIVEN_ZERO);
  sb_given far{};
  far.sector = UINT64_MAX;
  far.dev = kMd;
  far.bytes = 4096;
  scene.put(far, SB_GIVEN, 50);
  EXPECT_EQ(scene.result().losses.at("malformed"), 2U);
}

}  // namespace
}  // namespace servedby::test
