// SPDX-License-Identifier: Apache-2.0
// The read calls on one file, as the target opened it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "attribution/resolve.h"
#include "attribution/tally.h"

namespace servedby::attribution {

inline const char* method_name(std::uint16_t method) {
  switch (method) {
    case SB_METHOD_READ:
      return "read";
    case SB_METHOD_PREAD:
      return "pread";
    case SB_METHOD_READV:
      return "readv";
    case SB_METHOD_PREADV:
      return "preadv";
    case SB_METHOD_PREADV2:
      return "preadv2";
    case SB_METHOD_AIO:
      return "aio";
    case SB_METHOD_IO_URING:
      return "io_uring";
    case SB_METHOD_SENDFILE:
      return "sendfile";
    case SB_METHOD_SPLICE:
      return "splice";
    case SB_METHOD_COPY_FILE_RANGE:
      return "copy_file_range";
    default:
      return "unknown";
  }
}

/// Counting by name costs a string for each call.
inline constexpr std::array<std::uint16_t, 11> kMethods{
    SB_METHOD_READ,   SB_METHOD_PREAD,    SB_METHOD_READV,    SB_METHOD_PREADV, SB_METHOD_PREADV2,
    SB_METHOD_AIO,    SB_METHOD_IO_URING, SB_METHOD_SENDFILE, SB_METHOD_SPLICE, SB_METHOD_COPY_FILE_RANGE,
    SB_METHOD_UNKNOWN};
inline std::size_t method_index(std::uint16_t method) {
  return method >= SB_METHOD_READ && method <= SB_METHOD_COPY_FILE_RANGE ? method - SB_METHOD_READ
                                                                         : kMethods.size() - 1;
}

struct Calls {
  std::uint64_t calls = 0, requested = 0, returned = 0;
  std::array<std::uint64_t, kMethods.size()> by_method{};

  [[nodiscard]] ReadTotals totals() const {
    ReadTotals totals{calls, requested, returned, {}};
    for (std::size_t i = 0; i < kMethods.size(); ++i)
      if (by_method[i] != 0) totals.by_method[method_name(kMethods[i])] = by_method[i];
    return totals;
  }
};

/// A file as the target opened it. Below an overlay the pages are another file's.
struct Listing {
  FileKey real;
  std::string path;
  Calls calls;
  Tally tally;
};

}  // namespace servedby::attribution
