// SPDX-License-Identifier: Apache-2.0
// The result as JSON, servedby.result/1: docs/result.md explains every field.
#pragma once

#include <string>
#include <string_view>

#include "attribution/result.h"
#include "record/session.h"
#include "report/tree.h"

namespace servedby::report {

inline constexpr const char* result_schema = "servedby.result/1";

/// `tool` names program and version ("servedby 0.1.0"). What is not known is absent. Names that are not UTF-8 are
/// written with
/// \xNN for each byte that belongs to no character; a file then also has path_bytes, its exact bytes in hexadecimal.
[[nodiscard]] Tree result_tree(const AttributionResult& result, const Session& session, std::string_view tool);

/// Indented by two, ends with a newline.
[[nodiscard]] std::string json_text(const Tree& tree);

}  // namespace servedby::report
