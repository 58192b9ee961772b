// SPDX-License-Identifier: Apache-2.0
// Opening a path that must be a regular file, whatever stands there.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>

#include "error/error.h"

namespace servedby {

/// An open regular file; closes itself. Movable, not copyable.
class RegularFile {
 public:
  RegularFile() = default;
  RegularFile(int fd, std::string path, const struct stat& status) : fd_(fd), path_(std::move(path)), status_(status) {}
  RegularFile(RegularFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), status_(other.status_) {}
  RegularFile& operator=(RegularFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    std::swap(status_, other.status_);
    return *this;
  }
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// As of opening. A file can change its size afterwards.
  [[nodiscard]] const struct stat& status() const { return status_; }
  /// Bytes, as of opening.
  [[nodiscard]] std::uint64_t bytes() const { return static_cast<std::uint64_t>(status_.st_size); }

 private:
  int fd_ = -1;
  std::string path_;
  struct stat status_{};
};

/// Opens `path` for reading and never blocks: a FIFO, a directory, a device and a dangling link are errors with
/// Exit::bad_input (EACCES and EPERM: Exit::not_permitted). `extra_flags` are added to open(2)'s (O_NOATIME, for
/// instance).
[[nodiscard]] Result<RegularFile> open_regular_file(const std::string& path, int extra_flags = 0);

/// Reads exactly `bytes` bytes at `offset` into `into`, by pread(2), retrying short reads.
/// A file that ends before is an error (Exit::bad_input) that says where it ended.
[[nodiscard]] Result<void> read_exactly(const RegularFile& file, std::uint64_t offset, char* into, std::uint64_t bytes);

}  // namespace servedby
