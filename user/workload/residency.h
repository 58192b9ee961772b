// SPDX-License-Identifier: Apache-2.0
// How much of a file is in the page cache. The kernel answers only a caller who owns the file, may write it or has
// CAP_FOWNER: to others mincore(2) says that everything is resident (can_do_mincore, mm/mincore.c), and cachestat(2)
// refuses (can_do_cachestat, mm/filemap.c). Then the answer here is "unknown", never a number.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "error/error.h"
#include "formats/regular_file.h"

namespace servedby {

/// Bytes of a file, [begin, end).
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// The page-cache state of one file or of a range of it.
struct Residency {
  std::uint64_t file_bytes = 0;
  std::uint64_t page_bytes = 0;                 ///< 0: the file was not looked at, and nothing is known of it
  std::uint64_t total_pages = 0;                ///< that the file or range has; the last one may be partial
  std::optional<std::uint64_t> resident_pages;  ///< absent: unknown
  std::optional<std::uint64_t> dirty_pages;     ///< dirty or being written back; cachestat only
  std::string how;                              ///< "cachestat", "mincore" or "unknown"
  std::string why_unknown;                      ///< set if resident_pages is absent

  [[nodiscard]] bool known() const { return resident_pages.has_value(); }
};

enum class ResidencyCall {
  best,       ///< cachestat where it tells the truth, else mincore
  cachestat,  ///< for tests
  mincore,    ///< for tests
};

/// The state of all of the file, or of the pages that `range` touches. Passive: reads no page, changes no state. Errors
/// are those of fstat and mmap that are not about permission; what the kernel will not tell is a Residency without
/// resident_pages.
[[nodiscard]] Result<Residency> residency_of(const RegularFile& file, std::optional<ByteRange> range = {},
                                             ResidencyCall call = ResidencyCall::best);
/// The same for a path; the errors of open_regular_file as well.
[[nodiscard]] Result<Residency> residency_of(const std::string& path);

/// The resident bytes of the file as ranges of whole pages (the last one ends with the file), ascending, by mincore(2).
/// What the kernel will not tell is an Error with Exit::not_permitted.
[[nodiscard]] Result<std::vector<ByteRange>> resident_ranges(const RegularFile& file);

/// {how, bytes?, page_bytes?, pages?, resident_pages?, dirty_pages?, why_unknown?}
void to_json(nlohmann::json& json, const Residency& residency);

/// "64.0 MiB of 0.25 GiB in the page cache (25.0 %, 16384 of 65536 pages, by cachestat)" or "unknown: …".
[[nodiscard]] std::string text_of(const Residency& residency);

}  // namespace servedby
