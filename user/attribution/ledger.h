// SPDX-License-Identifier: Apache-2.0
// The bytes that were traced against the bytes that the kernel counted, at every boundary. Every byte that a task of
// the target reads from a device belongs to exactly one named part; no part is computed as a difference.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "attribution/result.h"

namespace servedby::attribution {

/// Bytes of bios that tasks of the target submitted.
struct ProcessParts {
  std::uint64_t traced = 0;
  std::uint64_t first_returned = 0;  ///< filled pages, returned by a call
  std::uint64_t direct = 0;          ///< direct I/O, within the file
  std::uint64_t never_returned = 0;  ///< filled by a read call or its readahead, never returned
  std::uint64_t metadata = 0;        ///< of the file system
  std::uint64_t past_end = 0;        ///< rounding to blocks, past the end of the file
  std::uint64_t exec_mmap = 0;       ///< filled outside any read call, never returned by one
  std::uint64_t swap = 0;            ///< swapped in, for memory or files in memory
  std::uint64_t failed = 0;          ///< the request ended with an error
  std::uint64_t compressed = 0;      ///< compressed extents: fewer bytes than they are unpacked to
  std::uint64_t other = 0;           ///< no range of a file is known
  /// Not of `traced`: filled by a server for the target. Some file systems account it (netfs, from a kworker or the
  /// reader, as it pleases the kernel's version), some do not.
  std::uint64_t from_servers = 0;
};

class Ledger {
 public:
  ProcessParts process;

  void task(const sb_task& task);
  void request(const sb_request& request);
  /// A bio of the target's for a device that has no requests of its own.
  void bio(DeviceNumber dev, std::uint64_t bytes) { target_bytes_[dev] += bytes; }
  /// A process of the target was seen.
  void saw_process(std::uint32_t pid) { processes_.insert(pid); }

  /// The line of the process, and one for each device that had bytes of the target or any request.
  [[nodiscard]] std::vector<LedgerLine> lines(const Session& session, const StorageStack& stack) const;
  /// The target's own accounting over the session, or why it is not known.
  struct Accounting {
    std::optional<TaskCounters> counters;
    std::string why_not;
  };
  [[nodiscard]] Accounting accounting(const Session& session) const;
  /// PIDs of the target's processes other than `first`.
  [[nodiscard]] std::vector<std::uint32_t> children(std::uint32_t first) const;

 private:
  [[nodiscard]] LedgerLine process_line(const Session& session) const;
  [[nodiscard]] LedgerLine device_line(DeviceNumber dev, const Session& session, const StorageStack& stack) const;

  std::map<DeviceNumber, std::uint64_t> target_bytes_;  ///< of completed read requests, or of bios where there are none
  TaskCounters ended_;                                  ///< summed over the tasks that have ended
  std::set<std::uint32_t> ended_tasks_, begun_tasks_;   ///< TIDs; one that begins again is not ended any more
  std::set<std::uint32_t> processes_;
};

}  // namespace servedby::attribution
