// SPDX-License-Identifier: Apache-2.0
// What the hooks let one know of a device: which of its counts, and whether its bytes can be followed further down.
#pragma once

#include <string>
#include <vector>

#include "record/session.h"

namespace servedby::report {

/// Which counts of a device are known: those of which every hook was attached. Of a known one that was not counted,
/// there is none; of another, nothing can be said.
struct KnownCounts {
  bool reads = false;   ///< of the target, and of others
  bool unseen = false;  ///< reads of which only the completion was seen
  bool writes = false;  ///< a device without requests: never
};
[[nodiscard]] KnownCounts known_counts(const StorageStack& stack, const std::vector<HookStatus>& hooks,
                                       DeviceNumber dev);

/// The devices whose bytes stay unknown with these hooks, and why: one line each.
[[nodiscard]] std::vector<std::string> not_followed(const StorageStack& stack, const std::vector<HookStatus>& hooks);

}  // namespace servedby::report
