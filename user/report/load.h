// SPDX-License-Identifier: Apache-2.0
// A result from a file: a recording is attributed again, a result in JSON is read.
#pragma once

#include <string>
#include <string_view>

#include "error/error.h"
#include "record/recording.h"
#include "report/tree.h"

namespace servedby::report {

/// Attributes what the recording holds; `tool` as in result_tree(). An incomplete recording gives a result that says
/// so.
[[nodiscard]] Result<Tree> replay(const Recording& recording, std::string_view tool);

/// The text of a servedby.result/1; `name` is how errors call it. Everything that result_text() needs has been checked.
[[nodiscard]] Result<Tree> parse_result(const std::string& text, const std::string& name);

/// Either of the two, by what the file begins with.
[[nodiscard]] Result<Tree> load_result(const std::string& path, std::string_view tool, Incomplete incomplete);

}  // namespace servedby::report
