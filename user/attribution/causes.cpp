// SPDX-License-Identifier: Apache-2.0
#include "attribution/causes.h"

namespace servedby::attribution {

const char* why_text(Why why) {
  switch (why) {
    case Why::none:
      return "";
    case Why::fill_hook_off:
      return "the fill hook is off";
    case Why::bio_hook_off:
      return "the bio hook is off";
    case Why::not_paged:
      return "the read was not seen in the page cache";
    case Why::no_page_cache:
      return "a file in memory: what was read may be a hole of it, or have been in swap";
    case Why::fill_unseen:
      return "filled by I/O that was not seen";
    case Why::unpacked:
      return "unpacked by its file system, from blocks that it kept or read";
    case Why::unannounced:
      return "its file system fills more pages than it is asked for, and that was not seen";
    case Why::packed_mixed:
      return "a compressed extent of which several layers had a part";
    case Why::fill_failed:
      return "the I/O for these bytes failed, and they were returned";
    case Why::direct_unseen:
      return "a direct read without I/O that was seen";
    case Why::remap_unseen:
      return "where the stacked device had the bytes was not seen";
    case Why::backing_unseen:
      return "how the device's backing file was read was not seen";
    case Why::too_deep:
      return "more layers below each other than can be followed";
    case Why::device_unseen:
      return "a device that was not known";
    case Why::events_lost:
      return "events were lost";
  }
  return "";
}

bool Causes::served_by_file(DeviceNumber dev) const {
  const Device* device = stack_.find(now(dev));
  return device != nullptr && device->kind == DeviceKind::loop;
}

CauseId Causes::intern(Cause cause) {
  std::size_t hash =
      static_cast<std::size_t>(cause.end) + 16 * static_cast<std::size_t>(cause.why) + (cause.warmed ? 1024U : 0U);
  for (const DeviceNumber dev : cause.path) hash = hash * 0x9e3779b97f4a7c15U + dev;
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto found = first; found != last; ++found)
    if (causes_[found->second] == cause) return found->second;
  const auto id = static_cast<CauseId>(causes_.size());
  causes_.push_back(std::move(cause));
  by_hash_.emplace(hash, id);
  return id;
}

CauseId Causes::ended(End end, Why why, bool warmed) { return intern({{}, end, why, warmed}); }

CauseId Causes::device(DeviceNumber number) {
  const DeviceNumber dev = now(number);
  if (const auto found = device_.find(dev); found != device_.end()) return found->second;
  const CauseId id = served_by_file(dev) ? intern({{dev}, End::unknown, Why::backing_unseen, false})
                                         : intern({{dev}, End::device, Why::none, false});
  return device_[dev] = id;
}

CauseId Causes::below(DeviceNumber dev, CauseId lower) { return put_above(now(dev), lower); }

CauseId Causes::put_above(DeviceNumber dev, CauseId lower) {
  const std::uint64_t key = std::uint64_t{dev} << 32 | lower;
  if (const auto found = below_.find(key); found != below_.end()) return found->second;
  Cause cause = causes_[lower];
  cause.path.insert(cause.path.begin(), dev);
  if (cause.path.size() > kMaxDepth) {
    cause.path.resize(kMaxDepth);
    cause.end = End::unknown;
    cause.why = Why::too_deep;
    cause.warmed = false;
  }
  const CauseId id = intern(std::move(cause));
  return below_[key] = id;
}

CauseId Causes::under(PathId path, CauseId lower) {
  if (path == 0) return lower;
  const std::vector<DeviceNumber>& devices = paths_[path];
  for (auto dev = devices.rbegin(); dev != devices.rend(); ++dev) lower = put_above(*dev, lower);
  return lower;
}

PathId Causes::append(PathId path, DeviceNumber number) {
  const DeviceNumber dev = now(number);
  if (paths_[path].size() >= kMaxDepth) return path;
  const std::uint64_t key = std::uint64_t{path} << 32 | dev;
  if (const auto found = appended_.find(key); found != appended_.end()) return found->second;
  std::vector<DeviceNumber> longer = paths_[path];
  longer.push_back(dev);
  paths_.push_back(std::move(longer));
  return appended_[key] = static_cast<PathId>(paths_.size() - 1);
}

}  // namespace servedby::attribution
