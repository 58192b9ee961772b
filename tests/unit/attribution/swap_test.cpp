// SPDX-License-Identifier: Apache-2.0
// Files in memory (tmpfs): the page cache has what is there; what came back from a swap area is swap's, once.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

struct Swap : testing::Test {
  /// A page of the file in memory is wanted, and lies at `slot` of the swap area.
  void wanted(std::uint64_t page, std::uint64_t slot, const Who& who) {
    sb_swapped record{};
    record.pos = page * kPage;
    record.swap_pos = slot * kPage;
    record.bytes = kPage;
    record.file = memory.id;
    record.swap = area.id;
    record.tgid = who.tgid;
    record.read = who.read;
    record.flags = who.flags;
    scene.put(record, SB_SWAPPED, who.tid);
  }
  /// Pages of the swap area are read.
  void swap_in(std::uint64_t slot, std::uint64_t pages, const Who& who) {
    scene.bio(area, slot * kPage, pages * kPage, who, SB_BIO_SWAP);
    Scene::Done how;
    how.target = (who.flags & SB_FOR_TARGET) != 0;
    scene.done(area, slot * kPage, pages * kPage, how);
  }
  void read(std::uint64_t page, std::uint64_t pages, std::uint32_t number, std::uint16_t more = SB_READ_IN_MEMORY) {
    sb_read record =
        scene.read_record(memory, page * kPage, static_cast<std::int64_t>(pages * kPage), target(100, number));
    record.flags = static_cast<std::uint16_t>(SB_READ_NO_PAGES | more);
    scene.put(record, SB_READ, 100);
  }

  static constexpr std::uint64_t kPage = 4 * K;
  Scene scene;
  TestFile memory = scene.file(11, kNvme0, 0, M);
  TestFile area = {{SB_SWAP_INO, 0, 0}, kNvme1, 0, 64 * M};
};

TEST_F(Swap, FirstSwapThenThePageCache) {
  wanted(0, 7, target(100, 1));
  swap_in(7, 1, target(100, 1));
  read(0, 4, 1);
  read(0, 4, 2);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"page-cache"}, 7 * kPage), Pair(Via{"swap"}, kPage)));
  EXPECT_EQ(result.ledger[0].parts.at("swap"), kPage);
}

TEST_F(Swap, NeighboursThatWereReadAlongArePrefetched) {
  wanted(0, 8, target(100, 1));
  swap_in(8, 2, target(100, 1));
  read(0, 1, 1);
  wanted(1, 9, target(100, 2));
  read(1, 1, 2);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"swap"}, 2 * kPage)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, kPage);
}

TEST_F(Swap, TheRestOfAPageIsSwapsToo) {
  wanted(0, 7, target(100, 1));
  swap_in(7, 1, target(100, 1));
  sb_read part = scene.read_record(memory, 0, 100, target(100, 1));
  part.flags = SB_READ_NO_PAGES | SB_READ_IN_MEMORY;
  scene.put(part, SB_READ, 100);
  read(0, 1, 2);
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(Via{"page-cache"}, 100), Pair(Via{"swap"}, kPage)));
}

TEST_F(Swap, WithoutItsIOItMayHaveBeenInTheSwapCache) {
  wanted(0, 7, target(100, 1));
  read(0, 1, 1);
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"unknown"}, kPage)));
  EXPECT_TRUE(result.complete);
}

TEST_F(Swap, APlaceThatWasWrittenAnewHasNothingToGive) {
  swap_in(7, 1, target(100, 0));  // read along, and never wanted
  sb_bio out = scene.bio_record(area, 7 * kPage, kPage, other(), SB_BIO_SWAP | SB_BIO_WRITE);
  scene.put(out, SB_BIO, 700);
  wanted(0, 7, target(100, 1));
  read(0, 1, 1);
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(Via{"unknown"}, kPage)));
}

TEST_F(Swap, WhatAnotherProcessBroughtBackIsThePageCaches) {
  swap_in(7, 1, other());
  ++scene.now;
  wanted(0, 7, target(100, 1));
  read(0, 1, 1);
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"page-cache"}, kPage)));
  EXPECT_EQ(result.warmed_by_others_bytes, kPage);
}

TEST_F(Swap, AHoleIsNotThePageCache) {
  wanted(0, 7, target(100, 1));
  swap_in(7, 1, target(100, 1));
  read(0, 2, 1, 0);
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(Via{"swap"}, kPage), Pair(Via{"unknown"}, kPage)));
}

TEST_F(Swap, AMappingsFaultIsNoReads) {
  wanted(0, 7, target(100, 0));
  swap_in(7, 1, target(100, 0));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.mmap.filled_by), ElementsAre(Pair(Via{"swap"}, kPage)));
}

}  // namespace
}  // namespace servedby::test
