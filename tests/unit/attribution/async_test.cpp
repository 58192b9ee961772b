// SPDX-License-Identifier: Apache-2.0
// Reads that end elsewhere, later, or in another order than they began: aio and io_uring; and what was filled on
// advice.
#include "scene.h"

namespace servedby::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const Via kDrive{"nvme0n1"}, kOtherDrive{"nvme1n1"}, kCache{"page-cache"};

class Async : public ::testing::Test {
 protected:
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 64 * M, 32 * M);
  TestFile second = scene.file(12, kNvme1, 128 * M, 32 * M);

  void ends(const TestFile& file, std::uint64_t pos, std::uint64_t bytes, std::uint32_t tid, std::uint32_t read,
            std::uint16_t method, std::uint16_t flags = SB_READ_DIRECT) {
    sb_read record = scene.read_record(file, pos, static_cast<std::int64_t>(bytes), target(tid, read));
    record.method = method;
    record.flags = flags;
    scene.put(record, SB_READ, tid);
  }
};

TEST_F(Async, ReadsInFlightTogetherEndInAnyOrder) {
  scene.bio(model, 0, M, target(100, 1), SB_BIO_DIRECT | SB_BIO_ASYNC);
  scene.bio(second, 0, M, target(100, 2), SB_BIO_DIRECT | SB_BIO_ASYNC);
  scene.bio(model, M, M, target(100, 3), SB_BIO_DIRECT | SB_BIO_ASYNC);
  scene.done(second, 0, M);
  ends(second, 0, M, 100, 2, SB_METHOD_AIO);
  scene.done(model, M, M);
  scene.done(model, 0, M);
  ends(model, M, M, 100, 3, SB_METHOD_AIO);
  ends(model, 0, M, 100, 1, SB_METHOD_AIO);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M), Pair(kOtherDrive, M)));
  EXPECT_THAT(result.reads.by_method, ElementsAre(Pair("aio", 3U)));
  EXPECT_EQ(result.ledger[0].parts.at("direct"), 3 * M);
}

TEST_F(Async, AWorkerSubmitsForTheTaskThatBegan) {
  Who worker = target(300, 5);
  worker.reader = 100;
  scene.bio(model, 0, M, worker, SB_BIO_DIRECT | SB_BIO_ASYNC);
  scene.bio(model, 4 * M, M, target(300, 5), SB_BIO_DIRECT);  // the worker's own fifth read is another one
  scene.done(model, 0, M);
  scene.done(model, 4 * M, M);
  ends(model, 0, M, 100, 5, SB_METHOD_IO_URING);
  ends(model, 4 * M, M, 300, 5, SB_METHOD_PREAD);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 2 * M)));
  EXPECT_THAT(result.reads.by_method, ElementsAre(Pair("io_uring", 1U), Pair("pread", 1U)));
}

TEST_F(Async, OutlivesTheThreadThatBeganIt) {
  scene.bio(model, 0, M, target(101, 1), SB_BIO_DIRECT | SB_BIO_ASYNC);
  scene.task(SB_TASK_FORK, 101, 100);
  scene.task_bytes.erase(101);
  scene.task(SB_TASK_EXIT, 101, 100, M);
  scene.done(model, 0, M);
  ends(model, 0, M, 101, 1, SB_METHOD_AIO);
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M)));
}

TEST_F(Async, WhatARingFilledForItselfIsNotPrefetched) {
  scene.crowded_at = 4;
  Who worker = target(300, 1);
  worker.reader = 100;
  scene.cold(model, 0, 64 * K, worker);
  // Later reads end first, and the runs are made fewer meanwhile.
  for (std::uint32_t i = 0; i < 64; ++i) {
    scene.cold(model, (2 + 2 * i) * 64 * K, 64 * K, target(100, 2 + i));
    ends(model, (2 + 2 * i) * 64 * K, 32 * K, 100, 2 + i, SB_METHOD_IO_URING, SB_READ_PAGE_CACHE);
  }
  ends(model, 0, 64 * K, 100, 1, SB_METHOD_IO_URING, SB_READ_PAGE_CACHE);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 64 * K + 64 * 32 * K)));
  EXPECT_EQ(row_of(result, kDrive)->prefetched_bytes, 0U);
}

TEST_F(Async, AdviceFillsForReadsToComeNotForAMapping) {
  Who advised = target(100, 0);
  advised.flags |= SB_BY_ADVICE;
  scene.name(model, {"model"});
  scene.cold(model, 0, M, advised);
  scene.read(model, 0, 768 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 768 * K)));
  EXPECT_EQ(row_of(result, kDrive)->prefetched_bytes, 768 * K);
  EXPECT_THAT(result.mmap.filled_by, IsEmpty());
  EXPECT_EQ(result.wasted_bytes, 256 * K);
  EXPECT_EQ(result.ledger[0].parts.at("never_returned"), 256 * K);
}

TEST_F(Async, StepsOfASpliceAreReads) {
  const struct {
    std::uint16_t method;
    const char* name;
  } steps[] = {
      {SB_METHOD_SENDFILE, "sendfile"}, {SB_METHOD_SPLICE, "splice"}, {SB_METHOD_COPY_FILE_RANGE, "copy_file_range"}};
  std::uint32_t number = 0;
  for (const auto& step : steps) {
    ++number;
    scene.cold(model, number * M, 64 * K, target(100, number));
    ends(model, number * M, 64 * K, 100, number, step.method, SB_READ_PAGE_CACHE | SB_READ_SPLICE);
  }
  const AttributionResult result = scene.result();
  expect_whole(result);
  for (const auto& step : steps) EXPECT_EQ(result.reads.by_method.at(step.name), 1U) << step.name;
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 3 * 64 * K)));
}

}  // namespace
}  // namespace servedby::test
