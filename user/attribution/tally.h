// SPDX-License-Identifier: Apache-2.0
// Bytes by cause, and how many calls got bytes from each set of causes: which layers two causes stand for may turn out
// to be the same at the end, and a call must then be counted once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "attribution/causes.h"

namespace servedby::attribution {

struct Sum {
  CauseId cause = 0;
  std::uint64_t bytes = 0, prefetched = 0;
};

/// Adds to the sum of a cause in a short list.
void add_to(std::vector<Sum>& sums, CauseId cause, std::uint64_t bytes, std::uint64_t prefetched);

/// Sets of causes, as numbers: a single cause is its own number.
class CauseSets {
 public:
  [[nodiscard]] std::uint32_t id(std::span<const Sum> sums);
  [[nodiscard]] std::vector<CauseId> causes(std::uint32_t set) const;

 private:
  static constexpr std::uint32_t kMany = 0x80000000U;
  std::map<std::vector<CauseId>, std::uint32_t> ids_;
  std::vector<std::vector<CauseId>> sets_;
};

/// What the calls on one file got.
struct Tally {
  std::vector<Sum> sums;
  std::unordered_map<std::uint32_t, std::uint64_t> calls;  ///< set of causes → calls that got at least one byte

  void add_call(std::span<const Sum> got, CauseSets& sets);
};

/// What every cause means to a reader, once nothing more can be learned.
class Layers {
 public:
  /// `lost`: events that could hide a fill were lost, so no page cache is proven.
  Layers(const Causes& causes, const StorageStack& first, const StorageStack& later, bool lost);

  [[nodiscard]] std::vector<ServedBy> served_by(const Tally& tally, const CauseSets& sets) const;
  [[nodiscard]] std::vector<FilledBy> filled_by(const std::vector<Sum>& sums) const;
  [[nodiscard]] bool is_warmed(CauseId cause) const { return rendered_[cause].warmed; }

 private:
  struct Rendered {
    Via via;
    std::string why;
    bool warmed = false;
  };
  std::vector<Rendered> rendered_;  ///< by CauseId
};

/// Sums lists of several files into one; largest first.
[[nodiscard]] std::vector<ServedBy> summed(std::span<const std::vector<ServedBy>> lists);
[[nodiscard]] std::vector<FilledBy> summed(std::span<const std::vector<FilledBy>> lists);

}  // namespace servedby::attribution
