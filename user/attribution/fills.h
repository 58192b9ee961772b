// SPDX-License-Identifier: Apache-2.0
// Which bytes of a file were filled and not yet returned. A byte that is absent was there before, or has been returned
// since its last fill: both are the page cache's. So the memory is bounded by what is filled and not returned, not by
// the number of events.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "attribution/causes.h"

namespace servedby::attribution {

using BioSlot = std::uint32_t;

enum class FillState : std::uint8_t {
  announced,  ///< said to be not up to date; no I/O for it seen so far
  in_flight,  ///< a bio is reading it
  filled,
};

/// Fill::owner, as bits.
enum : std::uint8_t {
  kForTarget = 1,  ///< counts for the layer without a further question
  kCounted = 2,    ///< bytes of the process's own accounting, to be settled once
  kMapped = 4,     ///< by the target outside any read call: a fault, exec, readahead(2)
  kMeta = 8,       ///< file-system metadata that also has a file range
};

/// What is known about a run of bytes.
struct Fill {
  FillState state = FillState::announced;
  std::uint8_t owner = 0;
  Why why = Why::none;          ///< announced: why there may be no I/O
  std::uint32_t tid = 0;        ///< who started it; 0 where read is 0, so that neighbours can become one run
  std::uint32_t read = 0;       ///< in which of its read calls; 0: in none
  BioSlot bio = 0;              ///< in_flight
  CauseId cause = 0;            ///< filled
  std::uint64_t to_device = 0;  ///< in_flight: add it to a file position for the device's byte (modulo 2^64)
  std::uint64_t done_ns = 0;    ///< filled, not kForTarget: when
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
  /// The first run in [begin, end) that is in flight, or null.
  [[nodiscard]] const Fill* in_flight(std::uint64_t begin, std::uint64_t end) const;
  /// Moves everything to the end of `out`.
  void take_all(std::vector<Run>& out) { take(0, UINT64_MAX, out); }
  [[nodiscard]] std::size_t runs() const { return runs_.size(); }

 private:
  struct Tail {
    std::uint64_t end;
    Fill fill;
  };
  using Runs = std::map<std::uint64_t, Tail>;

  Runs::iterator first_after(std::uint64_t pos);
  void split(Runs::iterator run, std::uint64_t at);
  void join(std::uint64_t begin, std::uint64_t end);

  Runs runs_;
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

}  // namespace servedby::attribution
