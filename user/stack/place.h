// SPDX-License-Identifier: Apache-2.0
// How one file is placed on devices. Internal to stack/.
#pragma once

#include <expected>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stack/layers.h"

namespace servedby {

/// What every question about a path needs, read once.
struct View {
  const Root& root;
  std::vector<Mount> mounts;
  StorageStack stack;  ///< every block device; its not_seen collects what could not be looked at
};

/// Mounts and devices, with no loop device placed yet.
[[nodiscard]] View look(const Root& root);

/// What a mount's file system stands on. Empty with `ends_in` set where that is no block device.
struct Ground {
  std::vector<DeviceNumber> devices;
  std::string ends_in;
};
[[nodiscard]] Ground ground_of(const View& view, const Mount& mount);

/// Fills in the mounted file systems of the stack.
void note_file_systems(View& view);

/// What a mount stands on, through an overlay's directories: those of all its layers, since any may hold a file.
[[nodiscard]] std::set<DeviceNumber> devices_below_mount(View& view, const Mount& mount);

/// Adds the file at `path` (resolved) to `files`, for an overlay the layer's file too (and so on), and gives the index
/// of the first. The last of them has the devices.
[[nodiscard]] std::size_t place_file(View& view, std::vector<FileLayer>& files, const std::string& path,
                                     std::string reached, const FileIdentity& identity);

/// The file that holds the bytes: follows `inner` to the end.
[[nodiscard]] const FileLayer& holder(const std::vector<FileLayer>& files, std::size_t index);

/// The mount that an overlay's hidden directories most likely lie on: one whose bind mounts in this namespace come from
/// the same container storage tree. Nothing where there is none or they disagree.
struct InferredMount {
  Mount mount;
  std::string why;  ///< "/etc/hosts and /etc/hostname are bound from /dev/loop0 (xfs), in the same storage tree …"
};
[[nodiscard]] std::optional<InferredMount> hidden_storage(const std::vector<Mount>& mounts,
                                                          const std::string& hidden_directory);

/// Fills in, for each loop device that is set up, the identity of its backing file and what that stands on.
void place_loops(View& view);

/// The backing file of a loop device as layers; nothing when it is not visible from here.
[[nodiscard]] std::optional<std::size_t> place_backing_file(View& view, std::vector<FileLayer>& files,
                                                            const Device& loop);

}  // namespace servedby
