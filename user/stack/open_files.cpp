// SPDX-License-Identifier: Apache-2.0
#include "stack/open_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "stack/place.h"

namespace servedby {

std::set<DeviceNumber> OpenFiles::devices_below(std::uint32_t pid) {
  std::set<DeviceNumber> devices;
  const std::string descriptors = fmt::format("/proc/{}/fd", pid);
  for (const std::string& name : root_.entries(descriptors)) {
    // Through the descriptor: right even for a deleted file, and in another mount namespace.
    const auto file = root_.calls().identity(descriptors + "/" + name);
    if (!file || !S_ISREG(file->mode) || !file->mount_id) continue;
    auto placed = placed_.find(*file->mount_id);
    if (placed == placed_.end()) placed = placed_.emplace(*file->mount_id, below_mount(pid, *file->mount_id)).first;
    devices.insert(placed->second.begin(), placed->second.end());
  }
  return devices;
}

std::set<DeviceNumber> OpenFiles::below_mount(std::uint32_t pid, std::uint64_t mount_id) {
  View view{root_, parse_mounts(root_.text(fmt::format("/proc/{}/mountinfo", pid)).value_or("")), devices_};
  for (const Mount& mount : view.mounts) {
    if (mount.id == mount_id) return devices_below_mount(view, mount);
  }
  return {};
}

}  // namespace servedby
