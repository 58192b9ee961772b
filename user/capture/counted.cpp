// SPDX-License-Identifier: Apache-2.0
#include "capture/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "capture/session_start.h"
#include "capture/target.h"

namespace servedby {
namespace {

LedgerLine device_line(const Session& session, DeviceNumber dev, const BlockCounters& before,
                       const BlockCounters& after) {
  LedgerLine line;
  const Device* device = session.stack.find(dev);
  line.boundary = device != nullptr && device->kind == DeviceKind::loop ? "loop" : "drive";
  line.device = session.stack.name_of(dev);
  if (after.counting && before.counting) {
    line.kernel_bytes = after.read_bytes - before.read_bytes;
    line.kernel_source = fmt::format("/sys/block/{}/stat", *line.device);
  } else {
    line.kernel_source = "not checked: the kernel does not count this device (queue/iostats is 0)";
  }
  return line;
}

}  // namespace

AttributionResult counted_result(const Sampled& sampled, const Inference& inference, const Session& session) {
  AttributionResult result;
  result.tier = "counters";
  result.reads.calls = sampled.reads.syscr;
  result.reads.bytes_returned = sampled.reads.rchar;
  for (const PlacedBytes& placed : inference.served_by) {
    ServedBy served;
    served.via = placed.via;
    served.bytes = placed.bytes;
    served.evidence = Evidence::inferred;
    served.why = inference.doubt;
    result.served_by.push_back(std::move(served));
  }
  std::ranges::stable_sort(result.served_by, [](const ServedBy& a, const ServedBy& b) { return a.bytes > b.bytes; });
  for (const PlacedBytes& placed : inference.beyond) result.mmap.filled_by.push_back({placed.via, placed.bytes});
  result.mmap.faults_major = sampled.reads.faults_major;
  result.mmap.faults_minor = sampled.reads.faults_minor;
  if (sampled.reads.ended_unseen != 0) result.losses["processes_ended_unseen"] = sampled.reads.ended_unseen;
  if (sampled.reads.refused != 0) result.losses["processes_refused"] = sampled.reads.refused;
  LedgerLine process;
  process.boundary = "process";
  process.kernel_source = "/proc/PID/io read_bytes";
  if (sampled.reads.known) process.kernel_bytes = sampled.reads.read_bytes;
  result.ledger.push_back(std::move(process));
  for (const auto& [dev, after] : session.after.block) {
    const auto before = session.before.block.find(dev);
    if (before == session.before.block.end() || after.read_bytes == before->second.read_bytes) continue;
    const Device* device = session.stack.find(dev);
    if (device == nullptr || device->kind == DeviceKind::partition) continue;
    result.ledger.push_back(device_line(session, dev, before->second, after));
  }
  return result;
}

struct Counted::State {
  Session session;
  std::unique_ptr<Sampler> sampler;
};

Counted::Counted(std::unique_ptr<State> state) : state_(std::move(state)) {}
Counted::~Counted() = default;
Counted::Counted(Counted&&) noexcept = default;

Result<Counted> Counted::begin(std::uint32_t pid, const std::vector<std::string>& command) {
  if (auto visible = check_proc(); !visible) return std::unexpected(visible.error());
  const auto io = Root().text(fmt::format("/proc/{}/io", pid));
  if (!io && io.error() != ENOENT) {  // that one: a kernel without task I/O accounting, or ended by now
    return std::unexpected(system_error("cannot read the counters of", fmt::format("PID {}", pid), io.error(),
                                        "run as the user who owns the process, or as root"));
  }
  auto state = std::make_unique<State>();
  state->session = session_of_this_machine();
  state->session.tier = "counters";
  state->sampler = std::make_unique<Sampler>(Root(), state->session.stack, pid);
  start_session(state->session, pid, command);
  state->sampler->start();
  return Counted(std::move(state));
}

LiveOutcome Counted::end(std::optional<int> exit_code) {
  Session& session = state_->session;
  const Sampled sampled = state_->sampler->stop();
  session.end_ns = monotonic_ns();
  session.target_exit = exit_code;
  session.before = sampled.before;
  session.after = sampled.after;
  const Inference inference = infer(sampled.before, sampled.after, sampled.reads, session.stack, sampled.open_on);
  if (!inference.doubt.empty()) session.warnings.push_back("inferred from counters: " + inference.doubt);
  return {session, counted_result(sampled, inference, session), std::nullopt};
}

}  // namespace servedby
