// SPDX-License-Identifier: Apache-2.0
// The kernel's own counters at one moment, as values: host/ reads them, a recording carries them, the ledger is judged
// by them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "record/storage.h"

namespace servedby {

/// /sys/block/NAME/stat (Documentation/block/stat.rst), in bytes where the kernel counts 512-byte sectors.
struct BlockCounters {
  std::uint64_t read_ios = 0, read_merges = 0, read_bytes = 0, read_ticks_ms = 0;
  std::uint64_t write_ios = 0, write_merges = 0, write_bytes = 0, write_ticks_ms = 0;
  std::uint64_t in_flight = 0, io_ticks_ms = 0;
  bool counting = true;  ///< queue/iostats; false: the kernel is not counting, so nothing can be checked
  friend bool operator==(const BlockCounters&, const BlockCounters&) = default;
};

/// /proc/PID/task/TID/io and stat, for one task or summed over a process.
struct TaskCounters {
  std::uint64_t rchar = 0;       ///< bytes returned by read calls, page cache included
  std::uint64_t syscr = 0;       ///< read calls
  std::uint64_t read_bytes = 0;  ///< "process block reads": bytes of bios this task submitted
  std::uint64_t faults_major = 0, faults_minor = 0;
  std::uint32_t process = 0;      ///< thread group; 0: not known
  std::uint64_t start_ticks = 0;  ///< start time since boot in clock ticks: with the TID it names one task for ever
  bool io_known = true;  ///< false: io was refused or is not built in, so rchar, syscr and read_bytes say nothing
  friend bool operator==(const TaskCounters&, const TaskCounters&) = default;
};

/// One device's line of cgroup v2's io.stat: what the target's control group did, writeback included.
struct GroupIo {
  std::uint64_t read_bytes = 0, read_ios = 0, write_bytes = 0, write_ios = 0;
  friend bool operator==(const GroupIo&, const GroupIo&) = default;
};

struct CountersSnapshot {
  std::uint64_t monotonic_ns = 0;  ///< CLOCK_MONOTONIC when it was begun
  std::map<DeviceNumber, BlockCounters> block;
  std::map<std::uint32_t, TaskCounters> tasks;  ///< by TID, the target's tasks alive at this moment
  std::map<DeviceNumber, GroupIo> group_io;     ///< io.stat of the target's control group; empty: none, or none counted
  std::map<std::string, std::string> notes;     ///< what was refused: name → why
  friend bool operator==(const CountersSnapshot&, const CountersSnapshot&) = default;
};

/// The form in recordings and results; from_json gives back an equal value and throws nlohmann::json::exception on
/// anything malformed.
void to_json(nlohmann::json& json, const CountersSnapshot& snapshot);
void from_json(const nlohmann::json& json, CountersSnapshot& snapshot);

}  // namespace servedby
