// SPDX-License-Identifier: Apache-2.0
#include "host/sampling.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "host/counters.h"
#include "stack/open_files.h"

namespace servedby {
namespace {

constexpr std::size_t most_points = 2048;
constexpr std::size_t looks_between_open_files = 10;

std::optional<ProcessLook> look_at(const Root& root, std::uint32_t pid) {
  const auto counters = process_counters(root, pid);
  if (!counters) return std::nullopt;
  const auto line = root.text(fmt::format("/proc/{}/stat", pid));
  const auto stat = line ? parse_task_stat(*line) : std::nullopt;
  if (!stat) return std::nullopt;
  ProcessLook look;
  look.parent = stat->parent;
  look.start_ticks = stat->start_ticks;
  look.rchar = counters->rchar;
  look.syscr = counters->syscr;
  look.read_bytes = counters->read_bytes;
  look.faults_major = stat->faults_major;
  look.faults_minor = stat->faults_minor;
  look.faults_minor_children = stat->faults_minor_children;
  look.io_known = counters->io_known;
  return look;
}

}  // namespace

Sampler::Sampler(Root root, StorageStack devices, std::uint32_t pid, std::chrono::milliseconds interval)
    : root_(std::move(root)), devices_(std::move(devices)), pid_(pid), interval_(interval) {}

Sampler::~Sampler() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (io_ >= 0) ::close(io_);
}

void Sampler::start() {
  if (root_.live()) io_ = ::open(fmt::format("/proc/{}/io", pid_).c_str(), O_RDONLY | O_CLOEXEC);
  sampled_.before = take_counters(root_, devices_, tasks_of(root_, pid_));
  look();
  note_open_files();
  thread_ = std::thread([this] { run(); });
}

Sampled Sampler::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  note_open_files();
  look();
  // Devices last: what the tree read is then in their counters too.
  sampled_.after = take_counters(root_, devices_, tasks_of(root_, pid_));
  sampled_.reads = tally_.reads();
  sampled_.open_on = open_files_->bytes_on();
  return std::move(sampled_);
}

void Sampler::run() {
  std::unique_lock lock(mutex_);
  auto next = std::chrono::steady_clock::now() + interval_;
  while (!wake_.wait_until(lock, next, [this] { return stopping_; })) {
    lock.unlock();
    look();
    if (looks_ < looks_between_open_files || looks_ % looks_between_open_files == 0) note_open_files();
    next = std::max(next + interval_, std::chrono::steady_clock::now());
    lock.lock();
  }
}

// A process whose parent has ended belongs to init from then on; it is still of this tree.
std::vector<std::uint32_t> Sampler::tree() const {
  std::vector<std::uint32_t> pids = process_tree(root_, pid_);
  for (const std::uint32_t known : known_) {
    if (std::ranges::find(pids, known) != pids.end() || !root_.exists(fmt::format("/proc/{}", known))) continue;
    for (const std::uint32_t pid : process_tree(root_, known)) {
      if (std::ranges::find(pids, pid) == pids.end()) pids.push_back(pid);
    }
  }
  return pids;
}

// A child that is waited for while we look would be counted in its own look and in its parent's. Children are looked at
// before parents; if all of them are still there afterwards, no parent has taken over anything meanwhile. Else look
// again.
std::map<std::uint32_t, ProcessLook> Sampler::consistent_look() {
  constexpr int attempts = 5;
  std::map<std::uint32_t, ProcessLook> processes;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    processes.clear();
    std::vector<std::uint32_t> pids = tree();
    std::ranges::reverse(pids);
    for (const std::uint32_t pid : pids) {
      auto process = look_at(root_, pid);
      if (!process) continue;
      if (pid == pid_ && !process->io_known) read_held_io(*process);
      processes.emplace(pid, *process);
    }
    const bool all_there = std::ranges::all_of(
        processes, [&](const auto& entry) { return root_.exists(fmt::format("/proc/{}", entry.first)); });
    if (all_there) break;
  }
  known_.clear();
  for (const auto& [pid, process] : processes) known_.insert(pid);
  return processes;
}

void Sampler::read_held_io(ProcessLook& look) const {
  std::array<char, 1024> text{};
  const ssize_t got = io_ < 0 ? -1 : ::pread(io_, text.data(), text.size(), 0);
  if (got <= 0) return;
  const auto io = parse_task_io({text.data(), static_cast<std::size_t>(got)});
  if (!io) return;
  look.rchar = io->rchar;
  look.syscr = io->syscr;
  look.read_bytes = io->read_bytes;
  look.io_known = true;
}

void Sampler::look() {
  tally_.add(consistent_look());
  if (looks_++ % keep_every_ != 0) return;
  SamplePoint point;
  point.monotonic_ns = monotonic_now();
  const TreeReads reads = tally_.reads();
  point.rchar = reads.rchar;
  point.read_bytes = reads.read_bytes;
  for (const auto& [dev, device] : devices_.devices) {
    if (const auto block = block_counters(root_, devices_, dev)) point.device_read_bytes[dev] = block->read_bytes;
  }
  sampled_.points.push_back(std::move(point));
  if (sampled_.points.size() < most_points) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < sampled_.points.size(); i += 2) {
    if (kept != i) sampled_.points[kept] = std::move(sampled_.points[i]);
    ++kept;
  }
  sampled_.points.resize(kept);
  keep_every_ *= 2;
}

void Sampler::note_open_files() {
  if (!open_files_) open_files_ = std::make_unique<OpenFiles>(root_, devices_);
  for (const std::uint32_t pid : tree()) open_files_->look_at(pid);
}

}  // namespace servedby
