// SPDX-License-Identifier: Apache-2.0
// The system calls behind Root on this machine. All of them only look.
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
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

#include "stack/root.h"

namespace servedby {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC)), error_(errno) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] bool open() const { return descriptor_ >= 0; }
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  int error_;
};

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

  [[nodiscard]] std::expected<LoopStatus, int> loop_status(const std::string& name) const override {
    const File device("/dev/" + name, O_RDONLY | O_NONBLOCK);
    if (!device.open()) return std::unexpected(device.error());
    loop_info64 info{};
    if (::ioctl(device.descriptor(), LOOP_GET_STATUS64, &info) != 0) return std::unexpected(errno);
    // lo_device is huge_encode_dev(), the encoding of stat's st_dev, which glibc's major() and minor() undo.
    return LoopStatus{device_number(major(info.lo_device), minor(info.lo_device)), info.lo_inode};
  }

  [[nodiscard]] std::expected<FileExtents, int> extents(const std::string& path) const override {
    const File file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!file.open()) return std::unexpected(file.error());
    constexpr std::uint32_t batch = 512;
    // The kernel's struct ends in an array of extents; 64-bit words keep it aligned.
    std::vector<std::uint64_t> space((sizeof(fiemap) + batch * sizeof(fiemap_extent)) / sizeof(std::uint64_t) + 1);
    FileExtents found;
    std::uint64_t total = 0;
    std::uint64_t from = 0;
    for (bool last = false; !last;) {
      fiemap head{};
      head.fm_start = from;
      head.fm_length = FIEMAP_MAX_OFFSET - from;
      head.fm_extent_count = batch;
      std::memcpy(space.data(), &head, sizeof head);
      if (::ioctl(file.descriptor(), FS_IOC_FIEMAP, space.data()) != 0) return std::unexpected(errno);
      std::memcpy(&head, space.data(), sizeof head);
      if (head.fm_mapped_extents == 0) break;
      for (std::uint32_t i = 0; i < head.fm_mapped_extents; ++i) {
        fiemap_extent extent{};
        const auto* const bytes = reinterpret_cast<const char*>(space.data());
        std::memcpy(&extent, bytes + sizeof(fiemap) + i * sizeof(fiemap_extent), sizeof extent);
        ++found.count;
        total += extent.fe_length;
        found.largest_bytes = std::max<std::uint64_t>(found.largest_bytes, extent.fe_length);
        from = extent.fe_logical + extent.fe_length;
        last = last || (extent.fe_flags & FIEMAP_EXTENT_LAST) != 0;
      }
    }
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
