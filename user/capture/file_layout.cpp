// SPDX-License-Identifier: Apache-2.0
#include "capture/file_layout.h"

#include <fmt/format.h>

#include <string>

#include "capture/session_start.h"
#include "stack/empty_ranges.h"

namespace servedby {
namespace {

sb_layout layout_record(const UnplacedFile& file, const EmptyRange& range) {
  sb_layout record{};
  record.head = {SB_LAYOUT, sizeof(record), 0, monotonic_ns()};
  record.begin = range.begin;
  record.end = range.end;
  record.file = file.file;
  record.extent = range.what;
  return record;
}

}  // namespace

std::vector<sb_layout> look_at(const UnplacedFile& file) {
  std::vector<sb_layout> records{layout_record(file, {0, 0, SB_EXTENT_LOOKED})};
  if (file.path.empty()) return records;
  // The path is the target's: below its own root, if it is still there.
  const auto add = [&](const std::string& path, const std::string& process) {
    const auto ranges = empty_ranges(path, file.file, fmt::format("/proc/{}/mountinfo", process));
    if (!ranges) return false;
    for (const EmptyRange& range : *ranges) records.push_back(layout_record(file, range));
    return true;
  };
  if (file.tgid == 0 || !add(fmt::format("/proc/{}/root{}", file.tgid, file.path), std::to_string(file.tgid)))
    add(file.path, "self");
  return records;
}

}  // namespace servedby
