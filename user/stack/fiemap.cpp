// SPDX-License-Identifier: Apache-2.0
#include "stack/fiemap.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace servedby {

int each_extent(int fd, const std::function<void(const Extent&)>& each) {
  constexpr std::uint32_t batch = 512;
  // The kernel's struct ends in an array of extents; 64-bit words keep it aligned.
  std::vector<std::uint64_t> space((sizeof(fiemap) + batch * sizeof(fiemap_extent)) / sizeof(std::uint64_t) + 1);
  std::uint64_t from = 0;
  for (bool last = false; !last;) {
    fiemap head{};
    head.fm_start = from;
    head.fm_length = FIEMAP_MAX_OFFSET - from;
    head.fm_extent_count = batch;
    std::memcpy(space.data(), &head, sizeof head);
    if (::ioctl(fd, FS_IOC_FIEMAP, space.data()) != 0) return errno;
    std::memcpy(&head, space.data(), sizeof head);
    if (head.fm_mapped_extents == 0) break;
    for (std::uint32_t i = 0; i < head.fm_mapped_extents; ++i) {
      fiemap_extent extent{};
      const auto* const bytes = reinterpret_cast<const char*>(space.data());
      std::memcpy(&extent, bytes + sizeof(fiemap) + i * sizeof(fiemap_extent), sizeof extent);
      from = extent.fe_logical + extent.fe_length;
      each({extent.fe_logical, from, (extent.fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0,
            (extent.fe_flags & FIEMAP_EXTENT_DATA_INLINE) != 0});
      last = last || (extent.fe_flags & FIEMAP_EXTENT_LAST) != 0;
    }
  }
  return 0;
}

}  // namespace servedby
