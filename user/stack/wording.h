// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace servedby {

/// "512 B", "128 KiB", "39.55 GiB": powers of 1024, two decimals unless the amount is whole.
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

/// "a", "a and b", "a, b and c".
[[nodiscard]] std::string listed(const std::vector<std::string>& names);

}  // namespace servedby
