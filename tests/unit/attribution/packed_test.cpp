// SPDX-License-Identifier: Apache-2.0
// Compressed extents: fewer bytes are read than returned, into pages of nobody's; and file systems that fill more than
// they are asked for.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

struct Compressed : testing::Test {
  Compressed() {
    scene.stack.file_systems[kBtrfs] = {.type = "btrfs", .server = ""};
    model.id.dev = kBtrfs;
    scene.session.hooks.push_back({.name = "unpack-begin",
                                   .how = "",
                                   .tier = "kprobe",
                                   .attached = true,
                                   .why_not = {},
                                   .runs = {},
                                   .recursion_misses = {}});
  }
  /// An extent is given to read: it will be unpacked to [pos, + bytes) of the file.
  void unpack(std::uint64_t extent, std::uint64_t pos, std::uint64_t bytes, const Who& who) {
    sb_bio record = scene.bio_record(model, pos, bytes, who, 0);
    record.bio = extent;
    record.dev = 0;
    scene.put(record, SB_UNPACK, who.tid);
  }
  /// One of the bios that read it.
  void bio(std::uint64_t extent, DeviceNumber dev, std::uint64_t at, std::uint64_t bytes, const Who& who) {
    sb_bio record = scene.bio_record(model, 0, bytes, who, SB_BIO_PACKED);
    record.file = {};
    record.file_size = 0;
    record.file_pos = extent;
    record.dev = dev;
    record.sector = at / 512;
    scene.bio(record, who);
  }
  void read(std::uint64_t pos, std::uint64_t bytes, const Who& who) {
    sb_read record = scene.read_record(model, pos, static_cast<std::int64_t>(bytes), who);
    record.flags |= SB_READ_FILLS_MORE;
    scene.put(record, SB_READ, who.tid);
  }

  static constexpr DeviceNumber kBtrfs = device_number(0, 41);
  static constexpr std::uint64_t kExtent = 0xffff888000001000;
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 0, 4 * M);
};

TEST_F(Compressed, TheDriveThatHasTheExtent) {
  scene.fill(model, 0, 64 * K, target(100, 1));
  unpack(kExtent, 0, 128 * K, target(100, 1));  // the rest of the extent too
  bio(kExtent, kNvme0, M, 16 * K, target(100, 1));
  scene.done(kNvme0, M, 16 * K);
  read(0, 64 * K, target(100, 1));
  read(64 * K, 64 * K, target(100, 2));
  read(0, 128 * K, target(100, 3));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"nvme0n1"}, 128 * K), Pair(Via{"page-cache"}, 128 * K)));
  EXPECT_EQ(row_of(result, {"nvme0n1"})->prefetched_bytes, 64 * K);
  EXPECT_EQ(result.ledger[0].parts.at("compressed"), 16 * K);
  EXPECT_EQ(result.wasted_bytes, 0U);
}

TEST_F(Compressed, AnExtentOnTwoDrivesIsUnknown) {
  unpack(kExtent, 0, 128 * K, target(100, 1));
  bio(kExtent, kNvme0, M, 16 * K, target(100, 1));
  scene.done(kNvme0, M, 16 * K);  // before the rest of it is submitted
  bio(kExtent, kNvme1, 2 * M, 4 * K, target(100, 1));
  scene.done(kNvme1, 2 * M, 4 * K);
  read(0, 128 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"unknown"}, 128 * K)));
  EXPECT_EQ(result.served_by[0].why, "a compressed extent of which several layers had a part");
}

TEST_F(Compressed, EachExtentHasItsOwnBios) {
  unpack(kExtent, 0, 128 * K, target(100, 1));
  bio(kExtent + 1, kNvme1, M, 16 * K, target(101, 1));  // the kernel side may say so in either order
  unpack(kExtent + 1, 128 * K, 128 * K, target(101, 1));
  bio(kExtent, kNvme0, M, 16 * K, target(100, 1));
  scene.done(kNvme1, M, 16 * K);
  scene.done(kNvme0, M, 16 * K);
  read(0, 256 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"nvme0n1"}, 128 * K), Pair(Via{"nvme1n1"}, 128 * K)));
}

TEST_F(Compressed, NeverReturnedIsWasted) {
  unpack(kExtent, 0, 128 * K, target(100, 1));
  bio(kExtent, kNvme0, M, 16 * K, target(100, 1));
  scene.done(kNvme0, M, 16 * K);
  read(0, 4 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_EQ(result.wasted_bytes, 124 * K);
}

TEST_F(Compressed, FaultsAreFilledByTheDrive) {
  unpack(kExtent, 0, 128 * K, target(100, 0));
  bio(kExtent, kNvme0, M, 16 * K, target(100, 0));
  scene.done(kNvme0, M, 16 * K);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.mmap.filled_by), ElementsAre(Pair(Via{"nvme0n1"}, 128 * K)));
}

TEST_F(Compressed, OthersExtentIsThePageCacheUnlessItIsWaitedFor) {
  unpack(kExtent, 0, 128 * K, other());
  bio(kExtent, kNvme0, M, 16 * K, other());
  sb_read waiting = scene.read_record(model, 0, 64 * K, target(100, 1));
  Scene::Done how;
  how.target = false;
  scene.done(kNvme0, M, 16 * K, how);
  scene.put(waiting, SB_READ, 100);
  read(64 * K, 64 * K, target(100, 2));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_TRUE(result.complete);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"nvme0n1"}, 64 * K), Pair(Via{"page-cache"}, 64 * K)));
  EXPECT_EQ(result.warmed_by_others_bytes, 64 * K);
}

TEST_F(Compressed, WithoutTheHookNothingIsAPageCacheHit) {
  scene.without("unpack-begin");
  read(0, 64 * K, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"unknown"}, 64 * K)));
}

TEST_F(Compressed, AFileSystemThatCameLaterIsNotTrusted) {
  scene.stack.file_systems.clear();
  read(0, 64 * K, target(100, 1));
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(Via{"unknown"}, 64 * K)));
}

TEST_F(Compressed, WhatIsUnpackedFromBlocksIsUnknown) {
  scene.stack.file_systems[kBtrfs].type = "squashfs";
  scene.session.hooks.back().name = "page-added";
  scene.fill(model, 0, 64 * K, target(100, 1));
  read(0, 64 * K, target(100, 1));
  read(0, 64 * K, target(100, 2));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_TRUE(result.complete);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"page-cache"}, 64 * K), Pair(Via{"unknown"}, 64 * K)));
  EXPECT_THAT(result.mmap.filled_by, IsEmpty());
}

}  // namespace
}  // namespace servedby::test
