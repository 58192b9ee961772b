// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "record/storage.h"
#include "stack/root.h"

namespace servedby {

/// Every block device of /sys/block with its partitions: numbers, kinds, sizes, facts, and what partitions, dm, md and
/// NVMe multipath stand on. A loop device has its driver's attributes and, where the driver tells, its backing file's
/// identity; what it stands on needs the mounts and is filled in by backing_places(). Where /sys is hidden the stack is
/// empty and not_seen says so.
[[nodiscard]] StorageStack block_devices(const Root& root);

/// The directory of a device's attributes: "/sys/block/nvme0n1/nvme0n1p2" for a partition, "/sys/block/nvme0n1" for a
/// disk.
[[nodiscard]] std::string attributes_of(const StorageStack& stack, DeviceNumber dev);

}  // namespace servedby
