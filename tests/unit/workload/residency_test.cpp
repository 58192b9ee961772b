// SPDX-License-Identifier: Apache-2.0
// Native: on the file system of the build tree, whose page cache these tests fill and empty. Only their own files.
#include "workload/residency.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "scratch.h"
#include "workload/backing_files.h"
#include "workload/eviction.h"

namespace servedby {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t MiB = 1U << 20U;

class PageCache : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    page_ = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    struct statfs info{};
    ASSERT_EQ(statfs(in("").c_str(), &info), 0);
    if (info.f_type == 0x01021994) GTEST_SKIP() << "the build tree is in a tmpfs, whose pages cannot be evicted";
  }
  /// A file of random-looking bytes, on the disk and in the cache.
  [[nodiscard]] RegularFile make(const std::string& name, std::uint64_t bytes) const {
    std::string data(bytes, 'x');
    std::ofstream(in(name), std::ios::binary) << data;
    return open_regular_file(in(name)).value();
  }
  void read(const RegularFile& file, std::uint64_t begin, std::uint64_t bytes) const {
    posix_fadvise(file.fd(), 0, 0, POSIX_FADV_RANDOM);  // exactly these pages
    std::string buffer(bytes, '\0');
    ASSERT_TRUE(read_exactly(file, begin, buffer.data(), bytes));
  }
  std::uint64_t page_ = 4096;
};

TEST_F(PageCache, EvictsAndKnowsIt) {
  const auto file = make("f", 8 * MiB + 1);
  const std::uint64_t pages = 8 * MiB / page_ + 1;
  EXPECT_EQ(residency_of(file)->resident_pages, pages);
  const auto eviction = evict_file(file);
  ASSERT_TRUE(eviction) << eviction.error().line();
  EXPECT_TRUE(eviction->complete()) << eviction->problem();
  EXPECT_EQ(eviction->after.total_pages, pages);
  EXPECT_EQ(residency_of(file)->resident_pages, 0U);
  EXPECT_TRUE(resident_ranges(file)->empty());
}

TEST_F(PageCache, BothCallsAgree) {
  const auto file = make("f", 4 * MiB);
  ASSERT_TRUE(evict_file(file)->complete());
  read(file, 3 * page_, 5 * page_);
  read(file, 4 * MiB - 1, 1);
  const auto mincore = residency_of(file, {}, ResidencyCall::mincore).value();
  EXPECT_EQ(mincore.resident_pages, 6U);
  EXPECT_EQ(mincore.how, "mincore");
  const auto cachestat = residency_of(file, {}, ResidencyCall::cachestat).value();
  if (cachestat.known()) {  // Linux 6.5
    EXPECT_EQ(cachestat.resident_pages, 6U);
  } else {
    EXPECT_THAT(cachestat.why_unknown, HasSubstr("cachestat: "));
  }
  EXPECT_EQ(*resident_ranges(file), (std::vector<ByteRange>{{3 * page_, 8 * page_}, {4 * MiB - page_, 4 * MiB}}));
  EXPECT_EQ(residency_of(file, ByteRange{0, 4 * page_})->resident_pages, 1U);
  EXPECT_EQ(residency_of(file, ByteRange{0, 4 * page_})->total_pages, 4U);
}

TEST_F(PageCache, ARangeIsEvictedToThePage) {
  const auto file = make("f", 12 * MiB);
  ASSERT_TRUE(evict_file(file)->complete());
  std::string buffer(12 * MiB, '\0');
  ASSERT_TRUE(
      read_exactly(file, 0, buffer.data(), buffer.size()));  // with readahead: large folios, where there are any
  ASSERT_EQ(residency_of(file)->resident_pages, 12 * MiB / page_);
  const std::uint64_t begin = 3 * MiB + 5 * page_;
  const std::uint64_t end = 9 * MiB + 3 * page_;
  const auto eviction = evict_file(file, ByteRange{begin - 100, end + 100});
  ASSERT_TRUE(eviction) << eviction.error().line();
  EXPECT_TRUE(eviction->complete()) << eviction->problem();
  EXPECT_EQ(eviction->after.total_pages, (end - begin) / page_);
  EXPECT_EQ(*resident_ranges(file), (std::vector<ByteRange>{{0, begin}, {end, 12 * MiB}}));
}

TEST_F(PageCache, LockedPagesRemainAndAreCounted) {
  const auto file = make("f", MiB);
  const std::uint64_t locked = 16 * 1024;  // well below any RLIMIT_MEMLOCK
  void* memory = mmap(nullptr, locked, PROT_READ, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mlock(memory, locked), 0);
  const auto eviction = evict_file(file);
  ASSERT_TRUE(eviction);
  EXPECT_FALSE(eviction->complete());
  EXPECT_GE(eviction->after.resident_pages, locked / page_);
  EXPECT_THAT(eviction->problem(),
              testing::MatchesRegex("eviction incomplete: [0-9]+ of 256 pages remain: mapped, locked or dirty"));
  munmap(memory, locked);
  EXPECT_TRUE(evict_file(file)->complete());
}

TEST_F(PageCache, EmptyFile) {
  const auto file = make("f", 0);
  EXPECT_EQ(residency_of(file)->total_pages, 0U);
  EXPECT_EQ(residency_of(file)->resident_pages, 0U);
  EXPECT_TRUE(evict_file(file)->complete());
  EXPECT_TRUE(resident_ranges(file)->empty());
}

TEST_F(PageCache, HolesHaveNoPages) {
  const auto file = make("f", 0);
  ASSERT_EQ(truncate(in("f").c_str(), 64 * MiB), 0);
  EXPECT_EQ(residency_of(file)->total_pages, 64 * MiB / page_);
  EXPECT_EQ(residency_of(file)->resident_pages, 0U);
}

TEST_F(PageCache, WhoMayNotWriteTheFileIsToldUnknown) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become someone else";
  const auto ours = make("f", MiB);
  ASSERT_EQ(chmod(in("f").c_str(), 0644), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(100);
    // Opened by who may not write it; the path may be closed to that user, the descriptor is not.
    const RegularFile file(open(("/proc/self/fd/" + std::to_string(ours.fd())).c_str(), O_RDONLY), in("f"),
                           ours.status());
    if (file.fd() < 0) _exit(101);
    const auto residency = residency_of(file);
    if (!residency || residency->known() || residency->why_unknown.empty()) _exit(102);
    if (residency_of(file, {}, ResidencyCall::mincore)->known()) _exit(103);
    if (resident_ranges(file) || resident_ranges(file).error().exit != Exit::not_permitted) _exit(104);
    const auto eviction = evict_file(file);
    if (!eviction || eviction->complete() || !eviction->problem().starts_with("eviction not verified: ")) _exit(105);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(WholePages, AreThoseInsideTheRange) {
  EXPECT_EQ(whole_pages({0, 8192}, 8192, 4096), (ByteRange{0, 8192}));
  EXPECT_EQ(whole_pages({1, 8192}, 100'000, 4096), (ByteRange{4096, 8192}));
  EXPECT_EQ(whole_pages({0, 8191}, 100'000, 4096), (ByteRange{0, 4096}));
  EXPECT_EQ(whole_pages({0, UINT64_MAX}, 8193, 4096), (ByteRange{0, 8193}));
  EXPECT_EQ(whole_pages({0, 8193}, 8193, 4096), (ByteRange{0, 8193}));
  EXPECT_EQ(whole_pages({5000, 6000}, 8192, 4096).begin, whole_pages({5000, 6000}, 8192, 4096).end);
  EXPECT_EQ(whole_pages({9000, 10'000}, 8192, 4096).begin, whole_pages({9000, 10'000}, 8192, 4096).end);
}

/// Layers as the stack gives them: a file on loop1, whose backing file lies on loop0.
PathLayers two_loops() {
  PathLayers layers;
  layers.files.resize(3);
  layers.files[0].devices = {device_number(7, 1)};
  layers.files[1].devices = {device_number(7, 0)};
  layers.files[2].devices = {device_number(259, 1)};
  layers.files[1].identity.emplace();
  layers.files[1].identity->st_dev = device_number(7, 0);
  layers.files[1].identity->inode = 12;
  layers.files[2].identity.emplace();
  layers.files[2].identity->st_dev = device_number(259, 1);
  layers.files[2].identity->inode = 34;
  for (const unsigned minor : {0U, 1U}) {
    Device loop;
    loop.dev = device_number(7, minor);
    loop.name = "loop" + std::to_string(minor);
    loop.kind = DeviceKind::loop;
    loop.loop = LoopBacking{};
    loop.loop->path = minor == 1 ? "/upper.img" : "/lower.img";
    loop.loop->file_known = true;
    layers.stack.devices[loop.dev] = loop;
  }
  layers.backing_files = {{device_number(7, 1), 1}, {device_number(7, 0), 2}};
  return layers;
}

TEST(BackingFiles, UpperBeforeLower) {
  const auto backing = backing_files_in(two_loops());
  ASSERT_EQ(backing.size(), 2U);
  EXPECT_EQ(backing[0].loop, "loop1");
  EXPECT_EQ(backing[0].path, "/upper.img");
  EXPECT_EQ(backing[0].inode, 12U);
  EXPECT_EQ(backing[0].why_unknown, "");
  EXPECT_EQ(backing[1].loop, "loop0");
  EXPECT_EQ(backing[1].st_dev, device_number(259, 1));
}

TEST(BackingFiles, OnlyTheDriversWordCounts) {
  PathLayers layers = two_loops();
  layers.stack.devices[device_number(7, 1)].loop->file_known = false;
  layers.backing_files.erase(device_number(7, 0));
  const auto backing = backing_files_in(layers);
  ASSERT_EQ(backing.size(), 2U);
  EXPECT_THAT(backing[0].why_unknown, HasSubstr("the loop driver did not say which file it reads"));
  EXPECT_THAT(backing[1].why_unknown, HasSubstr("no file of that path here is the one that the loop driver reads"));
}

TEST(BackingFiles, WhatCannotBeSeenIsSaid) {
  PathLayers layers;
  layers.files.resize(2);
  layers.files[0].inner = 1;  // an overlay, and its layer on a mount of another namespace
  layers.files[1].path = "/hidden/upper/f";
  const auto backing = backing_files_in(layers);
  ASSERT_EQ(backing.size(), 1U);
  EXPECT_EQ(backing[0].loop, "");
  EXPECT_EQ(backing[0].why_unknown, "the device under /hidden/upper/f is not visible from here");
  layers.files[1].ends_in = "memory";
  EXPECT_TRUE(backing_files_in(layers).empty());
}

using BackingFilesOnDisk = ScratchTest;

TEST_F(BackingFilesOnDisk, AReplacedFileIsNotTouched) {
  std::ofstream(in("img")) << "first";
  BackingFile backing;
  backing.loop = "loop0";
  backing.path = in("img");
  struct stat status{};
  ASSERT_EQ(stat(in("img").c_str(), &status), 0);
  backing.st_dev = device_number(major(status.st_dev), minor(status.st_dev));
  backing.inode = status.st_ino;
  EXPECT_TRUE(open_backing_file(backing));
  std::ofstream(in("other")) << "second";
  ASSERT_EQ(rename(in("other").c_str(), in("img").c_str()), 0);
  const auto opened = open_backing_file(backing);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().line(), HasSubstr("it is no longer the file that loop0 reads"));
}

TEST_F(BackingFilesOnDisk, AsJsonAndText) {
  LevelResidency file{.loop = {}, .path = "/m/f", .residency = {}, .ranges = std::vector<ByteRange>{{0, 4096}}};
  file.residency.file_bytes = 8192;
  file.residency.page_bytes = 4096;
  file.residency.total_pages = 2;
  file.residency.resident_pages = 1;
  file.residency.how = "mincore";
  LevelResidency below{.loop = "loop3", .path = "/img", .residency = {}, .ranges = {}};
  below.residency.how = "unknown";
  below.residency.why_unknown = "reasons";
  const nlohmann::json json = residency_json({file, below});
  EXPECT_EQ(json["path"], "/m/f");
  EXPECT_EQ(json["resident_pages"], 1);
  EXPECT_EQ(json["ranges"][0]["end"], 4096);
  EXPECT_EQ(json["below"][0]["loop"], "loop3");
  for (const char* unknown : {"resident_pages", "bytes", "pages"}) EXPECT_FALSE(json["below"][0].contains(unknown));
  EXPECT_EQ(residency_text({file, below}),
            "/m/f: 4.0 KiB of 8.0 KiB in the page cache (50.0 %, 1 of 2 pages, by mincore)\n0 4096\n"
            "  loop3, backing file /img: unknown: reasons\n");
  LevelEviction kept{.loop = "loop3", .path = "/img", .eviction = {}};
  kept.eviction.after = below.residency;
  const LevelEviction hidden{.loop = {}, .path = {}, .eviction = kept.eviction};
  EXPECT_EQ(eviction_text({kept, hidden}),
            "  loop3, backing file /img: nothing evicted: reasons\n  below: nothing evicted: reasons\n");
}

}  // namespace
}  // namespace servedby
