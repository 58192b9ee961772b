// SPDX-License-Identifier: Apache-2.0
#include "stack/wording.h"

#include <fmt/format.h>

#include <array>

namespace servedby {

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  std::size_t unit = 0;
  std::uint64_t divisor = 1024;
  while (unit + 1 < units.size() && bytes / divisor >= 1024) {
    divisor *= 1024;
    ++unit;
  }
  if (bytes % divisor == 0) return fmt::format("{} {}", bytes / divisor, units[unit]);
  return fmt::format("{:.2f} {}", static_cast<double>(bytes) / static_cast<double>(divisor), units[unit]);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace servedby
