// SPDX-License-Identifier: Apache-2.0
#include "workload/size_text.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <limits>

namespace servedby {

namespace {

/// The factor that a unit stands for, or 0.
double unit_factor(std::string_view unit) {
  if (unit.empty()) return 1;
  constexpr std::string_view letters = "KMGT";
  const auto upper = static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])));
  if (upper == 'B' && unit.size() == 1) return 1;
  const std::size_t power = letters.find(upper);
  const std::string_view rest = unit.substr(1);
  const bool known_rest = rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib";
  if (power == std::string_view::npos || !known_rest) return 0;
  return static_cast<double>(std::uint64_t{1} << (10 * (power + 1)));
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto wrong = [&](const char* why) {
    return std::unexpected(Error{"not a size:", fmt::format("'{}'", text), why,
                                 "give bytes, or a number with K, M, G or T, such as 256M", Exit::usage});
  };
  const char* const end = text.data() + text.size();
  std::uint64_t whole = 0;
  const auto [after_whole, whole_error] = std::from_chars(text.data(), end, whole);
  if (whole_error == std::errc::result_out_of_range) return wrong("it is too large");
  if (whole_error != std::errc{}) return wrong("it does not begin with a digit");
  // A fraction is taken in billionths, so that whole numbers stay exact.
  const char* at = after_whole;
  double fraction = 0;
  if (at != end && *at == '.') {
    double place = 0.1;
    for (++at; at != end && *at >= '0' && *at <= '9'; ++at, place /= 10) fraction += place * (*at - '0');
  }
  const double factor = unit_factor({at, static_cast<std::size_t>(end - at)});
  if (factor == 0) return wrong("its unit is unknown");
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(whole, static_cast<std::uint64_t>(factor), &bytes) ||
      __builtin_add_overflow(bytes, static_cast<std::uint64_t>(fraction * factor), &bytes) || bytes > most)
    return wrong("it is too large");
  return bytes;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kib = 1024;
  const auto value = static_cast<double>(bytes);
  if (bytes >= 100 * kib * kib) return fmt::format("{:.2f} GiB", value / (1024.0 * 1024 * 1024));
  if (bytes >= kib * kib) return fmt::format("{:.1f} MiB", value / (1024.0 * 1024));
  if (bytes >= kib) return fmt::format("{:.1f} KiB", value / 1024);
  return fmt::format("{} B", bytes);
}

}  // namespace servedby
