// SPDX-License-Identifier: Apache-2.0
// What a self-check makes on the machine, and takes away again.
#pragma once

#include <cstdint>
#include <string>

#include "error/error.h"

namespace servedby {

/// A file of real data that is removed with this object. It has no name but in `directory`.
class ScratchFile {
 public:
  /// Writes `bytes` bytes that do not compress and brings them to the drive. Errors: cannot be created, disk full.
  [[nodiscard]] static Result<ScratchFile> make(const std::string& directory, std::uint64_t bytes);
  ~ScratchFile();
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit ScratchFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// A buffered, read-only loop device over a file, detached with this object.
class ScratchLoop {
 public:
  /// Errors: no privilege (Exit::not_permitted), no loop driver.
  [[nodiscard]] static Result<ScratchLoop> attach(const std::string& file);
  ~ScratchLoop();
  ScratchLoop(ScratchLoop&& other) noexcept;
  ScratchLoop& operator=(ScratchLoop&&) = delete;
  [[nodiscard]] const std::string& name() const { return name_; }  ///< "loop7"
  [[nodiscard]] std::string node() const { return "/dev/" + name_; }
  /// Drops the pages of the loop device itself, the upper level.
  [[nodiscard]] Result<void> forget_pages() const;

 private:
  ScratchLoop(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}
  std::string name_;
  int fd_ = -1;
};

}  // namespace servedby
