// SPDX-License-Identifier: Apache-2.0
#include "capture/file_layout.h"

#include <fmt/format.h>

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
  std::vector<std::string> paths{file.path};
  if (file.tgid != 0) paths.insert(paths.begin(), fmt::format("/proc/{}/root{}", file.tgid, file.path));
  for (const std::string& path : paths) {
    const auto ranges = empty_ranges(path, file.file);
    if (!ranges) continue;
    for (const EmptyRange& range : *ranges) records.push_back(layout_record(file, range));
    break;
  }
  return records;
}

}  // namespace servedby
