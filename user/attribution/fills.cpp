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

Fills::Runs::const_iterator Fills::first_after(std::uint64_t pos) const {
  auto run = runs_.upper_bound(pos);
  if (run != runs_.begin() && std::prev(run)->second.end > pos) --run;
  return run;
}

bool Fills::announced_in(std::uint64_t begin, std::uint64_t end) const {
  for (auto run = first_after(begin); run != runs_.end() && run->first < end; ++run)
    if (run->second.fill.state == FillState::announced && run->second.fill.why == Why::fill_unseen) return true;
  return false;
}

bool Fills::absent_in(std::uint64_t begin, std::uint64_t end) const {
  for (auto run = first_after(begin); begin < end; ++run) {
    if (run == runs_.end() || run->first > begin) return true;
    begin = run->second.end;
  }
  return false;
}

/// Makes two runs of one; `run` keeps the first half.
void Fills::split(Runs::iterator run, std::uint64_t at) {
  runs_.emplace_hint(std::next(run), at, Tail{run->second.end, run->second.fill});
  run->second.end = at;
}

void Fills::take(std::uint64_t begin, std::uint64_t end, std::vector<Run>& out) {
  if (begin >= end) return;
  thaw(begin, end);
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
  thaw(begin, end);
  // The usual case is a bio over exactly the pages that were announced: no node is made or freed.
  if (const auto same = runs_.find(begin); same != runs_.end() && same->second.end == end) {
    out.push_back({begin, end, same->second.fill});
    same->second.fill = fill;
  } else {
    take(begin, end, out);
    runs_.emplace(begin, Tail{end, fill});
  }
}

void Fills::take_all(std::vector<Run>& out) {
  for (const auto& [begin, tail] : runs_) out.push_back({begin, tail.end, tail.fill});
  runs_.clear();
  frozen_.take_totals([&](const Fill& fill, std::uint64_t pages) { out.push_back({0, pages * page_, fill}); });
}

/// Moves the whole pages of short runs to the frozen ones. Only what is the same for every consumer to come.
void Fills::freeze(std::uint64_t page) {
  page_ = page;
  for (auto run = runs_.begin(); run != runs_.end();) {
    const auto here = run++;
    const Fill fill = here->second.fill;
    const std::uint64_t begin = here->first, end = here->second.end;
    if (fill.state == FillState::in_flight || fill.state == FillState::packed || fill.read != 0 || fill.done_ns > 1)
      continue;
    const std::uint64_t first = begin / page + (begin % page != 0 ? 1 : 0), last = end / page;
    if (first >= last || last - first >= kShort || !frozen_.put(fill, first, last - first)) continue;
    if (last * page < end) runs_.emplace_hint(run, last * page, Tail{end, fill});
    if (begin < first * page)
      here->second.end = first * page;
    else
      runs_.erase(here);
  }
}

/// Makes runs again of the frozen pages that [begin, end) touches.
void Fills::thaw(std::uint64_t begin, std::uint64_t end) {
  if (frozen_.empty()) return;
  frozen_.thaw(begin / page_, (end - 1) / page_, [&](const Fill& fill, std::uint64_t first, std::uint64_t count) {
    runs_.emplace(first * page_, Tail{(first + count) * page_, fill});
  });
}

/// Makes one run of neighbours around and inside [begin, end) that say the same.
void Fills::join(std::uint64_t begin, std::uint64_t end) {
  auto run = runs_.lower_bound(begin);
  if (run != runs_.begin()) --run;
  while (run != runs_.end() && run->first <= end) {
    const auto next = std::next(run);
    if (next == runs_.end()) return;
    if (run->second.end == next->first && run->second.fill.state != FillState::in_flight &&
        run->second.fill == next->second.fill) {
      run->second.end = next->second.end;
      runs_.erase(next);
    } else {
      run = next;
    }
  }
}

}  // namespace servedby::attribution
