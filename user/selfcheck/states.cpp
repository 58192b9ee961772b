// SPDX-License-Identifier: Apache-2.0
#include "selfcheck/states.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace servedby {

Result<ScratchFile> ScratchFile::make(const std::string& directory, std::uint64_t bytes) {
  std::string path = directory + "/servedby-selfcheck.XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) {
    return std::unexpected(
        system_error("cannot make a file in", directory, errno, "give a directory that may be written"));
  }
  ScratchFile file(path);
  std::mt19937_64 random(bytes);
  std::vector<std::uint64_t> block(1 << 17);
  for (std::uint64_t written = 0; written < bytes;) {
    for (std::uint64_t& word : block) word = random();
    const std::uint64_t wanted = std::min<std::uint64_t>(bytes - written, block.size() * sizeof(std::uint64_t));
    const ssize_t got = write(fd, block.data(), wanted);
    if (got <= 0) {
      const int error = errno;
      close(fd);
      return std::unexpected(
          system_error("cannot write", path, error, "give a directory with room, or a smaller --size"));
    }
    written += static_cast<std::uint64_t>(got);
  }
  const bool synced = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!synced) return std::unexpected(system_error("cannot bring to the drive", path, error));
  return file;
}

ScratchFile::~ScratchFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}

Result<ScratchLoop> ScratchLoop::attach(const std::string& file) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return std::unexpected(system_error("cannot open", "/dev/loop-control", errno, "run as root"));
  const int backing = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  // Between asking for a free device and taking it somebody else may take it: then the next one.
  for (int turn = 0; turn < 16; ++turn) {
    const int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0) break;
    const std::string name = fmt::format("loop{}", number);
    const int fd = open(("/dev/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) break;
    loop_config config{};
    config.fd = static_cast<__u32>(backing);
    config.info.lo_flags = LO_FLAGS_READ_ONLY;
    if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
      close(control);
      close(backing);
      return ScratchLoop(name, fd);
    }
    const int error = errno;
    close(fd);
    errno = error;
    if (error != EBUSY) break;
  }
  const int error = errno;
  close(control);
  if (backing >= 0) close(backing);
  return std::unexpected(system_error("cannot attach a loop device to", file, error, "run as root"));
}

ScratchLoop::~ScratchLoop() {
  if (fd_ < 0) return;
  ioctl(fd_, LOOP_CLR_FD, 0);
  close(fd_);
}

ScratchLoop::ScratchLoop(ScratchLoop&& other) noexcept
    : name_(std::move(other.name_)), fd_(std::exchange(other.fd_, -1)) {}

Result<void> ScratchLoop::forget_pages() const {
  if (ioctl(fd_, BLKFLSBUF, 0) != 0) return std::unexpected(system_error("cannot drop the pages of", node(), errno));
  return {};
}

}  // namespace servedby
