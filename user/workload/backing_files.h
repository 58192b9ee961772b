// SPDX-License-Identifier: Apache-2.0
// The loop backing files below a file, and the state of the page cache on each level.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "error/error.h"
#include "record/storage.h"
#include "stack/layers.h"
#include "workload/eviction.h"
#include "workload/residency.h"

namespace servedby {

/// A loop device below a file, and the file that it reads. The path the kernel gives may name another file in this
/// mount namespace, so it counts only if device and inode are those that the loop driver names.
struct BackingFile {
  std::string loop;         ///< "loop0"; empty, as is `path`, where it cannot be seen what is below
  std::string path;         ///< as the kernel prints it
  DeviceNumber st_dev = 0;  ///< with inode: the file that the driver reads, in stat's terms
  std::uint64_t inode = 0;
  std::string why_unknown;  ///< empty: verified
};

/// The loop devices below `path`, upper before lower. Errors of layers_of.
[[nodiscard]] Result<std::vector<BackingFile>> backing_files_below(const std::string& path);
/// The same from layers already known. Pure.
[[nodiscard]] std::vector<BackingFile> backing_files_in(const PathLayers& layers);

/// Opens a verified backing file and looks again that it is the very file; else an error (Exit::bad_input).
[[nodiscard]] Result<RegularFile> open_backing_file(const BackingFile& backing);

/// One level of a file: the file itself (`loop` empty, first), or the backing file of a loop device below it (see
/// BackingFile).
struct LevelResidency {
  std::string loop;
  std::string path;
  Residency residency;                           ///< unknown for a backing file that could not be verified
  std::optional<std::vector<ByteRange>> ranges;  ///< only of the file itself, and only if asked for
};
struct LevelEviction {
  std::string loop;
  std::string path;
  Eviction eviction;  ///< no attempts for a backing file that could not be verified: nothing was evicted
};

/// The file and every backing file below it, upper first. Errors of opening and mapping the file itself.
[[nodiscard]] Result<std::vector<LevelResidency>> residency_of_levels(const std::string& path, bool with_ranges);

/// Evicts the file, and with `through` then every backing file below it, upper first (writing back an upper file
/// dirties the lower one). `range` is only for the file itself. Errors of evict_file.
[[nodiscard]] Result<std::vector<LevelEviction>> evict_levels(const std::string& path, std::optional<ByteRange> range,
                                                              bool through);

/// One entry of "files" of servedby.residency/1: {path, …residency, ranges?[]{begin, end}, below?[]{loop, path,
/// …residency}}
[[nodiscard]] nlohmann::json residency_json(const std::vector<LevelResidency>& levels);
/// One entry of "files" of servedby.evict/1: {path, complete, attempts, problem?, …residency after, below?[]{loop, …}}
[[nodiscard]] nlohmann::json eviction_json(const std::vector<LevelEviction>& levels);

/// Lines for people, the file first, backing files below it indented.
[[nodiscard]] std::string residency_text(const std::vector<LevelResidency>& levels);
[[nodiscard]] std::string eviction_text(const std::vector<LevelEviction>& levels);

}  // namespace servedby
