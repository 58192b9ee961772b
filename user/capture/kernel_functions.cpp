// SPDX-License-Identifier: Apache-2.0
#include "capture/kernel_functions.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace servedby {

KernelFunctions::KernelFunctions() {
  const int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  // struct btf_header: the names stand in one section; the types before it are not needed here.
  std::array<std::uint32_t, 6> header{};
  constexpr std::size_t length = 1, strings_at = 4, strings_length = 5;
  if (pread(fd, header.data(), sizeof(header), 0) == sizeof(header)) {
    names_.resize(header[strings_length]);
    const std::uint64_t begin = std::uint64_t{header[length]} + header[strings_at];
    for (std::size_t at = 0; at < names_.size();) {
      const ssize_t got = pread(fd, names_.data() + at, names_.size() - at, static_cast<off_t>(begin + at));
      if (got <= 0) {
        names_.clear();
        break;
      }
      at += static_cast<std::size_t>(got);
    }
  }
  close(fd);
}

bool KernelFunctions::may_have(const std::string& function) const {
  const std::string wanted = std::string(1, '\0') + function + '\0';
  return names_.empty() || memmem(names_.data(), names_.size(), wanted.data(), wanted.size()) != nullptr;
}

}  // namespace servedby
