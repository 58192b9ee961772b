// SPDX-License-Identifier: Apache-2.0
#include "report/quantities.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace servedby::report {

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (amount >= 1023.995 && unit + 1 < units.size()) {  // what would print as 1024.00 is 1.00 of the next
    amount /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", amount, units[unit]);
}

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {};
  if (part == 0) return "0.0 %";
  if (part >= whole) return "100.0 %";
  const double percent = 100.0 * (static_cast<double>(part) / static_cast<double>(whole));
  if (percent < 0.1) return "<0.1 %";
  return fmt::format("{:.1f} %", std::min(std::floor(percent * 10 + 0.5) / 10, 99.9));
}

std::string time_text(std::uint64_t ns) {
  const auto amount = static_cast<double>(ns);
  if (ns < 1000) return fmt::format("{} ns", ns);
  if (ns < 1'000'000) return fmt::format("{:.0f} us", amount / 1e3);
  if (ns < 1'000'000'000) return fmt::format("{:.1f} ms", amount / 1e6);
  const std::uint64_t seconds = ns / 1'000'000'000;
  if (seconds < 60) return fmt::format("{:.2f} s", amount / 1e9);
  return fmt::format("{} m {:02} s", seconds / 60, seconds % 60);
}

std::string difference_text(std::int64_t bytes) { return bytes == 0 ? "0" : fmt::format("{:+}", bytes); }

}  // namespace servedby::report
