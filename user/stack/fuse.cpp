// SPDX-License-Identifier: Apache-2.0
#include "stack/fuse.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace servedby {
namespace {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

/// "fuse_connection:\t46" of /proc/PID/fdinfo/N, the number of the superblock.
std::optional<DeviceNumber> connection(const std::string& info) {
  constexpr std::string_view key = "fuse_connection:\t";
  const std::size_t at = info.find(key);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view value = std::string_view(info).substr(at + key.size());
  return number_in<DeviceNumber>(value.substr(0, value.find('\n')));
}

}  // namespace

std::map<DeviceNumber, std::uint32_t> fuse_daemons(const Root& root, const std::set<DeviceNumber>& file_systems) {
  std::map<DeviceNumber, std::uint32_t> daemons;
  if (file_systems.empty()) return daemons;
  std::map<DeviceNumber, std::set<std::uint32_t>> answering;
  std::set<std::uint32_t> any;
  for (const std::string& process : root.entries("/proc")) {
    const auto pid = number_in<std::uint32_t>(process);
    if (!pid) continue;
    const std::string folder = fmt::format("/proc/{}/", *pid);
    for (const std::string& descriptor : root.entries(folder + "fd")) {
      const auto link = root.calls().link(folder + "fd/" + descriptor);
      if (!link || *link != "/dev/fuse") continue;
      any.insert(*pid);
      const auto info = root.text(folder + "fdinfo/" + descriptor);
      if (const auto dev = info ? connection(*info) : std::nullopt) answering[*dev].insert(*pid);
    }
  }
  for (const DeviceNumber dev : file_systems) {
    const auto found = answering.find(dev);
    if (found != answering.end() && found->second.size() == 1) daemons[dev] = *found->second.begin();
  }
  if (answering.empty() && any.size() == 1 && file_systems.size() == 1) daemons[*file_systems.begin()] = *any.begin();
  return daemons;
}

}  // namespace servedby
