// SPDX-License-Identifier: Apache-2.0
// From a file to the drive: mount, overlay layers, file system, partition, loop and its backing file, dm, md,
// multipath. Nothing here needs a privilege, and nothing writes; what was refused is said in not_seen.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "error/error.h"
#include "record/storage.h"
#include "stack/mounts.h"
#include "stack/root.h"

namespace servedby {

/// One file on the way down: the one asked for, the one in the overlay's layer, a loop device's backing file.
struct FileLayer {
  std::string path;  ///< in this mount namespace; for a hidden layer, as the one who mounted it names it
  std::string
      reached;  ///< "asked for", "overlay upper layer", "overlay lower layer", "overlay layer", "backing file of loop0"
  std::optional<Mount> mount;              ///< absent: not visible from here
  std::optional<FileIdentity> identity;    ///< absent: not visible from here
  std::vector<DeviceNumber> devices;       ///< what its file system stands on; several on btrfs
  std::string ends_in;                     ///< where no block device is below: "memory", "nfs:server", "9p:tag", "fuse"
  std::optional<std::size_t> inner;        ///< overlay: which of PathLayers::files holds the bytes
  std::optional<std::string> doubt;        ///< present: this layer was inferred, and this is why it may be wrong
  std::optional<FileExtents> extents;      ///< FIEMAP; absent: unknown
  std::optional<std::string> extents_why;  ///< why they are unknown
};

struct PathLayers {
  std::string path;                    ///< as asked for
  std::vector<FileLayer> files;        ///< the first is the one asked for; empty for a block device's node
  std::optional<DeviceNumber> device;  ///< asked for a block device's node: that device
  std::map<DeviceNumber, std::size_t> backing_files;  ///< loop device → which of files it reads
  StorageStack stack;                                 ///< only the devices below these files
};

/// The layers under a path, links followed. A directory is described by its file system. Errors: a path that is
/// missing, a link to nothing, or something that has no storage below it (FIFO, socket, character device),
/// Exit::bad_input; one that may not be looked at, Exit::not_permitted.
[[nodiscard]] Result<PathLayers> layers_of(const std::string& path, const Root& root = Root());

/// The devices under several files. A path that fails becomes a line of not_seen.
[[nodiscard]] StorageStack stack_of(const std::vector<std::string>& paths, const Root& root = Root());

/// Every block device of the machine, loop devices joined to the device of their backing file: what a profiler needs
/// before it knows the files.
[[nodiscard]] StorageStack whole_machine(const Root& root = Root());

/// servedby layers --json: the tree nested as it is drawn, each device with its facts, and the stack flat beside it.
[[nodiscard]] nlohmann::json layers_json(const PathLayers& layers);

/// servedby layers: a tree for people, the file at the top, the drive at the bottom. Ends in a newline.
[[nodiscard]] std::string layers_text(const PathLayers& layers);

}  // namespace servedby
