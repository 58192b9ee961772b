// SPDX-License-Identifier: Apache-2.0
// The system calls behind Root on this machine. All of them only look.
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "stack/descriptor.h"
#include "stack/fiemap.h"
#include "stack/root.h"

namespace servedby {
namespace {

class ThisMachine final : public SystemCalls {
 public:
  [[nodiscard]] std::expected<FileIdentity, int> identity(const std::string& path) const override {
    struct statx facts{};
    // AT_NO_AUTOMOUNT: looking must not mount anything.
    if (::statx(AT_FDCWD, path.c_str(), AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_MNT_ID, &facts) != 0) {
      return std::unexpected(errno);
    }
    FileIdentity identity;
    identity.st_dev = device_number(facts.stx_dev_major, facts.stx_dev_minor);
    identity.inode = facts.stx_ino;
    identity.mode = facts.stx_mode;
    identity.size = facts.stx_size;
    identity.modified_ns = facts.stx_mtime.tv_sec * 1'000'000'000 + facts.stx_mtime.tv_nsec;
    identity.special = device_number(facts.stx_rdev_major, facts.stx_rdev_minor);
    if ((facts.stx_mask & STATX_MNT_ID) != 0) identity.mount_id = facts.stx_mnt_id;
    return identity;
  }

  [[nodiscard]] std::expected<std::string, int> canonical(const std::string& path) const override {
    char* const real = ::realpath(path.c_str(), nullptr);
    if (real == nullptr) return std::unexpected(errno);
    std::string result = real;
    std::free(real);
    return result;
  }

  [[nodiscard]] std::expected<std::string, int> link(const std::string& path) const override {
    std::string text(4096, '\0');
    const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
    if (length < 0) return std::unexpected(errno);
    text.resize(static_cast<std::size_t>(length));
    return text;
  }

  [[nodiscard]] std::expected<LoopStatus, int> loop_status(const std::string& name) const override {
    const Descriptor device("/dev/" + name, O_RDONLY | O_NONBLOCK);
    if (!device.open()) return std::unexpected(device.error());
    loop_info64 info{};
    if (::ioctl(device.descriptor(), LOOP_GET_STATUS64, &info) != 0) return std::unexpected(errno);
    // lo_device is huge_encode_dev(), the encoding of stat's st_dev, which glibc's major() and minor() undo.
    return LoopStatus{device_number(major(info.lo_device), minor(info.lo_device)), info.lo_inode};
  }

  [[nodiscard]] std::expected<FileExtents, int> extents(const std::string& path) const override {
    const Descriptor file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!file.open()) return std::unexpected(file.error());
    FileExtents found;
    std::uint64_t total = 0;
    const int failed = each_extent(file.descriptor(), [&](const Extent& extent) {
      ++found.count;
      total += extent.end - extent.begin;
      found.largest_bytes = std::max(found.largest_bytes, extent.end - extent.begin);
    });
    if (failed != 0) return std::unexpected(failed);
    if (found.count > 0) found.mean_bytes = total / found.count;
    return found;
  }
};

}  // namespace

std::shared_ptr<const SystemCalls> this_machine() {
  static const std::shared_ptr<const SystemCalls> machine = std::make_shared<ThisMachine>();
  return machine;
}

}  // namespace servedby
