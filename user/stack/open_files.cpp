// SPDX-License-Identifier: Apache-2.0
#include "stack/open_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>

#include "stack/place.h"

namespace servedby {
namespace {

// "flags:\t0100002" in octal; what cannot be told may be read.
bool may_be_read(const Root& root, std::uint32_t pid, const std::string& descriptor) {
  const auto info = root.text(fmt::format("/proc/{}/fdinfo/{}", pid, descriptor));
  const std::size_t at = info ? info->find("flags:") : std::string::npos;
  if (at == std::string::npos) return true;
  return (std::strtoul(info->c_str() + at + 6, nullptr, 8) & O_ACCMODE) != O_WRONLY;
}

}  // namespace

void OpenFiles::look_at(std::uint32_t pid) {
  const std::string descriptors = fmt::format("/proc/{}/fd", pid);
  for (const std::string& name : root_.entries(descriptors)) {
    // Through the descriptor: right even for a deleted file, and in another mount namespace.
    const auto file = root_.calls().identity(descriptors + "/" + name);
    if (!file || !S_ISREG(file->mode) || !file->mount_id) continue;
    if (noted_.contains({file->st_dev, file->inode}) || !may_be_read(root_, pid, name)) continue;
    noted_.insert({file->st_dev, file->inode});
    auto placed = placed_.find(*file->mount_id);
    if (placed == placed_.end()) placed = placed_.emplace(*file->mount_id, below_mount(pid, *file->mount_id)).first;
    for (const DeviceNumber dev : placed->second) bytes_on_[dev] += file->size;
  }
}

std::set<DeviceNumber> OpenFiles::below_mount(std::uint32_t pid, std::uint64_t mount_id) const {
  View view{root_, parse_mounts(root_.text(fmt::format("/proc/{}/mountinfo", pid)).value_or("")), devices_};
  for (const Mount& mount : view.mounts) {
    if (mount.id == mount_id) return devices_below_mount(view, mount);
  }
  return {};
}

}  // namespace servedby
