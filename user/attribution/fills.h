// SPDX-License-Identifier: Apache-2.0
// Which bytes of a file were filled and not yet returned. A byte that is absent was there before, or has been returned
// since its last fill: both are the page cache's. So the memory is bounded by what is filled and not returned, not by
// the number of events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "attribution/causes.h"
#include "attribution/frozen.h"

namespace servedby::attribution {

using BioSlot = std::uint32_t;

enum class FillState : std::uint8_t {
  announced,  ///< said to be not up to date; no I/O for it seen so far
  in_flight,  ///< a bio is reading it
  packed,     ///< the compressed extent that it is unpacked from is being read, or has been
  filled,
};

/// Fill::owner, as bits.
enum : std::uint8_t {
  kForTarget = 1,  ///< counts for the layer without a further question
  kCounted = 2,    ///< bytes of the process's own accounting, to be settled once
  kMapped = 4,     ///< by the target outside any read, and not on advice for later reads: a fault, exec
  kMeta = 8,       ///< file-system metadata that also has a file range
  kApart = 16,     ///< by the target, but not byte for byte in its accounting: from a server, or unpacked
};

/// What is known about a run of bytes.
struct Fill {
  FillState state = FillState::announced;
  std::uint8_t owner = 0;
  Why why = Why::none;     ///< announced: why there may be no I/O
  std::uint32_t tid = 0;   ///< who started it; 0 where read is 0, so that neighbours can become one run
  std::uint32_t read = 0;  ///< in which of its read calls; 0: in none
  BioSlot bio = 0;         ///< in_flight
  CauseId cause = 0;       ///< filled
  /// in_flight: add it to a file position for the device's byte (modulo 2^64). packed: the number of the extent.
  std::uint64_t to_device = 0;
  std::uint64_t done_ns = 0;  ///< filled, not kForTarget: when
  friend bool operator==(const Fill&, const Fill&) = default;
};

/// A run of bytes of a file.
struct Run {
  std::uint64_t begin = 0, end = 0;
  Fill fill;
};

class Fills {
 public:
  /// Moves what is known about [begin, end) to the end of `out`, in order, and forgets it.
  void take(std::uint64_t begin, std::uint64_t end, std::vector<Run>& out);
  /// take(), and then [begin, end) is `fill`.
  void replace(std::uint64_t begin, std::uint64_t end, const Fill& fill, std::vector<Run>& out);
  /// Runs change(fill, bytes) on all parts of [begin, end) that `bio` is reading.
  template <class Change>
  void change(BioSlot bio, std::uint64_t begin, std::uint64_t end, Change&& change);
  /// Whether any byte of [begin, end) was announced, and no I/O for it came.
  [[nodiscard]] bool announced_in(std::uint64_t begin, std::uint64_t end) const;
  /// Whether any byte of [begin, end) is absent.
  [[nodiscard]] bool absent_in(std::uint64_t begin, std::uint64_t end) const;
  /// Moves everything to the end of `out`; frozen pages of one kind as one run, whose place means nothing.
  void take_all(std::vector<Run>& out);

  /// True now and then, as the runs become more: then compact() is worth its time.
  [[nodiscard]] bool crowded() const { return runs_.size() >= crowded_at_; }
  /// Makes the runs fewer without changing any answer. `finished`: whether the read call that started a fill has
  /// returned, so that whoever takes the bytes is another. `long_ago_ns`: no read that began before it is still open.
  template <class Finished>
  void compact(std::uint64_t page, std::uint64_t long_ago_ns, Finished&& finished);
  /// For tests: compact() is worth it from this many runs on.
  void set_crowded_at(std::size_t runs) { least_crowded_ = crowded_at_ = runs; }

 private:
  struct Tail {
    std::uint64_t end;
    Fill fill;
  };
  using Runs = std::map<std::uint64_t, Tail>;

  Runs::iterator first_after(std::uint64_t pos);
  [[nodiscard]] Runs::const_iterator first_after(std::uint64_t pos) const;
  void split(Runs::iterator run, std::uint64_t at);
  void join(std::uint64_t begin, std::uint64_t end);
  void freeze(std::uint64_t page);
  void thaw(std::uint64_t begin, std::uint64_t end);

  static constexpr std::uint64_t kShort = 256;  ///< pages: longer runs take less memory as they are

  Runs runs_;
  FrozenPages<Fill> frozen_;
  std::uint64_t page_ = 0;  ///< bytes, of what is frozen
  std::size_t least_crowded_ = 1024, crowded_at_ = 1024;
};

template <class Change>
void Fills::change(BioSlot bio, std::uint64_t begin, std::uint64_t end, Change&& change) {
  for (auto run = first_after(begin); run != runs_.end() && run->first < end;) {
    if (run->second.fill.state != FillState::in_flight || run->second.fill.bio != bio) {
      ++run;
      continue;
    }
    if (run->first < begin) {
      split(run, begin);
      ++run;
    }
    if (run->second.end > end) split(run, end);
    change(run->second.fill, run->second.end - run->first);
    ++run;
  }
  join(begin, end);
}

template <class Finished>
void Fills::compact(std::uint64_t page, std::uint64_t long_ago_ns, Finished&& finished) {
  for (auto& [begin, tail] : runs_) {
    Fill& fill = tail.fill;
    if (fill.state != FillState::filled) continue;
    if (fill.read != 0 && finished(fill.tid, fill.read)) fill.tid = fill.read = 0;
    if (fill.done_ns != 0 && fill.done_ns < long_ago_ns) fill.done_ns = 1;  // before any read that is still open
  }
  join(0, UINT64_MAX);
  freeze(page);
  crowded_at_ = std::max(least_crowded_, 2 * runs_.size());
}

}  // namespace servedby::attribution
