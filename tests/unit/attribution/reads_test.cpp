// SPDX-License-Identifier: Apache-2.0
// Reads against fills: who filled, when, for whom; ranges that share pages; calls that fail, end early or go past the
// end.
#include <algorithm>
#include <random>

#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

const Via kCache{"page-cache"}, kDrive{"nvme0n1"}, kUnknown{"unknown"};

struct Reads : testing::Test {
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 64 * M, 64 * M);
};

TEST_F(Reads, ChunksThatSharePagesAddUpInAnyOrder) {
  // 2 MiB tasks cut from an odd start, by 8 threads; the pages at their edges are filled once, by either neighbour.
  const std::uint64_t start = 12345, tasks = 16, page = 4 * K;
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Scene one;
    std::vector<std::uint32_t> order(tasks);
    for (std::uint32_t i = 0; i < tasks; ++i) order[i] = i;
    std::ranges::shuffle(order, random);
    std::vector<bool> filled(model.size / page);
    for (const std::uint32_t i : order) {
      const std::uint64_t begin = start + i * 2 * M, end = begin + 2 * M;
      const Who who = target(100 + i % 8, 1 + i / 8);
      for (std::uint64_t p = begin / page; p < (end + page - 1) / page; ++p) {
        if (filled[p]) continue;
        std::uint64_t last = p;
        while (last < (end + page - 1) / page && !filled[last]) filled[last++] = true;
        one.cold(model, p * page, (last - p) * page, who);
        p = last;
      }
    }
    std::ranges::shuffle(order, random);
    for (const std::uint32_t i : order) one.read(model, start + i * 2 * M, 2 * M, target(100 + i % 8, 1 + i / 8));
    const AttributionResult result = one.result();
    expect_whole(result);
    EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, tasks * 2 * M)));
    EXPECT_EQ(result.wasted_bytes, start % page + (page - (start + tasks * 2 * M) % page));
    if (HasFailure()) return;
  }
}

TEST_F(Reads, ReadaheadReturnedByAnotherThreadIsPrefetched) {
  scene.cold(model, 0, 2 * M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.read(model, M, M, target(101, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, M);
  EXPECT_EQ(result.served_by[0].reads, 2U);
}

TEST_F(Reads, ReadaheadReturnedByTheNextCallIsPrefetched) {
  scene.cold(model, 0, 2 * M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.read(model, M, M, target(100, 2));
  EXPECT_EQ(scene.result().served_by[0].prefetched_bytes, M);
}

TEST_F(Reads, TwoReadersOfOneColdFileCountItOnce) {
  for (std::uint64_t at = 0; at < 8 * M; at += M) {
    const auto read = static_cast<std::uint32_t>(1 + at / M);
    const std::uint64_t begin = scene.now;
    scene.cold(model, at, M, target(100 + read % 2, read));
    scene.read(model, at, M, target(100, read), begin);
    scene.read(model, at, M, target(101, read), begin);
  }
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 8 * M), Pair(kCache, 8 * M)));
}

TEST_F(Reads, OverlappingReadsSplitByWhatWasReturnedFirst) {
  scene.cold(model, 0, 2 * M, target(100, 1));
  scene.read(model, M / 2 + 1, M, target(101, 1));
  scene.read(model, 0, 2 * M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M), Pair(kCache, M)));
}

TEST_F(Reads, RefilledAfterEviction) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.cold(model, 0, M, target(100, 2));  // evicted in between: nothing else fills again
  scene.read(model, 0, M, target(100, 2));
  scene.read(model, 0, M, target(100, 3));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M), Pair(kCache, M)));
}

TEST_F(Reads, EvictedBeforeItWasReturnedIsWasted) {
  scene.cold(model, 0, 2 * M, target(100, 1));  // the second half is readahead
  scene.read(model, 0, M, target(100, 1));
  scene.cold(model, M, M, target(100, 2));
  scene.read(model, M, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, 0U);
  EXPECT_EQ(result.wasted_bytes, M);
  EXPECT_EQ(result.files[0].wasted_bytes, M);
  EXPECT_EQ(result.ledger[0].parts.at("never_returned"), M);
}

TEST_F(Reads, WarmedByAHelperDuringTheRead) {
  // Scenario 15: the helper evicts ranges and reads them again while the target goes on.
  scene.cold(model, 0, 4 * M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.cold(model, 2 * M, M, other());  // evicted and warmed before the read of it begins
  const std::uint64_t begin = scene.now;
  scene.cold(model, 3 * M, M, other());  // and this while it runs
  scene.read(model, M, 3 * M, target(100, 2), begin);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_TRUE(result.complete);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 3 * M), Pair(kCache, M)));
  EXPECT_EQ(result.warmed_by_others_bytes, M);
  EXPECT_EQ(result.wasted_bytes, 2 * M);
}

TEST_F(Reads, FilledByOthersBeforeTheReadIsThePageCache) {
  scene.cold(model, 0, M, other());
  scene.read(model, 0, M, target(100, 1), scene.now + 1);
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kCache, 2 * M)));
  EXPECT_EQ(result.warmed_by_others_bytes, M);
  EXPECT_EQ(result.wasted_bytes, 0U);
}

TEST_F(Reads, FilledByOthersWhileTheReadWaitedIsTheDrive) {
  const std::uint64_t begin = scene.now;
  scene.cold(model, 0, M, other());
  scene.read(model, 0, M, target(100, 1), begin);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, M);  // somebody else started it
  EXPECT_EQ(result.warmed_by_others_bytes, 0U);
}

TEST_F(Reads, BytesPastTheEndOfTheFileAreTheirOwnPart) {
  model.size = M + 100;
  scene.cold(model, 0, M + 4 * K, target(100, 1));
  sb_read read = scene.read_record(model, 0, static_cast<std::int64_t>(M + 100), target(100, 1), 0, 2 * M);
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M + 100)));
  EXPECT_EQ(result.reads.bytes_requested, 2 * M);
  EXPECT_EQ(result.ledger[0].parts.at("past_end"), 4 * K - 100);
  EXPECT_EQ(result.ledger[0].parts.at("first_returned"), M + 100);
  EXPECT_EQ(result.wasted_bytes, 0U);
}

TEST_F(Reads, ScatteredReadaheadTakesLittleMemoryAndNoAnswer) {
  // Far more runs than are kept as such, then all of it is taken or left.
  scene.crowded_at = 64;
  model.size = 1024 * M;
  const std::uint64_t reads = 4000;
  std::uint32_t number = 0;
  for (std::uint64_t i = 0; i < reads; ++i) {
    const std::uint64_t at = (i * 7919) % reads * 128 * K;
    scene.cold(model, at, 128 * K, target(100, ++number));
    scene.read(model, at + 60 * K + 5, 4 * K, target(100, number));
  }
  scene.read(model, 0, 10 * M, target(101, 1));
  scene.cold(model, 200 * M, M, target(101, 2));
  const AttributionResult result = scene.result();
  expect_whole(result);
  const std::uint64_t again = 10 * M / (128 * K) * 4 * K;  // bytes of the first 10 MiB that had been returned
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(kDrive, reads * 4 * K + 10 * M - again), Pair(kCache, again)));
  EXPECT_EQ(row_of(result, kDrive)->prefetched_bytes, 10 * M - again);
  EXPECT_EQ(result.wasted_bytes, reads * 124 * K + M - (10 * M - again));
}

TEST_F(Reads, ShortReadCountsWhatItReturned) {
  scene.cold(model, 0, M, target(100, 1));
  scene.put(scene.read_record(model, 0, 1000, target(100, 1), 0, M), SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 1000U)));
  EXPECT_EQ(result.reads.bytes_requested, M);
  EXPECT_EQ(result.wasted_bytes, M - 1000);
}

TEST_F(Reads, ErrorsAndTheEndOfTheFileAreCallsWithoutBytes) {
  scene.put(scene.read_record(model, 0, -5, target(100, 1), 0, M), SB_READ, 100);
  scene.put(scene.read_record(model, model.size, 0, target(100, 2), 0, M), SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_EQ(result.reads.calls, 2U);
  EXPECT_EQ(result.reads.bytes_requested, 2 * M);
  EXPECT_EQ(result.reads.bytes_returned, 0U);
  EXPECT_THAT(result.served_by, IsEmpty());
  EXPECT_THAT(result.reads.by_method, ElementsAre(Pair("pread", 2U)));
}

TEST_F(Reads, EveryMethodHasItsName) {
  const std::pair<std::uint16_t, const char*> methods[] = {
      {SB_METHOD_READ, "read"},     {SB_METHOD_PREAD, "pread"},     {SB_METHOD_READV, "readv"},
      {SB_METHOD_PREADV, "preadv"}, {SB_METHOD_PREADV2, "preadv2"}, {SB_METHOD_UNKNOWN, "unknown"}};
  for (const auto& [method, name] : methods) {
    Scene one;
    sb_read read = one.read_record(model, 0, 10, target(100, 1));
    read.method = method;
    one.put(read, SB_READ, 100);
    EXPECT_THAT(one.result().reads.by_method, ElementsAre(Pair(name, 1U)));
  }
}

TEST_F(Reads, DirectReadsBypassThePageCache) {
  for (std::uint32_t i = 1; i <= 2; ++i) {
    scene.bio(model, 0, 2 * M, target(100, i), SB_BIO_DIRECT);
    for (std::uint64_t at = 0; at < 2 * M; at += 512 * K) scene.done(model, at, 512 * K);
    sb_read read = scene.read_record(model, 0, 2 * M, target(100, i));
    read.flags = SB_READ_DIRECT;
    scene.put(read, SB_READ, 100);
  }
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 4 * M)));
  EXPECT_EQ(result.served_by[0].prefetched_bytes, 0U);
  EXPECT_EQ(result.ledger[0].parts.at("direct"), 4 * M);
}

TEST_F(Reads, TwoDirectReadsOfTheSameSectorsAtOnce) {
  scene.bio(model, 0, M, target(100, 1), SB_BIO_DIRECT);
  scene.bio(model, 0, M, target(101, 1), SB_BIO_DIRECT);
  scene.done(model, 0, M);
  scene.done(model, 0, M);
  for (const std::uint32_t tid : {101U, 100U}) {
    sb_read read = scene.read_record(model, 0, M, target(tid, 1));
    read.flags = SB_READ_DIRECT;
    scene.put(read, SB_READ, tid);
  }
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 0U);
}

TEST_F(Reads, DirectReadWithoutIoIsUnknown) {
  scene.bio(model, 0, M, target(100, 1), SB_BIO_DIRECT);
  scene.done(model, 0, M);
  sb_read read = scene.read_record(model, 0, 2 * M, target(100, 1));
  read.flags = SB_READ_DIRECT;
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M), Pair(kUnknown, M)));
  EXPECT_EQ(row_of(result, kUnknown)->why, "a direct read without I/O that was seen");
}

TEST_F(Reads, DirectReadThatFellBackToThePageCache) {
  scene.bio(model, 0, M, target(100, 1), SB_BIO_DIRECT);
  scene.done(model, 0, M);
  scene.cold(model, M, M, target(100, 1));
  sb_read read = scene.read_record(model, 0, 3 * M, target(100, 1));
  read.flags = SB_READ_DIRECT | SB_READ_PAGE_CACHE;
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M), Pair(kCache, M)));
}

TEST_F(Reads, AFileInMemoryIsThePageCacheOnlyWhereAllOfItIsThere) {
  for (std::uint32_t i = 1; i <= 3; ++i) {
    sb_read read = scene.read_record(model, 0, M, target(100, i));
    read.flags = SB_READ_NO_PAGES;
    if (i != 2) read.flags |= SB_READ_IN_MEMORY;
    if (i == 3) read.flags |= SB_READ_DIRECT;
    scene.put(read, SB_READ, 100);
  }
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kCache, 2 * M), Pair(kUnknown, M)));
  EXPECT_EQ(row_of(result, kUnknown)->why, "a file in memory: what was read may be a hole of it, or have been in swap");
}

TEST_F(Reads, FaultsOfAMappingThenAReadOfTheSamePages) {
  scene.name(model, {"model"});
  scene.cold(model, 0, 256 * K, target(100, 0));
  scene.read(model, 128 * K, 256 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.mmap.filled_by), ElementsAre(Pair(kDrive, 256 * K)));
  EXPECT_THAT(bytes_of(result.files[0].mmap.filled_by), ElementsAre(Pair(kDrive, 256 * K)));
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 128 * K), Pair(kCache, 128 * K)));
  EXPECT_EQ(row_of(result, kDrive)->prefetched_bytes, 128 * K);
  EXPECT_EQ(result.ledger[0].parts.at("exec_mmap"), 128 * K);
  EXPECT_EQ(result.ledger[0].parts.at("first_returned"), 128 * K);
  EXPECT_EQ(result.wasted_bytes, 0U);
}

TEST_F(Reads, FileThatWasOnlyMappedIsListed) {
  scene.cold(model, 0, M, target(100, 0));
  const AttributionResult result = scene.result();
  expect_whole(result);
  ASSERT_EQ(result.files.size(), 1U);
  EXPECT_EQ(result.files[0].path, "(unnamed)");
  EXPECT_THAT(bytes_of(result.files[0].mmap.filled_by), ElementsAre(Pair(kDrive, M)));
}

TEST_F(Reads, RequestSplitIntoFour) {
  scene.fill(model, 0, 2 * M, target(100, 1));
  scene.bio(model, 0, 2 * M, target(100, 1));
  for (const std::uint64_t part : {2U, 0U, 3U, 1U}) scene.done(model, part * 512 * K, 512 * K);
  scene.read(model, 0, 2 * M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 0U);
}

TEST_F(Reads, ThreeBiosMergedIntoOneRequest) {
  const TestFile next = scene.file(12, kNvme0, model.base + model.size, M);
  scene.cold(model, 0, 4 * K, target(100, 1));
  scene.bio(model, model.size - 128 * K, 64 * K, target(100, 2));
  scene.bio(model, model.size - 64 * K, 64 * K, target(101, 1));
  scene.bio(next, 0, 64 * K, target(102, 1));
  scene.done(model, model.size - 128 * K, 192 * K);
  scene.read(model, model.size - 128 * K, 64 * K, target(100, 2));
  scene.read(model, model.size - 64 * K, 64 * K, target(101, 1));
  scene.read(next, 0, 64 * K, target(102, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 192 * K)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 0U);
  EXPECT_EQ(result.files.size(), 2U);
}

TEST_F(Reads, PartsOfOneBioInSeveralRecords) {
  // A bio over two runs of the file: its second record follows at once.
  scene.fill(model, 0, 64 * K, target(100, 1));
  sb_bio first = scene.bio_record(model, 0, 64 * K, target(100, 1));
  sb_bio second = first;
  second.file_pos = 128 * K;
  second.sector = first.sector + 64 * K / 512;
  second.flags &= ~std::uint32_t{SB_BIO_FIRST};
  scene.bio(first, target(100, 1));
  scene.bio(second, target(100, 1));
  scene.read(model, 0, 64 * K, target(100, 1));
  scene.read(model, 128 * K, 64 * K, target(100, 2));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 128 * K)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 1U);  // one bio, not two parts
}

TEST_F(Reads, PartialCompletions) {
  scene.bio(model, 0, 512 * K, target(100, 1));
  Scene::Done partial;
  partial.flags = SB_REQUEST_PARTIAL;
  scene.done(model, 0, 128 * K, partial);
  scene.done(model, 128 * K, 384 * K);
  scene.read(model, 0, 512 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_EQ(result.recovered.at("completion_by_return"), 0U);
}

TEST_F(Reads, FailedRequestFillsNothing) {
  scene.fill(model, 0, M, target(100, 1));
  scene.bio(model, 0, M, target(100, 1));
  Scene::Done failed;
  failed.status = 10;  // BLK_STS_IOERR
  scene.done(model, 0, M, failed);
  scene.put(scene.read_record(model, 0, -5, target(100, 1), 0, M), SB_READ, 100);
  scene.cold(model, 0, M, target(100, 2));
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M)));
  EXPECT_EQ(result.ledger[0].parts.at("failed"), M);
  EXPECT_EQ(result.wasted_bytes, 0U);
}

TEST_F(Reads, ReturnedThoughItsIoFailedIsUnknown) {
  scene.bio(model, 0, M, target(100, 1));
  Scene::Done failed;
  failed.status = 10;
  scene.done(model, 0, M, failed);
  scene.read(model, 0, M, target(100, 1));
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(kUnknown, M)));
}

TEST_F(Reads, HolesAreNotCalledPageCache) {
  scene.fill(model, 0, M, target(100, 1));  // announced, and no bio: a hole, inline data, …
  scene.read(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kCache, M), Pair(kUnknown, M)));
  EXPECT_EQ(row_of(result, kUnknown)->why, "filled by I/O that was not seen");
}

TEST_F(Reads, ReadThatNeverReachedThePageCacheIsUnknown) {
  sb_read read = scene.read_record(model, 0, M, target(100, 1));
  read.flags = 0;
  scene.put(read, SB_READ, 100);
  read.flags = SB_READ_NO_PAGES;
  read.read = 2;
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUnknown, 2 * M)));
  EXPECT_EQ(result.served_by[0].reads, 2U);
  EXPECT_EQ(result.served_by[0].why,
            "a file in memory: what was read may be a hole of it, or have been in swap; the read was not seen in the "
            "page cache");
}

TEST_F(Reads, BelowAnOverlayTheListingIsTheOpenedFile) {
  const TestFile opened = scene.file(900, kNvme0, 0, model.size);
  scene.name(opened, {"model", "merged"});
  scene.cold(model, 0, 2 * M, target(100, 1));
  sb_read read = scene.read_record(model, 0, M, target(100, 1));
  read.opened = opened.id;
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_whole(result);
  ASSERT_EQ(result.files.size(), 1U);
  EXPECT_EQ(result.files[0].path, "/merged/model");
  EXPECT_EQ(result.files[0].inode, 11U);
  EXPECT_EQ(result.files[0].wasted_bytes, M);
}

TEST_F(Reads, ABlockDeviceReadAsAFile) {
  const TestFile disk = scene.file(kNvme0, kNvme0, 0, 256 * M);
  scene.fill(disk, 0, 128 * K, target(100, 1));
  scene.bio(disk, 0, 128 * K, target(100, 1), SB_BIO_META);
  scene.done(disk, 0, 128 * K);
  sb_read read = scene.read_record(disk, 0, 64 * K, target(100, 1));
  read.flags = SB_READ_PAGE_CACHE | SB_READ_BLKDEV;
  scene.put(read, SB_READ, 100);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 64 * K)));
  EXPECT_EQ(result.ledger[0].parts.at("metadata"), 64 * K);
}

}  // namespace
}  // namespace servedby::test
