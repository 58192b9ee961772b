// SPDX-License-Identifier: Apache-2.0
// Records as bytes: whatever a recording holds, nothing crashes and nothing is counted twice.
#include <random>

#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

struct Records : testing::Test {
  Scene scene;
  TestFile model = scene.file(11, kNvme0, 64 * M, 64 * M);
  Session session = scene.session;

  AttributionResult feed(const std::vector<std::vector<std::byte>>& records) {
    Attribution attribution({scene.stack, scene.session.hooks, 4096});
    for (const auto& record : records) attribution.feed(record);
    return attribution.finish(session);
  }
  void one_of_each() {
    const TestFile inner = scene.file(12, kLoop0, 0, M);
    scene.name(model, {"model"});
    scene.task(SB_TASK_FORK, 101, 101);
    scene.cold(model, 0, 4 * K, target(100, 1));
    scene.backing(inner, 0, 4 * K, 1, model);
    scene.read(model, 0, 4 * K, target(100, 1));
  }
};

TEST_F(Records, ShorterThanTheirKindAsksAreMalformed) {
  one_of_each();
  for (const auto& whole : scene.records) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(feed({cut}).losses.at("malformed"), 1U);  // the head says more than there is
      if (size < sizeof(sb_head)) continue;
      const auto said = static_cast<std::uint16_t>(size);
      std::memcpy(cut.data() + offsetof(sb_head, size), &said, sizeof(said));
      const AttributionResult result = feed({cut});
      EXPECT_EQ(result.losses.at("malformed"), 1U) << size;  // the head agrees, and it is too little
      EXPECT_FALSE(result.complete);
      EXPECT_EQ(result.reads.calls, 0U);
    }
    EXPECT_EQ(feed({whole}).losses.at("malformed"), 0U);
  }
}

TEST_F(Records, SizesOfNothing) {
  sb_head head{SB_READ, 0, 1, 1};
  std::vector<std::byte> bytes(sizeof(head));
  for (const std::uint16_t size : std::initializer_list<std::uint16_t>{0, 1, 15, 16, 17, 65535}) {
    head.size = size;
    std::memcpy(bytes.data(), &head, sizeof(head));
    EXPECT_EQ(feed({bytes}).losses.at("malformed"), 1U);
  }
  EXPECT_EQ(feed({{}}).losses.at("malformed"), 1U);
}

TEST_F(Records, UnknownKindsAreIgnored) {
  sb_head head{999, sizeof(sb_head), 1, 1};
  std::vector<std::byte> bytes(sizeof(head));
  std::memcpy(bytes.data(), &head, sizeof(head));
  EXPECT_EQ(feed({bytes}).losses.at("malformed"), 0U);
}

TEST_F(Records, LongerThanKnownAreReadAsFarAsKnown) {
  scene.read(model, 0, 4 * K, target(100, 1));
  std::vector<std::byte>& record = scene.records.back();
  record.resize(record.size() + 16);
  const auto size = static_cast<std::uint16_t>(record.size());
  std::memcpy(record.data() + offsetof(sb_head, size), &size, sizeof(size));
  EXPECT_EQ(feed(scene.records).reads.bytes_returned, 4 * K);
}

TEST_F(Records, ImpossibleRangesAreMalformed) {
  sb_read read = scene.read_record(model, UINT64_MAX - 10, 10, target(100, 1));
  scene.put(read, SB_READ, 100);
  EXPECT_EQ(feed(scene.records).reads.bytes_returned, 10U);  // up to the last byte there can be
  read.returned = 11;
  scene.put(read, SB_READ, 100);
  read.pos = 0;
  read.returned = INT64_MAX;
  scene.put(read, SB_READ, 100);
  sb_bio bio = scene.bio_record(model, 0, 4 * K, target(100, 1));
  bio.sector = UINT64_MAX / 512 + 1;
  scene.put(bio, SB_BIO, 100);
  bio.sector = UINT64_MAX / 512;
  scene.put(bio, SB_BIO, 100);
  bio.sector = 0;
  bio.bytes = 0;
  scene.put(bio, SB_BIO, 100);
  scene.fill(model, UINT64_MAX, 1, target(100, 1));
  const AttributionResult result = feed(scene.records);
  EXPECT_EQ(result.losses.at("malformed"), 6U);
  expect_sound(result);
}

TEST_F(Records, NamesOfAnyKind) {
  const auto path = [&](const std::string& bytes, std::uint32_t length, std::uint32_t cut) {
    Scene one;
    sb_file_name name{};
    name.file = name.opened = model.id;
    name.length = length;
    name.cut = cut;
    std::memcpy(name.path, bytes.data(), bytes.size());
    one.put(name, SB_FILE, 100);
    one.read(model, 0, 1, target(100, 1));
    return one.result().files.at(0).path;
  };
  using namespace std::string_literals;
  EXPECT_EQ(path("a\0b\0c\0"s, 6, 0), "/c/b/a");
  EXPECT_EQ(path("a\0b\0c\0"s, 6, 1), ".../c/b/a");
  EXPECT_EQ(path("a\0b"s, 3, 0), "/b/a");
  EXPECT_EQ(path(""s, 0, 0), "(unnamed)");
  EXPECT_EQ(path("\0\0"s, 2, 0), "(unnamed)");
  EXPECT_EQ(path("a\0"s, UINT32_MAX, 0), "/a");
  EXPECT_EQ(path(std::string(SB_PATH_MAX, 'x'), SB_PATH_MAX, 0), "/" + std::string(SB_PATH_MAX, 'x'));
}

TEST_F(Records, GarbageKeepsTheSums) {
  one_of_each();
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<std::byte>> records;
    for (int i = 0; i < 60; ++i) {
      std::vector<std::byte> record = scene.records[random() % scene.records.size()];
      for (unsigned spoiled = random() % 4; spoiled > 0; --spoiled)
        record[sizeof(sb_head) + random() % (record.size() - sizeof(sb_head))] = static_cast<std::byte>(random());
      records.push_back(std::move(record));
    }
    expect_sound(feed(records));
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_F(Records, DepthIsBounded) {
  // Devices that are served by each other's files in a circle: a recording may say so.
  const TestFile a = scene.file(50, kLoop0, 0, M), b = scene.file(51, kLoop1, 0, M);
  for (std::uint64_t i = 0; i < 100; ++i) {
    scene.bio(a, 0, 4 * K, worker(2 * i));
    scene.backing(a, 0, 4 * K, 2 * i + 1, b);
    Scene::Done how;
    how.request = 2 * i + 1;
    scene.done(a, 0, 4 * K, how);
    scene.bio(b, 0, 4 * K, worker(2 * i + 1));
    scene.backing(b, 0, 4 * K, 2 * i + 2, a);
    how.request = 2 * i + 2;
    scene.done(b, 0, 4 * K, how);
  }
  scene.read(b, 0, 4 * K, target(100, 1));
  const AttributionResult result = feed(scene.records);
  expect_sound(result);
  ASSERT_EQ(result.served_by.size(), 1U);
  EXPECT_LE(result.served_by[0].via.size(), 17U);
  EXPECT_EQ(result.served_by[0].via.back(), "unknown");
}

}  // namespace
}  // namespace servedby::test
