// SPDX-License-Identifier: Apache-2.0
#include "workload/aimdo_plan.h"

#include <algorithm>

namespace servedby {

std::vector<Piece> cut_into_pieces(const std::vector<Slice>& slices, const AimdoShape& shape) {
  std::vector<Piece> pieces;
  bool active = false;
  unsigned window = 0;
  std::uint64_t fill = 0;
  for (std::size_t index = 0; index < slices.size(); ++index) {
    const Slice& slice = slices[index];
    for (std::uint64_t done = 0; done < slice.bytes;) {
      const std::uint64_t remaining = slice.bytes - done;
      if (!active || (fill + remaining >= shape.window_bytes && fill >= shape.lead_in_bytes())) {
        window = active ? (window + 1) % shape.windows : 0;
        active = true;
        fill = 0;
      }
      const std::uint64_t bytes = std::min(remaining, shape.window_bytes - fill);
      pieces.push_back(Piece{
          .slice = index, .window = window, .window_offset = fill, .file_offset = slice.begin + done, .bytes = bytes});
      fill += bytes;
      done += bytes;
    }
  }
  return pieces;
}

std::vector<Task> cut_into_tasks(const Piece& piece, const AimdoShape& shape) {
  std::vector<Task> tasks;
  for (std::uint64_t done = 0; done < piece.bytes; done += shape.task_bytes)
    tasks.push_back(Task{.file_offset = piece.file_offset + done,
                         .bytes = std::min(shape.task_bytes, piece.bytes - done),
                         .window_offset = piece.window_offset + done});
  return tasks;
}

}  // namespace servedby
