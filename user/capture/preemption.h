// SPDX-License-Identifier: Apache-2.0
// Whether BPF programs in process context can be preempted here. Where they can, another run of the same fentry program
// on that processor is skipped, so hooks must be chosen that are not.
#pragma once

#include <optional>
#include <string_view>

#include "stack/root.h"

namespace servedby {

/// From the kernel's build ("#1 SMP PREEMPT_DYNAMIC …", uname -v), the mode that debugfs names in parentheses
/// (sched/preempt: "none (voluntary) full"), and the command line it booted with (`preempt=`). True where none of them
/// says that it is not so.
[[nodiscard]] bool preempts(std::string_view build, const std::optional<std::string_view>& mode,
                            std::string_view command_line);

/// The same of this machine.
[[nodiscard]] bool programs_are_preempted(const Root& root);

}  // namespace servedby
