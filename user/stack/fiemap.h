// SPDX-License-Identifier: Apache-2.0
// FS_IOC_FIEMAP; never FIEMAP_FLAG_SYNC, which would write.
#pragma once

#include <cstdint>
#include <functional>

namespace servedby {

struct Extent {
  std::uint64_t begin = 0, end = 0;  ///< bytes of the file
  bool unwritten = false;            ///< allocated and never written
  bool in_inode = false;             ///< inline data
};

/// Runs each(extent) on a file's extents, in order. 0, or an errno value: EOPNOTSUPP where the file system has none.
[[nodiscard]] int each_extent(int fd, const std::function<void(const Extent&)>& each);

}  // namespace servedby
