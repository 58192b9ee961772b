// SPDX-License-Identifier: Apache-2.0
#include "stack/empty_ranges.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>

#include "record/storage.h"
#include "stack/descriptor.h"
#include "stack/fiemap.h"

namespace servedby {

std::expected<std::vector<EmptyRange>, int> empty_ranges(const std::string& path, const sb_file_id& wanted) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file.open()) return std::unexpected(file.error());
  struct stat facts{};
  if (fstat(file.descriptor(), &facts) != 0) return std::unexpected(errno);
  if (facts.st_ino != wanted.ino || device_number(major(facts.st_dev), minor(facts.st_dev)) != wanted.dev)
    return std::unexpected(ESTALE);
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  std::vector<EmptyRange> found;
  const auto add = [&](std::uint64_t begin, std::uint64_t end, sb_extent what) {
    end = std::min(end, size);
    if (begin < end) found.push_back({begin, end, what});
  };
  std::uint64_t at = 0;
  const int failed = each_extent(file.descriptor(), [&](const Extent& extent) {
    add(at, extent.begin, SB_EXTENT_HOLE);
    at = std::max(at, extent.end);
    if (extent.unwritten) add(extent.begin, extent.end, SB_EXTENT_UNWRITTEN);
    if (extent.in_inode) add(extent.begin, extent.end, SB_EXTENT_INLINE);
  });
  if (failed != 0) return std::unexpected(failed);
  add(at, size, SB_EXTENT_HOLE);
  return found;
}

}  // namespace servedby
