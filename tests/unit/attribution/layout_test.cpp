// SPDX-License-Identifier: Apache-2.0
// Bytes that were returned though nothing was read for them: holes, unwritten extents, inline data.
#include "scene.h"

namespace servedby::test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

const Via kDrive{"nvme0n1"}, kUnknown{"unknown"}, kHole{"hole"}, kUnwritten{"unwritten"}, kInline{"inline"};

class Layouts : public ::testing::Test {
 protected:
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 64 * M, 32 * M);
  TestFile image = scene.file(12, kNvme1, 0, 64 * M);
  TestFile inner = scene.file(21, kLoop0, 8 * M, 16 * M);

  void layout(const TestFile& file, std::uint32_t extent, std::uint64_t begin = 0, std::uint64_t end = 0) {
    sb_layout record{};
    record.file = file.id;
    record.begin = begin;
    record.end = end;
    record.extent = extent;
    scene.put(record, SB_LAYOUT, 0);
  }
};

TEST_F(Layouts, WhatWasAnnouncedAndNeverReadIsWhatTheFileHasThere) {
  layout(model, SB_EXTENT_LOOKED);
  layout(model, SB_EXTENT_HOLE, M, 2 * M);
  layout(model, SB_EXTENT_UNWRITTEN, 2 * M, 2 * M + 512 * K);
  layout(model, SB_EXTENT_INLINE, 3 * M, 3 * M + 4 * K);
  scene.fill(model, 0, 4 * M, target(100, 1));
  scene.bio(model, 0, M, target(100, 1));
  scene.done(model, 0, M);
  scene.read(model, 0, 4 * M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kHole, M), Pair(kInline, 4 * K), Pair(kDrive, M),
                                                      Pair(kUnknown, 512 * K + M - 4 * K), Pair(kUnwritten, 512 * K)));
}

TEST_F(Layouts, ADriveThatWasReadHadTheBytesWhateverTheLayoutSays) {
  layout(model, SB_EXTENT_LOOKED);
  layout(model, SB_EXTENT_HOLE, 0, M);
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(kDrive, M)));
}

TEST_F(Layouts, DirectReadsOfHolesSubmitNothing) {
  layout(model, SB_EXTENT_LOOKED);
  layout(model, SB_EXTENT_HOLE, M, 3 * M);
  scene.bio(model, 0, M, target(100, 1), SB_BIO_DIRECT);
  scene.done(model, 0, M);
  sb_read read = scene.read_record(model, 0, 2 * M, target(100, 1));
  read.flags = SB_READ_DIRECT;
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kHole, M), Pair(kDrive, M)));
}

TEST_F(Layouts, HolesOfABackingFile) {
  layout(image, SB_EXTENT_LOOKED);
  layout(image, SB_EXTENT_HOLE, 8 * M, 9 * M);
  scene.fill(inner, 0, M, target(100, 1));
  scene.bio(inner, 0, M, target(100, 1));
  scene.backing(inner, 0, M, 0x5000, image);
  scene.fill(image, 8 * M, M, worker(0x5000));
  scene.done(inner, 0, M, {.request = 0x5000});
  scene.read(inner, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"loop0", "hole"}, M)));
}

TEST_F(Layouts, OnlyAFileWithOpenBytesIsAskedFor) {
  Attribution attribution({scene.stack, scene.session.hooks, scene.page_size, scene.crowded_at});
  scene.name(model, {"model", "data"});
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));  // all of it was filled
  scene.fill(model, M, M, target(100, 2));
  scene.read(model, M, M, target(100, 2));
  std::vector<std::size_t> asked;
  for (std::size_t i = 0; i < scene.records.size(); ++i) {
    if (const auto file = attribution.unplaced(scene.records[i])) {
      asked.push_back(i);
      EXPECT_EQ(file->path, "/data/model");
      EXPECT_EQ(file->tgid, 100U);
      EXPECT_EQ(file->file.ino, 11U);
    }
    attribution.feed(scene.records[i]);
  }
  EXPECT_THAT(asked, ElementsAre(scene.records.size() - 1));
}

TEST_F(Layouts, AFileThatWasLookedAtIsNotAskedForAgain) {
  Attribution attribution({scene.stack, scene.session.hooks, scene.page_size, scene.crowded_at});
  layout(model, SB_EXTENT_LOOKED);
  scene.fill(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  for (const auto& record : scene.records) {
    EXPECT_FALSE(attribution.unplaced(record));
    attribution.feed(record);
  }
}

}  // namespace
}  // namespace servedby::test
