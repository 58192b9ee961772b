// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "host/sampling.h"

namespace servedby {
namespace {

using Look = std::map<std::uint32_t, ProcessLook>;

bool still_there(const Look& now, std::uint32_t pid, const ProcessLook& before) {
  const auto found = now.find(pid);
  return found != now.end() && found->second.start_ticks == before.start_ticks;
}

// The nearest ancestor, by the parents of the look before, that is still there.
std::optional<std::uint32_t> surviving_ancestor(const Look& before, const Look& now, std::uint32_t pid) {
  std::size_t steps = 0;
  for (auto at = before.find(pid); at != before.end() && steps <= before.size(); ++steps) {
    const std::uint32_t parent = at->second.parent;
    at = before.find(parent);
    if (at != before.end() && still_there(now, parent, at->second)) return parent;
  }
  return std::nullopt;
}

std::uint64_t faults(const ProcessLook& process) { return process.faults_minor + process.faults_minor_children; }

}  // namespace

void TreeTally::add_to(Totals& totals, const ProcessLook& process) {
  totals.rchar += process.rchar;
  totals.syscr += process.syscr;
  totals.read_bytes += process.read_bytes;
  totals.faults_major += process.faults_major;
  totals.faults_minor += process.faults_minor;
}

void TreeTally::keep_unseen(const ProcessLook& process) {
  add_to(ended_, process);
  ++ended_unseen_;
  if (!process.io_known) ++ended_refused_;
}

void TreeTally::settle_vanished(const Look& look) {
  // Every process has minor faults, so an ancestor's faults of children grow by at least those of each child it waited
  // for.
  std::map<std::uint32_t, std::vector<const ProcessLook*>> vanished;
  for (const auto& [pid, process] : last_) {
    if (still_there(look, pid, process)) continue;
    if (const auto ancestor = surviving_ancestor(last_, look, pid)) {
      vanished[*ancestor].push_back(&process);
    } else {
      keep_unseen(process);
    }
  }
  for (auto& [ancestor, processes] : vanished) {
    std::uint64_t grown = look.at(ancestor).faults_minor_children - last_.at(ancestor).faults_minor_children;
    std::ranges::sort(processes, std::greater<>{}, [](const ProcessLook* process) { return faults(*process); });
    for (const ProcessLook* process : processes) {
      // A child that the look before saw before its first fault shows nothing either way; it has read nothing by then.
      if (faults(*process) <= grown) {
        grown -= faults(*process);
        // The parent's io has the child's; its faults have not (they are apart, as faults of children).
        ended_.faults_major += process->faults_major;
        ended_.faults_minor += process->faults_minor;
      } else {
        keep_unseen(*process);
      }
    }
  }
}

// A process that may no longer be read, such as an unprivileged user's zombie, keeps what it was last seen with.
void TreeTally::add(Look look) {
  for (auto& [pid, process] : look) {
    const auto before = last_.find(pid);
    if (process.io_known || before == last_.end() || before->second.start_ticks != process.start_ticks) continue;
    process.rchar = before->second.rchar;
    process.syscr = before->second.syscr;
    process.read_bytes = before->second.read_bytes;
  }
  if (!begun_) {
    for (const auto& [pid, process] : look) add_to(first_, process);
    begun_ = true;
  } else {
    settle_vanished(look);
  }
  last_ = std::move(look);
}

TreeReads TreeTally::reads() const {
  Totals now = ended_;
  for (const auto& [pid, process] : last_) add_to(now, process);
  // A sum can fall for a moment: a child gone from this look whose parent was looked at before it waited.
  const auto since = [](std::uint64_t total, std::uint64_t first) { return total > first ? total - first : 0; };
  TreeReads reads;
  reads.rchar = since(now.rchar, first_.rchar);
  reads.syscr = since(now.syscr, first_.syscr);
  reads.read_bytes = since(now.read_bytes, first_.read_bytes);
  reads.faults_major = since(now.faults_major, first_.faults_major);
  reads.faults_minor = since(now.faults_minor, first_.faults_minor);
  // One that was waited for does not matter: its parent's counters have its reads.
  reads.refused = ended_refused_ + static_cast<std::uint64_t>(std::ranges::count_if(
                                       last_, [](const auto& entry) { return !entry.second.io_known; }));
  reads.known = begun_ && reads.refused == 0;
  reads.ended_unseen = ended_unseen_;
  return reads;
}

}  // namespace servedby
