// SPDX-License-Identifier: Apache-2.0
// Where the machine's own description is read from: /proc and /sys of this machine, or a tree of text files that looks
// like them. Everything in stack/ and host/ takes a Root, so that a layout this machine does not have can be tested.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/storage.h"

namespace servedby {

/// What statx(2) says about a path, links followed.
struct FileIdentity {
  DeviceNumber st_dev =
      0;  ///< as stat(2) tells it: on btrfs and overlayfs not the s_dev that the kernel's events carry
  std::uint64_t inode = 0;
  std::uint32_t mode = 0;  ///< S_IFMT and permissions
  std::uint64_t size = 0;  ///< bytes
  std::int64_t modified_ns = 0;
  DeviceNumber special = 0;  ///< st_rdev: which device a device node stands for
  std::optional<std::uint64_t>
      mount_id;  ///< the mount that holds it (kernel 5.8); absent: take the longest mount point
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// What the loop driver itself says its backing file is. `st_dev` is what stat(2) would say of it, not an s_dev.
struct LoopStatus {
  DeviceNumber st_dev = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const LoopStatus&, const LoopStatus&) = default;
};

/// How a file lies on its device.
struct FileExtents {
  std::uint64_t count = 0;
  std::uint64_t mean_bytes = 0;
  std::uint64_t largest_bytes = 0;
  friend bool operator==(const FileExtents&, const FileExtents&) = default;
};

/// What only a system call can tell. Fixtures answer in the kernel's place. An error is an errno value.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  [[nodiscard]] virtual std::expected<FileIdentity, int> identity(const std::string& path) const = 0;
  /// The path with every link and dot resolved, as realpath(3).
  [[nodiscard]] virtual std::expected<std::string, int> canonical(const std::string& path) const = 0;
  /// What a link says, followed by nobody: readlink(2).
  [[nodiscard]] virtual std::expected<std::string, int> link(const std::string& path) const = 0;
  /// LOOP_GET_STATUS64 on /dev/`name`.
  [[nodiscard]] virtual std::expected<LoopStatus, int> loop_status(const std::string& name) const = 0;
  /// FS_IOC_FIEMAP; never FIEMAP_FLAG_SYNC, which would write.
  [[nodiscard]] virtual std::expected<FileExtents, int> extents(const std::string& path) const = 0;
};

/// The system calls of this machine.
[[nodiscard]] std::shared_ptr<const SystemCalls> this_machine();

class Root {
 public:
  /// This machine.
  Root() : Root(std::string{}, this_machine()) {}
  /// A tree below `prefix`; `calls` answers for its system calls.
  Root(std::string prefix, std::shared_ptr<const SystemCalls> calls);

  /// The first line of a file such as /sys/block/loop0/ro, trailing white space cut. Nothing when it cannot be read.
  [[nodiscard]] std::optional<std::string> line(const std::string& path) const;
  /// The whole of a small file; an errno value when it cannot be read.
  [[nodiscard]] std::expected<std::string, int> text(const std::string& path) const;
  [[nodiscard]] std::optional<std::uint64_t> number(const std::string& path) const;
  /// Names in a directory, sorted; empty when it cannot be read.
  [[nodiscard]] std::vector<std::string> entries(const std::string& path) const;
  [[nodiscard]] bool exists(const std::string& path) const;
  /// Where a path in /sys leads, links followed, again as a path below this root; nothing when it leads nowhere or
  /// outside.
  [[nodiscard]] std::optional<std::string> resolve(const std::string& path) const;
  [[nodiscard]] const SystemCalls& calls() const { return *calls_; }
  /// True for this very machine: then system calls on its devices and tasks make sense.
  [[nodiscard]] bool live() const { return prefix_.empty(); }

 private:
  std::string prefix_;
  std::shared_ptr<const SystemCalls> calls_;
};

}  // namespace servedby
