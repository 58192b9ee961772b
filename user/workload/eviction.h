// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "error/error.h"
#include "formats/regular_file.h"
#include "workload/residency.h"

namespace servedby {

/// What an eviction left behind.
struct Eviction {
  Residency after;        ///< of the pages that were to go
  unsigned attempts = 0;  ///< how often posix_fadvise was called

  /// Verified: nothing that was to go is left.
  [[nodiscard]] bool complete() const { return after.resident_pages == 0U; }
  /// "eviction incomplete: 3 of 65536 pages remain: mapped, locked or dirty", or why it cannot be verified; empty if
  /// complete.
  [[nodiscard]] std::string problem() const;
};

/// Writes the file back (fdatasync) and drops its pages from the page cache (POSIX_FADV_DONTNEED), then looks whether
/// they are gone and tries again a few times, for up to about a second: pages can sit in a CPU's batch or under
/// writeback for a moment. With `range`, only pages that lie wholly inside it (a partial last page of the file counts
/// as whole). Needs no permission but to read the file; without the right to see the result it still tries, and the
/// result is unknown. Errors: an I/O error of the write-back.
[[nodiscard]] Result<Eviction> evict_file(const RegularFile& file, std::optional<ByteRange> range = {});

/// The pages that lie wholly within `range`, as bytes that begin and end at pages, or end with the file.
[[nodiscard]] ByteRange whole_pages(ByteRange range, std::uint64_t file_bytes, std::uint64_t page_bytes);

}  // namespace servedby
