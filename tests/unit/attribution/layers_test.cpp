// SPDX-License-Identifier: Apache-2.0
// Which layer had the bytes: the drive, the page cache, a device that is served by a file, any depth of them.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

const Via kCache{"page-cache"}, kDrive{"nvme0n1"}, kUnknown{"unknown"};
const Via kUpperCache{"loop0", "page-cache"}, kUpperDrive{"loop0", "nvme0n1"}, kUpperUnknown{"loop0", "unknown"};

TEST(Layers, ColdReadIsServedByTheDrive) {
  Scene scene;
  const TestFile model = scene.file(11, kNvme0, 64 * M, 8 * M);
  scene.name(model, {"model.safetensors", "models"});
  for (std::uint32_t i = 0; i < 4; ++i) {
    scene.cold(model, i * 2 * M, 2 * M, target(100, i + 1));
    scene.read(model, i * 2 * M, 2 * M, target(100, i + 1));
  }
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 8 * M)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, 0U);
  EXPECT_EQ(result.served_by[0].reads, 4U);
  EXPECT_EQ(result.reads.calls, 4U);
  EXPECT_EQ(result.reads.bytes_requested, 8 * M);
  EXPECT_THAT(result.reads.by_method, ElementsAre(Pair("pread", 4U)));
  ASSERT_EQ(result.files.size(), 1U);
  EXPECT_EQ(result.files[0].path, "/models/model.safetensors");
  EXPECT_EQ(result.files[0].inode, 11U);
  EXPECT_EQ(result.wasted_bytes, 0U);
  ASSERT_EQ(result.ledger.size(), 2U);
  EXPECT_EQ(result.ledger[0].boundary, "process");
  EXPECT_EQ(result.ledger[0].kernel_bytes, 8 * M);
  EXPECT_EQ(result.ledger[0].parts.at("first_returned"), 8 * M);
  EXPECT_EQ(result.ledger[1].boundary, "drive");
  EXPECT_EQ(result.ledger[1].device, "nvme0n1");
  EXPECT_EQ(result.ledger[1].kernel_bytes, 8 * M);
}

TEST(Layers, WarmReadIsServedByThePageCache) {
  Scene scene;
  const TestFile model = scene.file(11, kNvme0, 0, 8 * M);
  for (std::uint32_t i = 0; i < 4; ++i) scene.read(model, i * 2 * M, 2 * M, target(100, i + 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_TRUE(result.complete);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kCache, 8 * M)));
}

TEST(Layers, ReadAgainAfterAColdReadIsThePageCache) {
  Scene scene;
  const TestFile model = scene.file(11, kNvme0, 0, M);
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M), Pair(kCache, M)));
}

TEST(Layers, HalfResidentSplitsAtThePage) {
  Scene scene;
  const TestFile model = scene.file(11, kNvme0, 0, 8 * M);
  const std::uint64_t resident = 3 * M + 4 * K;
  scene.cold(model, resident, 4 * M - resident, target(100, 2));
  scene.read(model, 0, 2 * M, target(100, 1));
  scene.read(model, 2 * M, 2 * M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 4 * M - resident), Pair(kCache, resident)));
  EXPECT_EQ(row_of(result, kCache)->reads, 2U);
  EXPECT_EQ(row_of(result, kDrive)->reads, 1U);
}

struct Stacked : testing::Test {
  Scene scene;
  const TestFile backing = scene.file(50, kNvme0, 512 * M, 256 * M);
  const TestFile model = scene.file(11, kLoop0, 16 * M, 8 * M);
  std::uint64_t request = 0xffff888100000000;

  /// The target reads [pos, + 2 MiB) in requests of 512 KiB; `serve` makes the backing file's side of each.
  template <class Serve>
  void read_through(std::uint64_t pos, std::uint32_t read, Serve&& serve, std::uint32_t flags = SB_BACKING_BY_ADDRESS) {
    scene.fill(model, pos, 2 * M, target(100, read));
    for (std::uint64_t at = pos; at < pos + 2 * M; at += 512 * K) scene.bio(model, at, 512 * K, target(100, read));
    for (std::uint64_t at = pos; at < pos + 2 * M; at += 512 * K) {
      request += 4096;
      scene.backing(model, at, 512 * K, request, backing, flags);
      serve(at, request);
      Scene::Done how;
      how.request = request;
      scene.done(model, at, 512 * K, how);
    }
    scene.read(model, pos, 2 * M, target(100, read));
  }
};

TEST_F(Stacked, BackingFileResident) {
  for (std::uint32_t i = 0; i < 4; ++i) read_through(i * 2 * M, i + 1, [](std::uint64_t, std::uint64_t) {});
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperCache, 8 * M)));
  EXPECT_EQ(result.ledger[0].kernel_bytes, 8 * M);  // the kernel says that the process read it all
  ASSERT_EQ(result.ledger.size(), 2U);              // and no drive read anything
  EXPECT_EQ(result.ledger[1].boundary, "loop");
  EXPECT_EQ(result.ledger[1].device, "loop0");
}

TEST_F(Stacked, BothEvicted) {
  for (std::uint32_t i = 0; i < 4; ++i)
    read_through(i * 2 * M, i + 1, [&](std::uint64_t at, std::uint64_t served) {
      scene.cold(backing, model.base + at, 512 * K, worker(served));
    });
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperDrive, 8 * M)));
  ASSERT_EQ(result.ledger.size(), 3U);
  EXPECT_EQ(result.ledger[2].boundary, "drive");
}

TEST_F(Stacked, BackingFileHalfResident) {
  // The boundary lies inside the third request, on a page.
  const std::uint64_t resident = M + 100 * K;
  read_through(0, 1, [&](std::uint64_t at, std::uint64_t served) {
    const std::uint64_t from = std::max(at, resident);
    if (from < at + 512 * K) scene.cold(backing, model.base + from, at + 512 * K - from, worker(served));
  });
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(kUpperDrive, 2 * M - resident), Pair(kUpperCache, resident)));
}

TEST_F(Stacked, ReadaheadOfTheBackingFileCountsForTheDrive) {
  bool first = true;
  read_through(0, 1, [&](std::uint64_t at, std::uint64_t served) {
    if (std::exchange(first, false)) scene.cold(backing, model.base + at, 3 * M, worker(served));
  });
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperDrive, 2 * M)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, 0U);  // of the target's own pages none was read ahead
  EXPECT_EQ(result.wasted_bytes, 0U);                   // and none of them was wasted
}

TEST_F(Stacked, BackingReadPageByPage) {
  // Some kernels read the backing file page by page, and the evidence comes once the whole range was seen.
  scene.fill(model, 0, 512 * K, target(100, 1));
  scene.bio(model, 0, 512 * K, target(100, 1));
  scene.cold(backing, model.base + 256 * K, 256 * K, worker(request));
  for (std::uint64_t at = 0; at < 512 * K; at += 4 * K)
    scene.backing(model, at, 4 * K, request, backing, SB_BACKING_BY_RANGE);
  Scene::Done how;
  how.request = request;
  scene.done(model, 0, 512 * K, how);
  scene.read(model, 0, 512 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperDrive, 256 * K), Pair(kUpperCache, 256 * K)));
}

TEST_F(Stacked, DirectTwice) {
  for (std::uint32_t pass = 1; pass <= 2; ++pass)
    read_through(
        0, pass,
        [&](std::uint64_t at, std::uint64_t served) {
          scene.bio(backing, model.base + at, 512 * K, worker(served), SB_BIO_DIRECT);
          scene.done(backing, model.base + at, 512 * K);
        },
        SB_BACKING_BY_ADDRESS | SB_BACKING_DIRECT);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperDrive, 4 * M)));
}

TEST_F(Stacked, DirectWithoutABioIsUnknown) {
  read_through(0, 1, [](std::uint64_t, std::uint64_t) {}, SB_BACKING_BY_ADDRESS | SB_BACKING_DIRECT);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperUnknown, 2 * M)));
}

TEST_F(Stacked, DirectThatFellBackToThePageCache) {
  const std::uint64_t at = 0;
  scene.bio(model, at, 512 * K, target(100, 1));
  scene.backing(model, at, 512 * K, request, backing, SB_BACKING_BY_ADDRESS | SB_BACKING_DIRECT);
  scene.bio(backing, model.base, 256 * K, worker(request), SB_BIO_DIRECT);
  scene.done(backing, model.base, 256 * K);
  scene.backing(model, at, 512 * K, request, backing);
  Scene::Done how;
  how.request = request;
  scene.done(model, at, 512 * K, how);
  scene.read(model, at, 512 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperDrive, 256 * K), Pair(kUpperCache, 256 * K)));
}

TEST_F(Stacked, MissingBackingIsUnknownAndALoss) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperUnknown, M)));
  EXPECT_EQ(result.served_by[0].why, "how the device's backing file was read was not seen");
  EXPECT_EQ(result.losses.at("unseen_backing"), 2U);
  EXPECT_FALSE(result.complete);
}

TEST_F(Stacked, MissingBackingIsNoLossWhereItsHookIsOff) {
  scene.without("backing-lookup");
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperUnknown, M)));
}

TEST_F(Stacked, DeviceLearnedAtTheEnd) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  StorageStack all = scene.stack;
  scene.stack.devices.erase(kLoop0);
  scene.session.stack = all;
  Attribution attribution({scene.stack, scene.session.hooks, 4096});
  for (const auto& record : scene.records) attribution.feed(record);
  const AttributionResult result = attribution.finish(scene.session);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUpperUnknown, M)));
}

TEST(Layers, AnyDepth) {
  Scene scene;
  const TestFile lowest = scene.file(51, kNvme1, 0, 512 * M);      // loop0's backing file, on the drive
  const TestFile middle = scene.file(50, kLoop0, 8 * M, 256 * M);  // loop1's backing file, on loop0
  const TestFile model = scene.file(11, kLoop1, 4 * M, 16 * M);
  const std::uint64_t upper = 0xffff888100001000, lower = 0xffff888100002000;
  scene.fill(model, 0, 512 * K, target(100, 1));
  scene.bio(model, 0, 512 * K, target(100, 1));
  scene.backing(model, 0, 512 * K, upper, middle);
  // Of the middle file 128 KiB are resident; of the lowest the next 128 KiB.
  scene.fill(middle, model.base + 128 * K, 384 * K, worker(upper, true, 901));
  scene.bio(middle, model.base + 128 * K, 384 * K, worker(upper, true, 901));
  scene.backing(middle, model.base + 128 * K, 384 * K, lower, lowest);
  scene.cold(lowest, middle.base + model.base + 256 * K, 256 * K, worker(lower, true, 902));
  Scene::Done how;
  how.request = lower;
  scene.done(middle, model.base + 128 * K, 384 * K, how);
  how.request = upper;
  scene.done(model, 0, 512 * K, how);
  scene.read(model, 0, 512 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"loop1", "loop0", "nvme1n1"}, 256 * K),
                                                      Pair(Via{"loop1", "loop0", "page-cache"}, 128 * K),
                                                      Pair(Via{"loop1", "page-cache"}, 128 * K)));
}

}  // namespace
}  // namespace servedby::test
