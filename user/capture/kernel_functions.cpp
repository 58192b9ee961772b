// SPDX-License-Identifier: Apache-2.0
#include "capture/kernel_functions.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace servedby {

KernelFunctions::KernelFunctions() {
  const int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  std::array<char, 65536> part{};
  for (;;) {
    const ssize_t got = read(fd, part.data(), part.size());
    if (got <= 0) {
      if (got < 0) btf_.clear();
      break;
    }
    btf_.append(part.data(), static_cast<std::size_t>(got));
  }
  close(fd);
}

bool KernelFunctions::may_have(const std::string& function) const {
  // Names stand in one section, each between two NULs.
  return btf_.empty() || btf_.find(std::string(1, '\0') + function + '\0') != std::string::npos;
}

}  // namespace servedby
