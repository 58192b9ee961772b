// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "error/error.h"
#include "workload/probe_result.h"

namespace servedby {

struct SequentialOptions {
  unsigned passes = 1;  ///< each file of the set is read this many times, the whole set before the next pass
  std::uint64_t chunk_bytes = std::uint64_t{8} << 20U;
  bool checksum = true;
};

/// Reads whole files from start to end by read(2) with one buffer, as a plain loader does. Any regular file will do; of
/// a safetensors file the checksum covers the tensors of the first pass, so it equals that of probe_aimdo over the same
/// file, of any other file all bytes. Errors: a read that fails, a file that ends before the size it had when it was
/// opened (Exit::bad_input).
[[nodiscard]] Result<ProbeResult> probe_sequential(const std::vector<std::string>& paths,
                                                   const SequentialOptions& options);

}  // namespace servedby
