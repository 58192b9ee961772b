// SPDX-License-Identifier: Apache-2.0
#include "record/recording.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "record/recording_format.h"
#include "sample_session.h"

namespace servedby {
namespace {

namespace format = recording_format;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

/// Bytes of a record that looks like the kernel side's: a head, then a counter and zeros, which compress well.
Bytes record_of(std::uint32_t number, std::size_t size) {
  Bytes bytes(size);
  sb_head head{};
  head.kind = SB_READ;
  head.size = static_cast<std::uint16_t>(size);
  head.tid = number;
  head.time_ns = number * 1000ULL;
  std::memcpy(bytes.data(), &head, std::min(size, sizeof(head)));
  return bytes;
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void spit(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good());
}

std::vector<Bytes> records_in(const Recording& recording) {
  std::vector<Bytes> records;
  const auto done = recording.for_each([&](std::span<const std::byte> record) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(record.data()) % 8, 0U);
    records.emplace_back(record.begin(), record.end());
  });
  EXPECT_TRUE(done.has_value()) << done.error().line();
  return records;
}

class RecordingFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "recording." + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/one.rec";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Writes a whole recording of `count` records of mixed sizes and returns them.
  std::vector<Bytes> write(std::uint32_t count, const Session& session = sample_session()) const {
    auto writer = RecordingWriter::create(path_, true);
    EXPECT_TRUE(writer.has_value());
    EXPECT_TRUE(writer->begin(Session{}).has_value());
    std::vector<Bytes> records;
    for (std::uint32_t i = 0; i < count; ++i) {
      records.push_back(record_of(i, 16 + 8 * (i % 13)));
      EXPECT_TRUE(writer->append(records.back()).has_value());
    }
    EXPECT_TRUE(writer->finish(session).has_value());
    EXPECT_EQ(writer->bytes_written(), std::filesystem::file_size(path_));
    return records;
  }

  /// The one line of opening what is expected to be refused.
  [[nodiscard]] std::string refusal(Incomplete incomplete = Incomplete::refused) const {
    const auto opened = Recording::open(path_, incomplete);
    if (opened) return "opened";
    EXPECT_EQ(opened.error().exit, Exit::bad_input);
    EXPECT_EQ(opened.error().line().find('\n'), std::string::npos);
    return opened.error().line();
  }

  std::string folder_, path_;
};

TEST_F(RecordingFile, WhatWasWrittenIsRead) {
  const auto written = write(20000);
  const auto recording = Recording::open(path_);
  ASSERT_TRUE(recording.has_value()) << recording.error().line();
  EXPECT_TRUE(recording->complete());
  EXPECT_EQ(recording->records(), 20000U);
  EXPECT_EQ(nlohmann::json(recording->session()), nlohmann::json(sample_session()));
  EXPECT_EQ(records_in(*recording), written);
  EXPECT_EQ(records_in(*recording), written);  // and again
  EXPECT_LT(std::filesystem::file_size(path_), 20000U * 64 / 4);
}

TEST_F(RecordingFile, ARecordThatTheKernelSideWouldNeverWriteIsKeptAsItIs) {
  // Attribution counts what is malformed, so a replay must see the very same bytes.
  auto writer = RecordingWriter::create(path_, false);
  ASSERT_TRUE(writer.has_value());
  const Bytes odd{std::byte{1}, std::byte{2}, std::byte{3}};
  const Bytes longest(RecordingWriter::longest_record, std::byte{0x5a});
  ASSERT_TRUE(writer->append(odd).has_value());
  ASSERT_TRUE(writer->append(longest).has_value());
  ASSERT_TRUE(writer->finish(Session{}).has_value());
  const auto recording = Recording::open(path_);
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ(records_in(*recording), (std::vector<Bytes>{odd, longest}));
}

TEST_F(RecordingFile, AnImpossibleRecordIsAnErrorThatStays) {
  auto writer = RecordingWriter::create(path_, false);
  ASSERT_TRUE(writer.has_value());
  EXPECT_FALSE(writer->append({}).has_value());
  EXPECT_FALSE(writer->append(record_of(1, 16)).has_value());
  EXPECT_FALSE(writer->finish(Session{}).has_value());
  EXPECT_THAT(refusal(), HasSubstr("incomplete"));
}

TEST_F(RecordingFile, NoRecordsAtAll) {
  write(0);
  const auto recording = Recording::open(path_);
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ(recording->records(), 0U);
  EXPECT_TRUE(records_in(*recording).empty());
}

TEST_F(RecordingFile, AnExistingFileIsOverwrittenOnlyByForce) {
  spit(path_, "precious");
  const auto refused = RecordingWriter::create(path_, false);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().exit, Exit::usage);
  EXPECT_THAT(refused.error().line(), HasSubstr("--force"));
  EXPECT_EQ(slurp(path_), "precious");
  write(1);
  EXPECT_TRUE(Recording::open(path_).has_value());
}

TEST_F(RecordingFile, OnlyRegularFilesAreWrittenOrRead) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(RecordingWriter::create(path_, true).has_value());
  EXPECT_THAT(refusal(), HasSubstr("not a regular file"));
  EXPECT_FALSE(RecordingWriter::create("/dev/null", true).has_value());
  EXPECT_FALSE(RecordingWriter::create(folder_, true).has_value());
  EXPECT_FALSE(Recording::open(folder_).has_value());
  EXPECT_FALSE(RecordingWriter::create(folder_ + "/none/x", false).has_value());
  EXPECT_FALSE(Recording::open(folder_ + "/none").has_value());
}

TEST_F(RecordingFile, WithoutFinishItIsIncompleteAndReadOnlyWhenAsked) {
  Session start = sample_session();
  {
    auto writer = RecordingWriter::create(path_, false);
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->begin(start).has_value());
    for (std::uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(writer->append(record_of(i, 32)).has_value());
  }
  EXPECT_THAT(refusal(), HasSubstr("incomplete"));
  EXPECT_THAT(refusal(), HasSubstr("--incomplete"));
  const auto recording = Recording::open(path_, Incomplete::accepted);
  ASSERT_TRUE(recording.has_value()) << recording.error().line();
  EXPECT_FALSE(recording->complete());
  EXPECT_EQ(recording->records(), 10U);
  EXPECT_EQ(records_in(*recording).size(), 10U);
  EXPECT_EQ(recording->session().stack, start.stack);
  EXPECT_EQ(recording->session().before, CountersSnapshot{});
  EXPECT_EQ(recording->session().after, CountersSnapshot{});
}

TEST_F(RecordingFile, AnIncompleteOneWithoutASessionSaysSo) {
  {
    ASSERT_TRUE(RecordingWriter::create(path_, false).has_value());
  }
  EXPECT_THAT(refusal(Incomplete::accepted), HasSubstr("ends before it says what was recorded"));
}

TEST_F(RecordingFile, KilledAtAnyMomentItNeverPassesForWhole) {
  const ::pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto writer = RecordingWriter::create(path_, false);
    if (!writer || !writer->begin(Session{})) ::_exit(1);
    // Incompressible, so that blocks reach the file before the end.
    Bytes noise(4096);
    std::uint32_t state = 1;
    for (int i = 0; i < 1000; ++i) {
      for (std::byte& byte : noise) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
      if (!writer->append(noise)) ::_exit(1);
    }
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(refusal(), HasSubstr("incomplete"));
  const auto recording = Recording::open(path_, Incomplete::accepted);
  ASSERT_TRUE(recording.has_value());
  EXPECT_GT(recording->records(), 900U);
  EXPECT_LT(recording->records(), 1000U);
}

TEST_F(RecordingFile, AFullDiskIsOneLineAndTheFileStaysIncomplete) {
  const ::pid_t child = ::fork();  // the limit is for a process of its own
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const ::rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = RecordingWriter::create(path_, false);
    if (!writer || !writer->begin(Session{})) ::_exit(1);
    Bytes noise(4096);
    std::uint32_t state = 1;
    std::string first;
    for (int i = 0; i < 1000; ++i) {
      for (std::byte& byte : noise) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
      if (const auto done = writer->append(noise); !done && first.empty()) first = done.error().line();
    }
    if (first.find("File too large; make room, or record elsewhere") == std::string::npos) ::_exit(2);
    const auto finished = writer->finish(Session{});
    if (finished || finished.error().line() != first) ::_exit(3);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(refusal(), HasSubstr("incomplete"));
}

TEST_F(RecordingFile, CutAnywhereItIsRefused) {
  write(3000, Session{});
  const std::string whole = slurp(path_);
  ASSERT_EQ(refusal(), "opened");
  for (std::size_t length = 0; length < whole.size(); length += length < 200 ? 1 : 97) {
    spit(path_, whole.substr(0, length));
    EXPECT_NE(refusal(), "opened") << length;
  }
  spit(path_, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(refusal(), HasSubstr("cut short"));
  spit(path_, whole + "x");
  EXPECT_NE(refusal(), "opened");
}

TEST_F(RecordingFile, EveryFlippedBitIsNoticed) {
  write(30, Session{});
  const std::string whole = slurp(path_);
  ASSERT_EQ(refusal(), "opened");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    spit(path_, damaged);
    EXPECT_NE(refusal(), "opened") << at;
    if (at % 5 == 0) {
      EXPECT_NE(refusal(Incomplete::accepted), "opened") << at;
    }
  }
}

TEST_F(RecordingFile, AnotherFileIsNoRecording) {
  spit(path_, "");
  EXPECT_THAT(refusal(), HasSubstr("no recording of servedby"));
  EXPECT_FALSE(looks_like_recording(path_));
  spit(path_, std::string(1000, 'x'));
  EXPECT_THAT(refusal(), HasSubstr("no recording of servedby"));
  EXPECT_FALSE(looks_like_recording(path_));
  write(1);
  EXPECT_TRUE(looks_like_recording(path_));
  EXPECT_FALSE(looks_like_recording(folder_));
}

TEST_F(RecordingFile, ANewerOneIsNamedAsSuch) {
  write(1);
  const std::string whole = slurp(path_);
  ASSERT_EQ(refusal(), "opened");
  for (const std::size_t field :
       {offsetof(format::FileHeader, version), offsetof(format::FileHeader, record_version)}) {
    std::string newer = whole;
    newer[field] = static_cast<char>(newer[field] + 1);
    spit(path_, newer);
    EXPECT_THAT(refusal(), HasSubstr("a newer servedby wrote it"));
  }
}

/// A file made by hand, with right checksums: for what only ill will or a defect writes.
std::string block_of(std::uint32_t kind, std::uint32_t index, const std::string& raw, std::uint32_t records) {
  format::BlockHeader header{format::block_magic,
                             kind,
                             index,
                             static_cast<std::uint32_t>(raw.size()),
                             static_cast<std::uint32_t>(raw.size()),
                             format::plain,
                             records,
                             0};
  const auto* fields = reinterpret_cast<const Bytef*>(&header);
  auto sum = ::crc32(0, fields, offsetof(format::BlockHeader, checksum));
  sum = ::crc32(sum, reinterpret_cast<const Bytef*>(raw.data()), static_cast<uInt>(raw.size()));
  header.checksum = static_cast<std::uint32_t>(sum);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + raw;
}

std::string file_of(const std::string& session, const std::string& frames, std::uint32_t records) {
  format::FileHeader header{};
  std::memcpy(header.magic, format::magic, sizeof(header.magic));
  header.version = format::version;
  header.record_version = SB_RECORD_VERSION;
  header.state = format::complete;
  header.checksum = static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(&header), offsetof(format::FileHeader, checksum)));
  std::string file(reinterpret_cast<const char*>(&header), sizeof(header));
  file += block_of(format::records, 0, frames, records);
  file += block_of(format::session, 1, session, 0);
  const format::Trailer trailer{records, 0, file.size() + sizeof(format::BlockHeader) + sizeof(format::Trailer)};
  return file + block_of(format::trailer, 2, std::string(reinterpret_cast<const char*>(&trailer), sizeof(trailer)), 0);
}

std::string frame_of(std::uint64_t length, std::size_t held) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + std::string(held, 'r');
}

TEST_F(RecordingFile, RecordsThatReachPastTheirBlockAreRefused) {
  const std::string session = nlohmann::json(Session{}).dump();
  for (const std::string& frames : {frame_of(24, 16), frame_of(0, 16), frame_of(~0ULL, 16), frame_of(1ULL << 40, 16),
                                    frame_of(16, 16) + "1234567", std::string("123")}) {
    spit(path_, file_of(session, frames, 1));
    const auto recording = Recording::open(path_);
    ASSERT_TRUE(recording.has_value()) << recording.error().line();
    const auto done = recording->for_each([](std::span<const std::byte>) {});
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().exit, Exit::bad_input);
    EXPECT_THAT(done.error().line(), HasSubstr("damaged record"));
  }
  spit(path_, file_of(session, frame_of(16, 16), 2));
  const auto recording = Recording::open(path_);
  ASSERT_TRUE(recording.has_value());
  EXPECT_FALSE(recording->for_each([](std::span<const std::byte>) {}).has_value());
}

TEST_F(RecordingFile, ASessionThatIsNoSessionIsRefused) {
  for (const std::string& session : {std::string("{"), std::string("[]"), std::string("{}"), std::string("\xff"),
                                     std::string(100000, '['), R"({"$hex":"0"})" + std::string()}) {
    spit(path_, file_of(session, frame_of(16, 16), 1));
    EXPECT_THAT(refusal(), HasSubstr("its session is malformed"));
  }
}

}  // namespace
}  // namespace servedby
