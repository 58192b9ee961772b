// SPDX-License-Identifier: Apache-2.0
// What was missed: recovered where something else proves it, unknown where nothing does, and never silent.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

const Via kCache{"page-cache"}, kDrive{"nvme0n1"}, kUnknown{"unknown"};

struct Honesty : testing::Test {
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 64 * M, 64 * M);
  TestFile backing = scene.file(50, kNvme0, 512 * M, 256 * M);
  TestFile inner = scene.file(12, kLoop0, 16 * M, 8 * M);

  void missed_completion(std::uint64_t pos, std::uint64_t bytes, std::uint32_t read) {
    scene.fill(model, pos, bytes, target(100, read));
    scene.bio(model, pos, bytes, target(100, read));
    Scene::Done how;
    how.seen = false;
    scene.done(model, pos, bytes, how);
  }
};

TEST_F(Honesty, MissedCompletionIsProvedByTheReturn) {
  missed_completion(0, 512 * K, 1);
  missed_completion(512 * K, 512 * K, 1);
  scene.read(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M), Pair(kCache, M)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 2U);
  EXPECT_EQ(result.served_by[0].prefetched_bytes, 0U);
}

TEST_F(Honesty, RecoveredInPiecesIsOneBio) {
  missed_completion(0, 512 * K, 1);
  scene.read(model, 0, 1000, target(100, 1));
  scene.read(model, 1000, 512 * K - 1000, target(100, 2));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, 512 * K)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 1U);
}

TEST_F(Honesty, LateCompletionOfARecoveredBioChangesNothing) {
  scene.bio(model, 0, M, target(100, 1));
  scene.read(model, 0, M, target(100, 1));
  scene.done(model, 0, M);
  scene.read(model, 0, M, target(100, 2));
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(kDrive, M), Pair(kCache, M)));
}

TEST_F(Honesty, CompletionFoundLateIsNotTakenForALaterBio) {
  const std::uint64_t issued = scene.now + 5;
  scene.now += 10;
  scene.bio(model, 0, M, target(100, 1));  // submitted after that request was issued
  Scene::Done how;
  how.issue_ns = issued;
  how.flags = SB_REQUEST_FOUND_DONE;
  scene.done(model, 0, M, how);
  scene.read(model, 0, M, target(100, 1));
  EXPECT_EQ(scene.result().recovered.at("completion_by_return"), 1U);
}

TEST_F(Honesty, MissedCompletionIsProvedByARefill) {
  missed_completion(0, M, 1);
  scene.cold(model, 0, M, target(100, 2));
  scene.read(model, 0, M, target(100, 2));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M)));
  EXPECT_EQ(result.recovered.at("completion_by_refill"), 1U);
  EXPECT_EQ(result.recovered.at("completion_by_return"), 0U);
  EXPECT_EQ(result.wasted_bytes, M);
}

TEST_F(Honesty, MissedCompletionOfAFaultIsProvedByTheQuietEnd) {
  missed_completion(0, M, 0);
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.mmap.filled_by), ElementsAre(Pair(kDrive, M)));
  EXPECT_EQ(result.recovered.at("completion_by_end"), 1U);
  scene.session.counts.requests_in_flight_at_end = 1;
  EXPECT_TRUE(scene.result().mmap.filled_by.empty());
}

TEST_F(Honesty, MissedCompletionOfABackedDeviceKeepsItsEvidence) {
  const std::uint64_t request = 0xffff888100000000;
  scene.bio(inner, 0, 512 * K, target(100, 1));
  scene.backing(inner, 0, 256 * K, request, backing);
  scene.cold(backing, inner.base, 128 * K, worker(request));
  scene.read(inner, 0, 512 * K, target(100, 1));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"loop0", "nvme0n1"}, 128 * K), Pair(Via{"loop0", "page-cache"}, 128 * K),
                          Pair(Via{"loop0", "unknown"}, 256 * K)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 1U);
}

TEST_F(Honesty, MissedCompletionBelowABackedDevice) {
  const std::uint64_t request = 0xffff888100000000;
  scene.bio(inner, 0, 512 * K, target(100, 1));
  scene.backing(inner, 0, 512 * K, request, backing);
  scene.bio(backing, inner.base, 512 * K, worker(request));
  Scene::Done how;
  how.seen = false;
  scene.done(backing, inner.base, 512 * K, how);
  how = {};
  how.request = request;
  scene.done(inner, 0, 512 * K, how);
  scene.read(inner, 0, 512 * K, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"loop0", "nvme0n1"}, 512 * K)));
  EXPECT_EQ(result.recovered.at("completion_by_return"), 1U);
}

TEST_F(Honesty, RequestAddressUsedAgainWithoutACompletion) {
  const std::uint64_t request = 0xffff888100000000;
  scene.bio(inner, 0, 512 * K, target(100, 1));
  scene.backing(inner, 0, 512 * K, request, backing);
  scene.cold(backing, inner.base, 512 * K, worker(request));
  scene.read(inner, 0, 256 * K, target(100, 1));  // the completion was missed; half of it is taken
  scene.bio(inner, M, 512 * K, target(100, 2));
  scene.backing(inner, M, 512 * K, request, backing);
  Scene::Done how;
  how.request = request;
  scene.done(inner, M, 512 * K, how);
  scene.read(inner, M, 512 * K, target(100, 2));
  scene.read(inner, 256 * K, 256 * K, target(100, 3));
  const AttributionResult result = scene.result();
  expect_sound(result);
  EXPECT_EQ(bytes_of(result.served_by)[(Via{"loop0", "page-cache"})], 512 * K);
  EXPECT_EQ(bytes_of(result.served_by)[(Via{"loop0", "nvme0n1"})], 256 * K);
  EXPECT_EQ(bytes_of(result.served_by)[(Via{"loop0", "unknown"})], 256 * K);
  EXPECT_EQ(result.losses.at("unmatched_backing"), 1U);
  EXPECT_FALSE(result.complete);
}

TEST_F(Honesty, WithoutTheFillHookNothingIsPageCache) {
  for (const char* hook : {"fill-readahead", "fill-folio"}) {
    Scene one;
    one.without(hook);
    one.bio(model, 0, M, target(100, 1));
    one.done(model, 0, M);
    one.read(model, 0, 2 * M, target(100, 1));
    one.read(model, 0, 2 * M, target(100, 2));
    const AttributionResult result = one.result();
    expect_sound(result);
    EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kDrive, M), Pair(kUnknown, 3 * M)));
    EXPECT_EQ(row_of(result, kUnknown)->why, "the fill hook is off");
  }
}

TEST_F(Honesty, WithoutTheBioHookNothingIsPageCache) {
  scene.without("bio-submit");
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUnknown, M)));
  EXPECT_EQ(result.served_by[0].why, "the bio hook is off");
}

TEST_F(Honesty, WithoutAnyHookNothingIsPageCache) {
  scene.session.hooks.clear();
  scene.read(model, 0, M, target(100, 1));
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(kUnknown, M)));
}

TEST_F(Honesty, AnyLossThatCouldHideAFillTakesThePageCacheAway) {
  for (const int loss :
       {SB_LOSS_RING, SB_LOSS_TASK_STATE, SB_LOSS_REQUEST_STATE, SB_LOSS_FILE_STATE, SB_LOSS_BIO_PARTS}) {
    Scene one;
    const std::uint64_t request = 0xffff888100000000;
    one.session.counts.losses[static_cast<std::size_t>(loss)] = 1;
    one.cold(model, 0, M, target(100, 1));
    one.read(model, 0, 2 * M, target(100, 1));
    one.bio(inner, 0, 512 * K, target(100, 2));
    one.backing(inner, 0, 512 * K, request, backing);
    Scene::Done how;
    how.request = request;
    one.done(inner, 0, 512 * K, how);
    one.read(inner, 0, 512 * K, target(100, 2));
    one.fill(model, 4 * M, 4 * K, target(100, 3));
    one.read(model, 4 * M - 4 * K, 8 * K, target(100, 3));  // two reasons in one call
    const AttributionResult result = one.result();
    expect_sound(result);
    EXPECT_FALSE(result.complete);
    EXPECT_THAT(bytes_of(result.served_by),
                ElementsAre(Pair(Via{"loop0", "unknown"}, 512 * K), Pair(kDrive, M), Pair(kUnknown, M + 8 * K)));
    EXPECT_EQ(row_of(result, kUnknown)->why, "events were lost; filled by I/O that was not seen");
    EXPECT_EQ(row_of(result, kUnknown)->reads, 2U);
  }
}

TEST_F(Honesty, SkippedProgramsOfAnAnsweringHookTakeThePageCacheAway) {
  scene.session.hooks[2].recursion_misses = 3;
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.losses.at("recursion"), 3U);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kUnknown, M)));
}

TEST_F(Honesty, SkippedProgramsOfAnotherHookMakeItIncompleteOnly) {
  scene.session.hooks[2].recursion_misses = 3;
  scene.session.hooks[2].served_by = false;
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_FALSE(result.complete);
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(kCache, M)));
}

TEST_F(Honesty, WhatASecondHookSawIsJudgedByTheCounters) {
  scene.session.hooks[5].second_sight = true;  // one of the two hooks of a completion
  scene.session.hooks[5].recursion_misses = 7;
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, 2 * M, target(100, 1));
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_EQ(result.recovered.at("second_sight_misses"), 7U);
  EXPECT_EQ(bytes_of(result.served_by)[kCache], M);
  scene.session.after.block[kNvme0].read_bytes += 512;
  EXPECT_FALSE(scene.result().complete);
  EXPECT_EQ(scene.result().losses.at("recursion"), 7U);
  scene.session.after.block[kNvme0].counting = false;
  EXPECT_FALSE(scene.result().complete);  // nothing judges it
}

TEST_F(Honesty, EveryClassOfLossIsListed) {
  scene.read(model, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  std::vector<std::string> names;
  for (const auto& [name, count] : result.losses) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("bio_parts", "dropped", "dropped_bytes", "file_state", "malformed", "path_failed",
                                 "read_entry", "recursion", "request_state", "residual", "ring", "task_state",
                                 "unmatched_backing", "unseen_backing"));
}

TEST_F(Honesty, EdgesAreNotLoss) {
  scene.session.counts.notes[SB_NOTE_READ_BEFORE_START] = 1;
  scene.session.counts.notes[SB_NOTE_REQUEST_BEFORE_START] = 2;
  scene.session.counts.notes[SB_NOTE_COMPLETION_RECOVERED] = 5;
  scene.session.counts.reads_in_flight_at_end = 3;
  scene.session.counts.requests_in_flight_at_end = 4;
  const AttributionResult result = scene.result();
  EXPECT_TRUE(result.complete);
  EXPECT_THAT(result.edges,
              ElementsAre(Pair("reads_in_flight_at_end", 3U), Pair("reads_in_flight_at_start", 1U),
                          Pair("requests_in_flight_at_end", 4U), Pair("requests_in_flight_at_start", 2U)));
  EXPECT_EQ(result.recovered.at("completion_by_second_sight"), 5U);
}

TEST_F(Honesty, EqualInputsGiveEqualResults) {
  scene.cold(model, 0, M, target(100, 1));
  scene.read(model, 0, 2 * M, target(100, 1));
  const AttributionResult a = scene.result(), b = scene.result();
  EXPECT_EQ(bytes_of(a.served_by), bytes_of(b.served_by));
  EXPECT_EQ(a.losses, b.losses);
}

}  // namespace
}  // namespace servedby::test
