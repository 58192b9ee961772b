// SPDX-License-Identifier: Apache-2.0
#include "host/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <set>

#include "error/error.h"
#include "host/group.h"
#include "stack/devices.h"

namespace servedby {
namespace {

constexpr std::uint64_t sector_bytes = 512;

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t\n", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\n", at), line.size());
    found.push_back(line.substr(at, end - at));
    at = end;
  }
  return found;
}

// What a task or process in `directory` counted; an errno value when it is gone or its io is refused for another reason
// than privilege. A refused io leaves io_known false.
std::expected<TaskCounters, int> counters_in(const Root& root, const std::string& directory,
                                             CountersSnapshot* snapshot) {
  const auto text = root.text(directory + "/io");
  if (!text && (text.error() == ESRCH || (text.error() == ENOENT && !root.exists(directory + "/stat")))) {
    return std::unexpected(ESRCH);
  }
  const auto line = root.text(directory + "/stat");
  const auto stat = line ? parse_task_stat(*line) : std::nullopt;
  if (!stat) return std::unexpected(ESRCH);
  TaskCounters counters;
  const auto io = text ? parse_task_io(*text) : std::nullopt;
  if (io) {
    counters = *io;
  } else {
    counters.io_known = false;
    if (snapshot != nullptr) {
      snapshot->notes["/proc/PID/io"] = text                     ? "cut short"
                                        : text.error() == ENOENT ? "this kernel has no task I/O accounting"
                                                                 : errno_text(text.error());
    }
  }
  counters.faults_major = stat->faults_major;
  counters.faults_minor = stat->faults_minor;
  counters.start_ticks = stat->start_ticks;
  return counters;
}

std::uint32_t group_leader(const Root& root, std::uint32_t tid) {
  const auto status = root.text(fmt::format("/proc/{}/status", tid));
  if (!status) return 0;
  const std::size_t at = status->find("\nTgid:");
  if (at == std::string::npos) return 0;
  const auto line = std::string_view(*status).substr(at + 6);
  const auto found = words(line.substr(0, line.find('\n')));
  return found.empty() ? 0 : number<std::uint32_t>(found.front()).value_or(0);
}

}  // namespace

std::optional<TaskStat> parse_task_stat(std::string_view line) {
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  TaskStat stat;
  stat.name = line.substr(open + 1, close - open - 1);
  const auto fields = words(line.substr(close + 1));  // fields[0] is the third of proc(5)
  if (fields.size() < 20) return std::nullopt;
  stat.state = fields[0].front();
  const auto parent = number<std::uint32_t>(fields[1]);
  const std::array<std::pair<std::uint64_t*, std::size_t>, 5> wanted{{{&stat.faults_minor, 7},
                                                                      {&stat.faults_minor_children, 8},
                                                                      {&stat.faults_major, 9},
                                                                      {&stat.faults_major_children, 10},
                                                                      {&stat.start_ticks, 19}}};
  if (!parent) return std::nullopt;
  stat.parent = *parent;
  for (const auto& [place, index] : wanted) {
    const auto value = number<std::uint64_t>(fields[index]);
    if (!value) return std::nullopt;
    *place = *value;
  }
  return stat;
}

std::optional<TaskCounters> parse_task_io(std::string_view text) {
  TaskCounters counters;
  std::array<std::pair<std::string_view, std::uint64_t*>, 3> wanted{
      {{"rchar:", &counters.rchar}, {"syscr:", &counters.syscr}, {"read_bytes:", &counters.read_bytes}}};
  const auto found = words(text);
  for (const auto& [name, place] : wanted) {
    const auto at = std::ranges::find(found, name);
    if (at == found.end() || at + 1 == found.end()) return std::nullopt;
    const auto value = number<std::uint64_t>(*(at + 1));
    if (!value) return std::nullopt;
    *place = *value;
  }
  return counters;
}

std::optional<BlockCounters> parse_block_stat(std::string_view line) {
  BlockCounters block;
  const std::array<std::uint64_t*, 10> places{
      &block.read_ios,     &block.read_merges, &block.read_bytes,     &block.read_ticks_ms, &block.write_ios,
      &block.write_merges, &block.write_bytes, &block.write_ticks_ms, &block.in_flight,     &block.io_ticks_ms};
  const auto fields = words(line);
  if (fields.size() < 11) return std::nullopt;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto value = number<std::uint64_t>(fields[i]);
    if (!value) return std::nullopt;
    *places[i] = *value;
  }
  block.read_bytes *= sector_bytes;
  block.write_bytes *= sector_bytes;
  return block;
}

std::optional<BlockCounters> block_counters(const Root& root, const StorageStack& stack, DeviceNumber dev) {
  const auto line = root.line(attributes_of(stack, dev) + "/stat");
  auto block = line ? parse_block_stat(*line) : std::nullopt;
  if (!block) return std::nullopt;
  block->counting = root.line(attributes_of(stack, stack.disk_of(dev)) + "/queue/iostats") != "0";
  return block;
}

std::expected<TaskCounters, int> process_counters(const Root& root, std::uint32_t pid) {
  auto counters = counters_in(root, fmt::format("/proc/{}", pid), nullptr);
  if (counters) counters->process = pid;
  return counters;
}

CountersSnapshot take_counters(const Root& root, const StorageStack& devices, std::span<const std::uint32_t> tasks) {
  CountersSnapshot snapshot;
  snapshot.monotonic_ns = monotonic_now();
  for (const auto& [dev, device] : devices.devices) {
    if (const auto block = block_counters(root, devices, dev)) {
      snapshot.block[dev] = *block;
    } else {
      snapshot.notes[device.name + " stat"] = "not readable in /sys/block";
    }
  }
  for (const std::uint32_t tid : tasks) {
    // /proc/TID is the task's whole process; /proc/TID/task/TID is that task alone.
    auto counters = counters_in(root, fmt::format("/proc/{0}/task/{0}", tid), &snapshot);
    if (!counters) continue;
    counters->process = group_leader(root, tid);
    snapshot.tasks[tid] = *counters;
  }
  if (!tasks.empty()) snapshot.group_io = group_io(root, tasks.front());
  return snapshot;
}

std::vector<std::uint32_t> tasks_of(const Root& root, std::uint32_t pid) {
  std::vector<std::uint32_t> tasks;
  for (const std::string& name : root.entries(fmt::format("/proc/{}/task", pid))) {
    if (const auto tid = number<std::uint32_t>(name)) tasks.push_back(*tid);
  }
  std::ranges::sort(tasks);
  return tasks;
}

std::vector<std::uint32_t> process_tree(const Root& root, std::uint32_t pid) {
  std::vector<std::uint32_t> tree{pid};
  std::set<std::uint32_t> known{pid};
  const auto add = [&](std::uint32_t child) {
    if (known.insert(child).second) tree.push_back(child);
  };
  const bool listed = root.exists(fmt::format("/proc/{0}/task/{0}/children", pid));
  if (listed) {
    for (std::size_t next = 0; next < tree.size(); ++next) {
      for (const std::uint32_t tid : tasks_of(root, tree[next])) {
        const auto children = root.text(fmt::format("/proc/{}/task/{}/children", tree[next], tid));
        if (!children) continue;
        for (const std::string_view word : words(*children)) {
          if (const auto child = number<std::uint32_t>(word)) add(*child);
        }
      }
    }
    return tree;
  }
  std::multimap<std::uint32_t, std::uint32_t> children;
  for (const std::string& name : root.entries("/proc")) {
    const auto process = number<std::uint32_t>(name);
    if (!process) continue;
    const auto line = root.text("/proc/" + name + "/stat");
    if (const auto stat = line ? parse_task_stat(*line) : std::nullopt) children.emplace(stat->parent, *process);
  }
  for (std::size_t next = 0; next < tree.size(); ++next) {
    const auto [from, to] = children.equal_range(tree[next]);
    for (auto child = from; child != to; ++child) add(child->second);
  }
  return tree;
}

std::uint64_t monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace servedby
