// SPDX-License-Identifier: Apache-2.0
#include "attribution/ledger.h"

#include <algorithm>
#include <string>

namespace servedby::attribution {
namespace {

const char* boundary_of(const Device* device) {
  if (device == nullptr) return device_kind_name(DeviceKind::other);
  if (is_multipath(*device)) return "multipath";
  switch (device->kind) {
    case DeviceKind::nvme:
    case DeviceKind::scsi:
    case DeviceKind::virtio:
      return "drive";
    default:
      return device_kind_name(device->kind);
  }
}

void add(TaskCounters& sum, const TaskCounters& task) {
  sum.rchar += task.rchar;
  sum.syscr += task.syscr;
  sum.read_bytes += task.read_bytes;
  sum.faults_major += task.faults_major;
  sum.faults_minor += task.faults_minor;
}

/// False where a counter would run backwards: some task's accounting is missing then.
bool subtract(TaskCounters& sum, const TaskCounters& task) {
  const auto less = [](std::uint64_t& from, std::uint64_t what) {
    if (from < what) return false;
    from -= what;
    return true;
  };
  return less(sum.rchar, task.rchar) && less(sum.syscr, task.syscr) && less(sum.read_bytes, task.read_bytes) &&
         less(sum.faults_major, task.faults_major) && less(sum.faults_minor, task.faults_minor);
}

}  // namespace

void Ledger::task(const sb_task& task) {
  processes_.insert(task.tgid);
  if (task.event == SB_TASK_FORK) {
    begun_tasks_.insert(task.task);
    ended_tasks_.erase(task.task);
  } else if (task.event == SB_TASK_EXIT) {
    add(ended_, {task.rchar, task.syscr, task.read_bytes, task.faults_major, task.faults_minor});
    ended_tasks_.insert(task.task);
    begun_tasks_.erase(task.task);
  }
}

void Ledger::request(const sb_request& request) { target_bytes_[request.dev] += request.target_bytes; }

std::vector<std::uint32_t> Ledger::children(std::uint32_t first) const {
  std::vector<std::uint32_t> pids;
  std::ranges::copy_if(processes_, std::back_inserter(pids),
                       [&](std::uint32_t pid) { return pid != first && pid != 0; });
  return pids;
}

Ledger::Accounting Ledger::accounting(const Session& session) const {
  if (ended_tasks_.empty() && session.after.tasks.empty()) return {std::nullopt, "no task's own accounting was seen"};
  const auto at_end = [&](std::uint32_t tid) {
    return ended_tasks_.contains(tid) || session.after.tasks.contains(tid);
  };
  const auto missing = [](std::uint32_t tid) {
    return Accounting{std::nullopt, "the accounting of task " + std::to_string(tid) + " was not seen at its end"};
  };
  TaskCounters sum = ended_;
  for (const auto& [tid, counters] : session.after.tasks)
    if (!ended_tasks_.contains(tid)) add(sum, counters);
  for (const auto& [tid, counters] : session.before.tasks) {
    if (!at_end(tid)) return missing(tid);
    if (!subtract(sum, counters)) return {std::nullopt, "the tasks' accounting runs backwards"};
  }
  for (const std::uint32_t tid : begun_tasks_)
    if (!at_end(tid)) return missing(tid);
  return {sum, {}};
}

LedgerLine Ledger::process_line(const Session& session) const {
  LedgerLine line;
  line.boundary = "process";
  line.traced_target_bytes = process.traced;
  line.parts = {{"first_returned", process.first_returned},
                {"direct", process.direct},
                {"never_returned", process.never_returned},
                {"metadata", process.metadata},
                {"past_end", process.past_end},
                {"exec_mmap", process.exec_mmap},
                {"failed", process.failed},
                {"compressed", process.compressed},
                {"other", process.other},
                {"swap", process.swap}};
  line.bracket_bytes = session.bracket.process_bytes + process.from_servers;
  if (process.from_servers != 0) line.server_bytes = process.from_servers;
  const Accounting kernel = accounting(session);
  line.kernel_source = kernel.counters ? "/proc/PID/task/*/io read_bytes" : "not checked: " + kernel.why_not;
  if (kernel.counters) {
    line.kernel_bytes = kernel.counters->read_bytes;
    line.residual_bytes = static_cast<std::int64_t>(kernel.counters->read_bytes - process.traced);
  }
  return line;
}

LedgerLine Ledger::device_line(DeviceNumber dev, const Session& session, const StorageStack& stack) const {
  const Device* device = session.stack.find(dev) != nullptr ? session.stack.find(dev) : stack.find(dev);
  LedgerLine line;
  line.boundary = boundary_of(device);
  line.device = device != nullptr ? device->name : device_text(dev);
  const auto target = target_bytes_.find(dev);
  line.traced_target_bytes = target == target_bytes_.end() ? 0 : target->second;
  const auto counted = session.counts.devices.find(dev);
  const sb_device_count count = counted == session.counts.devices.end() ? sb_device_count{} : counted->second;
  line.traced_other_bytes = count.other_read_bytes + count.unseen_read_bytes;
  line.parts = {{"issue_unseen", count.unseen_read_bytes}};
  if (const auto bracket = session.bracket.device_bytes.find(dev); bracket != session.bracket.device_bytes.end())
    line.bracket_bytes = bracket->second;
  const auto before = session.before.block.find(dev), after = session.after.block.find(dev);
  if (before == session.before.block.end() || after == session.after.block.end()) {
    line.kernel_source = "not checked: no counters of this device";
  } else if (before->second.counting != after->second.counting ||
             (!after->second.counting && after->second.read_bytes == before->second.read_bytes)) {
    // A dm device of kernels before 6.2 says 0 and counts all the same: then its counter moves.
    line.kernel_source = "not checked: the kernel does not count this device (queue/iostats is 0)";
  } else {
    line.kernel_source = "/sys/block/" + *line.device + "/stat";
    line.kernel_bytes = after->second.read_bytes - before->second.read_bytes;
    line.residual_bytes =
        static_cast<std::int64_t>(*line.kernel_bytes - *line.traced_target_bytes - *line.traced_other_bytes);
  }
  return line;
}

std::vector<LedgerLine> Ledger::lines(const Session& session, const StorageStack& stack) const {
  std::vector<LedgerLine> lines{process_line(session)};
  std::set<DeviceNumber> devices;
  for (const auto& [dev, bytes] : target_bytes_)
    if (bytes != 0) devices.insert(dev);
  for (const auto& [dev, count] : session.counts.devices)
    if (count.target_read_requests + count.other_read_requests + count.write_requests + count.target_read_bytes +
            count.other_read_bytes + count.unseen_read_bytes !=
        0)
      devices.insert(dev);
  for (const DeviceNumber dev : devices) lines.push_back(device_line(dev, session, stack));
  return lines;
}

}  // namespace servedby::attribution
