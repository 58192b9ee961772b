// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "error/error.h"
#include "workload/aimdo_plan.h"
#include "workload/probe_result.h"
#include "workload/tensor_set.h"

namespace servedby {

struct AimdoOptions {
  AimdoShape shape;
  bool mark_cold =
      false;             ///< posix_fadvise(DONTNEED) on exactly the bytes of each returned pread, as for pinned weights
  bool checksum = true;  ///< off: the workers only read
};

/// Reads the slices of `set` in their order as comfy-aimdo does: for each piece, the caller cuts tasks into the queue
/// and waits until the pool has read all of them (one barrier a piece, at most one piece in flight); a worker repeats
/// pread(2) until its task is complete. No GPU: the copy from the window to the device is left out. Memory: windows ×
/// window_bytes, touched before the clock starts. Errors: a read that fails, and the end of the file before the end of
/// a tensor (Exit::bad_input).
[[nodiscard]] Result<ProbeResult> probe_aimdo(const TensorSet& set, const AimdoOptions& options);

}  // namespace servedby
