// SPDX-License-Identifier: Apache-2.0
// Headers read from real files, and paths that are no file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "formats/regular_file.h"
#include "formats/safetensors.h"

namespace servedby {
namespace {

using testing::HasSubstr;

/// A folder of its own in the working directory, which is in the build tree.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "formats-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = std::filesystem::absolute(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string in(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(in(name), std::ios::binary) << bytes;
    return in(name);
  }

 private:
  std::filesystem::path folder_;
};

std::string model(std::uint64_t data_bytes) {
  std::string header = R"({"w":{"dtype":"U8","shape":[)" + std::to_string(data_bytes) + R"(],"data_offsets":[0,)" +
                       std::to_string(data_bytes) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string(data_bytes, 'd');
}

std::string problem(const std::string& path) {
  const auto layout = read_safetensors_header(path);
  return layout ? std::string{} : layout.error().line();
}

using SafetensorsFile = FileTest;

TEST_F(SafetensorsFile, ReadsTheLayout) {
  const auto layout = read_safetensors_header(write("m", model(4096)));
  ASSERT_TRUE(layout) << layout.error().line();
  ASSERT_EQ(layout->tensors.size(), 1U);
  EXPECT_EQ(layout->tensors[0].bytes(), 4096U);
  EXPECT_EQ(layout->tensors[0].end, layout->file_bytes);
}

TEST_F(SafetensorsFile, SmallerThanTheFirstLook) {
  EXPECT_EQ(problem(write("empty model", std::string("\x02\0\0\0\0\0\0\0{}", 10))), "");
  EXPECT_THAT(problem(write("empty", "")), HasSubstr("the file is empty"));
}

TEST_F(SafetensorsFile, CutByOneByte) {
  std::string bytes = model(4096);
  const std::size_t needs = bytes.size();
  bytes.pop_back();
  EXPECT_THAT(problem(write("cut", bytes)),
              HasSubstr("truncated: needs " + std::to_string(needs) + " bytes, has " + std::to_string(needs - 1)));
}

TEST_F(SafetensorsFile, LfsPointer) {
  EXPECT_THAT(problem(write("lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")),
              HasSubstr("git-LFS pointer"));
}

TEST_F(SafetensorsFile, HugeHeaderIsRefusedWithoutReadingIt) {
  const std::string path = write("huge", std::string("\0\x9c\xdf\x07\0\0\0\0{", 9));  // 132,095,232
  ASSERT_EQ(truncate(path.c_str(), 7'000'000'000), 0);
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_THAT(problem(path), HasSubstr("past the limit of 100000000"));
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 10'000);  // KiB
}

TEST_F(SafetensorsFile, PathsThatAreNoFile) {
  ASSERT_EQ(mkfifo(in("fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("gone", in("dangling").c_str()), 0);
  ASSERT_EQ(symlink("loop", in("loop").c_str()), 0);
  EXPECT_THAT(problem(in("fifo")), HasSubstr("it is a FIFO"));  // and does not hang
  EXPECT_THAT(problem(in("")), HasSubstr("it is a directory"));
  EXPECT_THAT(problem(in("dangling")), HasSubstr("it is a link to gone, and that does not exist"));
  EXPECT_THAT(problem(in("loop")), HasSubstr("cannot open"));
  EXPECT_THAT(problem(in("missing")), HasSubstr("No such file or directory; check the path"));
  EXPECT_THAT(problem("/dev/null"), HasSubstr("it is a character device"));
  EXPECT_EQ(open_regular_file(in("fifo")).error().exit, Exit::bad_input);
}

TEST_F(SafetensorsFile, LinkToAFileIsThatFile) {
  const std::string path = write("real", model(16));
  ASSERT_EQ(symlink("real", in("link").c_str()), 0);
  EXPECT_EQ(problem(in("link")), "");
}

TEST_F(SafetensorsFile, TruncatedAfterOpeningIsAnErrorAndNoSignal) {
  const std::string path = write("shrinks", model(100'000));
  const auto file = open_regular_file(path);
  ASSERT_TRUE(file);
  ASSERT_EQ(truncate(path.c_str(), 20), 0);
  const auto layout = read_safetensors_header(*file);
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().line(), HasSubstr("truncated while being read"));
  EXPECT_EQ(layout.error().exit, Exit::bad_input);
}

}  // namespace
}  // namespace servedby
