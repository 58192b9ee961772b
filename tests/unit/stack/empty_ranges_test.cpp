// SPDX-License-Identifier: Apache-2.0
#include "stack/empty_ranges.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "record/storage.h"

namespace servedby {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t M = 1024 * 1024;

struct EmptyRanges : testing::Test {
  std::string path = "/var/tmp/servedby-empty-ranges-XXXXXX";
  int fd = mkstemp(path.data());
  ~EmptyRanges() override {
    close(fd);
    unlink(path.c_str());
  }
  void data(std::uint64_t at, std::uint64_t bytes) const {
    const std::string filler(bytes, 'x');
    ASSERT_EQ(pwrite(fd, filler.data(), bytes, static_cast<off_t>(at)), static_cast<ssize_t>(bytes));
  }
  [[nodiscard]] sb_file_id id() const {
    struct stat facts{};
    fstat(fd, &facts);
    return {facts.st_ino, device_number(major(facts.st_dev), minor(facts.st_dev)), 0};
  }
};

TEST_F(EmptyRanges, HolesAndTheEndOfTheFile) {
  data(0, M);
  data(2 * M, M);
  ASSERT_EQ(ftruncate(fd, 5 * M - 100), 0);
  fsync(fd);
  const auto found = empty_ranges(path, id());
  if (!found && found.error() == EOPNOTSUPP) GTEST_SKIP() << "no FIEMAP on /var/tmp's file system";
  ASSERT_TRUE(found);
  EXPECT_THAT(*found,
              ElementsAre(EmptyRange{M, 2 * M, SB_EXTENT_HOLE}, EmptyRange{3 * M, 5 * M - 100, SB_EXTENT_HOLE}));
}

TEST_F(EmptyRanges, AllocatedAndNeverWritten) {
  data(0, M);
  if (fallocate(fd, 0, M, M) != 0) GTEST_SKIP() << "no fallocate on /var/tmp's file system";
  fsync(fd);
  const auto found = empty_ranges(path, id());
  if (!found && found.error() == EOPNOTSUPP) GTEST_SKIP() << "no FIEMAP on /var/tmp's file system";
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, ElementsAre(EmptyRange{M, 2 * M, SB_EXTENT_UNWRITTEN}));
}

TEST_F(EmptyRanges, AFileOfDataHasNone) {
  data(0, 64 * 1024);
  fsync(fd);
  const auto found = empty_ranges(path, id());
  if (!found && found.error() == EOPNOTSUPP) GTEST_SKIP() << "no FIEMAP on /var/tmp's file system";
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, IsEmpty());
}

TEST_F(EmptyRanges, AnotherFileAtThePathIsRefused) {
  sb_file_id other = id();
  ++other.ino;
  EXPECT_EQ(empty_ranges(path, other).error(), ESTALE);
  other = id();
  ++other.dev;
  EXPECT_EQ(empty_ranges(path, other).error(), ESTALE);
  EXPECT_EQ(empty_ranges("/var/tmp/no-such-file", id()).error(), ENOENT);
}

}  // namespace
}  // namespace servedby
