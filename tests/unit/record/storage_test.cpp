// SPDX-License-Identifier: Apache-2.0
#include "record/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace servedby {
namespace {

using testing::ElementsAre;
using Chain = std::vector<std::string>;

const DeviceNumber disk_a = device_number(259, 0);
const DeviceNumber disk_b = device_number(259, 1);
const DeviceNumber part_a = device_number(259, 2);
const DeviceNumber part_b = device_number(259, 3);
const DeviceNumber array = device_number(9, 127);
const DeviceNumber loop = device_number(7, 0);

Device device(DeviceNumber dev, std::string name, DeviceKind kind, std::vector<DeviceNumber> below = {}) {
  Device made;
  made.dev = dev;
  made.name = std::move(name);
  made.kind = kind;
  made.below = std::move(below);
  return made;
}

StorageStack loop_on_md() {
  StorageStack stack;
  for (Device& made :
       std::vector<Device>{device(disk_a, "nvme0n1", DeviceKind::nvme), device(disk_b, "nvme1n1", DeviceKind::nvme),
                           device(part_a, "nvme0n1p1", DeviceKind::partition, {disk_a}),
                           device(part_b, "nvme1n1p1", DeviceKind::partition, {disk_b}),
                           device(array, "md127", DeviceKind::md, {part_a, part_b}),
                           device(loop, "loop0", DeviceKind::loop, {array})}) {
    stack.devices[made.dev] = made;
  }
  return stack;
}

TEST(DeviceNumber, text_and_back) {
  EXPECT_EQ(device_text(device_number(259, 5)), "259:5");
  EXPECT_EQ(device_from_text("259:5"), device_number(259, 5));
  EXPECT_EQ(device_from_text("0:1048575"), device_number(0, 1048575));
  for (const char* bad : {"", ":", "7", "7:", ":7", "7:0 ", " 7:0", "-1:0", "4096:0", "0:1048576", "7:0:1", "a:b"}) {
    EXPECT_EQ(device_from_text(bad), std::nullopt) << bad;
  }
}

TEST(StorageStack, chains_leave_partitions_out_and_follow_each_member) {
  const StorageStack stack = loop_on_md();
  EXPECT_THAT(stack.chains_from(loop),
              ElementsAre(Chain{"loop0", "md127", "nvme0n1"}, Chain{"loop0", "md127", "nvme1n1"}));
  EXPECT_THAT(stack.chains_from(part_a), ElementsAre(Chain{"nvme0n1"}));
  EXPECT_THAT(stack.chains_from(device_number(8, 0)), ElementsAre(Chain{"8:0"}));
  EXPECT_THAT(stack.with_all_below(loop), ElementsAre(loop, array, part_a, part_b, disk_a, disk_b));
}

TEST(StorageStack, two_partitions_of_one_disk_are_one_chain) {
  StorageStack stack = loop_on_md();
  stack.devices[part_b].below = {disk_a};
  EXPECT_THAT(stack.chains_from(array), ElementsAre(Chain{"md127", "nvme0n1"}));
}

TEST(StorageStack, file_systems_and_their_servers_come_back) {
  StorageStack stack = loop_on_md();
  stack.file_systems[device_number(0, 41)] = {"nfs4", "nfs:host"};
  stack.file_systems[device_number(7, 0)] = {"xfs", ""};
  const auto again = nlohmann::json::parse(nlohmann::json(stack).dump()).get<StorageStack>();
  EXPECT_EQ(again, stack);
  EXPECT_EQ(again.server_of(device_number(0, 41)), "nfs:host");
  EXPECT_EQ(again.server_of(device_number(7, 0)), "");
  EXPECT_EQ(again.server_of(device_number(9, 9)), "");
}

TEST(StorageStack, a_ring_is_cut) {
  StorageStack stack = loop_on_md();
  stack.devices[disk_a].below = {loop};
  EXPECT_THAT(stack.chains_from(loop),
              ElementsAre(Chain{"loop0", "md127", "nvme0n1"}, Chain{"loop0", "md127", "nvme1n1"}));
  EXPECT_EQ(stack.with_all_below(loop).size(), 6U);
}

TEST(StorageStack, disk_and_name) {
  const StorageStack stack = loop_on_md();
  EXPECT_EQ(stack.disk_of(part_b), disk_b);
  EXPECT_EQ(stack.disk_of(array), array);
  EXPECT_EQ(stack.disk_of(device_number(8, 0)), device_number(8, 0));
  EXPECT_EQ(stack.name_of(array), "md127");
  EXPECT_EQ(stack.name_of(device_number(8, 0)), "8:0");
}

TEST(StorageStack, json_gives_back_an_equal_value) {
  StorageStack stack = loop_on_md();
  Device& made = stack.devices[loop];
  made.loop =
      LoopBacking{"/srv/image \"a\"\\040(deleted)", array, 0xffffffffffffffffULL, true, 512, 1ULL << 40, true, true};
  made.size_bytes = 0;
  made.diskseq = 9;
  made.below_doubt = "the only drive here";
  stack.devices[part_a].start_bytes = 1048576;
  stack.devices[array].mapper_name = "vg-lv";
  stack.devices[disk_a].facts = {{"scheduler", "[none] mq-deadline"}, {"model", ""}};
  stack.not_seen = {"a", "b"};
  const std::string text = nlohmann::json(stack).dump();
  EXPECT_EQ(nlohmann::json::parse(text).get<StorageStack>(), stack);
  EXPECT_EQ(nlohmann::json(nlohmann::json::parse(text).get<StorageStack>()).dump(), text);
  EXPECT_EQ(nlohmann::json(StorageStack{}).get<StorageStack>(), StorageStack{});
}

TEST(StorageStack, json_leaves_the_unknown_out) {
  const nlohmann::json object = loop_on_md();
  for (const auto& entry : object.at("devices")) {
    for (const char* name : {"size_bytes", "start_bytes", "loop", "diskseq", "mapper_name", "below_doubt"}) {
      EXPECT_FALSE(entry.contains(name)) << name;
    }
  }
}

TEST(StorageStack, malformed_json_throws) {
  nlohmann::json object = loop_on_md();
  for (const auto& [path, value] : std::vector<std::pair<std::string, nlohmann::json>>{{"/devices/0/dev", "x"},
                                                                                       {"/devices/0/dev", 5},
                                                                                       {"/devices/0/kind", "tape"},
                                                                                       {"/devices/0/below", {"1"}},
                                                                                       {"/devices/0/facts", {{"a", 1}}},
                                                                                       {"/devices", 7},
                                                                                       {"/not_seen", 1}}) {
    nlohmann::json bad = object;
    bad[nlohmann::json::json_pointer(path)] = value;
    EXPECT_THROW(bad.get<StorageStack>(), nlohmann::json::exception) << path << " " << value;
  }
  EXPECT_THROW(nlohmann::json::array().get<StorageStack>(), nlohmann::json::exception);
}

}  // namespace
}  // namespace servedby
