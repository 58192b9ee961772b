// SPDX-License-Identifier: Apache-2.0
#include "workload/data_checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "workload/random_words.h"

namespace servedby {
namespace {

std::string some_data(std::uint64_t bytes) {
  std::string data(bytes, '\0');
  for (std::uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(random_word(7, i));
  return data;
}

TEST(DataChecksum, AnyCuttingGivesTheSameSum) {
  const std::string data = some_data(3 * 4096 + 77);
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{4091}, std::uint64_t{1} << 40U}) {
    const std::uint64_t whole = checksum_part(data.data(), data.size(), offset);
    for (const std::uint64_t cut : std::array<std::uint64_t, 8>{1, 3, 7, 8, 64, 1000, 4096, 5000}) {
      std::uint64_t sum = 0;
      for (std::uint64_t at = data.size() / cut * cut + cut; at > 0;) {  // from the end: the order does not matter
        at -= cut;
        if (at < data.size())
          sum += checksum_part(data.data() + at, std::min<std::uint64_t>(cut, data.size() - at), offset + at);
      }
      EXPECT_EQ(sum, whole) << "cut " << cut << " at " << offset;
    }
  }
}

TEST(DataChecksum, SeesEverySingleChangeAndMoves) {
  std::string data = some_data(4096);
  const std::uint64_t before = checksum_part(data.data(), data.size(), 0);
  for (std::size_t i = 0; i < data.size(); ++i) {
    for (const unsigned bit : {0U, 7U}) {
      data[i] = static_cast<char>(data[i] ^ static_cast<char>(1U << bit));
      EXPECT_NE(checksum_part(data.data(), data.size(), 0), before) << i;
      data[i] = static_cast<char>(data[i] ^ static_cast<char>(1U << bit));
    }
  }
  EXPECT_NE(checksum_part(data.data(), data.size(), 4096), before);  // another page
  std::swap(data[100], data[108]);
  EXPECT_NE(checksum_part(data.data(), data.size(), 0), before);
}

TEST(DataChecksum, IsTheSameOnEveryMachine) {
  EXPECT_EQ(checksum_part("", 0, 9), 0U);
  EXPECT_EQ(random_word(1, 0), random_word(1, 0));
  const std::string one("\x01", 1);
  EXPECT_EQ(checksum_part(one.data(), 1, 0), (random_word(1, 0) | 1U) * (random_word(3, 0) | 1U));
  EXPECT_EQ(checksum_part(one.data(), 1, 4), (random_word(2, 0) | 1U) * (random_word(3, 0) | 1U));
  EXPECT_EQ(checksum_part(one.data(), 1, 4096 + 9), 256 * (random_word(1, 1) | 1U) * (random_word(3, 1) | 1U));
}

TEST(DataChecksum, FilesOfASetHaveTheirPlaces) {
  EXPECT_NE(checksum_of_file_in_set(5, 0) + checksum_of_file_in_set(6, 1),
            checksum_of_file_in_set(6, 0) + checksum_of_file_in_set(5, 1));
  EXPECT_EQ(checksum_text(0xabc), "0000000000000abc");
}

}  // namespace
}  // namespace servedby
