// SPDX-License-Identifier: Apache-2.0
#include "stack/mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace servedby {
namespace {

using testing::ElementsAre;

TEST(Mounts, a_line_with_optional_fields_and_escapes) {
  const auto mounts = parse_mounts(
      "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/root\\134x rw,errors=continue\n"
      "not a line\n"
      "37 36 0:20 / /proc rw - proc proc rw");
  ASSERT_EQ(mounts.size(), 2U);
  EXPECT_EQ(mounts[0], (Mount{36, 35, device_number(98, 0), "/mnt1", "/mnt 2", "rw,noatime", "ext3", "/dev/root\\x",
                              "rw,errors=continue"}));
  EXPECT_EQ(mounts[1].type, "proc");
}

TEST(Mounts, broken_lines_are_left_out) {
  for (const char* line : {"", "1 2 3:4", "x 35 98:0 / / rw - ext3 a b", "36 35 98 / / rw - ext3 a b",
                           "36 35 98:0 / mnt rw - ext3 a b", "36 35 98:0 / / rw shared:1 ext3"}) {
    EXPECT_TRUE(parse_mounts(line).empty()) << line;
  }
}

TEST(Mounts, the_longest_point_holds_a_path_and_the_latest_of_equals) {
  const auto mounts = parse_mounts(
      "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /data rw - ext4 b rw\n3 1 8:3 / /data rw - ext4 c rw\n4 1 8:4 / /data/x "
      "rw - ext4 d rw");
  EXPECT_EQ(mount_of(mounts, "/data/file", {})->id, 3U);
  EXPECT_EQ(mount_of(mounts, "/data/file", 2)->id, 2U);   // the kernel's word goes first
  EXPECT_EQ(mount_of(mounts, "/data/file", 99)->id, 3U);  // a mount of another namespace
  EXPECT_EQ(mount_of(mounts, "/database", {})->id, 1U);
  EXPECT_EQ(mount_of(mounts, "/data/x", {})->id, 4U);
  EXPECT_EQ(mount_of({}, "/data", {}), nullptr);
}

TEST(Mounts, the_path_inside_a_mount) {
  const auto inside = [](const char* root, const char* point, const char* path) {
    Mount mount;
    mount.root = root;
    mount.point = point;
    return path_inside(mount, path);
  };
  EXPECT_EQ(inside("/", "/", "/a/b"), "/a/b");
  EXPECT_EQ(inside("/", "/data", "/data/b"), "/b");
  EXPECT_EQ(inside("/srv", "/data", "/data/b"), "/srv/b");
  EXPECT_EQ(inside("/containers/1/hosts", "/etc/hosts", "/etc/hosts"), "/containers/1/hosts");
  EXPECT_EQ(inside("/", "/data", "/data"), "/");
}

TEST(Mounts, overlay_directories_in_each_spelling) {
  const auto old =
      overlay_directories(R"(rw,lowerdir=/l/A\134:1:/l/B:/l/C::/d/D,upperdir=/u\054p,workdir=/w,xino=off)");
  EXPECT_THAT(old.lower, ElementsAre("/l/A:1", "/l/B", "/l/C"));
  EXPECT_THAT(old.data, ElementsAre("/d/D"));
  EXPECT_EQ(old.upper, "/u,p");
  EXPECT_EQ(old.work, "/w");
  const auto fresh = overlay_directories("ro,lowerdir+=/l/A,lowerdir+=/l/B,datadir+=/d/D");
  EXPECT_THAT(fresh.lower, ElementsAre("/l/A", "/l/B"));
  EXPECT_THAT(fresh.data, ElementsAre("/d/D"));
  EXPECT_EQ(fresh.upper, std::nullopt);
}

}  // namespace
}  // namespace servedby
