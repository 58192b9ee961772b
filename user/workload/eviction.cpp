// SPDX-License-Identifier: Apache-2.0
#include "workload/eviction.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

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
    if (wanted.end > wanted.begin)
      posix_fadvise(file.fd(), static_cast<off_t>(wanted.begin), static_cast<off_t>(wanted.end - wanted.begin),
                    POSIX_FADV_DONTNEED);
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
