// SPDX-License-Identifier: Apache-2.0
// Looks at a file of the target, as records for attribution.
#pragma once

#include <vector>

#include "attribution/attribution.h"

namespace servedby {

/// LOOKED, and each range without bytes on a device; only LOOKED where the file could not be found again or its file
/// system does not tell: then what was open stays unknown.
[[nodiscard]] std::vector<sb_layout> look_at(const UnplacedFile& file);

}  // namespace servedby
