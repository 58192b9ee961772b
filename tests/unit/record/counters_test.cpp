// SPDX-License-Identifier: Apache-2.0
#include "record/counters.h"

#include <gtest/gtest.h>

namespace servedby {
namespace {

CountersSnapshot sample() {
  CountersSnapshot snapshot;
  snapshot.monotonic_ns = 0xffffffffffffffffULL;
  snapshot.block[device_number(259, 0)] = BlockCounters{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, true};
  snapshot.block[device_number(7, 0)] = BlockCounters{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
  snapshot.tasks[17] = TaskCounters{1, 2, 3, 4, 5, 16, 99, true};
  snapshot.tasks[18] = TaskCounters{0, 0, 0, 4, 5, 0, 99, false};
  snapshot.group_io[device_number(7, 0)] = GroupIo{1, 2, 3, 4};
  snapshot.notes["/proc/18/io"] = "Permission denied";
  return snapshot;
}

TEST(CountersSnapshot, json_gives_back_an_equal_value) {
  const std::string text = nlohmann::json(sample()).dump();
  EXPECT_EQ(nlohmann::json::parse(text).get<CountersSnapshot>(), sample());
  EXPECT_EQ(nlohmann::json(CountersSnapshot{}).get<CountersSnapshot>(), CountersSnapshot{});
}

TEST(CountersSnapshot, json_leaves_refused_counters_out) {
  const nlohmann::json object = sample();
  EXPECT_FALSE(object.at("tasks").at("18").contains("read_bytes"));
  EXPECT_TRUE(object.at("tasks").at("17").contains("read_bytes"));
}

TEST(CountersSnapshot, malformed_json_throws) {
  for (const auto& [path, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"/tasks/x", {}}, {"/block/7", {}}, {"/block/7:0/read_bytes", "1"}, {"/monotonic_ns", "now"}}) {
    nlohmann::json bad = sample();
    bad[nlohmann::json::json_pointer(path)] = value;
    EXPECT_THROW(bad.get<CountersSnapshot>(), nlohmann::json::exception) << path;
  }
}

}  // namespace
}  // namespace servedby
