// SPDX-License-Identifier: Apache-2.0
#include "attribution/requests.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace servedby::attribution {

BioSlot InFlight::open(std::uint64_t address, DeviceNumber dev, PathId above, std::uint64_t submit_ns, bool first) {
  Recent& recent = recent_[(address >> 6) % recent_.size()];
  if (!first && recent.address == address && recent.bio < bios_.size()) {
    const Bio& known = bios_[recent.bio];
    if (known.generation == recent.generation && known.address == address && known.dev == dev && known.outstanding != 0)
      return recent.bio;
  }
  BioSlot slot = 0;
  if (free_.empty()) {
    slot = static_cast<BioSlot>(bios_.size());
    bios_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Bio& bio = bios_[slot];
  bio = {dev, above, address, submit_ns, ++bios_seen_, 0, false, false, bio.generation + 1};
  recent = {address, slot, bio.generation};
  return slot;
}

void InFlight::add(const Part& part) {
  Bio& bio = bios_[part.bio];
  Device& device = devices_[bio.dev];
  device.parts.emplace(part.begin, part);
  device.longest = std::max(device.longest, part.end - part.begin);
  bio.outstanding += part.end - part.begin;
  bytes_ += part.end - part.begin;
}

InFlight::Parts::iterator InFlight::first_overlap(Device& device, std::uint64_t begin) {
  return device.parts.lower_bound(begin > device.longest ? begin - device.longest : 0);
}

void InFlight::forget_bytes(BioSlot slot, std::uint64_t bytes) {
  Bio& bio = bios_[slot];
  bio.outstanding -= bytes;
  bytes_ -= bytes;
  if (bio.outstanding == 0) free_.push_back(slot);
}

/// Takes [begin, end) out of a part that covers it, and keeps what is left on either side.
void InFlight::cut(Device& device, Parts::iterator where, std::uint64_t begin, std::uint64_t end) {
  const Part part = where->second;
  if (end < part.end) {
    Part right = part;
    right.at += end - part.begin;
    right.begin = end;
    device.parts.emplace(right.begin, right);
  }
  if (begin > part.begin)
    where->second.end = begin;
  else
    device.parts.erase(where);
  forget_bytes(part.bio, end - begin);
}

void InFlight::complete(DeviceNumber dev, std::uint64_t begin, std::uint64_t end, std::uint64_t issue_ns,
                        std::vector<Part>& out) {
  const auto device = devices_.find(dev);
  if (device == devices_.end()) return;
  std::vector<Parts::iterator> found;
  bool disjoint = true;
  std::uint64_t reach = 0;
  for (auto part = first_overlap(device->second, begin); part != device->second.parts.end() && part->first < end;
       ++part) {
    if (part->second.end <= begin) continue;
    if (issue_ns != 0 && bios_[part->second.bio].submit_ns > issue_ns) continue;
    disjoint = disjoint && part->first >= reach;
    reach = std::max(reach, part->second.end);
    found.push_back(part);
  }
  const auto take = [&](Parts::iterator where, std::uint64_t from, std::uint64_t to) {
    Part piece = where->second;
    piece.at += from - piece.begin;
    piece.begin = from;
    piece.end = to;
    out.push_back(piece);
  };
  if (disjoint) {
    for (const auto where : found) {
      const std::uint64_t from = std::max(begin, where->second.begin), to = std::min(end, where->second.end);
      take(where, from, to);
      cut(device->second, where, from, to);
    }
    return;
  }
  // Several bios read the same sectors at once: each byte completes the oldest that waits for it.
  std::ranges::sort(
      found, {}, [&](Parts::iterator where) { return std::pair(bios_[where->second.bio].order, where->second.begin); });
  std::map<std::uint64_t, std::uint64_t> open{{begin, end}};  // bytes of the request that completed nothing yet
  for (const auto where : found) {
    const Part part = where->second;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
    for (const auto& [from, to] : open)
      if (from < part.end && to > part.begin) pieces.emplace_back(std::max(from, part.begin), std::min(to, part.end));
    // From the back, so that `where` keeps the front of the part until its turn.
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
      const auto range = std::prev(open.upper_bound(piece->first));
      const std::uint64_t from = range->first, to = range->second;
      open.erase(range);
      if (from < piece->first) open.emplace(from, piece->first);
      if (piece->second < to) open.emplace(piece->second, to);
      take(where, piece->first, piece->second);
      cut(device->second, where, piece->first, piece->second);
    }
  }
}

void InFlight::retire(BioSlot slot, std::uint64_t begin, std::uint64_t end) {
  const auto device = devices_.find(bios_[slot].dev);
  if (device == devices_.end()) return;
  std::vector<Parts::iterator> found;
  for (auto part = first_overlap(device->second, begin); part != device->second.parts.end() && part->first < end;
       ++part)
    if (part->second.end > begin && part->second.bio == slot) found.push_back(part);
  for (const auto where : found)
    cut(device->second, where, std::max(begin, where->second.begin), std::min(end, where->second.end));
}

bool InFlight::first_recovery(BioSlot slot) { return !std::exchange(bios_[slot].recovered, true); }

std::vector<Part> InFlight::all() const {
  std::vector<Part> parts;
  for (const auto& [dev, device] : devices_)
    for (const auto& [begin, part] : device.parts) parts.push_back(part);
  return parts;
}

Serving* Servings::find(std::uint64_t request) {
  const auto found = servings_.find(request);
  return found == servings_.end() ? nullptr : &found->second;
}

void Servings::add(std::uint64_t request, DeviceNumber dev, const Backing& backing) {
  Serving& serving = servings_[request];
  serving.dev = dev;
  serving.order = ++seen_;
  // Some kernels read the backing file page by page: one piece of evidence for a run of them.
  if (!serving.backings.empty()) {
    Backing& last = serving.backings.back();
    if (last.end == backing.begin && last.file == backing.file && last.direct == backing.direct &&
        last.pos + (last.end - last.begin) == backing.pos) {
      last.end = backing.end;
      return;
    }
  }
  serving.backings.push_back(backing);
}

std::vector<std::uint64_t> Servings::covering(DeviceNumber dev, std::uint64_t begin, std::uint64_t end) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> by_order;
  for (const auto& [request, serving] : servings_)
    if (serving.dev == dev && std::ranges::any_of(serving.backings, [&](const Backing& backing) {
          return backing.begin < end && backing.end > begin;
        }))
      by_order.emplace_back(serving.order, request);
  std::ranges::sort(by_order, std::greater{});
  std::vector<std::uint64_t> requests;
  for (const auto& [order, request] : by_order) requests.push_back(request);
  return requests;
}

}  // namespace servedby::attribution
