// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace servedby {

/// What a probe read from one file.
struct ProbedFile {
  std::string path;
  std::uint64_t bytes = 0;                ///< read from it
  std::optional<std::uint64_t> tensors;   ///< read from it; absent: not read by tensors
  std::optional<std::uint64_t> checksum;  ///< of the tensor bytes read (data_checksum.h); absent: not asked for
};

/// The result of a probe, `servedby.probe/1`.
struct ProbeResult {
  std::string probe;  ///< "aimdo", "sequential"
  std::vector<ProbedFile> files;
  std::uint64_t wall_ns = 0;  ///< from before the first read to after the last
  std::uint64_t calls = 0;    ///< read system calls that returned bytes
  /// The shape of the reader: workers, task_bytes, …
  std::vector<std::pair<std::string, std::variant<std::uint64_t, bool>>> settings;

  [[nodiscard]] std::uint64_t bytes() const;
  /// Of the set; absent when one of its files has none.
  [[nodiscard]] std::optional<std::uint64_t> checksum() const;
  /// 0 when no time passed.
  [[nodiscard]] double bytes_per_second() const;
};

/// {schema, probe, settings{}, files[]{path, bytes, tensors?, checksum?}, bytes, calls, wall_ns, bytes_per_second,
/// checksum?}
void to_json(nlohmann::json& json, const ProbeResult& result);

/// For people: one line with the answer, then one line for each file if there are several.
[[nodiscard]] std::string text_of(const ProbeResult& result);

}  // namespace servedby
