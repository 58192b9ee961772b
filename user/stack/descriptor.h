// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace servedby {

/// An open file; closes itself. `error`: errno where it could not be opened.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC)), error_(errno) {}
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] bool open() const { return descriptor_ >= 0; }
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  int error_;
};

}  // namespace servedby
