// SPDX-License-Identifier: Apache-2.0
#include "workload/backing_files.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "workload/size_text.h"

namespace servedby {

namespace {

Residency unknown_residency(std::string why) {
  Residency residency;
  residency.how = "unknown";
  residency.why_unknown = std::move(why);
  return residency;
}

/// "  loop0, backing file /srv/disk.img": one level in the lines for people.
std::string level_name(const std::string& loop, const std::string& path) {
  if (path.empty()) return "  below";
  return loop.empty() ? path : fmt::format("  {}, backing file {}", loop, path);
}

/// A level as JSON: the first is the entry itself, the others its "below".
template <class Level, class ToJson>
nlohmann::json levels_json(const std::vector<Level>& levels, ToJson to_json_of) {
  nlohmann::json file;
  for (const Level& level : levels) {
    nlohmann::json entry = to_json_of(level);
    if (!level.path.empty()) entry["path"] = level.path;
    if (file.is_null()) {
      file = std::move(entry);
    } else {
      if (!level.loop.empty()) entry["loop"] = level.loop;
      file["below"].push_back(std::move(entry));
    }
  }
  return file;
}

}  // namespace

std::vector<BackingFile> backing_files_in(const PathLayers& layers) {
  std::vector<std::pair<std::size_t, BackingFile>>
      found;  // with the place of its file: those of upper loops come first
  for (const auto& [dev, device] : layers.stack.devices) {
    if (!device.loop) continue;
    BackingFile backing;
    backing.loop = device.name;
    backing.path = device.loop->path;
    std::size_t place = layers.files.size();
    if (const auto file = layers.backing_files.find(dev); file != layers.backing_files.end()) {
      place = file->second;
      if (const auto& identity = layers.files[place].identity) {
        backing.st_dev = identity->st_dev;
        backing.inode = identity->inode;
      }
    }
    if (place == layers.files.size())
      backing.why_unknown = "no file of that path here is the one that the loop driver reads";
    else if (!device.loop->file_known)
      backing.why_unknown =
          fmt::format("the loop driver did not say which file it reads (may /dev/{} be opened?)", device.name);
    found.emplace_back(place, std::move(backing));
  }
  std::ranges::stable_sort(found, {}, [](const auto& entry) { return entry.first; });
  std::vector<BackingFile> backing_files;
  for (const FileLayer& file : layers.files) {
    // A hidden overlay layer, a device that /sys does not show: there may be a loop device that nobody can see from
    // here.
    if (!file.devices.empty() || !file.ends_in.empty() || file.inner) continue;
    BackingFile hidden;
    hidden.why_unknown = fmt::format("the device under {} is not visible from here", file.path);
    backing_files.push_back(std::move(hidden));
  }
  for (auto& [place, backing] : found) backing_files.push_back(std::move(backing));
  return backing_files;
}

Result<std::vector<BackingFile>> backing_files_below(const std::string& path) {
  const auto layers = layers_of(path);
  if (!layers) return std::unexpected(layers.error());
  return backing_files_in(*layers);
}

Result<RegularFile> open_backing_file(const BackingFile& backing) {
  auto file = open_regular_file(backing.path);
  if (!file) return file;
  const struct stat& status = file->status();
  if (device_number(major(status.st_dev), minor(status.st_dev)) != backing.st_dev || status.st_ino != backing.inode)
    return std::unexpected(Error{"will not touch", backing.path,
                                 fmt::format("it is no longer the file that {} reads", backing.loop), "",
                                 Exit::bad_input});
  return file;
}

Result<std::vector<LevelResidency>> residency_of_levels(const std::string& path, bool with_ranges) {
  const auto file = open_regular_file(path);
  if (!file) return std::unexpected(file.error());
  auto residency = residency_of(*file);
  if (!residency) return std::unexpected(residency.error());
  std::vector<LevelResidency> levels{{.loop = {}, .path = path, .residency = *std::move(residency), .ranges = {}}};
  if (with_ranges && levels[0].residency.known()) {
    auto ranges = resident_ranges(*file);
    if (!ranges) return std::unexpected(ranges.error());
    levels[0].ranges = *std::move(ranges);
  }
  const auto below = backing_files_below(path);
  if (!below) return std::unexpected(below.error());
  for (const BackingFile& backing : *below) {
    LevelResidency level{.loop = backing.loop, .path = backing.path, .residency = {}, .ranges = {}};
    if (!backing.why_unknown.empty()) {
      level.residency = unknown_residency(backing.why_unknown);
    } else if (const auto opened = open_backing_file(backing); !opened) {
      level.residency = unknown_residency(opened.error().line());
    } else if (auto state = residency_of(*opened); !state) {
      level.residency = unknown_residency(state.error().line());
    } else {
      level.residency = *std::move(state);
    }
    levels.push_back(std::move(level));
  }
  return levels;
}

Result<std::vector<LevelEviction>> evict_levels(const std::string& path, std::optional<ByteRange> range, bool through) {
  const auto file = open_regular_file(path);
  if (!file) return std::unexpected(file.error());
  std::vector<BackingFile> below;
  if (through) {
    auto found = backing_files_below(path);
    if (!found) return std::unexpected(found.error());
    below = *std::move(found);
  }
  auto eviction = evict_file(*file, range);
  if (!eviction) return std::unexpected(eviction.error());
  std::vector<LevelEviction> levels{{.loop = {}, .path = path, .eviction = *std::move(eviction)}};
  for (const BackingFile& backing : below) {
    LevelEviction level{.loop = backing.loop, .path = backing.path, .eviction = {}};
    if (!backing.why_unknown.empty()) {
      level.eviction.after = unknown_residency(backing.why_unknown);
    } else if (const auto opened = open_backing_file(backing); !opened) {
      level.eviction.after = unknown_residency(opened.error().line());
    } else if (auto done = evict_file(*opened); !done) {
      return std::unexpected(done.error());
    } else {
      level.eviction = *std::move(done);
    }
    levels.push_back(std::move(level));
  }
  return levels;
}

nlohmann::json residency_json(const std::vector<LevelResidency>& levels) {
  return levels_json(levels, [](const LevelResidency& level) {
    nlohmann::json entry = level.residency;
    if (level.ranges) {
      entry["ranges"] = nlohmann::json::array();
      for (const ByteRange& range : *level.ranges)
        entry["ranges"].push_back({{"begin", range.begin}, {"end", range.end}});
    }
    return entry;
  });
}

nlohmann::json eviction_json(const std::vector<LevelEviction>& levels) {
  return levels_json(levels, [](const LevelEviction& level) {
    nlohmann::json entry = level.eviction.after;
    entry["complete"] = level.eviction.complete();
    entry["attempts"] = level.eviction.attempts;
    if (!level.eviction.complete()) entry["problem"] = level.eviction.problem();
    return entry;
  });
}

std::string residency_text(const std::vector<LevelResidency>& levels) {
  std::string text;
  for (const LevelResidency& level : levels) {
    text += fmt::format("{}: {}\n", level_name(level.loop, level.path), text_of(level.residency));
    if (!level.ranges) continue;
    for (const ByteRange& range : *level.ranges) text += fmt::format("{} {}\n", range.begin, range.end);
  }
  return text;
}

std::string eviction_text(const std::vector<LevelEviction>& levels) {
  std::string text;
  for (const LevelEviction& level : levels) {
    const Eviction& eviction = level.eviction;
    const std::string outcome =
        eviction.complete()
            ? fmt::format("evicted, {} in {} pages", size_text(eviction.after.total_pages * eviction.after.page_bytes),
                          eviction.after.total_pages)
        : eviction.attempts == 0 ? "nothing evicted: " + eviction.after.why_unknown
                                 : eviction.problem();
    text += fmt::format("{}: {}\n", level_name(level.loop, level.path), outcome);
  }
  return text;
}

}  // namespace servedby
