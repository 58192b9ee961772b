// SPDX-License-Identifier: Apache-2.0
// From a loop device to its backing file and what that stands on.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "stack/place.h"

namespace servedby {
namespace {

constexpr std::string_view deleted_suffix = " (deleted)";

// What the driver and the path say of one backing file. Both identities are in stat's terms, so they can be compared
// even where st_dev is not the file system's s_dev (btrfs, overlayfs).
struct Backing {
  std::expected<LoopStatus, int> told;
  std::expected<FileIdentity, int> here;
  [[nodiscard]] bool known() const {
    return told && here && told->st_dev == here->st_dev && told->inode == here->inode;
  }
  [[nodiscard]] bool path_usable() const { return here && (!told || known()); }
};

Backing ask(const View& view, const Device& loop) {
  const SystemCalls& calls = view.root.calls();
  Backing backing{calls.loop_status(loop.name), calls.identity(loop.loop->path)};
  // The kernel adds " (deleted)" to the name of an unlinked file. A file of that very name may exist, and only the
  // driver's word can say that it is the one.
  if (loop.loop->path.ends_with(deleted_suffix) && !backing.known()) backing.here = std::unexpected(ENOENT);
  return backing;
}

bool is_drive(const Device& device) {
  const bool memory = device.kind == DeviceKind::zram || device.kind == DeviceKind::ram;
  return device.below.empty() && device.kind != DeviceKind::loop && !memory && device.size_bytes.value_or(0) > 0 &&
         !device.name.starts_with("sr");
}

// Where nothing tells which device a backing file lies on: if all storage of this machine hangs from one array or one
// drive, then that one.
std::optional<DeviceNumber> only_storage(const StorageStack& stack) {
  std::set<DeviceNumber> tops;
  std::set<DeviceNumber> drives;
  std::set<DeviceNumber> carrying;  // disks below an array or mapping, partitions folded into their disk
  for (const auto& [dev, device] : stack.devices) {
    if (is_drive(device)) drives.insert(dev);
    const bool stacks =
        device.kind != DeviceKind::loop && device.kind != DeviceKind::partition && !device.below.empty();
    if (stacks) tops.insert(dev);
    for (const DeviceNumber below : device.below) {
      if (stacks) carrying.insert(stack.disk_of(below));
    }
  }
  for (const DeviceNumber drive : drives) tops.insert(drive);
  for (const DeviceNumber disk : carrying) tops.erase(disk);
  if (tops.size() == 1) return *tops.begin();
  if (drives.size() == 1) return *drives.begin();
  return std::nullopt;
}

void fall_back_on_only_storage(View& view, Device& loop, const std::string& why) {
  if (const auto only = only_storage(view.stack)) {
    loop.below = {*only};
    loop.below_doubt =
        fmt::format("{}; {} is the only storage of this machine that it could lie on", why, view.stack.name_of(*only));
    return;
  }
  view.stack.not_seen.push_back(fmt::format("{}: {}, so what lies below it is not known", loop.name, why));
}

void place_by_path(View& view, Device& loop, const Backing& backing) {
  std::vector<FileLayer> files;
  const auto real = view.root.calls().canonical(loop.loop->path);
  const std::size_t first =
      place_file(view, files, real.value_or(loop.loop->path), "backing file of " + loop.name, *backing.here);
  if (files[first].mount) loop.loop->dev = files[first].mount->dev;
  loop.loop->inode = backing.here->inode;
  const FileLayer& file = holder(files, first);
  loop.below = file.devices;
  if (!file.ends_in.empty()) loop.facts["backing_ends_in"] = file.ends_in;
  if (!backing.told) {
    loop.below_doubt = fmt::format("the driver did not say which file it reads (/dev/{}: {}); taken by its path",
                                   loop.name, errno_text(backing.told.error()));
  } else if (file.doubt) {
    loop.below_doubt = file.doubt;
  }
}

// The driver's own word alone. A device number with a major is the block device; an anonymous one helps only if a mount
// here has it.
void place_by_driver(View& view, Device& loop, const LoopStatus& told) {
  loop.loop->inode = told.inode;
  if (device_major(told.st_dev) != 0) {
    loop.loop->dev = told.st_dev;
    loop.below = {told.st_dev};
    return;
  }
  for (const Mount& mount : view.mounts) {
    if (mount.dev != told.st_dev) continue;
    loop.loop->dev = told.st_dev;
    Ground ground = ground_of(view, mount);
    loop.below = std::move(ground.devices);
    if (!ground.ends_in.empty()) loop.facts["backing_ends_in"] = ground.ends_in;
    return;
  }
  fall_back_on_only_storage(view, loop,
                            fmt::format("its backing file {} lies on a file system not visible here", loop.loop->path));
}

}  // namespace

void place_loops(View& view) {
  for (auto& [dev, loop] : view.stack.devices) {
    if (!loop.loop) continue;
    const Backing backing = ask(view, loop);
    loop.loop->file_known = backing.known();
    if (backing.path_usable()) {
      place_by_path(view, loop, backing);
    } else if (backing.told) {
      place_by_driver(view, loop, *backing.told);
    } else {
      fall_back_on_only_storage(view, loop, fmt::format("its backing file {} is not visible here", loop.loop->path));
    }
  }
}

std::optional<std::size_t> place_backing_file(View& view, std::vector<FileLayer>& files, const Device& loop) {
  const Backing backing = ask(view, loop);
  if (!backing.path_usable()) return std::nullopt;
  const auto real = view.root.calls().canonical(loop.loop->path);
  const std::size_t index =
      place_file(view, files, real.value_or(loop.loop->path), "backing file of " + loop.name, *backing.here);
  if (loop.below_doubt && !files[index].doubt) files[index].doubt = loop.below_doubt;
  return index;
}

}  // namespace servedby
