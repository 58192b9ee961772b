// SPDX-License-Identifier: Apache-2.0
// The kernel's own counters, read without any privilege but that of seeing the target's /proc/PID/io.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record/counters.h"
#include "record/storage.h"
#include "stack/root.h"

namespace servedby {

/// Everything at one moment: /sys/block/*/stat with queue/iostats for every device of `devices`, /proc/TID/task/TID/io
/// and stat for every task, io.stat of the first task's control group. A task that vanishes is left out; what is
/// refused is in notes, one line for each cause. Devices
/// are read before tasks, so the two moments differ by the time that takes.
[[nodiscard]] CountersSnapshot take_counters(const Root& root, const StorageStack& devices,
                                             std::span<const std::uint32_t> tasks);

/// /sys/block/…/stat of one device; nothing when it is gone.
[[nodiscard]] std::optional<BlockCounters> block_counters(const Root& root, const StorageStack& stack,
                                                          DeviceNumber dev);

/// /proc/PID/io of a whole process: its living and dead threads, and the children it has waited for. An errno value on
/// failure: ESRCH and ENOENT mean gone, EACCES refused.
[[nodiscard]] std::expected<TaskCounters, int> process_counters(const Root& root, std::uint32_t pid);

/// Fields of /proc/PID/stat that servedby uses (proc(5)). `name` may hold spaces and parentheses.
struct TaskStat {
  std::string name;
  char state = '?';
  std::uint32_t parent = 0;
  std::uint64_t faults_minor = 0, faults_minor_children = 0, faults_major = 0, faults_major_children = 0;
  std::uint64_t start_ticks = 0;
  friend bool operator==(const TaskStat&, const TaskStat&) = default;
};
[[nodiscard]] std::optional<TaskStat> parse_task_stat(std::string_view line);
/// rchar, syscr and read_bytes of /proc/PID/io; nothing unless all three are there.
[[nodiscard]] std::optional<TaskCounters> parse_task_io(std::string_view text);
/// /sys/block/NAME/stat; nothing unless the first eleven fields are there.
[[nodiscard]] std::optional<BlockCounters> parse_block_stat(std::string_view line);

/// The tasks of a process, sorted; empty when it is gone.
[[nodiscard]] std::vector<std::uint32_t> tasks_of(const Root& root, std::uint32_t pid);

/// A process and its descendants, itself first. Found by /proc/PID/task/TID/children where the kernel has that, else by
/// the parents of all processes. A process whose parent has exited belongs to init and is not found.
[[nodiscard]] std::vector<std::uint32_t> process_tree(const Root& root, std::uint32_t pid);

/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t monotonic_now();

}  // namespace servedby
