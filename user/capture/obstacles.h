// SPDX-License-Identifier: Apache-2.0
// What stands in the way of BPF tracing here, looked at before anything is loaded, so that a person reads a sentence
// instead of a verifier's errno.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "error/error.h"

namespace servedby {

/// One thing the kernel or the privileges allow or refuse.
struct Condition {
  std::string name;  ///< "kernel type information"
  bool met = false;
  std::string found;  ///< what was found
  std::string lift;   ///< what would lift it, when not met
};

/// Privilege (CAP_BPF and CAP_PERFMON, or root), BTF, lockdown, tracefs, and the PID namespace.
[[nodiscard]] std::vector<Condition> tracing_conditions();

/// The first condition that is not met, as an error for people (Exit::not_permitted).
[[nodiscard]] std::optional<Error> tracing_obstacle();

}  // namespace servedby
