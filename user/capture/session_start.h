// SPDX-License-Identifier: Apache-2.0
// What every session says about where and when it was taken, whatever the tier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "record/session.h"

namespace servedby {

/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t monotonic_ns();

/// Kernel, host and storage stack of this machine.
[[nodiscard]] Session session_of_this_machine();

/// Fills in target, clocks and begin.
void start_session(Session& session, std::uint32_t pid, const std::vector<std::string>& command);

}  // namespace servedby
