// SPDX-License-Identifier: Apache-2.0
// Native, as root: a file on ext4 in a loop device that this test makes and takes away.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "scratch.h"
#include "workload/backing_files.h"
#include "workload/model_shape.h"
#include "workload/model_writer.h"

namespace servedby {
namespace {

using testing::HasSubstr;

/// The first line that a command prints; empty if it fails.
std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return {};
  char line[256] = "";
  const bool got = std::fgets(line, sizeof line, pipe) != nullptr;
  if (pclose(pipe) != 0 || !got) return {};
  std::string text = line;
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class OnALoop : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    if (geteuid() != 0 || access("/dev/loop-control", R_OK | W_OK) != 0) GTEST_SKIP() << "needs root and loop devices";
    std::ofstream(in("img")).close();
    ASSERT_EQ(truncate(in("img").c_str(), 64 << 20), 0);
    ASSERT_EQ(mkdir(in("mnt").c_str(), 0755), 0);
    ASSERT_EQ(std::system(("mkfs.ext4 -q -F " + in("img")).c_str()), 0);
    device_ = output_of("losetup --find --show " + in("img"));
    if (device_.empty()) GTEST_SKIP() << "no loop device to be had here";
    ASSERT_EQ(mount(device_.c_str(), in("mnt").c_str(), "ext4", 0, ""), 0);
    mounted_ = true;
    ASSERT_TRUE(write_model(in("mnt/m"), plan_model(ModelLike::krea, 8 << 20).value(), {}));
  }
  void TearDown() override {
    if (covered_) umount(in("img").c_str());
    if (mounted_) umount(in("mnt").c_str());
    if (!device_.empty()) {
      EXPECT_EQ(std::system(("losetup --detach " + device_).c_str()), 0);
    }
    ScratchTest::TearDown();
  }
  [[nodiscard]] std::string loop() const { return device_.substr(5); }
  /// Another file at the path that the kernel gives for the backing file.
  void cover_the_backing_file() {
    std::ofstream(in("other")) << std::string(1 << 20, 'o');
    ASSERT_EQ(mount(in("other").c_str(), in("img").c_str(), "", MS_BIND, ""), 0);
    covered_ = true;
  }

 private:
  std::string device_;
  bool mounted_ = false;
  bool covered_ = false;
};

TEST_F(OnALoop, BothLevelsAreSeenAndEvicted) {
  const auto levels = residency_of_levels(in("mnt/m"), true);
  ASSERT_TRUE(levels) << levels.error().line();
  ASSERT_EQ(levels->size(), 2U);
  EXPECT_EQ((*levels)[0].residency.resident_pages, (8U << 20) / 4096);
  EXPECT_EQ((*levels)[1].loop, loop());
  EXPECT_EQ((*levels)[1].path, in("img"));
  EXPECT_GE((*levels)[1].residency.resident_pages.value(), (8U << 20) / 4096);

  // The upper alone: the backing file stays.
  ASSERT_TRUE(evict_levels(in("mnt/m"), {}, false)->at(0).eviction.complete());
  const auto half = residency_of_levels(in("mnt/m"), true).value();
  EXPECT_EQ(half[0].residency.resident_pages, 0U);
  EXPECT_GE(half[1].residency.resident_pages.value(), (8U << 20) / 4096);

  const auto evicted = evict_levels(in("mnt/m"), {}, true);
  ASSERT_TRUE(evicted) << evicted.error().line();
  ASSERT_EQ(evicted->size(), 2U);
  EXPECT_TRUE((*evicted)[1].eviction.complete()) << (*evicted)[1].eviction.problem();
  EXPECT_EQ(residency_of(in("img"))->resident_pages, 0U);
}

TEST_F(OnALoop, AnotherFileAtTheBackingFilesPathIsLeftAlone) {
  cover_the_backing_file();
  const auto other = residency_of(in("img"))->resident_pages;
  EXPECT_EQ(other, (1U << 20) / 4096);
  const auto levels = residency_of_levels(in("mnt/m"), false).value();
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_FALSE(levels[1].residency.known());
  EXPECT_THAT(levels[1].residency.why_unknown, HasSubstr("the one that the loop driver reads"));
  const auto evicted = evict_levels(in("mnt/m"), {}, true).value();
  EXPECT_TRUE(evicted[0].eviction.complete());
  EXPECT_FALSE(evicted[1].eviction.complete());
  EXPECT_EQ(evicted[1].eviction.attempts, 0U);
  EXPECT_EQ(residency_of(in("img"))->resident_pages, other);
}

}  // namespace
}  // namespace servedby
