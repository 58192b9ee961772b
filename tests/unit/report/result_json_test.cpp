// SPDX-License-Identifier: Apache-2.0
#include "report/result_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "report/load.h"
#include "samples.h"

namespace servedby::report {
namespace {

using samples::GiB;
using samples::Sample;

constexpr const char* tool = "servedby 0.1.0";

Tree tree_of(const Sample& sample) { return result_tree(sample.result, sample.session, tool); }

std::uint64_t served_sum(const Tree& part) {
  std::uint64_t sum = 0;
  for (const Tree& entry : part.at("served_by")) sum += entry.at("bytes").get<std::uint64_t>();
  return sum;
}

TEST(ResultJson, EverySampleAddsUpAndSurvivesItsText) {
  for (const Sample& sample : samples::all()) {
    SCOPED_TRACE(sample.name);
    const Tree tree = tree_of(sample);
    EXPECT_EQ(served_sum(tree), tree.at("reads").at("bytes_returned").get<std::uint64_t>());
    const std::string text = json_text(tree);
    EXPECT_EQ(text.back(), '\n');
    const auto parsed = parse_result(text, sample.name);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().line();
    EXPECT_EQ(json_text(*parsed), text);
  }
}

TEST(ResultJson, EverySampleFitsTheSchema) {
  const std::string folder = testing::TempDir() + "results." + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  std::string command = "python3 '" SOURCE_DIR "/tests/validate_results.py'";
  for (const Sample& sample : samples::all()) {
    const std::string path = folder + "/" + sample.name + ".json";
    std::ofstream(path) << json_text(tree_of(sample));
    command += " '" + path + "'";
  }
  const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): the point of the test
  EXPECT_EQ(status, 0) << "see above; python3-jsonschema is needed (tools/setup check)";
  std::filesystem::remove_all(folder);
}

TEST(ResultJson, TheValidatorRefusesWhatIsWrong) {
  const std::string folder = testing::TempDir() + "wrong." + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  std::string command = "python3 '" SOURCE_DIR "/tests/validate_results.py'";
  const auto check = [&](const std::string& name, const Tree& tree) {
    const std::string path = folder + "/" + name;
    std::ofstream(path) << json_text(tree);
    command += " '" + path + "'";
  };
  const Tree good = tree_of(samples::mixed());
  check("good", good);
  Tree tree = good;
  tree["served_by"][0]["bytes"] = 1;
  check("sum", tree);
  tree = good;
  tree["surprise"] = 1;
  check("surprise", tree);
  tree = good;
  tree.erase("complete");
  check("missing", tree);
  tree = good;
  tree["reads"]["calls"] = 1.5;
  check("fraction", tree);
  tree = good;
  tree["schema"] = "servedby.result/2";
  check("newer", tree);
  tree = good;
  tree["losses"]["ring"] = 1;
  check("lost", tree);
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  for (int letter = std::fgetc(pipe); letter != EOF; letter = std::fgetc(pipe))
    said.push_back(static_cast<char>(letter));
  EXPECT_NE(::pclose(pipe), 0);
  EXPECT_THAT(said, testing::HasSubstr("/good: valid\n"));
  for (const char* name : {"sum", "surprise", "missing", "fraction", "newer", "lost"}) {
    EXPECT_THAT(said, testing::HasSubstr(std::string("/") + name + ": "));
    EXPECT_THAT(said, testing::Not(testing::HasSubstr(std::string("/") + name + ": valid")));
  }
  std::filesystem::remove_all(folder);
}

TEST(ResultJson, ValuesOfTheDriveSample) {
  const Tree tree = tree_of(samples::drive());
  EXPECT_EQ(tree.at("schema"), "servedby.result/1");
  EXPECT_EQ(tree.begin().key(), "schema");
  EXPECT_EQ(tree.at("tool"), tool);
  EXPECT_EQ(tree.at("kernel"), "6.12.117+deb12-amd64");
  EXPECT_EQ(tree.at("clock").at("monotonic_to_realtime_ns"), 1796049753000000000);
  EXPECT_EQ(tree.at("clock").at("uncertainty_ns"), 120);
  EXPECT_EQ(tree.at("command").size(), 3U);
  EXPECT_EQ(tree.at("target").at("pid"), 4242);
  EXPECT_EQ(tree.at("target").at("exit_code"), 0);
  EXPECT_EQ(tree.at("complete"), true);
  EXPECT_EQ(tree.at("losses").at("ring"), 0);
  EXPECT_EQ(tree.at("reads").dump(),
            R"({"calls":1024,"bytes_requested":2147483648,"bytes_returned":2147483648,"by_method":{"pread":1024}})");
  EXPECT_EQ(
      tree.at("served_by").dump(),
      R"([{"via":["nvme0n1"],"bytes":2147483648,"prefetched_bytes":1073741824,"reads":1024,"evidence":"traced"}])");
  const Tree& file = tree.at("files").at(0);
  EXPECT_EQ(file.at("path"), "/models/model.safetensors");
  EXPECT_EQ(file.at("dev"), "259:0");
  EXPECT_EQ(file.at("inode"), 131);
  EXPECT_EQ(file.at("by_method").at("pread"), 1024);
  EXPECT_FALSE(file.contains("path_bytes"));
  const Tree& process = tree.at("ledger").at(0);
  EXPECT_EQ(process.dump(),
            R"({"boundary":"process","traced_target_bytes":2147491840,"parts":{"exec_mmap":0,)"
            R"("first_returned":2147483648,"metadata":8192},"kernel_bytes":2147491840,)"
            R"("kernel_source":"/proc/PID/task/*/io read_bytes","residual_bytes":0,"bracket_bytes":0})");
  EXPECT_EQ(tree.at("time").at("wall_ns"), 3210000000);
  ASSERT_EQ(tree.at("layers").size(), 2U);
  const Tree& loop = tree.at("layers").at(0);
  EXPECT_EQ(loop.at("below").dump(), R"(["nvme0n1"])");
  EXPECT_EQ(loop.at("backing_file").at("path"), "/srv/images/models.img");
  EXPECT_EQ(loop.at("kernel_read_bytes"), 0);
  const Tree& drive = tree.at("layers").at(1);
  EXPECT_EQ(drive.at("kernel_read_bytes"), 2147491840);
  EXPECT_EQ(drive.at("target").at("bytes"), 2147491840);
  EXPECT_EQ(drive.at("other").at("bytes"), 0);
  EXPECT_EQ(tree.at("counters").at("after").at("block").at("259:0").at("read_bytes"), 2147495936);
}

TEST(ResultJson, WhatIsNotKnownIsAbsent) {
  Sample sample = samples::page_cache();
  sample.session.end_ns = 0;
  sample.session.target_exit.reset();
  sample.session.command.clear();
  sample.session.after.block.clear();
  sample.session.hooks.resize(2);  // what counts is not among them
  sample.session.before.monotonic_ns = 0;
  sample.session.kernel.clear();
  const Tree tree = tree_of(sample);
  EXPECT_FALSE(tree.at("time").contains("wall_ns"));
  EXPECT_FALSE(tree.at("target").contains("exit_code"));
  EXPECT_FALSE(tree.contains("command"));
  EXPECT_FALSE(tree.contains("kernel"));
  EXPECT_FALSE(tree.contains("not_seen"));
  EXPECT_FALSE(tree.at("mmap").contains("faults_major"));
  EXPECT_FALSE(tree.at("counters").contains("before"));
  EXPECT_FALSE(tree.at("served_by").at(0).contains("wait_ns"));
  EXPECT_FALSE(tree.at("hooks").at(1).contains("runs"));
  for (const Tree& layer : tree.at("layers")) {
    for (const char* name : {"kernel_read_bytes", "target", "other", "unseen", "writes"}) {
      EXPECT_FALSE(layer.contains(name)) << name;
    }
  }
}

TEST(ResultJson, ADeviceThatDidNothingHasZerosWhereItsHooksWereAttached) {
  Sample sample = samples::page_cache();
  sample.session.counts.devices.clear();  // the kernel side names those that did something
  for (const Tree& layer : tree_of(sample).at("layers")) {
    for (const char* name : {"target", "other", "writes"})
      EXPECT_EQ(layer.at(name).dump(), R"({"bytes":0,"requests":0})") << name;
    EXPECT_EQ(layer.at("unseen").at("bytes"), 0);
  }
  Device array;
  array.dev = device_number(9, 127);
  array.name = "md127";
  array.kind = DeviceKind::md;
  array.bio_based = true;
  array.below = {samples::drive_number};
  sample.session.stack.devices[array.dev] = array;
  const Tree whole = tree_of(sample);
  EXPECT_EQ(whole.at("layers").at(1).at("name"), "md127");
  EXPECT_EQ(whole.at("layers").at(1).at("target").at("bytes"), 0);
  EXPECT_FALSE(whole.at("layers").at(1).contains("writes"));  // it has bios, and their writes are not counted
  EXPECT_FALSE(whole.at("layers").at(1).contains("unseen"));

  // What the array passed on is taken for others' reads where that hook is missing: of its drive nothing can be said.
  for (HookStatus& hook : sample.session.hooks) hook.attached = hook.attached && hook.name != "bio-remap";
  const Tree without = tree_of(sample);
  EXPECT_TRUE(without.at("layers").at(0).contains("target"));  // the loop, on which nothing stands
  EXPECT_TRUE(without.at("layers").at(1).contains("target"));
  EXPECT_FALSE(without.at("layers").at(2).contains("target"));
  EXPECT_TRUE(without.at("layers").at(2).contains("writes"));
}

TEST(ResultJson, ADeviceThatTheKernelDoesNotCountHasNoCount) {
  Sample sample = samples::page_cache();
  sample.session.after.block[samples::drive_number].counting = false;
  sample.session.after.block[samples::loop_number].read_bytes = 0;  // less than before: another device by now
  const Tree tree = tree_of(sample);
  for (const Tree& layer : tree.at("layers")) EXPECT_FALSE(layer.contains("kernel_read_bytes"));
}

TEST(ResultJson, CountersDoNotKnowCallsNorPrefetching) {
  const Tree tree = tree_of(samples::counters());
  EXPECT_EQ(tree.at("tier"), "counters");
  EXPECT_FALSE(tree.contains("wasted_bytes"));
  EXPECT_FALSE(tree.contains("warmed_by_others_bytes"));
  EXPECT_FALSE(tree.at("reads").contains("bytes_requested"));
  EXPECT_FALSE(tree.at("reads").contains("by_method"));
  const Tree& served = tree.at("served_by").at(0);
  EXPECT_FALSE(served.contains("prefetched_bytes"));
  EXPECT_FALSE(served.contains("reads"));
  EXPECT_EQ(served.at("evidence"), "inferred");
  EXPECT_EQ(served.at("why"), "other readers of loop0 would look the same");
}

TEST(ResultJson, LargeNumbersAreExact) {
  const std::string text = json_text(tree_of(samples::extreme()));
  EXPECT_NE(text.find("\"bytes\": 9007199254740993,"), std::string::npos);
  EXPECT_NE(text.find("\"bytes\": 18437736874454810622,"), std::string::npos);
  EXPECT_NE(text.find("\"bytes_returned\": 18446744073709551615,"), std::string::npos);
  EXPECT_NE(text.find("\"inode\": 18446744073709551615,"), std::string::npos);
  EXPECT_NE(text.find("\"residual_bytes\": -10,"), std::string::npos);
}

TEST(ResultJson, NamesThatAreNotUtf8AreEscapedAndKeptInHexadecimal) {
  const Tree tree = tree_of(samples::extreme());
  const Tree& file = tree.at("files").at(0);
  EXPECT_EQ(file.at("path"), "/models/caf\\xe9 \xf0\x9f\x98\x80 \x1b[31m\n.bin");
  EXPECT_EQ(file.at("path_bytes"), "2f6d6f64656c732f636166e920f09f9880201b5b33316d0a2e62696e");
  EXPECT_EQ(tree.at("files").at(1).at("path").get<std::string>().size(), 100001U);
  EXPECT_EQ(tree.at("command").at(1), "\\xff");
  EXPECT_EQ(tree.at("target").at("comm"), "\\xfe\x01");
  EXPECT_EQ(tree.at("warnings").at(0), "about \\xff");
  EXPECT_EQ(tree.at("host").at("note"), "\\xfd");
  EXPECT_EQ(tree.at("not_seen").at(0), "/sys/\\xfc");
}

}  // namespace
}  // namespace servedby::report
