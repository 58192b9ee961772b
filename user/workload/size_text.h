// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "error/error.h"

namespace servedby {

/// Bytes from "4096", "2M", "1.5G", "64MiB": K M G T are powers of 1024, with an optional "B" or "iB", in either case.
/// Anything else, or more than 2^63 - 1, is an error with Exit::usage.
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);

/// "0.50 GiB", "42.47 GiB", "12.0 MiB", "512 B": for people. Three significant digits or two decimals.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace servedby
