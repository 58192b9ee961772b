// SPDX-License-Identifier: Apache-2.0
// Where a file has no bytes on its device, as FIEMAP tells it.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "record/record.h"

namespace servedby {

struct EmptyRange {
  std::uint64_t begin = 0, end = 0;  ///< bytes of the file
  sb_extent what = SB_EXTENT_HOLE;
  friend bool operator==(const EmptyRange&, const EmptyRange&) = default;
};

/// The ranges of the file at `path`, in order, up to its size. `mountinfo`: of the mount namespace that the path leads
/// into; only its mounts tell the number of a file system that stat(2) gives another one (btrfs). An errno value: the
/// file cannot be opened, its file system has no FIEMAP (EOPNOTSUPP), or it is not the file `wanted` (ESTALE: another
/// inode or file system).
[[nodiscard]] std::expected<std::vector<EmptyRange>, int> empty_ranges(
    const std::string& path, const sb_file_id& wanted, const std::string& mountinfo = "/proc/self/mountinfo");

}  // namespace servedby
