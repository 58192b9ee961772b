// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "report/tree.h"

namespace servedby::report {

/// The answer in one to three sentences, a line each: which layer, how many bytes in what time; how sure; what would
/// change it. Of an incomplete result the first line says that it is one. Throws Malformed.
[[nodiscard]] std::vector<std::string> headline(const Tree& result);

/// Something was lost, so every number is a lower bound. Counters alone are never complete, for nothing was traced; but
/// where they lost nothing, their sums are what the kernel counted. Throws Malformed.
[[nodiscard]] bool lost_something(const Tree& result);

/// What a ledger line says: "agrees to the byte", "differs by +4096 bytes", "within the 4096 bytes in flight …", or why
/// it was not checked. Throws Malformed.
[[nodiscard]] std::string verdict_of(const Tree& ledger_line);

}  // namespace servedby::report
