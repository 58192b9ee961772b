// SPDX-License-Identifier: Apache-2.0
// Where a file has no bytes on a device: holes, what was allocated and never written, what lies in the inode. Evidence
// for bytes that were returned though nothing was read for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "attribution/causes.h"

namespace servedby::attribution {

class Layout {
 public:
  /// [begin, end) ends in `what`.
  void add(std::uint64_t begin, std::uint64_t end, End what) {
    if (begin < end) ranges_[begin] = {end, what};
  }
  /// Runs each(begin, end, what) on all parts of [begin, end), in order; `what` is absent where bytes must be on a
  /// device.
  template <class Each>
  void split(std::uint64_t begin, std::uint64_t end, Each&& each) const {
    std::uint64_t at = begin;
    auto range = ranges_.upper_bound(begin);
    if (range != ranges_.begin()) --range;
    for (; range != ranges_.end() && range->first < end && at < end; ++range) {
      const std::uint64_t from = std::max(at, range->first), to = std::min(end, range->second.end);
      if (from >= to) continue;
      if (from > at) each(at, from, std::optional<End>());
      each(from, to, std::optional(range->second.what));
      at = to;
    }
    if (at < end) each(at, end, std::optional<End>());
  }

 private:
  struct Range {
    std::uint64_t end;
    End what;
  };
  std::map<std::uint64_t, Range> ranges_;
};

}  // namespace servedby::attribution
