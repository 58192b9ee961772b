// SPDX-License-Identifier: Apache-2.0
#include "report/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "attribution/attribution.h"
#include "report/output_file.h"
#include "report/result_json.h"
#include "report/text.h"
#include "samples.h"

namespace servedby::report {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* tool = "servedby 0.1.0";

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::byte> read_record(std::uint64_t time_ns, std::uint32_t number, std::uint64_t pos,
                                   std::uint64_t bytes) {
  sb_read read{};
  read.head = {SB_READ, sizeof(read), 4242, time_ns};
  read.begin_ns = time_ns - 1000;
  read.file = {131, samples::drive_number, 1};
  read.opened = read.file;
  read.pos = pos;
  read.count = bytes;
  read.returned = static_cast<__s64>(bytes);
  read.file_size = 1U << 20;
  read.tgid = 4242;
  read.read = number;
  read.method = SB_METHOD_PREAD;
  read.flags = SB_READ_PAGE_CACHE;
  std::vector<std::byte> record(sizeof(read));
  std::memcpy(record.data(), &read, sizeof(read));
  return record;
}

class Load : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "load." + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& content) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << content; }

  [[nodiscard]] std::string refusal() const {
    const auto loaded = load_result(path_, tool, Incomplete::refused);
    if (loaded) return "loaded";
    EXPECT_EQ(loaded.error().exit, Exit::bad_input);
    EXPECT_EQ(loaded.error().line().find('\n'), std::string::npos);
    return loaded.error().line();
  }

  std::string folder_, path_;
};

TEST_F(Load, ARecordingGivesTheResultOfTheLiveCapture) {
  Session session = samples::session();
  session.hooks.clear();
  auto writer = RecordingWriter::create(path_, false);
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(writer->begin(session).has_value());
  Attribution live(AttributionSetup{session.stack, session.hooks, session.page_size});
  for (std::uint32_t i = 0; i < 100; ++i) {
    const auto record = read_record(6'000'000'000 + i * 1000, i + 1, i * 4096ULL, 4096);
    live.feed(record);
    ASSERT_TRUE(writer->append(record).has_value());
  }
  session.after.block[samples::drive_number].read_bytes += 4096;
  ASSERT_TRUE(writer->finish(session).has_value());
  const auto replayed = load_result(path_, tool, Incomplete::refused);
  ASSERT_TRUE(replayed.has_value()) << replayed.error().line();
  EXPECT_EQ(json_text(*replayed), json_text(result_tree(live.finish(session), session, tool)));
  EXPECT_EQ(replayed->at("reads").at("calls"), 100);
  EXPECT_EQ(replayed->at("reads").at("bytes_returned"), 409600);
}

TEST_F(Load, AnIncompleteRecordingIsNeverTakenForWhole) {
  {
    auto writer = RecordingWriter::create(path_, false);
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->begin(samples::session()).has_value());
    ASSERT_TRUE(writer->append(read_record(6'000'000'000, 1, 0, 4096)).has_value());
  }
  EXPECT_THAT(refusal(), HasSubstr("--incomplete"));
  const auto loaded = load_result(path_, tool, Incomplete::accepted);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().line();
  EXPECT_EQ(loaded->at("complete"), false);
  EXPECT_EQ(loaded->at("losses").at("end_of_recording"), 1);
  EXPECT_EQ(loaded->at("reads").at("bytes_returned"), 4096);
  EXPECT_FALSE(loaded->at("counters").contains("after"));
  const auto text = result_text(*loaded, {});
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(*text, testing::StartsWith("INCOMPLETE (lost: "));
}

TEST_F(Load, AResultRendersTheSameFromItsJson) {
  for (const samples::Sample& sample : samples::all()) {
    SCOPED_TRACE(sample.name);
    const Tree tree = result_tree(sample.result, sample.session, tool);
    write(json_text(tree));
    const auto loaded = load_result(path_, "servedby 9.9.9", Incomplete::refused);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().line();
    EXPECT_EQ(json_text(*loaded), json_text(tree));
    EXPECT_EQ(result_text(*loaded, {.hooks = true}).value(), result_text(tree, {.hooks = true}).value());
  }
}

TEST_F(Load, WhatIsNoResultIsRefusedInOneLine) {
  EXPECT_THAT(refusal(), HasSubstr("cannot open"));
  for (const char* content : {"", "{", "nonsense", "[1,2", "\xff\xfe", "{\"a\":\"\n\"}"}) {
    write(content);
    EXPECT_THAT(refusal(), HasSubstr("neither a recording nor JSON")) << content;
  }
  write(std::string(100000, '['));
  EXPECT_THAT(refusal(), HasSubstr("nested too deep"));
  for (const char* content : {"[]", "{}", "5", R"({"schema": 5})"}) {
    write(content);
    EXPECT_THAT(refusal(), HasSubstr("names no schema")) << content;
  }
  write(R"({"schema": "servedby.stall/1"})");
  EXPECT_THAT(refusal(), HasSubstr("it is servedby.stall/1, not servedby.result/1"));
  write(R"({"schema": "servedby.result/1"})");
  EXPECT_THAT(refusal(), HasSubstr("missing"));
}

TEST_F(Load, AnyFieldOfTheWrongTypeIsRefusedOrNotUsed) {
  const samples::Sample sample = samples::mixed();
  const Tree good = result_tree(sample.result, sample.session, tool);
  const std::vector<Tree> wrong{Tree(nullptr), Tree(-1), Tree(1.5), Tree("x"), Tree::array({1}), Tree{{"x", 1}}};
  // Every place of the tree, one after the other, holds something else: an answer or an error, never anything worse.
  const nlohmann::ordered_json flat = good.flatten();
  std::size_t refused = 0;
  std::size_t next = 0;
  for (const auto& [pointer, value] : flat.items()) {
    Tree tree = good;
    tree[Tree::json_pointer(pointer)] = wrong[next++ % wrong.size()];
    if (!parse_result(json_text(tree), "changed")) ++refused;
  }
  EXPECT_GT(refused, 30U);
  for (const auto& [key, value] : good.items()) {
    for (const Tree& other : wrong) {
      Tree tree = good;
      tree[key] = other;
      (void)parse_result(json_text(tree), "changed");
    }
  }
}

TEST_F(Load, DirectoriesAndPipesAreRefused) {
  const auto folder = load_result(folder_, tool, Incomplete::refused);
  ASSERT_FALSE(folder.has_value());
  EXPECT_THAT(folder.error().line(), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("not a regular file"));
}

TEST_F(Load, OutputIsWholeOrNotThere) {
  ASSERT_TRUE(write_output(path_, "first", false).has_value());
  EXPECT_EQ(slurp(path_), "first");
  const auto again = write_output(path_, "second", false);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().exit, Exit::usage);
  EXPECT_THAT(again.error().line(), HasSubstr("--force"));
  EXPECT_EQ(slurp(path_), "first");
  ASSERT_TRUE(write_output(path_, "second", true).has_value());
  EXPECT_EQ(slurp(path_), "second");
  EXPECT_FALSE(write_output(folder_, "x", true).has_value());
  EXPECT_FALSE(write_output(folder_ + "/none/x", "x", true).has_value());
  EXPECT_TRUE(write_output("/dev/null", "x", false).has_value());
  EXPECT_THAT(write_output("/dev/full", "x", false).error().line(), HasSubstr("No space left"));
  // Nothing is left lying beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()), 1);
}

TEST_F(Load, AFullDiskLeavesTheOldOutput) {
  ASSERT_TRUE(write_output(path_, "old", false).has_value());
  std::signal(SIGXFSZ, SIG_IGN);
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const ::rlimit limit{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto written = write_output(path_, std::string(5000, 'n'), true);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(written.has_value());
  EXPECT_THAT(written.error().line(), HasSubstr("File too large"));
  EXPECT_EQ(slurp(path_), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()), 1);
}

}  // namespace
}  // namespace servedby::report
