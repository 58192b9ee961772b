// SPDX-License-Identifier: Apache-2.0
// Every expected piece is computed by hand from the rule: a slice is appended to the active window of 64 MiB; the next
// window is taken when there is none, or when fill + rest >= 64 MiB and fill >= 48 MiB.
#include "workload/aimdo_plan.h"

#include <gtest/gtest.h>

namespace servedby {
namespace {

constexpr std::uint64_t MiB = 1U << 20U;

Slice slice(std::uint64_t begin, std::uint64_t bytes) {
  return {.file = 0, .begin = begin, .bytes = bytes, .tensor = {}};
}

TEST(AimdoPieces, SmallSlicesShareAWindow) {
  const auto pieces = cut_into_pieces({slice(1000, 10 * MiB), slice(1000 + 10 * MiB, 4096)}, {});
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0], (Piece{0, 0, 0, 1000, 10 * MiB}));
  EXPECT_EQ(pieces[1], (Piece{1, 0, 10 * MiB, 1000 + 10 * MiB, 4096}));
}

TEST(AimdoPieces, BelowTheLeadInASliceIsSplitAtTheWindowsEnd) {
  // 10 filled; 100 more do not fit, but 10 < 48: 54 go here, 46 into the next. Then 20: 46 < 48, split again.
  const auto pieces = cut_into_pieces({slice(0, 10 * MiB), slice(10 * MiB, 100 * MiB), slice(110 * MiB, 20 * MiB)}, {});
  ASSERT_EQ(pieces.size(), 5U);
  EXPECT_EQ(pieces[0], (Piece{0, 0, 0, 0, 10 * MiB}));
  EXPECT_EQ(pieces[1], (Piece{1, 0, 10 * MiB, 10 * MiB, 54 * MiB}));
  EXPECT_EQ(pieces[2], (Piece{1, 1, 0, 64 * MiB, 46 * MiB}));
  EXPECT_EQ(pieces[3], (Piece{2, 1, 46 * MiB, 110 * MiB, 18 * MiB}));
  EXPECT_EQ(pieces[4], (Piece{2, 2, 0, 128 * MiB, 2 * MiB}));
}

TEST(AimdoPieces, PastTheLeadInTheNextWindowIsTaken) {
  // 48 + 16 = 64 is "does not fit" (>=), and 48 is past the lead-in (>=).
  const auto whole = cut_into_pieces({slice(0, 48 * MiB), slice(48 * MiB, 16 * MiB)}, {});
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_EQ(whole[1], (Piece{1, 1, 0, 48 * MiB, 16 * MiB}));
  // One byte less fits.
  const auto fits = cut_into_pieces({slice(0, 48 * MiB), slice(48 * MiB, 16 * MiB - 1)}, {});
  ASSERT_EQ(fits.size(), 2U);
  EXPECT_EQ(fits[1], (Piece{1, 0, 48 * MiB, 48 * MiB, 16 * MiB - 1}));
  // One byte below the lead-in: split.
  const auto split = cut_into_pieces({slice(0, 48 * MiB - 1), slice(48 * MiB - 1, 17 * MiB)}, {});
  ASSERT_EQ(split.size(), 3U);
  EXPECT_EQ(split[1], (Piece{1, 0, 48 * MiB - 1, 48 * MiB - 1, 16 * MiB + 1}));
  EXPECT_EQ(split[2], (Piece{1, 1, 0, 64 * MiB, MiB - 1}));
}

TEST(AimdoPieces, TheRingHasThreeWindows) {
  const auto pieces = cut_into_pieces({slice(8, 200 * MiB)}, {});
  ASSERT_EQ(pieces.size(), 4U);
  EXPECT_EQ(pieces[0], (Piece{0, 0, 0, 8, 64 * MiB}));
  EXPECT_EQ(pieces[1], (Piece{0, 1, 0, 8 + 64 * MiB, 64 * MiB}));
  EXPECT_EQ(pieces[2], (Piece{0, 2, 0, 8 + 128 * MiB, 64 * MiB}));
  EXPECT_EQ(pieces[3], (Piece{0, 0, 0, 8 + 192 * MiB, 8 * MiB}));
}

TEST(AimdoPieces, ASliceThatEndsWithTheWindow) {
  const auto pieces = cut_into_pieces({slice(0, 64 * MiB), slice(64 * MiB, 1)}, {});
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[1], (Piece{1, 1, 0, 64 * MiB, 1}));
}

TEST(AimdoPieces, EmptySlicesAreNoPieces) {
  EXPECT_TRUE(cut_into_pieces({}, {}).empty());
  const auto pieces = cut_into_pieces({slice(0, 0), slice(0, 5), slice(5, 0)}, {});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0], (Piece{1, 0, 0, 0, 5}));
}

TEST(AimdoTasks, AreCutFromTheStartOfThePiece) {
  const auto tasks = cut_into_tasks({0, 1, 7, 1000, 5 * MiB}, {});
  ASSERT_EQ(tasks.size(), 3U);
  EXPECT_EQ(tasks[0], (Task{1000, 2 * MiB, 7}));
  EXPECT_EQ(tasks[1], (Task{1000 + 2 * MiB, 2 * MiB, 7 + 2 * MiB}));
  EXPECT_EQ(tasks[2], (Task{1000 + 4 * MiB, MiB, 7 + 4 * MiB}));
  EXPECT_EQ(cut_into_tasks({0, 0, 0, 0, 64 * MiB}, {}).size(), 32U);
  EXPECT_EQ(cut_into_tasks({0, 0, 0, 0, 1}, {}).size(), 1U);
}

}  // namespace
}  // namespace servedby
