// SPDX-License-Identifier: Apache-2.0
#include "record/counters.h"

#include <charconv>
#include <utility>

namespace servedby {
namespace {

using nlohmann::json;

json block_json(const BlockCounters& block) {
  return json{{"read_ios", block.read_ios},       {"read_merges", block.read_merges},
              {"read_bytes", block.read_bytes},   {"read_ticks_ms", block.read_ticks_ms},
              {"write_ios", block.write_ios},     {"write_merges", block.write_merges},
              {"write_bytes", block.write_bytes}, {"write_ticks_ms", block.write_ticks_ms},
              {"in_flight", block.in_flight},     {"io_ticks_ms", block.io_ticks_ms},
              {"counting", block.counting}};
}

BlockCounters block_from(const json& object) {
  BlockCounters block;
  object.at("read_ios").get_to(block.read_ios);
  object.at("read_merges").get_to(block.read_merges);
  object.at("read_bytes").get_to(block.read_bytes);
  object.at("read_ticks_ms").get_to(block.read_ticks_ms);
  object.at("write_ios").get_to(block.write_ios);
  object.at("write_merges").get_to(block.write_merges);
  object.at("write_bytes").get_to(block.write_bytes);
  object.at("write_ticks_ms").get_to(block.write_ticks_ms);
  object.at("in_flight").get_to(block.in_flight);
  object.at("io_ticks_ms").get_to(block.io_ticks_ms);
  object.at("counting").get_to(block.counting);
  return block;
}

// What is not known is absent from the text, and zero in the struct.
json task_json(const TaskCounters& task) {
  json object{
      {"faults_major", task.faults_major}, {"faults_minor", task.faults_minor}, {"start_ticks", task.start_ticks}};
  if (task.process != 0) object["process"] = task.process;
  if (task.io_known) {
    object["rchar"] = task.rchar;
    object["syscr"] = task.syscr;
    object["read_bytes"] = task.read_bytes;
  }
  return object;
}

TaskCounters task_from(const json& object) {
  TaskCounters task;
  object.at("faults_major").get_to(task.faults_major);
  object.at("faults_minor").get_to(task.faults_minor);
  object.at("start_ticks").get_to(task.start_ticks);
  task.process = object.value("process", 0U);
  task.io_known = object.contains("read_bytes");
  if (task.io_known) {
    object.at("rchar").get_to(task.rchar);
    object.at("syscr").get_to(task.syscr);
    object.at("read_bytes").get_to(task.read_bytes);
  }
  return task;
}

json group_json(const GroupIo& io) {
  return json{{"read_bytes", io.read_bytes},
              {"read_ios", io.read_ios},
              {"write_bytes", io.write_bytes},
              {"write_ios", io.write_ios}};
}

GroupIo group_from(const json& object) {
  GroupIo io;
  object.at("read_bytes").get_to(io.read_bytes);
  object.at("read_ios").get_to(io.read_ios);
  object.at("write_bytes").get_to(io.write_bytes);
  object.at("write_ios").get_to(io.write_ios);
  return io;
}

DeviceNumber device_key(const std::string& key, const json& where) {
  const auto dev = device_from_text(key);
  if (!dev) throw json::other_error::create(501, "not a device number: " + key, &where);
  return *dev;
}

std::uint32_t task_key(const std::string& key, const json& where) {
  std::uint32_t tid = 0;
  const char* const end = key.data() + key.size();
  const auto parsed = std::from_chars(key.data(), end, tid);
  if (parsed.ec != std::errc{} || parsed.ptr != end) throw json::other_error::create(501, "not a TID: " + key, &where);
  return tid;
}

}  // namespace

void to_json(json& object, const CountersSnapshot& snapshot) {
  object = json{{"monotonic_ns", snapshot.monotonic_ns},
                {"block", json::object()},
                {"tasks", json::object()},
                {"notes", snapshot.notes}};
  for (const auto& [dev, block] : snapshot.block) object["block"][device_text(dev)] = block_json(block);
  for (const auto& [tid, task] : snapshot.tasks) object["tasks"][std::to_string(tid)] = task_json(task);
  for (const auto& [dev, io] : snapshot.group_io) object["group_io"][device_text(dev)] = group_json(io);
}

void from_json(const json& object, CountersSnapshot& snapshot) {
  snapshot = CountersSnapshot{};
  object.at("monotonic_ns").get_to(snapshot.monotonic_ns);
  for (const auto& [key, block] : object.at("block").items()) {
    snapshot.block.emplace(device_key(key, object), block_from(block));
  }
  for (const auto& [key, task] : object.at("tasks").items()) {
    snapshot.tasks.emplace(task_key(key, object), task_from(task));
  }
  if (const auto groups = object.find("group_io"); groups != object.end()) {
    for (const auto& [key, io] : groups->items()) snapshot.group_io.emplace(device_key(key, object), group_from(io));
  }
  object.at("notes").get_to(snapshot.notes);
}

}  // namespace servedby
