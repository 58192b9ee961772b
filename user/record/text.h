// SPDX-License-Identifier: Apache-2.0
// Names come from the kernel as bytes, JSON holds only UTF-8: how the two meet.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace servedby {

/// The length in bytes of the UTF-8 character that `bytes` begins with, or 0 where it begins with none (overlong forms,
/// surrogates and numbers past U+10FFFF are none).
[[nodiscard]] std::size_t utf8_length(std::string_view bytes);

[[nodiscard]] bool is_utf8(std::string_view bytes);

/// Lower-case hexadecimal, two digits a byte.
[[nodiscard]] std::string hex_of(std::string_view bytes);

/// Replaces every string value that is not UTF-8 by {"$hex": "6d6fff"}, so that the tree can be written as JSON text
/// and read back exactly. Keys are left alone: they are names that this program or sysfs chose.
void wrap_bytes(nlohmann::json& tree);

/// Undoes wrap_bytes. Throws nlohmann::json::exception where "$hex" does not hold hexadecimal.
void unwrap_bytes(nlohmann::json& tree);

}  // namespace servedby
