// SPDX-License-Identifier: Apache-2.0
// Where bytes came from, as small numbers: a cause is a list of devices from the file down, and what ended it. Names
// are made only when the session ends, because a device may become known after its first record.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "attribution/result.h"

namespace servedby::attribution {

using CauseId = std::uint32_t;
using PathId = std::uint32_t;  ///< a list of devices above something; 0: none

/// What had the bytes below the last device of the list.
enum class End : std::uint8_t {
  device,        ///< the last device itself
  server,        ///< the server of a file system without a device; the last of the list is that file system's number
  page_cache,    ///< the page cache of the file below it (of the target's own file where the list is empty)
  hole,          ///< nothing: the file has no storage there
  swap,          ///< swap, of a file in memory
  unwritten,     ///< nothing: allocated and never written
  in_inode,      ///< the inode itself, or the file system's own tree
  zero,          ///< nothing: a device has nothing stored there
  rebuilt,       ///< md worked it out from the other members
  stripe_cache,  ///< md's stripe cache
  unknown,
};

/// Why it is not known. Each has one sentence for the reader, see why_text().
enum class Why : std::uint8_t {
  none,
  fill_hook_off,
  bio_hook_off,
  not_paged,       ///< the read never reached the page cache that is watched
  no_page_cache,   ///< a file in memory (tmpfs) that may have holes, or whose page was in swap and read by I/O unseen
  fill_unseen,     ///< pages were announced as not up to date; no I/O for them was seen
  unpacked,        ///< by a file system whose blocks are not followed (squashfs, erofs)
  unannounced,     ///< its file system fills pages that nobody asked for, and these are not seen
  packed_mixed,    ///< a compressed extent, of which more than one layer had a part
  fill_failed,     ///< the I/O for them failed, and yet they were returned
  direct_unseen,   ///< direct I/O, no bio seen
  remap_unseen,    ///< a stacked device: where it passed the bytes on to was not seen
  backing_unseen,  ///< a device served by a file: how the file was read was not seen
  too_deep,        ///< more layers than kMaxDepth
  device_unseen,   ///< no device of this number was known
  events_lost,
};
[[nodiscard]] const char* why_text(Why why);

struct Cause {
  std::vector<DeviceNumber> path;
  End end = End::unknown;
  Why why = Why::none;
  bool warmed = false;  ///< page_cache: filled during the session by somebody else's I/O
  friend bool operator==(const Cause&, const Cause&) = default;
};

/// The table of all causes of a session. Not thread-safe.
class Causes {
 public:
  /// Layers below each other; deeper ones are unknown. Far above any real stack: it stops a malformed recording.
  static constexpr std::size_t kMaxDepth = 16;

  explicit Causes(const StorageStack& stack) : stack_(stack) {}

  [[nodiscard]] CauseId ended(End end, Why why = Why::none, bool warmed = false);
  /// A device whose request completed without evidence of a file below it.
  [[nodiscard]] CauseId device(DeviceNumber dev);
  /// The server of a file system.
  [[nodiscard]] CauseId server(DeviceNumber file_system) {
    return intern({{file_system}, End::server, Why::none, false});
  }
  /// `lower`, seen from a device above it.
  [[nodiscard]] CauseId below(DeviceNumber dev, CauseId lower);
  /// `lower`, seen from below a list of devices.
  [[nodiscard]] CauseId under(PathId path, CauseId lower);
  [[nodiscard]] PathId append(PathId path, DeviceNumber dev);

  /// From now on a device number stands for another device, which has a number of its own here.
  void becomes(DeviceNumber dev, DeviceNumber another) { now_[dev] = another; }

  /// A device that has no requests of its own: it only passes bios on.
  void passes_on(DeviceNumber dev) { passing_.insert(now(dev)); }
  [[nodiscard]] bool is_passing(DeviceNumber dev) const { return passing_.contains(dev); }

  [[nodiscard]] const Cause& at(CauseId id) const { return causes_[id]; }
  [[nodiscard]] std::size_t size() const { return causes_.size(); }
  /// Whether requests of this device are served by reading a file, as far as the stack says.
  [[nodiscard]] bool served_by_file(DeviceNumber dev) const;

 private:
  CauseId intern(Cause cause);
  CauseId put_above(DeviceNumber dev, CauseId lower);
  [[nodiscard]] DeviceNumber now(DeviceNumber dev) const {
    const auto another = now_.find(dev);
    return another == now_.end() ? dev : another->second;
  }

  const StorageStack& stack_;
  std::map<DeviceNumber, DeviceNumber> now_;
  std::set<DeviceNumber> passing_;
  std::vector<Cause> causes_;
  std::unordered_multimap<std::size_t, CauseId> by_hash_;
  std::unordered_map<std::uint64_t, CauseId> below_;  ///< dev << 32 | lower
  std::unordered_map<DeviceNumber, CauseId> device_;
  std::vector<std::vector<DeviceNumber>> paths_{{}};
  std::unordered_map<std::uint64_t, PathId> appended_;  ///< path << 32 | dev
};

}  // namespace servedby::attribution
