// SPDX-License-Identifier: Apache-2.0
// A checksum that does not depend on the order or the cutting of the reads: every 32-bit half word of the file, at its
// absolute position, times a key of that position, summed modulo 2^64. The sum of any cutting is the sum of the whole,
// so workers add up in any order, and a reader with other chunks gets the same number from the same bytes. Multilinear
// hashing: a different half word changes the sum always; random damage stays unseen with a chance of about 2^-32.
#pragma once

#include <cstdint>
#include <string>

namespace servedby {

/// The part that `bytes` bytes at the absolute file position `offset` contribute. Parts are added modulo 2^64.
[[nodiscard]] std::uint64_t checksum_part(const char* data, std::uint64_t bytes, std::uint64_t offset);

/// The contribution of the `index`th file of a set to the checksum of the set, from the sum of its parts.
[[nodiscard]] std::uint64_t checksum_of_file_in_set(std::uint64_t file_sum, std::uint64_t index);

/// Sixteen hexadecimal digits.
[[nodiscard]] std::string checksum_text(std::uint64_t sum);

}  // namespace servedby
