// SPDX-License-Identifier: Apache-2.0
#include "workload/size_text.h"

#include <gtest/gtest.h>

namespace servedby {
namespace {

TEST(SizeText, Parses) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("4096B"), 4096U);
  EXPECT_EQ(parse_size("1K"), 1024U);
  EXPECT_EQ(parse_size("2M"), 2097152U);
  EXPECT_EQ(parse_size("2m"), 2097152U);
  EXPECT_EQ(parse_size("64MiB"), 67108864U);
  EXPECT_EQ(parse_size("64MB"), 67108864U);
  EXPECT_EQ(parse_size("1.5G"), 1610612736U);
  EXPECT_EQ(parse_size("3T"), 3298534883328U);
  EXPECT_EQ(parse_size("9223372036854775807"), 9223372036854775807U);
}

TEST(SizeText, RefusesTheRest) {
  for (const char* text : {"", "M", "-1", "+1", " 1", "1 M", "1X", "1Mi", "1.5.5M", "0x10", "9223372036854775808",
                           "99999999999999999999", "8388608T", "1MM"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().exit, Exit::usage) << text;
  }
}

TEST(SizeText, Prints) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(64 << 20), "64.0 MiB");
  EXPECT_EQ(size_text(256 << 20), "0.25 GiB");
  EXPECT_EQ(size_text(45'602'000'000), "42.47 GiB");
}

}  // namespace
}  // namespace servedby
