// SPDX-License-Identifier: Apache-2.0
// The one neutral result tree: attribution makes it, every renderer only formats it. Field names are those of
// docs/result.md. Bytes are integers, times nanoseconds; an empty optional means "not known" and is absent in JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "record/session.h"

namespace servedby {

using Via = std::vector<std::string>;  ///< layers from the file down to the one that had the bytes

enum class Evidence { traced, inferred };

struct ServedBy {
  Via via;
  std::uint64_t bytes = 0;
  std::uint64_t prefetched_bytes = 0;  ///< of bytes: filled by I/O that an earlier read started
  std::uint64_t reads = 0;             ///< calls that got at least one byte from here
  std::optional<std::uint64_t> wait_ns;
  Evidence evidence = Evidence::traced;
  std::string why;  ///< unknown: the reason; inferred: the doubt
};

struct ReadTotals {
  std::uint64_t calls = 0, bytes_requested = 0, bytes_returned = 0;
  std::map<std::string, std::uint64_t> by_method;  ///< method → calls
};

struct FilledBy {
  Via via;
  std::uint64_t bytes = 0;
};

/// What faults of mappings (and exec) filled; what a mapping returned cannot be seen.
struct MmapFills {
  std::optional<std::uint64_t> faults_major, faults_minor;
  std::vector<FilledBy> filled_by;
};

struct FileResult {
  std::string path;  ///< as opened; "(unnamed)" where the name was lost
  DeviceNumber dev = 0;
  std::uint64_t inode = 0;
  ReadTotals reads;
  std::vector<ServedBy> served_by;
  MmapFills mmap;
  std::uint64_t wasted_bytes = 0;
};

struct LedgerLine {
  std::string boundary;               ///< "process" | "loop" | "drive" | another device kind
  std::optional<std::string> device;  ///< absent for the process
  std::optional<std::uint64_t> traced_target_bytes, traced_other_bytes;  ///< absent: nothing was traced (counters tier)
  std::map<std::string, std::uint64_t> parts;
  std::optional<std::uint64_t> kernel_bytes;  ///< absent: the kernel's counter is off or was refused
  std::string kernel_source;  ///< "/proc/PID/task/*/io read_bytes", "/sys/block/nvme0n1/stat"; or why not checked
  std::optional<std::int64_t> residual_bytes;  ///< kernel − traced
  std::optional<std::uint64_t> server_bytes;   ///< the process: from servers, which the kernel may have counted or not
  /// How large the residual may be: what was in flight around the two snapshots of a live attach, and server_bytes.
  std::uint64_t bracket_bytes = 0;
};

struct AttributionResult {
  std::string tier;
  bool complete = false;
  std::map<std::string, std::uint64_t> losses;     ///< every class, also those that are 0
  std::map<std::string, std::uint64_t> recovered;  ///< missed by one hook, seen by another
  std::map<std::string, std::uint64_t> edges;
  std::uint64_t records_taken = 0;  ///< of those that the kernel side made; losses["ring"] are the others
  ReadTotals reads;
  std::vector<ServedBy> served_by;  ///< sorted by bytes, largest first; sum of bytes == reads.bytes_returned
  MmapFills mmap;
  std::uint64_t wasted_bytes = 0;
  std::uint64_t warmed_by_others_bytes = 0;
  std::vector<FileResult> files;  ///< sorted by bytes returned, largest first
  std::vector<LedgerLine> ledger;
  std::map<DeviceNumber, Device> made;  ///< devices of the session that it did not begin with
  std::vector<std::uint32_t> children;  ///< PIDs of the target's processes other than the first
};

}  // namespace servedby
