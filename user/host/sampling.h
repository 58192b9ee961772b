// SPDX-License-Identifier: Apache-2.0
// Watching a process tree by its counters while it lives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "host/inference.h"
#include "record/counters.h"
#include "record/storage.h"
#include "stack/root.h"

namespace servedby {

class OpenFiles;

/// One process at one look: /proc/PID/io and /proc/PID/stat, its threads and the children it waited for included.
struct ProcessLook {
  std::uint32_t parent = 0;
  std::uint64_t start_ticks = 0;  ///< with the PID it names one process for ever
  std::uint64_t rchar = 0, syscr = 0, read_bytes = 0;
  std::uint64_t faults_major = 0, faults_minor = 0;  ///< its own threads
  std::uint64_t faults_minor_children = 0;           ///< of children it has waited for
  bool io_known = true;
  friend bool operator==(const ProcessLook&, const ProcessLook&) = default;
};

/// Sums the reads of a process tree over successive looks. Pure.
///
/// A process that ends gives its counters to the parent that waits for it, so the sum over the living is right without
/// it. Whether that happened shows in the parent's faults of children; a process that nobody in the tree waited for is
/// kept with its last look, and counted in ended_unseen.
class TreeTally {
 public:
  void add(std::map<std::uint32_t, ProcessLook> look);
  /// From the first look until the last.
  [[nodiscard]] TreeReads reads() const;

 private:
  struct Totals {
    std::uint64_t rchar = 0, syscr = 0, read_bytes = 0, faults_major = 0, faults_minor = 0;
  };
  static void add_to(Totals& totals, const ProcessLook& process);
  void keep_unseen(const ProcessLook& process);
  void settle_vanished(const std::map<std::uint32_t, ProcessLook>& look);

  std::map<std::uint32_t, ProcessLook> last_;
  Totals first_;
  Totals ended_;
  bool begun_ = false;
  std::uint64_t ended_unseen_ = 0;
  std::uint64_t ended_refused_ = 0;  // of those
};

/// One line of a result's counters.samples.
struct SamplePoint {
  std::uint64_t monotonic_ns = 0;
  std::uint64_t rchar = 0, read_bytes = 0;                  ///< of the tree, since the first look
  std::map<DeviceNumber, std::uint64_t> device_read_bytes;  ///< as the kernel counts, since boot
};

struct Sampled {
  TreeReads reads;
  CountersSnapshot before, after;
  std::vector<SamplePoint> points;  ///< at most 2048; when there are more, every second one is dropped
  /// Sizes of the regular files that the tree was seen to have open for reading, by the device below them.
  std::map<DeviceNumber, std::uint64_t> open_on;
};

/// Looks at a process tree every `interval` from a thread of its own.
///
/// For a child of ours: start() before it runs, and stop() after it has ended but before it is waited for
/// (waitid(P_PID, pid, …, WEXITED | WNOWAIT)), then nothing is missing: a zombie still has its counters. A process that
/// others wait for loses what it read after the last look.
class Sampler {
 public:
  Sampler(Root root, StorageStack devices, std::uint32_t pid,
          std::chrono::milliseconds interval = std::chrono::milliseconds(100));
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// Takes the first look and begins. Call once.
  void start();
  /// Takes the last look and gives everything. Call once, after start().
  [[nodiscard]] Sampled stop();

 private:
  [[nodiscard]] std::vector<std::uint32_t> tree() const;
  [[nodiscard]] std::map<std::uint32_t, ProcessLook> consistent_look();
  void read_held_io(ProcessLook& look) const;
  void look();
  void note_open_files();
  void run();

  Root root_;
  StorageStack devices_;
  std::uint32_t pid_;
  int io_ = -1;  // its /proc/PID/io, held open: when it is a zombie only root can open that, but who has it can read it
  std::chrono::milliseconds interval_;
  TreeTally tally_;
  std::set<std::uint32_t> known_;  // the processes of the last look
  Sampled sampled_;
  std::unique_ptr<OpenFiles> open_files_;
  std::size_t keep_every_ = 1;
  std::size_t looks_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace servedby
