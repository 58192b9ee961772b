// SPDX-License-Identifier: Apache-2.0
#include "attribution/fills.h"

#include <iterator>

namespace servedby::attribution {

/// The first run that ends after `pos`.
Fills::Runs::iterator Fills::first_after(std::uint64_t pos) {
  auto run = runs_.upper_bound(pos);
  if (run != runs_.begin()) {
    const auto before = std::prev(run);
    if (before->second.end > pos) return before;
  }
  return run;
}

/// Makes two runs of one; `run` keeps the first half.
void Fills::split(Runs::iterator run, std::uint64_t at) {
  runs_.emplace_hint(std::next(run), at, Tail{run->second.end, run->second.fill});
  run->second.end = at;
}

void Fills::take(std::uint64_t begin, std::uint64_t end, std::vector<Run>& out) {
  if (begin >= end) return;
  for (auto run = first_after(begin); run != runs_.end() && run->first < end;) {
    if (run->first < begin) {
      split(run, begin);
      ++run;
      continue;
    }
    if (run->second.end > end) split(run, end);
    out.push_back({run->first, run->second.end, run->second.fill});
    run = runs_.erase(run);
  }
}

void Fills::replace(std::uint64_t begin, std::uint64_t end, const Fill& fill, std::vector<Run>& out) {
  if (begin >= end) return;
  // The usual case is a bio over exactly the pages that were announced: no node is made or freed.
  if (const auto same = runs_.find(begin); same != runs_.end() && same->second.end == end) {
    out.push_back({begin, end, same->second.fill});
    same->second.fill = fill;
  } else {
    take(begin, end, out);
    runs_.emplace(begin, Tail{end, fill});
  }
}

const Fill* Fills::in_flight(std::uint64_t begin, std::uint64_t end) const {
  auto run = runs_.upper_bound(begin);
  if (run != runs_.begin() && std::prev(run)->second.end > begin) --run;
  for (; run != runs_.end() && run->first < end; ++run)
    if (run->second.fill.state == FillState::in_flight) return &run->second.fill;
  return nullptr;
}

/// Makes one run of neighbours around and inside [begin, end) that say the same.
void Fills::join(std::uint64_t begin, std::uint64_t end) {
  auto run = runs_.lower_bound(begin);
  if (run != runs_.begin()) --run;
  while (run != runs_.end() && run->first <= end) {
    const auto next = std::next(run);
    if (next == runs_.end()) return;
    if (run->second.end == next->first && run->second.fill.state == FillState::filled &&
        run->second.fill == next->second.fill) {
      run->second.end = next->second.end;
      runs_.erase(next);
    } else {
      run = next;
    }
  }
}

}  // namespace servedby::attribution
