// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace servedby {

/// The `index`th 64-bit word of the stream of `seed`. Any word can be had without those before it, so data can be made,
/// and checked, in any order. The mixing is that of SplitMix64 (Steele, Lea, Flood 2014; public domain).
[[nodiscard]] constexpr std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  };
  // The seed is mixed first: neighbouring seeds would otherwise be the same stream, shifted.
  return mix(mix(seed + 0x9e3779b97f4a7c15U) + (index + 1) * 0x9e3779b97f4a7c15U);
}

}  // namespace servedby
