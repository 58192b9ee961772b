// SPDX-License-Identifier: Apache-2.0
// An own parser: libmount reads a file of mountinfo well enough, but then canonicalises sources and targets against
// this machine, and a fixture's /dev/mapper names are not on it.
#include "stack/mounts.h"

#include <charconv>

namespace servedby {
namespace {

std::string unescaped(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string_view next_word(std::string_view& line) {
  const std::size_t space = line.find(' ');
  const std::string_view word = line.substr(0, space);
  line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  return word;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Mount> parse_line(std::string_view line) {
  Mount mount;
  const auto id = number(next_word(line));
  const auto parent = number(next_word(line));
  const auto dev = device_from_text(next_word(line));
  if (!id || !parent || !dev) return std::nullopt;
  mount.id = *id;
  mount.parent = *parent;
  mount.dev = *dev;
  mount.root = unescaped(next_word(line));
  mount.point = unescaped(next_word(line));
  mount.options = unescaped(next_word(line));
  while (!line.empty() && next_word(line) != "-") {  // optional fields: shared:1 master:2
  }
  mount.type = unescaped(next_word(line));
  mount.source = unescaped(next_word(line));
  mount.super = std::string(next_word(line));
  if (mount.type.empty() || !mount.point.starts_with('/')) return std::nullopt;
  return mount;
}

// overlayfs escapes ':' in a lower directory's name as "\:".
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts{{}};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      parts.back() += text[i];
      parts.back() += text[++i];
    } else if (text[i] == separator) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

std::string without_backslashes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    plain += text[i];
  }
  return plain;
}

void add_lower(std::string_view list, OverlayDirectories& directories) {
  bool data = false;
  for (const std::string& part : split(list, ':')) {
    if (part.empty()) {  // "a::b": what follows an empty name holds data only
      data = true;
      continue;
    }
    (data ? directories.data : directories.lower).push_back(without_backslashes(part));
  }
}

}  // namespace

std::vector<Mount> parse_mounts(std::string_view mountinfo) {
  std::vector<Mount> mounts;
  while (!mountinfo.empty()) {
    const std::size_t end = mountinfo.find('\n');
    if (auto mount = parse_line(mountinfo.substr(0, end))) mounts.push_back(*std::move(mount));
    mountinfo.remove_prefix(end == std::string_view::npos ? mountinfo.size() : end + 1);
  }
  return mounts;
}

bool lies_below(std::string_view path, std::string_view directory) {
  while (directory.ends_with('/')) directory.remove_suffix(1);
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

const Mount* mount_of(const std::vector<Mount>& mounts, const std::string& path,
                      std::optional<std::uint64_t> mount_id) {
  const Mount* best = nullptr;
  for (const Mount& mount : mounts) {
    if (mount_id && mount.id == *mount_id) return &mount;
    if (!lies_below(path, mount.point)) continue;
    if (best == nullptr || mount.point.size() >= best->point.size()) best = &mount;
  }
  return best;
}

std::string joined(std::string_view directory, std::string_view path) {
  while (directory.ends_with('/')) directory.remove_suffix(1);
  while (path.starts_with('/')) path.remove_prefix(1);
  std::string whole(directory);
  if (!path.empty() || whole.empty()) whole += '/';
  whole += path;
  return whole;
}

std::string path_inside(const Mount& mount, const std::string& path) {
  if (!lies_below(path, mount.point)) return mount.root;
  const std::string_view point = mount.point == "/" ? std::string_view{} : std::string_view(mount.point);
  return joined(mount.root, std::string_view(path).substr(point.size()));
}

OverlayDirectories overlay_directories(std::string_view super_options) {
  OverlayDirectories directories;
  while (!super_options.empty()) {
    const std::size_t comma = super_options.find(',');
    const std::string option(super_options.substr(0, comma));
    super_options.remove_prefix(comma == std::string_view::npos ? super_options.size() : comma + 1);
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos) continue;
    const std::string_view name = std::string_view(option).substr(0, equals);
    const std::string value = unescaped(std::string_view(option).substr(equals + 1));
    if (name == "upperdir") directories.upper = without_backslashes(value);
    if (name == "workdir") directories.work = without_backslashes(value);
    if (name == "lowerdir") add_lower(value, directories);
    if (name == "lowerdir+") directories.lower.push_back(without_backslashes(value));
    if (name == "datadir+") directories.data.push_back(without_backslashes(value));
  }
  return directories;
}

}  // namespace servedby
