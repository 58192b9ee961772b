// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "record/counters.h"
#include "stack/root.h"

namespace servedby {

/// The directory of a process's control group (version 2) in this mount namespace; nothing where version 2 is not
/// mounted.
[[nodiscard]] std::optional<std::string> group_directory(const Root& root, std::uint32_t pid);

/// io.stat of that control group, by device; empty where there is none.
[[nodiscard]] std::map<DeviceNumber, GroupIo> group_io(const Root& root, std::uint32_t pid);

[[nodiscard]] std::map<DeviceNumber, GroupIo> parse_group_io(std::string_view text);

}  // namespace servedby
