// SPDX-License-Identifier: Apache-2.0
// The counters tier: which layer served the reads, told from the kernel's counters alone. Pure; every answer is
// inferred.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "record/counters.h"
#include "record/storage.h"

namespace servedby {

/// What the target's processes read between two moments, by /proc/PID/io.
struct TreeReads {
  std::uint64_t rchar = 0;       ///< bytes that read calls returned, pipes, sockets and terminals included
  std::uint64_t syscr = 0;       ///< read calls
  std::uint64_t read_bytes = 0;  ///< process block reads, metadata, readahead and faults included
  std::uint64_t faults_major = 0, faults_minor = 0;
  bool known = true;               ///< false: some process's counters were refused, so the sums are too small
  std::uint64_t refused = 0;       ///< how many processes'
  std::uint64_t ended_unseen = 0;  ///< processes whose reads after the last look could not be counted
  friend bool operator==(const TreeReads&, const TreeReads&) = default;
};

struct PlacedBytes {
  std::vector<std::string> via;  ///< as in a result: {"loop0", "page-cache"}
  std::uint64_t bytes = 0;
  friend bool operator==(const PlacedBytes&, const PlacedBytes&) = default;
};

struct Inference {
  std::vector<PlacedBytes> served_by;  ///< what read calls returned; the sum is TreeReads::rchar exactly
  std::vector<PlacedBytes> beyond;     ///< block reads beyond that: mappings, readahead, metadata
  std::string doubt;                   ///< the numbers, what was concluded, and what else would look the same
};

/// Places the process's block reads on the devices whose counters moved between the two snapshots.
///
/// It assumes that nobody else read, as far as the numbers allow that. Where they do not add up it turns to
/// `open_on`, the sizes of the files that the target was seen to have open, by the device below them: if those files
/// are large enough to explain the reads, they were read. Otherwise only what must be so whoever else read is placed,
/// and the rest is "unknown".
///
/// A buffered loop device that delivered more than its drive did had the rest in the host's page cache. Devices with
/// iostats off say nothing.
[[nodiscard]] Inference infer(const CountersSnapshot& before, const CountersSnapshot& after, const TreeReads& reads,
                              const StorageStack& stack, const std::map<DeviceNumber, std::uint64_t>& open_on = {});

}  // namespace servedby
