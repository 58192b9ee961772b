// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "record/storage.h"
#include "stack/root.h"

namespace servedby {

/// Which devices lie below the regular files that processes have open for reading, asked again and again at little
/// cost: a file costs one statx(2) and one small read, a mount is placed once.
class OpenFiles {
 public:
  /// `root` and `devices` must outlive this.
  OpenFiles(const Root& root, const StorageStack& devices) : root_(root), devices_(devices) {}
  /// Notes what `pid` has open now; nothing when its descriptors may not be seen.
  void look_at(std::uint32_t pid);
  /// The sizes of all files noted so far, each once, summed by the device below them. A file whose file system stands
  /// on several devices counts for each.
  [[nodiscard]] const std::map<DeviceNumber, std::uint64_t>& bytes_on() const { return bytes_on_; }

 private:
  [[nodiscard]] std::set<DeviceNumber> below_mount(std::uint32_t pid, std::uint64_t mount_id) const;

  const Root& root_;
  const StorageStack& devices_;
  std::map<std::uint64_t, std::set<DeviceNumber>> placed_;  // by mount
  std::set<std::pair<DeviceNumber, std::uint64_t>> noted_;
  std::map<DeviceNumber, std::uint64_t> bytes_on_;
};

}  // namespace servedby
