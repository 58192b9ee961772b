// SPDX-License-Identifier: Apache-2.0
#include "workload/residency.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "workload/size_text.h"

namespace servedby {

namespace {

/// struct cachestat_range and struct cachestat of include/uapi/linux/mman.h (Linux 6.5); the headers of older systems
/// lack them.
struct CachestatRange {
  std::uint64_t offset, bytes;
};
struct Cachestat {
  std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
};
constexpr long cachestat_number = 451;  // the same on every architecture

constexpr decltype(statfs::f_type) overlayfs_magic = 0x794c7630;

std::uint64_t page_size() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

/// An overlay's file keeps its pages in the file below: cachestat looks into the overlay's own, empty mapping, mincore
/// into the right one because the mapping of memory is handed down.
bool on_overlay(int fd) {
  struct statfs info{};
  return fstatfs(fd, &info) == 0 && info.f_type == overlayfs_magic;
}

bool is_dax(int fd) {
  struct statx info{};
  return statx(fd, "", AT_EMPTY_PATH, 0, &info) == 0 && (info.stx_attributes & STATX_ATTR_DAX) != 0;
}

/// Whether mincore tells this caller the truth: asks the kernel the same questions as can_do_mincore, without side
/// effects.
bool may_see_page_cache(const RegularFile& file) {
  // O_NOATIME may be set only by who passes inode_owner_or_capable().
  const int flags = fcntl(file.fd(), F_GETFL);
  if (flags >= 0 && fcntl(file.fd(), F_SETFL, flags | O_NOATIME) == 0) {
    fcntl(file.fd(), F_SETFL, flags);
    return true;
  }
  const std::string self = fmt::format("/proc/self/fd/{}", file.fd());
  return faccessat(AT_FDCWD, self.c_str(), W_OK, AT_EACCESS) == 0;
}

constexpr const char* refused =
    "the kernel tells only the file's owner, who may write it, or CAP_FOWNER which of its pages are cached";

/// Calls see(page index, resident) for every page of [begin, end), which begins at a page. 0 or an errno value.
template <class See>
int for_each_page(int fd, ByteRange range, See see) {
  constexpr std::uint64_t window = std::uint64_t{1} << 30U;  // bounded memory and address space for files of any size
  const std::uint64_t page = page_size();
  std::vector<unsigned char> resident(std::min(window, range.end - range.begin + page) / page + 1);
  for (std::uint64_t at = range.begin; at < range.end; at += window) {
    const std::uint64_t bytes = std::min(window, range.end - at);
    void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(at));
    if (memory == MAP_FAILED) return errno;
    const int failed = mincore(memory, bytes, resident.data()) != 0 ? errno : 0;
    munmap(memory, bytes);
    if (failed != 0) return failed;
    for (std::uint64_t i = 0; i < (bytes + page - 1) / page; ++i) see(at / page + i, (resident[i] & 1U) != 0);
  }
  return 0;
}

std::string cannot_map(int error_number) {
  if (error_number == ENODEV) return "its file system cannot map files into memory (mincore needs that)";
  return "mincore: " + errno_text(error_number);
}

void by_mincore(const RegularFile& file, ByteRange range, Residency& residency) {
  std::uint64_t resident = 0;
  std::uint64_t seen = 0;
  const int failed = for_each_page(file.fd(), range, [&](std::uint64_t /*page*/, bool there) {
    ++seen;
    resident += there ? 1 : 0;
  });
  if (failed != 0) {
    residency.why_unknown = cannot_map(failed);
    return;
  }
  // A refusal looks like "all resident"; a page that is not resident proves that there was none.
  if (resident == seen && seen != 0 && !may_see_page_cache(file)) {
    residency.why_unknown = refused;
    return;
  }
  residency.resident_pages = resident;
  residency.how = "mincore";
}

/// False: there is no such call here, or none for us.
bool by_cachestat(const RegularFile& file, ByteRange range, Residency& residency) {
  CachestatRange asked{range.begin, range.end - range.begin};
  Cachestat answer{};
  if (syscall(cachestat_number, file.fd(), &asked, &answer, 0U) != 0) return false;
  residency.resident_pages = answer.cached;
  residency.dirty_pages = answer.dirty + answer.writeback;
  residency.how = "cachestat";
  return true;
}

}  // namespace

Result<Residency> residency_of(const RegularFile& file, std::optional<ByteRange> range, ResidencyCall call) {
  struct stat status{};
  if (fstat(file.fd(), &status) != 0) return std::unexpected(system_error("cannot stat", file.path(), errno));
  Residency residency;
  residency.file_bytes = static_cast<std::uint64_t>(status.st_size);
  residency.page_bytes = page_size();
  residency.how = "unknown";
  const std::uint64_t page = residency.page_bytes;
  ByteRange pages = range.value_or(ByteRange{0, residency.file_bytes});
  pages.end = std::min(pages.end, residency.file_bytes);
  pages.begin = std::min(pages.begin, pages.end) / page * page;
  pages.end = (pages.end + page - 1) / page * page;
  residency.total_pages = (pages.end - pages.begin) / page;
  if (residency.total_pages == 0) {  // cachestat would take a length of 0 for "to the end"
    residency.resident_pages = 0;
    residency.how = "mincore";
    return residency;
  }
  if (is_dax(file.fd())) {
    residency.why_unknown = "its file system uses DAX: the file has no pages in the page cache";
    return residency;
  }
  const bool want_cachestat =
      call == ResidencyCall::cachestat || (call == ResidencyCall::best && !on_overlay(file.fd()));
  if (want_cachestat && by_cachestat(file, pages, residency)) return residency;
  if (call == ResidencyCall::cachestat) {
    residency.why_unknown = "cachestat: " + errno_text(errno);
    return residency;
  }
  by_mincore(file, pages, residency);
  return residency;
}

Result<Residency> residency_of(const std::string& path) {
  const auto file = open_regular_file(path);
  if (!file) return std::unexpected(file.error());
  return residency_of(*file);
}

Result<std::vector<ByteRange>> resident_ranges(const RegularFile& file) {
  struct stat status{};
  if (fstat(file.fd(), &status) != 0) return std::unexpected(system_error("cannot stat", file.path(), errno));
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t page = page_size();
  std::vector<ByteRange> ranges;
  const int failed = for_each_page(file.fd(), {0, file_bytes}, [&](std::uint64_t index, bool there) {
    if (!there) return;
    const std::uint64_t begin = index * page;
    const std::uint64_t end = std::min(begin + page, file_bytes);
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  });
  const auto unknown = [&](std::string why) {
    return std::unexpected(Error{"cannot map the cached pages of", file.path(), std::move(why),
                                 "run as the file's owner or as root", Exit::not_permitted});
  };
  if (failed != 0) return unknown(cannot_map(failed));
  const bool all = ranges.size() == 1 && ranges[0] == ByteRange{0, file_bytes};
  if (all && !may_see_page_cache(file)) return unknown(refused);
  return ranges;
}

void to_json(nlohmann::json& json, const Residency& residency) {
  json = {{"how", residency.how}};
  if (residency.page_bytes != 0) {  // else the file itself was not seen: absent, not 0
    json["bytes"] = residency.file_bytes;
    json["page_bytes"] = residency.page_bytes;
    json["pages"] = residency.total_pages;
  }
  if (residency.resident_pages) json["resident_pages"] = *residency.resident_pages;
  if (residency.dirty_pages) json["dirty_pages"] = *residency.dirty_pages;
  if (!residency.known()) json["why_unknown"] = residency.why_unknown;
}

std::string text_of(const Residency& residency) {
  if (!residency.known()) return "unknown: " + residency.why_unknown;
  const std::uint64_t resident = *residency.resident_pages;
  const double share = residency.total_pages == 0
                           ? 0
                           : 100.0 * static_cast<double>(resident) / static_cast<double>(residency.total_pages);
  return fmt::format("{} of {} in the page cache ({:.1f} %, {} of {} pages, by {})",
                     size_text(std::min(resident * residency.page_bytes, residency.file_bytes)),
                     size_text(residency.file_bytes), share, resident, residency.total_pages, residency.how);
}

}  // namespace servedby
