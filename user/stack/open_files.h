// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "record/storage.h"
#include "stack/root.h"

namespace servedby {

/// Which devices lie below the regular files that processes have open, asked again and again at little cost: a file
/// costs one statx(2), a mount is placed once.
class OpenFiles {
 public:
  OpenFiles(const Root& root, const StorageStack& devices) : root_(root), devices_(devices) {}
  /// Devices below the regular files that `pid` has open now. Empty when its descriptors may not be seen.
  [[nodiscard]] std::set<DeviceNumber> devices_below(std::uint32_t pid);

 private:
  [[nodiscard]] std::set<DeviceNumber> below_mount(std::uint32_t pid, std::uint64_t mount_id);

  const Root& root_;
  const StorageStack& devices_;
  std::map<std::uint64_t, std::set<DeviceNumber>> placed_;  // by mount
};

}  // namespace servedby
