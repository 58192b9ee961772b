// SPDX-License-Identifier: Apache-2.0
#include "host/group.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "stack/mounts.h"

namespace servedby {

std::optional<std::string> group_directory(const Root& root, std::uint32_t pid) {
  std::istringstream lines(root.text(fmt::format("/proc/{}/cgroup", pid)).value_or(""));
  std::optional<std::string> group;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  if (!group) return std::nullopt;
  for (const Mount& mount : parse_mounts(root.text("/proc/self/mountinfo").value_or(""))) {
    if (mount.type != "cgroup2") continue;
    // A container without its own cgroup namespace sees the host's path, of which only the tail below the mount's root
    // is here.
    if (!lies_below(*group, mount.root)) return mount.point;
    return joined(mount.point, std::string_view(*group).substr(mount.root == "/" ? 0 : mount.root.size()));
  }
  return std::nullopt;
}

std::map<DeviceNumber, GroupIo> parse_group_io(std::string_view text) {
  std::map<DeviceNumber, GroupIo> groups;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    const auto dev = device_from_text(name);
    if (!dev) continue;
    GroupIo io;
    for (std::string field; fields >> field;) {
      const std::size_t equals = field.find('=');
      if (equals == std::string::npos) continue;
      std::uint64_t value = 0;
      std::from_chars(field.data() + equals + 1, field.data() + field.size(), value);
      const std::string_view key = std::string_view(field).substr(0, equals);
      if (key == "rbytes") io.read_bytes = value;
      if (key == "rios") io.read_ios = value;
      if (key == "wbytes") io.write_bytes = value;
      if (key == "wios") io.write_ios = value;
    }
    groups[*dev] = io;
  }
  return groups;
}

std::map<DeviceNumber, GroupIo> group_io(const Root& root, std::uint32_t pid) {
  const auto directory = group_directory(root, pid);
  if (!directory) return {};
  return parse_group_io(root.text(joined(*directory, "io.stat")).value_or(""));
}

}  // namespace servedby
