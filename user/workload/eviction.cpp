// SPDX-License-Identifier: Apache-2.0
#include "workload/eviction.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

namespace servedby {

std::string Eviction::problem() const {
  if (complete()) return {};
  if (!after.known()) return "eviction not verified: " + after.why_unknown;
  return fmt::format("eviction incomplete: {} of {} pages remain: mapped, locked or dirty", *after.resident_pages,
                     after.total_pages);
}

ByteRange whole_pages(ByteRange range, std::uint64_t file_bytes, std::uint64_t page_bytes) {
  const std::uint64_t begin = (std::min(range.begin, file_bytes) + page_bytes - 1) / page_bytes * page_bytes;
  const std::uint64_t end = range.end >= file_bytes ? file_bytes : range.end / page_bytes * page_bytes;
  return begin < end ? ByteRange{begin, end} : ByteRange{begin, begin};
}

namespace {

void drop(const RegularFile& file, ByteRange range) {
  if (range.end > range.begin)
    posix_fadvise(file.fd(), static_cast<off_t>(range.begin), static_cast<off_t>(range.end - range.begin),
                  POSIX_FADV_DONTNEED);
}

/// The kernel keeps a large folio that reaches over an edge of the range. So drop it whole and read back what was
/// cached outside the range, exactly those pages: with POSIX_FADV_RANDOM there is no readahead. No folio of a file is
/// larger than a PMD's 2 MiB.
Result<void> evict_over_edges(const RegularFile& file, ByteRange range, std::uint64_t file_bytes) {
  constexpr std::uint64_t largest_folio = std::uint64_t{2} << 20U;
  const auto cached = resident_ranges(file);
  if (!cached) return {};  // without the map nothing could be put back
  const ByteRange wide{range.begin / largest_folio * largest_folio,
                       std::min((range.end + largest_folio - 1) / largest_folio * largest_folio, file_bytes)};
  drop(file, wide);
  // A descriptor of its own: the advice belongs to it, and the caller's may be in use.
  const auto reader = open_regular_file(file.path());
  if (!reader || reader->status().st_ino != file.status().st_ino || reader->status().st_dev != file.status().st_dev)
    return {};
  posix_fadvise(reader->fd(), 0, 0, POSIX_FADV_RANDOM);
  std::vector<char> buffer(largest_folio);
  for (const ByteRange outside : {ByteRange{wide.begin, range.begin}, ByteRange{range.end, wide.end}}) {
    for (const ByteRange& was : *cached) {
      const std::uint64_t begin = std::max(was.begin, outside.begin);
      const std::uint64_t end = std::min(was.end, outside.end);
      if (begin >= end) continue;
      if (auto read = read_exactly(*reader, begin, buffer.data(), end - begin); !read) return read;
    }
  }
  return {};
}

}  // namespace

Result<Eviction> evict_file(const RegularFile& file, std::optional<ByteRange> range) {
  constexpr unsigned most_attempts = 8;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  struct stat status{};
  if (fstat(file.fd(), &status) != 0) return std::unexpected(system_error("cannot stat", file.path(), errno));
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  const ByteRange wanted = whole_pages(range.value_or(ByteRange{0, file_bytes}), file_bytes, page);

  Eviction eviction;
  auto pause = std::chrono::milliseconds(2);
  while (true) {
    // Dirty pages stay. EROFS and EINVAL: a file system that has nothing to write back.
    while (fdatasync(file.fd()) != 0) {
      if (errno == EINTR) continue;
      if (errno == EROFS || errno == EINVAL) break;
      return std::unexpected(system_error("cannot write back", file.path(), errno));
    }
    drop(file, wanted);
    if (range && eviction.attempts != 0)
      if (auto wide = evict_over_edges(file, wanted, file_bytes); !wide) return std::unexpected(wide.error());
    ++eviction.attempts;
    auto after = residency_of(file, wanted);
    if (!after) return std::unexpected(after.error());
    eviction.after = *std::move(after);
    if (eviction.complete() || !eviction.after.known() || eviction.attempts == most_attempts) return eviction;
    if (eviction.attempts == 3) syncfs(file.fd());  // buffers and delayed allocation that hold on to pages
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

}  // namespace servedby
