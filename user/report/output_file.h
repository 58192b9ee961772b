// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "error/error.h"

namespace servedby::report {

/// Writes `content` to `path` so that no half-written file ever has that name: beside it first, synced, then renamed.
/// An existing file is refused without `force` (Exit::usage). What is not a regular file (a pipe, /dev/stdout) is
/// written directly.
[[nodiscard]] Result<void> write_output(const std::string& path, std::string_view content, bool force);

/// Writes to standard output and notices when that fails (a full disk, a closed pipe).
[[nodiscard]] Result<void> print_output(std::string_view content);

}  // namespace servedby::report
