// SPDX-License-Identifier: Apache-2.0
// Pages that were filled long ago and never returned, as bits: what bounds the memory of a session whose reads are
// scattered.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace servedby::attribution {

/// Sets of pages, each of one kind. `Kind` is compared; there are few of them.
template <class Kind>
class FrozenPages {
 public:
  static constexpr std::size_t kKinds = 32;  ///< put() refuses further kinds: every thaw() looks at each

  [[nodiscard]] bool empty() const { return sets_.empty(); }

  /// False where there are too many kinds already.
  bool put(const Kind& kind, std::uint64_t first, std::uint64_t count) {
    Set* set = nullptr;
    for (Set& known : sets_)
      if (known.kind == kind) set = &known;
    if (set == nullptr) {
      if (sets_.size() == kKinds) return false;
      set = &sets_.emplace_back(kind);
    }
    for (std::uint64_t page = first; page < first + count;) {
      Bits& bits = set->chunks[page / kChunk];
      do {
        bits[page % kChunk / 64] |= std::uint64_t{1} << page % 64;
        ++page;
      } while (page < first + count && page % kChunk != 0);
    }
    set->pages += count;
    return true;
  }

  /// Takes the pages in [first, last] out and calls sink(kind, first page, count) for each run of them.
  template <class Sink>
  void thaw(std::uint64_t first, std::uint64_t last, Sink&& sink) {
    for (Set& set : sets_) {
      if (set.pages == 0) continue;
      for (std::uint64_t number = first / kChunk; number <= last / kChunk; ++number) {
        const auto chunk = set.chunks.find(number);
        if (chunk == set.chunks.end()) {
          // Ranges may be as wide as a file; chunks are only where something is frozen.
          if (last / kChunk - number > set.chunks.size()) {
            number = next_chunk(set, number, last / kChunk);
            if (number == UINT64_MAX) break;
            --number;
          }
          continue;
        }
        if (!thaw_chunk(set, chunk->second, number * kChunk, first, last, sink)) continue;
        bool left = false;
        for (const std::uint64_t word : chunk->second) left = left || word != 0;
        if (!left) set.chunks.erase(chunk);
      }
    }
  }

  /// Calls sink(kind, pages) for each kind, and forgets everything.
  template <class Sink>
  void take_totals(Sink&& sink) {
    for (const Set& set : sets_)
      if (set.pages != 0) sink(set.kind, set.pages);
    sets_.clear();
  }

 private:
  static constexpr std::uint64_t kChunk = 4096;  ///< pages
  using Bits = std::array<std::uint64_t, kChunk / 64>;
  struct Set {
    explicit Set(const Kind& what) : kind(what) {}
    Kind kind;
    std::uint64_t pages = 0;
    std::unordered_map<std::uint64_t, Bits> chunks;
  };

  static std::uint64_t next_chunk(const Set& set, std::uint64_t after, std::uint64_t last) {
    std::uint64_t next = UINT64_MAX;
    for (const auto& [number, bits] : set.chunks)
      if (number > after && number <= last && number < next) next = number;
    return next;
  }

  /// False where none of the pages was there.
  template <class Sink>
  static bool thaw_chunk(Set& set, Bits& bits, std::uint64_t base, std::uint64_t first, std::uint64_t last,
                         Sink& sink) {
    const std::uint64_t from = first > base ? first - base : 0;
    const std::uint64_t to = last - base < kChunk - 1 ? last - base : kChunk - 1;
    bool any = false;
    std::uint64_t run = 0;
    const auto end_run = [&](std::uint64_t end) {
      if (run == 0) return;
      sink(set.kind, base + end - run, run);
      set.pages -= run;
      run = 0;
      any = true;
    };
    for (std::uint64_t i = from; i <= to;) {
      const std::uint64_t stop = std::min(to, i | 63), width = stop - i + 1;
      const std::uint64_t mask = (width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1) << i % 64;
      const std::uint64_t here = bits[i / 64] & mask;
      bits[i / 64] &= ~mask;
      if (here == 0) {
        end_run(i);
        i = stop + 1;
        continue;
      }
      for (; i <= stop; ++i) {
        if ((here >> i % 64 & 1) != 0)
          ++run;
        else
          end_run(i);
      }
    }
    end_run(to + 1);
    return any;
  }

  std::vector<Set> sets_;
};

}  // namespace servedby::attribution
