// SPDX-License-Identifier: Apache-2.0
#include "workload/data_checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "workload/random_words.h"

namespace servedby {

namespace {

constexpr std::uint64_t word_bytes = 8;
constexpr std::uint64_t block_bytes = 4096;
constexpr std::uint64_t block_words = block_bytes / word_bytes;

/// Keys within a block: one for each half word, odd, so that a single difference cannot vanish.
struct Keys {
  std::array<std::uint64_t, block_words> low{};
  std::array<std::uint64_t, block_words> high{};
  constexpr Keys() {
    for (std::uint64_t i = 0; i < block_words; ++i) {
      low[i] = random_word(1, i) | 1U;
      high[i] = random_word(2, i) | 1U;
    }
  }
};
constexpr Keys keys;

std::uint64_t block_key(std::uint64_t block) { return random_word(3, block) | 1U; }

std::uint64_t word_part(std::uint64_t word, std::uint64_t index) {
  return (word & 0xffffffffU) * keys.low[index] + (word >> 32U) * keys.high[index];
}

/// Up to 8 bytes as the part of a little-endian word that they are, the other bytes zero.
std::uint64_t partial_word(const char* data, std::uint64_t bytes, std::uint64_t first_byte) {
  std::uint64_t word = 0;
  for (std::uint64_t i = 0; i < bytes; ++i)
    word |= std::uint64_t{static_cast<unsigned char>(data[i])} << (8 * (first_byte + i));
  return word;
}

std::uint64_t whole_word(const char* data) {
  if constexpr (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    return word;
  } else {
    return partial_word(data, word_bytes, 0);
  }
}

/// The part of bytes that lie within one block, `begin` bytes into it, before the block's own key.
std::uint64_t within_block(const char* data, std::uint64_t bytes, std::uint64_t begin) {
  std::uint64_t sum = 0;
  std::uint64_t index = begin / word_bytes;
  if (const std::uint64_t skew = begin % word_bytes; skew != 0) {
    const std::uint64_t head = std::min(bytes, word_bytes - skew);
    sum += word_part(partial_word(data, head, skew), index++);
    data += head;
    bytes -= head;
  }
  for (; bytes >= word_bytes; bytes -= word_bytes, data += word_bytes) sum += word_part(whole_word(data), index++);
  if (bytes != 0) sum += word_part(partial_word(data, bytes, 0), index);
  return sum;
}

}  // namespace

std::uint64_t checksum_part(const char* data, std::uint64_t bytes, std::uint64_t offset) {
  std::uint64_t sum = 0;
  while (bytes != 0) {
    const std::uint64_t begin = offset % block_bytes;
    const std::uint64_t here = std::min(bytes, block_bytes - begin);
    sum += within_block(data, here, begin) * block_key(offset / block_bytes);
    data += here;
    offset += here;
    bytes -= here;
  }
  return sum;
}

std::uint64_t checksum_of_file_in_set(std::uint64_t file_sum, std::uint64_t index) {
  return file_sum * (random_word(4, index) | 1U);
}

std::string checksum_text(std::uint64_t sum) { return fmt::format("{:016x}", sum); }

}  // namespace servedby
