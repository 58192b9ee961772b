// SPDX-License-Identifier: Apache-2.0
#include "formats/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace servedby {

namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

Error not_regular(const std::string& path, mode_t mode) {
  return Error{"cannot read", path, fmt::format("it is {}, not a regular file", kind_of(mode)),
               "give the path of a file", Exit::bad_input};
}

Error cannot_open(const std::string& path, int error_number) {
  struct stat link{};
  if (error_number == ENOENT && lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = readlink(path.c_str(), target.data(), target.size());
    const std::string where(target.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    return Error{"cannot open", path, fmt::format("it is a link to {}, and that does not exist", where),
                 "mend the link or give the file itself", Exit::bad_input};
  }
  if (error_number == ENXIO)
    return Error{"cannot read", path, "it is a socket, not a regular file", "", Exit::bad_input};
  const bool refused = error_number == EACCES || error_number == EPERM;
  return system_error("cannot open", path, error_number,
                      refused                  ? "run as a user who may read it"
                      : error_number == ENOENT ? "check the path"
                                               : "");
}

}  // namespace

RegularFile::~RegularFile() {
  if (fd_ >= 0) close(fd_);
}

Result<RegularFile> open_regular_file(const std::string& path, int extra_flags) {
  // Look before opening: opening a device can do something, and O_NONBLOCK keeps a FIFO that takes its place from
  // blocking.
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return std::unexpected(cannot_open(path, errno));
  if (!S_ISREG(status.st_mode)) return std::unexpected(not_regular(path, status.st_mode));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | extra_flags);
  if (fd < 0) return std::unexpected(cannot_open(path, errno));
  if (fstat(fd, &status) != 0) {
    const int error_number = errno;
    close(fd);
    return std::unexpected(system_error("cannot stat", path, error_number));
  }
  RegularFile file(fd, path, status);
  if (!S_ISREG(status.st_mode)) return std::unexpected(not_regular(path, status.st_mode));
  return file;
}

Result<void> read_exactly(const RegularFile& file, std::uint64_t offset, char* into, std::uint64_t bytes) {
  std::uint64_t done = 0;
  while (done < bytes) {
    const std::size_t ask = std::min<std::uint64_t>(bytes - done, std::uint64_t{1} << 30U);
    const ssize_t got = pread(file.fd(), into + done, ask, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(system_error("cannot read", file.path(), errno));
    if (got == 0) {
      return std::unexpected(
          Error{"cannot read", file.path(),
                fmt::format("truncated while being read: needs {} bytes, ended at {}", offset + bytes, offset + done),
                "copy or download the file again", Exit::bad_input});
    }
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace servedby
