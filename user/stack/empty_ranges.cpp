// SPDX-License-Identifier: Apache-2.0
#include "stack/empty_ranges.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "record/storage.h"
#include "stack/descriptor.h"
#include "stack/fiemap.h"
#include "stack/mounts.h"
#include "stack/root.h"

namespace servedby {

namespace {

/// The superblock's number of the mount that an open file was reached by.
std::optional<DeviceNumber> number_of_mount(int fd, const std::string& mountinfo) {
  struct statx facts{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &facts) != 0 || (facts.stx_mask & STATX_MNT_ID) == 0)
    return std::nullopt;
  for (const Mount& mount : parse_mounts(Root().text(mountinfo).value_or("")))
    if (mount.id == facts.stx_mnt_id) return mount.dev;
  return std::nullopt;
}

/// NTFS says that the clusters a compressed unit saves are holes of the file (7.3), and they are not.
bool tells_packed_as_holes(int fd) {
  constexpr unsigned long ntfs = 0x5346544e, ntfs3 = 0x7366746e;
  struct statfs facts{};
  if (fstatfs(fd, &facts) != 0) return false;
  const auto type = static_cast<unsigned long>(facts.f_type);
  return type == ntfs || type == ntfs3;
}

}  // namespace

std::expected<std::vector<EmptyRange>, int> empty_ranges(const std::string& path, const sb_file_id& wanted,
                                                         const std::string& mountinfo) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file.open()) return std::unexpected(file.error());
  struct stat facts{};
  if (fstat(file.descriptor(), &facts) != 0) return std::unexpected(errno);
  const DeviceNumber told = device_number(major(facts.st_dev), minor(facts.st_dev));
  const bool same =
      told == wanted.dev || (device_major(told) == 0 && number_of_mount(file.descriptor(), mountinfo) == wanted.dev);
  if (facts.st_ino != wanted.ino || !same) return std::unexpected(ESTALE);
  if (tells_packed_as_holes(file.descriptor())) return {};
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
