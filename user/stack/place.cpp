// SPDX-License-Identifier: Apache-2.0
#include "stack/place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stack/devices.h"
#include "stack/fuse.h"

namespace servedby {
namespace {

constexpr std::size_t deepest_overlay = 8;  // the kernel itself stops at two (FILESYSTEM_MAX_STACK_DEPTH)

bool is_memory(std::string_view type) {
  static constexpr std::array<std::string_view, 5> types{"tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"};
  return std::ranges::find(types, type) != types.end();
}

// File systems whose bytes come from a server or a daemon, whatever their number looks like (fuseblk has a device's,
// but it is the daemon that reads the device).
bool is_served(std::string_view type) {
  static constexpr std::array<std::string_view, 6> types{"9p", "virtiofs", "ceph", "cifs", "smb3", "afs"};
  return type.starts_with("nfs") || type.starts_with("fuse") || std::ranges::find(types, type) != types.end();
}

// Where a file system without a block device keeps its bytes, in the words of `via`.
std::string end_of(const Mount& mount) {
  if (is_memory(mount.type)) return "memory";
  if (mount.type.starts_with("nfs")) return "nfs:" + mount.source.substr(0, mount.source.find(":/"));
  if (mount.type == "9p") return "9p:" + mount.source;
  if (mount.type == "virtiofs") return "virtiofs:" + mount.source;
  if (mount.type.starts_with("fuse")) return "fuse";
  if (is_served(mount.type)) return mount.type + ":" + mount.source;
  if (mount.type == "zfs") return "zfs pool " + mount.source.substr(0, mount.source.find('/'));
  return mount.type;
}

std::optional<DeviceNumber> device_of_source(const View& view, const std::string& source) {
  constexpr std::string_view mapper = "/dev/mapper/";
  for (const auto& [dev, device] : view.stack.devices) {
    if (source == "/dev/" + device.name) return dev;
    if (source.starts_with(mapper) && device.mapper_name == source.substr(mapper.size())) return dev;
  }
  // Any other name is a link of udev's: /dev/disk/by-uuid/…
  const auto node = view.root.calls().identity(source);
  if (node && S_ISBLK(node->mode)) return node->special;
  return std::nullopt;
}

// btrfs lists the devices of each mounted file system; the mount names only one of them.
std::vector<DeviceNumber> btrfs_devices(const View& view, DeviceNumber one) {
  const std::string name = view.stack.name_of(one);
  for (const std::string& uuid : view.root.entries("/sys/fs/btrfs")) {
    const std::vector<std::string> members = view.root.entries("/sys/fs/btrfs/" + uuid + "/devices");
    if (std::ranges::find(members, name) == members.end()) continue;
    std::vector<DeviceNumber> devices;
    for (const std::string& member : members) {
      if (const auto dev = device_of_source(view, "/dev/" + member)) devices.push_back(*dev);
    }
    return devices;
  }
  return {one};
}

struct LayerFile {
  std::string path;
  std::string reached;
  FileIdentity identity;
};

// The uppermost layer that has the name holds the file. It must also look the same through the overlay, else it is
// another file (a path of the mounter's namespace read in ours, a redirected directory) or only its metadata were
// copied up.
std::optional<LayerFile> file_in_layers(const View& view, const OverlayDirectories& overlay, const std::string& inside,
                                        const FileIdentity& seen) {
  std::vector<std::pair<std::string, std::string>> layers;
  if (overlay.upper) layers.emplace_back(*overlay.upper, "overlay upper layer");
  for (const std::string& lower : overlay.lower) layers.emplace_back(lower, "overlay lower layer");
  for (const std::string& data : overlay.data) layers.emplace_back(data, "overlay data layer");
  for (const auto& [directory, reached] : layers) {
    if (!directory.starts_with('/')) continue;  // relative to a directory that only the mounter knows
    const std::string path = joined(directory, inside);
    const auto real = view.root.calls().canonical(path);
    if (!real) continue;
    const auto found = view.root.calls().identity(*real);
    if (!found) continue;
    const bool same_kind = (found->mode & S_IFMT) == (seen.mode & S_IFMT);
    if (S_ISDIR(seen.mode) && same_kind) return LayerFile{*real, reached, *found};
    if (same_kind && found->size == seen.size && found->modified_ns == seen.modified_ns) {
      return LayerFile{*real, reached, *found};
    }
  }
  return std::nullopt;
}

void place_in_overlay(View& view, std::vector<FileLayer>& files, std::size_t index, std::size_t depth);

std::size_t place(View& view, std::vector<FileLayer>& files, const std::string& path, std::string reached,
                  const FileIdentity& identity, std::size_t depth) {
  const std::size_t index = files.size();
  FileLayer& file = files.emplace_back();
  file.path = path;
  file.reached = std::move(reached);
  file.identity = identity;
  const Mount* mount = mount_of(view.mounts, path, identity.mount_id);
  if (mount == nullptr) {
    view.stack.not_seen.push_back(path + ": no mount of this namespace holds it");
    return index;
  }
  file.mount = *mount;
  if (S_ISREG(identity.mode)) {
    const auto extents = view.root.calls().extents(path);
    if (extents) {
      file.extents = *extents;
    } else {
      file.extents_why = errno_text(extents.error());
    }
  }
  if (mount->type == "overlay" && depth < deepest_overlay) {
    place_in_overlay(view, files, index, depth + 1);
    return index;
  }
  Ground ground = ground_of(view, *mount);
  if (ground.devices.empty() && ground.ends_in.empty()) {
    view.stack.not_seen.push_back(
        fmt::format("{}: the device of {} ({}) cannot be told", path, mount->point, mount->type));
  }
  file.devices = std::move(ground.devices);
  file.ends_in = std::move(ground.ends_in);
  return index;
}

void place_in_overlay(View& view, std::vector<FileLayer>& files, std::size_t index, std::size_t depth) {
  const FileLayer above = files[index];
  const OverlayDirectories overlay = overlay_directories(above.mount->super);
  const std::string inside = path_inside(*above.mount, above.path);
  if (const auto found = file_in_layers(view, overlay, inside, *above.identity)) {
    files[index].inner = files.size();
    place(view, files, found->path, found->reached, found->identity, depth);
    return;
  }
  const std::string hidden = overlay.upper ? *overlay.upper : overlay.lower.empty() ? "" : overlay.lower.front();
  const auto inferred = hidden_storage(view.mounts, hidden);
  if (!inferred) {
    view.stack.not_seen.push_back(
        fmt::format("{}: the overlay's directories ({}) are not visible here, and no bind mount shows their device",
                    above.path, hidden));
    return;
  }
  files[index].inner = files.size();
  FileLayer& file = files.emplace_back();
  // Which layer has the file cannot be seen; the storage tree is the same for all of them.
  file.path = overlay.upper ? joined(*overlay.upper, inside) : inside;
  file.reached = "overlay layer";
  file.mount = inferred->mount;
  file.doubt = inferred->why;
  Ground ground = ground_of(view, inferred->mount);
  file.devices = std::move(ground.devices);
  file.ends_in = std::move(ground.ends_in);
  file.extents_why = "the file is not visible here";
}

}  // namespace

View look(const Root& root) {
  View view{root, {}, block_devices(root)};
  const auto mountinfo = root.text("/proc/self/mountinfo");
  if (mountinfo) {
    view.mounts = parse_mounts(*mountinfo);
  } else {
    view.stack.not_seen.push_back("/proc/self/mountinfo: " + errno_text(mountinfo.error()));
  }
  return view;
}

void note_file_systems(View& view) {
  std::set<DeviceNumber> fuse;
  for (const Mount& mount : view.mounts) {
    FileSystem& system = view.stack.file_systems[mount.dev];
    system.type = mount.type;
    system.server = is_served(mount.type) ? end_of(mount) : std::string();
    if (mount.type.starts_with("fuse") && mount.type != "fusectl") fuse.insert(mount.dev);
  }
  for (const auto& [dev, pid] : fuse_daemons(view.root, fuse)) {
    view.stack.file_systems[dev].server = fmt::format("fuse:{}", pid);
  }
}

Ground ground_of(const View& view, const Mount& mount) {
  Ground ground;
  if (device_major(mount.dev) != 0) {
    ground.devices.push_back(mount.dev);
    return ground;
  }
  // An anonymous number: btrfs, bcachefs, or a file system without a device. The source tells.
  if (!mount.source.starts_with("/dev/")) {
    ground.ends_in = end_of(mount);
    return ground;
  }
  std::string_view sources = mount.source;
  while (!sources.empty()) {  // bcachefs joins its devices with ':'
    const std::size_t colon = sources.find(":/dev/");
    const auto dev = device_of_source(view, std::string(sources.substr(0, colon)));
    sources.remove_prefix(colon == std::string_view::npos ? sources.size() : colon + 1);
    if (dev) ground.devices.push_back(*dev);
  }
  if (mount.type == "btrfs" && !ground.devices.empty()) ground.devices = btrfs_devices(view, ground.devices.front());
  return ground;
}

std::set<DeviceNumber> devices_below_mount(View& view, const Mount& mount) {
  if (mount.type != "overlay") {
    const Ground ground = ground_of(view, mount);
    return {ground.devices.begin(), ground.devices.end()};
  }
  OverlayDirectories overlay = overlay_directories(mount.super);
  std::vector<std::string> directories = std::move(overlay.lower);
  directories.insert(directories.end(), overlay.data.begin(), overlay.data.end());
  if (overlay.upper) directories.push_back(*overlay.upper);
  std::set<DeviceNumber> devices;
  for (const std::string& directory : directories) {
    const auto identity = view.root.calls().identity(directory);
    if (identity && directory.starts_with('/')) {
      std::vector<FileLayer> files;
      const std::size_t first = place(view, files, directory, {}, *identity, 1);
      const FileLayer& file = holder(files, first);
      devices.insert(file.devices.begin(), file.devices.end());
    } else if (const auto inferred = hidden_storage(view.mounts, directory)) {
      const Ground ground = ground_of(view, inferred->mount);
      devices.insert(ground.devices.begin(), ground.devices.end());
    }
  }
  return devices;
}

std::size_t place_file(View& view, std::vector<FileLayer>& files, const std::string& path, std::string reached,
                       const FileIdentity& identity) {
  return place(view, files, path, std::move(reached), identity, 0);
}

const FileLayer& holder(const std::vector<FileLayer>& files, std::size_t index) {
  while (files[index].inner) index = *files[index].inner;
  return files[index];
}

}  // namespace servedby
