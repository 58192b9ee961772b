// SPDX-License-Identifier: Apache-2.0
// Follows bytes down the layers. A consumer (a read call of the target, or a request that is served by a file) takes
// bytes of a file: each counts for the layer that filled it when it is first returned, and for the page cache from then
// on. What filled it is a request, which may itself be a consumer of a file below; so one function serves any depth.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "attribution/causes.h"
#include "attribution/fills.h"
#include "attribution/layout.h"
#include "attribution/ledger.h"
#include "attribution/packed.h"
#include "attribution/requests.h"
#include "attribution/tally.h"

namespace servedby::attribution {

struct FileKey {
  std::uint64_t ino = 0;
  std::uint32_t dev = 0, generation = 0;
  FileKey() = default;
  explicit FileKey(const sb_file_id& id) : ino(id.ino), dev(id.dev), generation(id.generation) {}
  friend auto operator<=>(const FileKey&, const FileKey&) = default;
};
struct FileKeyHash {
  std::size_t operator()(const FileKey& key) const {
    return (key.ino * 0x9e3779b97f4a7c15U) ^ (std::uint64_t{key.dev} << 32 | key.generation) * 0xc2b2ae3d27d4eb4fU;
  }
};

/// Where a page of a file in memory was in swap, and who wanted it.
struct Swapped {
  std::uint64_t bytes = 0, swap_pos = 0;
  std::uint32_t swap_file = 0;      ///< index of the swap area's File
  std::uint32_t tid = 0, read = 0;  ///< as in Fill
  std::uint8_t owner = 0;
};

/// A file whose pages are followed.
struct File {
  FileKey key;
  Fills fills;
  std::vector<Sum> mapped;       ///< filled by the target outside any read call
  std::uint64_t wasted = 0;      ///< filled for the target's read calls, never returned
  std::optional<Layout> layout;  ///< once it was looked at
  std::map<std::uint64_t, Swapped>
      swapped;  ///< a file in memory: by position, pages that came from swap, not yet settled
};

/// Who takes bytes, and what bytes are of which nothing is known.
struct Consumer {
  std::uint64_t begin_ns = 0;
  std::uint32_t tid = 0, read = 0;  ///< a read call of the target; 0: a request
  CauseId absent = 0;
};

/// Bytes [begin, end) with one cause. A file's or a device's bytes, as the function says.
struct Slice {
  std::uint64_t begin = 0, end = 0;
  CauseId cause = 0;
  bool prefetched = false;
  bool unseen = false;  ///< there should have been evidence of a file below, and there was none
};

class Resolver {
 public:
  Resolver(const StorageStack& stack, const std::vector<HookStatus>& hooks, std::size_t crowded_at);

  std::uint32_t file_index(const FileKey& key);
  File& file(std::uint32_t index) { return files_[index]; }
  [[nodiscard]] const std::deque<File>& files() const { return files_; }

  /// Takes [begin, end) of a file for a consumer; slices of the file go to `out`, all of the range.
  void consume(File& file, std::uint64_t begin, std::uint64_t end, const Consumer& consumer, int depth,
               std::vector<Slice>& out);
  /// Takes [begin, end) of a call's own direct I/O; slices go to `out`, only of what was read.
  void consume_direct(Fills& direct, std::uint64_t begin, std::uint64_t end, int depth, std::vector<Slice>& out);
  /// Bytes [begin, end) of a file for which no I/O was seen: the layout may say why there was none, else they are
  /// unknown.
  void place(const File& file, std::uint64_t begin, std::uint64_t end, Why why, std::vector<Slice>& out);
  /// Who had [begin, end) of a device, for a request of it that has completed; slices of the device go to `out`, all of
  /// the range. `serving`: what is known about the request, or null. `issue_ns`: when it was issued, 0 where that is
  /// not known.
  void serve(DeviceNumber dev, Serving* serving, std::uint64_t begin, std::uint64_t end, std::uint64_t issue_ns,
             std::vector<Slice>& out);
  /// What came from swap into [begin, end) of a file in memory becomes a fill of it, where its I/O was seen.
  void settle_swapped(File& file, std::uint64_t begin, std::uint64_t end);
  /// Settles runs that will not be returned any more. `how`: the kind of recovery that bios still in flight are; null:
  /// they may really be in flight.
  void dispose(File& file, const std::vector<Run>& runs, const char* how);
  /// A completed request fills the pages of its bios.
  void fill(const Part& part, const std::vector<Slice>& slices, std::uint64_t done_ns);
  /// A failed request fills nothing.
  void fail(const Part& part);
  /// Forgets a call's or a request's direct I/O.
  void drop(Fills& direct);
  /// A request ended: what was read for it and matched nothing was returned all the same.
  void discard(Serving& serving);

  Causes causes;
  InFlight bios;
  PackedExtents extents;
  Servings servings;
  Ledger ledger;
  std::map<std::string, std::uint64_t> recovered{
      {"completion_by_return", 0}, {"completion_by_refill", 0}, {"completion_by_end", 0}};
  std::uint64_t unmatched_backing = 0;  ///< requests with evidence of reads that they did not cover
  std::uint64_t unseen_backing = 0;     ///< requests for the target that should have had evidence
  /// Bytes of a file system's page cache of which nothing is known. `fills_more`: the kernel side says that it is one
  /// that fills pages besides those it is asked for.
  [[nodiscard]] CauseId absent(DeviceNumber file_system, bool fills_more) const;
  /// Whether a file system fills pages from blocks that it unpacks itself.
  [[nodiscard]] bool unpacks(DeviceNumber file_system) const { return unpacking_.contains(file_system); }
  /// `bytes` of a file do not wait for this compressed extent any more.
  void release(std::uint64_t extent, std::uint64_t bytes);

 private:
  /// What a run was unpacked from: its cause, and when that was read.
  Fill unpacked(const Run& run, const char* how, int depth);
  /// Who had the bytes of a run whose bio is in flight as far as was seen, though they were returned.
  void recover(const Run& run, const char* how, int depth, std::vector<Slice>& out);
  void consume_backing(Serving& serving, std::uint64_t begin, std::uint64_t end, std::uint64_t issue_ns, int depth,
                       std::vector<std::pair<std::uint64_t, std::uint64_t>>& open, std::vector<Slice>& out);
  CauseId cause_for(const Fill& fill, const Consumer& consumer) const;

  static constexpr int kMaxRecursion = 16;

  std::size_t crowded_at_;
  std::deque<File> files_;
  std::unordered_map<FileKey, std::uint32_t, FileKeyHash> index_;
  CauseId absent_ = 0;                      ///< bytes of which nothing is known
  CauseId unannounced_ = 0;                 ///< the same, where a fill may have been missed
  std::map<DeviceNumber, bool> fill_more_;  ///< file systems that fill more than they are asked for: whether it is seen
  std::set<DeviceNumber> unpacking_;
  CauseId warmed_ = 0;                     ///< bytes that others filled before
  std::vector<std::vector<Run>> scratch_;  ///< for each depth
};

}  // namespace servedby::attribution
