// SPDX-License-Identifier: Apache-2.0
// A result for people: the answer in at most three lines, then the tables.
#pragma once

#include <cstddef>
#include <string>

#include "error/error.h"
#include "report/tree.h"

namespace servedby::report {

struct TextStyle {
  bool colour = false;          ///< escape sequences; only for a terminal, see wants_colour()
  bool hooks = false;           ///< the table of hooks
  std::size_t most_files = 20;  ///< rows of files; what is left out is counted
};

/// Fails (Exit::bad_input) where the tree is not a servedby.result/1, or its sums contradict each other.
[[nodiscard]] Result<std::string> result_text(const Tree& result, const TextStyle& style);

/// `fd` is a terminal that is not dumb, and NO_COLOR is not set (or empty).
[[nodiscard]] bool wants_colour(int fd);

}  // namespace servedby::report
