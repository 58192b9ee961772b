// SPDX-License-Identifier: Apache-2.0
// Which process answers a FUSE file system.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "record/storage.h"
#include "stack/root.h"

namespace servedby {

/// File system → the PID of its daemon, only where that is certain: the one process whose /dev/fuse says that it is
/// that connection (fdinfo, newer kernels), or the only process that has /dev/fuse open where there is only one such
/// file system. Needs to see other processes' descriptors. Touches no file of the file systems: a daemon that hangs
/// does not hang this.
[[nodiscard]] std::map<DeviceNumber, std::uint32_t> fuse_daemons(const Root& root,
                                                                 const std::set<DeviceNumber>& file_systems);

}  // namespace servedby
