// SPDX-License-Identifier: Apache-2.0
// Compressed extents: read into pages of nobody's by one or more bios, then unpacked to pages of a file.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "attribution/fills.h"

namespace servedby::attribution {

struct PackedExtent {
  Fills compressed;              ///< what its bios read, one after the other
  std::uint64_t bytes = 0;       ///< of that
  std::uint64_t file_bytes = 0;  ///< still in Fills of a file, as FillState::packed
  bool known = false;            ///< then `cause` and `done_ns` hold
  CauseId cause = 0;
  std::uint64_t done_ns = 0;
};

/// By the number that the kernel side gave them. Bios in flight point into an extent: it stays where it is.
using PackedExtents = std::unordered_map<std::uint64_t, PackedExtent>;

}  // namespace servedby::attribution
