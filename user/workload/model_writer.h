// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "error/error.h"
#include "workload/model_shape.h"

namespace servedby {

struct ModelWriteOptions {
  std::uint64_t seed = 1;
  bool force = false;                                                                    ///< replace what is there
  std::function<void(std::uint64_t done_bytes, std::uint64_t all_bytes)> progress = {};  ///< may be empty
};

/// Writes the model that `plan` describes to `path`, which appears only when it is whole: the bytes go to a temporary
/// name beside it, are written to the drive (fdatasync), and are renamed. The data is random, so that no layer can
/// compress or skip it, and depends on the seed and the plan alone. On an error nothing is left; a signal that ends the
/// process (SIGINT, SIGTERM, SIGHUP) removes the temporary file first. One call at a time in a process. Errors: the
/// path exists and `force` is off (Exit::usage), or a system call's (a full disk: Exit::bad_input).
[[nodiscard]] Result<void> write_model(const std::string& path, const ModelPlan& plan,
                                       const ModelWriteOptions& options);

}  // namespace servedby
