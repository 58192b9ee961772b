// SPDX-License-Identifier: Apache-2.0
// How amounts are written for people.
#pragma once

#include <cstdint>
#include <string>

namespace servedby::report {

/// "512 B", "4.00 KiB", "39.55 GiB": powers of 1024, two decimals.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

/// "100.0 %" only for the whole, "0.0 %" only for nothing: what lies between is cut to "99.9 %" and raised to "<0.1 %".
/// Empty where `whole` is 0.
[[nodiscard]] std::string share_text(std::uint64_t part, std::uint64_t whole);

/// "830 us", "12.3 ms", "3.21 s", "2 m 05 s".
[[nodiscard]] std::string time_text(std::uint64_t ns);

/// "+4096", "-4096", "0": bytes.
[[nodiscard]] std::string difference_text(std::int64_t bytes);

}  // namespace servedby::report
