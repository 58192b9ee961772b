// SPDX-License-Identifier: Apache-2.0
// How comfy-aimdo (0.4.8 and later) cuts a model into reads, as pure functions. Its ring file reader copies slices into
// windows of pinned memory and reads each piece with a pool of workers; source:
// comfy-aimdo, src/hostbuf-file-reader.c and src/xfer-file.c.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/tensor_set.h"

namespace servedby {

/// The shape of the reader, with comfy-aimdo's values. Byte counts.
struct AimdoShape {
  unsigned workers = 8;
  std::uint64_t task_bytes = std::uint64_t{2} << 20U;
  std::uint64_t window_bytes = std::uint64_t{64} << 20U;
  unsigned windows = 3;
  unsigned queue = 256;  ///< tasks waiting; the producer blocks when it is full

  /// From this fill on, a slice that does not fit starts the next window instead of being split: 48 of 64 MiB.
  [[nodiscard]] std::uint64_t lead_in_bytes() const { return window_bytes - window_bytes / 4; }
};

/// Part of a slice that goes into one window; the caller waits for it before the next piece begins.
struct Piece {
  std::size_t slice = 0;            ///< index of the slice
  unsigned window = 0;              ///< which window of the ring
  std::uint64_t window_offset = 0;  ///< bytes into that window
  std::uint64_t file_offset = 0;    ///< absolute byte of the file
  std::uint64_t bytes = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// One pread of a worker.
struct Task {
  std::uint64_t file_offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t window_offset = 0;
  friend bool operator==(const Task&, const Task&) = default;
};

/// Cuts slices, in the order given, into pieces. A slice is appended at the fill of the active window; the next window
/// becomes active when there is none yet, or when the rest would not fit and the window is filled past the lead-in.
/// Empty slices give no piece.
[[nodiscard]] std::vector<Piece> cut_into_pieces(const std::vector<Slice>& slices, const AimdoShape& shape);

/// Cuts a piece into tasks of `shape.task_bytes` from the piece's start, the last one short.
[[nodiscard]] std::vector<Task> cut_into_tasks(const Piece& piece, const AimdoShape& shape);

}  // namespace servedby
