// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/storage.h"

namespace servedby {

/// One line of /proc/PID/mountinfo (proc(5)), escapes undone but for `super`, where an escaped comma is no separator.
struct Mount {
  std::uint64_t id = 0;
  std::uint64_t parent = 0;
  DeviceNumber dev = 0;  ///< s_dev of its file system: what the kernel's events carry
  std::string root;      ///< the directory (or file) of the file system that is mounted: "/" unless bound
  std::string point;     ///< where
  std::string options;   ///< of this mount: "rw,relatime"
  std::string type;      ///< "xfs", "fuse.sshfs"
  std::string source;    ///< "/dev/loop0", "overlay", "server:/export"
  std::string super;     ///< of the file system: "lowerdir=…,upperdir=…"
  friend bool operator==(const Mount&, const Mount&) = default;
};

/// Lines that are not mountinfo are left out.
[[nodiscard]] std::vector<Mount> parse_mounts(std::string_view mountinfo);

/// The mount that holds an absolute, resolved path: by number where it is known, else the longest mount point, the
/// latest of equals, since it covers the earlier ones.
[[nodiscard]] const Mount* mount_of(const std::vector<Mount>& mounts, const std::string& path,
                                    std::optional<std::uint64_t> mount_id);

/// The path inside the mount's file system: "/hosts" for /etc/hosts when the root of the mount is "/hosts".
[[nodiscard]] std::string path_inside(const Mount& mount, const std::string& path);

/// True where `path` is `directory` or lies below it.
[[nodiscard]] bool lies_below(std::string_view path, std::string_view directory);

/// "/a/b" + "/c" without doubled slashes.
[[nodiscard]] std::string joined(std::string_view directory, std::string_view path);

/// The directories of an overlay mount, as the one who mounted it named them.
struct OverlayDirectories {
  std::optional<std::string> upper;  ///< absent: read-only overlay
  std::optional<std::string> work;
  std::vector<std::string> lower;  ///< the uppermost first
  std::vector<std::string> data;   ///< data-only lower layers ("::" or datadir+)
  friend bool operator==(const OverlayDirectories&, const OverlayDirectories&) = default;
};
[[nodiscard]] OverlayDirectories overlay_directories(std::string_view super_options);

}  // namespace servedby
