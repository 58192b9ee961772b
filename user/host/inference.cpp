// SPDX-License-Identifier: Apache-2.0
#include "host/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "stack/wording.h"

namespace servedby {
namespace {

using Via = std::vector<std::string>;

// Two counters that mean the same bytes differ by what was in flight and by a little metadata read in a kernel worker.
std::uint64_t tolerance(std::uint64_t bytes) { return bytes / 50 + (1U << 20); }

std::uint64_t less(std::uint64_t from, std::uint64_t amount) { return from > amount ? from - amount : 0; }

// Bytes that each disk (partitions belong to their disk) read between the snapshots.
class Moved {
 public:
  Moved(const CountersSnapshot& before, const CountersSnapshot& after, const StorageStack& stack) : stack_(&stack) {
    for (const auto& [dev, device] : stack.devices) {
      if (device.kind == DeviceKind::partition) continue;
      const auto first = before.block.find(dev);
      const auto last = after.block.find(dev);
      const bool counted = first != before.block.end() && last != after.block.end() && first->second.counting &&
                           last->second.counting && last->second.read_bytes >= first->second.read_bytes;
      if (counted) {
        bytes_[dev] = last->second.read_bytes - first->second.read_bytes;
      } else {
        uncounted_.insert(dev);
      }
    }
  }

  [[nodiscard]] bool counted(DeviceNumber dev) const { return bytes_.contains(dev); }
  [[nodiscard]] std::uint64_t by(DeviceNumber dev) const {
    const auto found = bytes_.find(dev);
    return found == bytes_.end() ? 0 : found->second;
  }
  [[nodiscard]] const std::map<DeviceNumber, std::uint64_t>& all() const { return bytes_; }
  [[nodiscard]] const std::set<DeviceNumber>& uncounted() const { return uncounted_; }
  // Bytes that the target itself read here, below another device's traffic: those are not the other's.
  void reserve(DeviceNumber dev, std::uint64_t bytes) { bytes_[dev] = less(bytes_[dev], bytes); }

  [[nodiscard]] std::vector<DeviceNumber> directly_below(DeviceNumber dev) const {
    std::vector<DeviceNumber> disks;
    const Device* device = stack_->find(dev);
    if (device == nullptr) return disks;
    for (const DeviceNumber below : device->below) {
      const DeviceNumber disk = stack_->disk_of(below);
      if (disk != dev && std::ranges::find(disks, disk) == disks.end()) disks.push_back(disk);
    }
    return disks;
  }

  [[nodiscard]] bool below_one_that_moved(DeviceNumber dev) const {
    return std::ranges::any_of(bytes_, [&](const auto& entry) {
      if (entry.second == 0 || entry.first == dev) return false;
      const auto reach = stack_->with_all_below(entry.first);
      return std::ranges::find(reach, dev) != reach.end();
    });
  }

  // At most this much was read here by somebody rather than by a mapping, array or direct loop above.
  [[nodiscard]] std::uint64_t read_here(DeviceNumber dev) const {
    std::uint64_t left = by(dev);
    for (const auto& [upper, bytes] : bytes_) {
      const Device* device = stack_->find(upper);
      if (device == nullptr || (device->kind == DeviceKind::loop && !(device->loop && device->loop->direct_io)))
        continue;
      const auto members = directly_below(upper);
      if (std::ranges::find(members, dev) == members.end()) continue;
      std::uint64_t by_others = 0;
      for (const DeviceNumber member : members) by_others += member == dev ? 0 : by(member);
      left = less(left, less(bytes, by_others));
    }
    return left;
  }

 private:
  const StorageStack* stack_;
  std::map<DeviceNumber, std::uint64_t> bytes_;
  std::set<DeviceNumber> uncounted_;
};

struct Entry {
  DeviceNumber dev;
  std::uint64_t bytes;
};

class Placer {
 public:
  Placer(Moved& moved, const StorageStack& stack) : moved_(moved), stack_(stack) {}

  std::vector<PlacedBytes> place(const std::vector<Entry>& entries, std::uint64_t unplaced) {
    for (const Entry& entry : entries) below(entry.dev, entry.bytes, {});
    add({"unknown"}, unplaced);
    return std::move(placed_);
  }

 private:
  void add(Via via, std::uint64_t bytes) {
    if (bytes == 0) return;
    const auto same = std::ranges::find(placed_, via, &PlacedBytes::via);
    if (same != placed_.end()) {
      same->bytes += bytes;
    } else {
      placed_.push_back({std::move(via), bytes});
    }
  }

  static Via with(Via via, std::string last) {
    via.push_back(std::move(last));
    return via;
  }

  // `bytes` of the target's reads were delivered by `dev`; where did it have them from?
  void below(DeviceNumber dev, std::uint64_t bytes, Via via) {
    if (bytes == 0) return;
    const Device* device = stack_.find(dev);
    via.push_back(stack_.name_of(dev));
    const auto members = moved_.directly_below(dev);
    // A ring in a damaged stack must end.
    if (via.size() > stack_.devices.size() + 1) return add(with(std::move(via), "unknown"), bytes);
    if (device != nullptr && device->kind == DeviceKind::loop) return below_loop(*device, members, bytes, via);
    if (members.empty()) return add(std::move(via), bytes);
    spread(members, bytes, via);
  }

  void below_loop(const Device& loop, const std::vector<DeviceNumber>& members, std::uint64_t bytes, const Via& via) {
    if (loop.facts.contains("backing_ends_in")) {
      const bool memory = loop.facts.at("backing_ends_in") == "memory";
      return add(with(via, memory ? "page-cache" : "unknown"), bytes);
    }
    std::uint64_t from_below = 0;
    bool counted = true;
    if (members.empty()) {  // not known what it stands on: no more than all drives together delivered
      for (const auto& [dev, read] : moved_.all()) from_below += drive(dev) ? read : 0;
      for (const DeviceNumber dev : moved_.uncounted()) counted = counted && !drive(dev);
    }
    for (const DeviceNumber member : members) {
      from_below += moved_.by(member);
      counted = counted && moved_.counted(member);
    }
    if (!counted) return add(with(via, "unknown"), bytes);
    if (loop.loop && loop.loop->direct_io) {
      const std::uint64_t covered = members.empty() ? 0 : std::min(bytes, from_below);
      spread(members, covered, via);
      return add(with(via, "unknown"), bytes - covered);
    }
    // What the drive did not deliver the host's page cache did. Of what it did deliver, that part is ours which the
    // loop device's other readers cannot have taken.
    const std::uint64_t at_most = std::min(bytes, from_below);
    const std::uint64_t others = less(moved_.by(loop.dev), bytes);
    const std::uint64_t at_least = members.empty() ? 0 : std::min(at_most, less(from_below, others));
    add(with(via, "page-cache"), bytes - at_most);
    spread(members, at_least, via);
    add(with(via, "unknown"), at_most - at_least);
  }

  void spread(const std::vector<DeviceNumber>& members, std::uint64_t bytes, const Via& via) {
    if (bytes == 0) return;
    if (members.size() == 1) return below(members.front(), bytes, via);
    std::uint64_t sum = 0;
    for (const DeviceNumber member : members) {
      if (!moved_.counted(member)) return add(with(via, "unknown"), bytes);
      sum += moved_.by(member);
    }
    // Each member served at least what all that was read beyond ours cannot explain.
    const std::uint64_t excess = less(sum, bytes);
    std::uint64_t left = bytes;
    for (const DeviceNumber member : members) {
      const std::uint64_t part = std::min(left, less(moved_.by(member), excess));
      below(member, part, via);
      left -= part;
    }
    add(with(via, "unknown"), left);
  }

  [[nodiscard]] bool drive(DeviceNumber dev) const {
    const Device* device = stack_.find(dev);
    return device != nullptr && device->below.empty() && device->kind != DeviceKind::loop &&
           device->kind != DeviceKind::zram && device->kind != DeviceKind::ram;
  }

  Moved& moved_;
  const StorageStack& stack_;
  std::vector<PlacedBytes> placed_;
};

// On which devices do the target's own file systems lie, and how much was read through each?
struct Entries {
  std::vector<Entry> entries;
  std::uint64_t unplaced = 0;
};

std::uint64_t sum_of(const std::vector<Entry>& entries) {
  std::uint64_t sum = 0;
  for (const Entry& entry : entries) sum += entry.bytes;
  return sum;
}

// More was read than the target did, so others read too: each device served at least what the rest cannot have.
Entries at_least(const std::vector<Entry>& candidates, std::uint64_t block_reads) {
  Entries result;
  const std::uint64_t sum = sum_of(candidates);
  for (const Entry& entry : candidates) {
    const std::uint64_t bytes = std::min(entry.bytes, less(block_reads, sum - entry.bytes));
    if (bytes > 0) result.entries.push_back({entry.dev, bytes});
  }
  result.unplaced = block_reads - sum_of(result.entries);
  return result;
}

// Every device that moved, with what was read there by somebody: the uppermost ones, and those below them.
struct Candidates {
  std::vector<Entry> tops;
  std::vector<Entry> lower;
};

Candidates candidates(const Moved& moved) {
  Candidates found;
  for (const auto& [dev, bytes] : moved.all()) {
    if (bytes == 0) continue;
    if (!moved.below_one_that_moved(dev)) {
      found.tops.push_back({dev, bytes});
    } else if (moved.read_here(dev) > 0) {
      found.lower.push_back({dev, moved.read_here(dev)});
    }
  }
  return found;
}

Entries find_entries(Moved& moved, std::uint64_t block_reads) {
  auto [tops, lower] = candidates(moved);
  const std::uint64_t slack = tolerance(block_reads);
  const std::uint64_t sum = sum_of(tops);
  if (sum > block_reads + slack) {
    // Others read too. If there is but one device that anybody read from, all of ours went there.
    if (tops.size() == 1 && lower.empty()) return {{{tops.front().dev, block_reads}}, 0};
    tops.insert(tops.end(), lower.begin(), lower.end());
    return at_least(tops, block_reads);
  }
  if (sum + slack >= block_reads) {
    if (tops.size() == 1) return {{{tops.front().dev, block_reads}}, 0};
    return at_least(tops, block_reads);
  }
  // The uppermost devices read less than the target did: the rest it read from one of those below them. What is within
  // the slack is no evidence that the target read there at all.
  std::erase_if(tops, [&](const Entry& entry) { return entry.bytes <= slack; });
  const std::uint64_t rest = block_reads - sum_of(tops);
  std::erase_if(lower, [&](const Entry& entry) { return entry.bytes + slack < rest; });
  if (lower.size() != 1) return {tops, rest};
  const std::uint64_t direct = std::min(rest, lower.front().bytes);
  moved.reserve(lower.front().dev, direct);
  Entries result{tops, rest - direct};
  result.entries.push_back({lower.front().dev, direct});
  return result;
}

// The same where the open files are known: from a device no more can have been read than the files on it hold. Nothing
// where they cannot explain the reads, since files may have been opened and closed between two looks.
std::optional<Entries> entries_of_open_files(const Moved& moved, std::uint64_t block_reads,
                                             const std::map<DeviceNumber, std::uint64_t>& open_on) {
  std::vector<Entry> fitting;
  const Candidates found = candidates(moved);
  for (const auto& list : {found.tops, found.lower}) {
    for (const Entry& entry : list) {
      const auto open = open_on.find(entry.dev);
      if (open != open_on.end()) fitting.push_back({entry.dev, std::min(entry.bytes, open->second)});
    }
  }
  const std::uint64_t slack = tolerance(block_reads);
  if (sum_of(fitting) + slack < block_reads) return std::nullopt;
  if (fitting.size() == 1) return Entries{{{fitting.front().dev, block_reads}}, 0};
  return at_least(fitting, block_reads);
}

// Of `placed`, which sums to more than the calls returned, each layer must have returned what the surplus cannot
// explain.
void cut_to_returned(std::vector<PlacedBytes>& placed, std::uint64_t returned, std::vector<PlacedBytes>& beyond) {
  std::uint64_t sum = 0;
  for (const PlacedBytes& part : placed) sum += part.bytes;
  const std::uint64_t surplus = sum - returned;
  if (placed.size() == 1) {
    beyond.push_back({placed.front().via, surplus});
    placed.front().bytes = returned;
    return;
  }
  std::uint64_t kept = 0;
  std::erase_if(placed, [](const PlacedBytes& part) { return part.via == Via{"unknown"}; });
  for (PlacedBytes& part : placed) {
    part.bytes = less(part.bytes, surplus);
    kept += part.bytes;
  }
  if (returned > kept) placed.push_back({{"unknown"}, returned - kept});
  beyond.push_back({{"unknown"}, surplus});
}

std::string amount(std::uint64_t bytes) { return bytes == 0 ? "0" : bytes_text(bytes); }

class Wording {
 public:
  Wording(const CountersSnapshot& before, const CountersSnapshot& after, const StorageStack& stack)
      : moved_(before, after, stack), stack_(stack) {}

  [[nodiscard]] std::string doubt(const TreeReads& reads, const std::vector<Entry>& entries,
                                  const Inference& inference) const {
    std::string text = "process " + amount(reads.read_bytes);
    std::set<DeviceNumber> told;
    for (const Entry& entry : entries) {
      for (const DeviceNumber dev : stack_.with_all_below(entry.dev)) {
        const Device* device = stack_.find(dev);
        if (device == nullptr || device->kind == DeviceKind::partition || !told.insert(dev).second) continue;
        text += fmt::format(", {} {}", device->name, moved_.counted(dev) ? amount(moved_.by(dev)) : "not counted");
      }
    }
    text += ": " + conclusion(reads, inference);
    std::vector<std::string> names;
    for (const Entry& entry : entries) names.push_back(stack_.name_of(entry.dev));
    for (const PlacedBytes& part : inference.served_by) {
      const std::string& end = part.via.back();
      const bool drive = part.via.size() > 1 && end != "page-cache" && end != "unknown";
      if (drive && std::ranges::find(names, end) == names.end()) names.push_back(end);
    }
    if (!names.empty()) text += fmt::format("; other readers of {} would look the same", listed(names));
    for (const DeviceNumber dev : told) {
      if (const Device* device = stack_.find(dev); device->below_doubt) {
        text += fmt::format("; {}: {}", device->name, *device->below_doubt);
      }
    }
    if (reads.rchar > reads.read_bytes && reads.read_bytes > 0) {
      text += fmt::format(
          "; the {} that calls returned beyond that came from the page cache, or from pipes, sockets and terminals",
          amount(reads.rchar - reads.read_bytes));
    }
    if (reads.ended_unseen > 0) {
      text += fmt::format("; {} process{} ended unseen, and what {} read last is missing", reads.ended_unseen,
                          reads.ended_unseen == 1 ? "" : "es", reads.ended_unseen == 1 ? "it" : "they");
    }
    if (!reads.known) text += "; some process's counters were refused, so its reads are missing";
    return text;
  }

 private:
  [[nodiscard]] static std::string conclusion(const TreeReads& reads, const Inference& inference) {
    if (reads.read_bytes == 0) {
      return "no process block reads, so every file byte came from the page cache; pipes, sockets and terminals count "
             "as well";
    }
    std::vector<std::string> parts;
    for (const PlacedBytes& part : inference.served_by) {
      const std::string& end = part.via.back();
      if (part.via == Via{"page-cache"}) continue;
      if (end == "unknown") {
        parts.push_back(fmt::format("{} not to be placed", amount(part.bytes)));
      } else if (end == "page-cache") {
        parts.push_back(fmt::format("{} from the loop's backing file in the host's page cache", amount(part.bytes)));
      } else {
        parts.push_back(fmt::format("{} from {}{}", amount(part.bytes), end,
                                    part.via.size() > 1 ? " through " + part.via.front() : std::string()));
      }
    }
    if (parts.size() == 1 && parts.front().ends_with("page cache"))
      return "the loop's backing file in the host's page cache";
    return parts.empty() ? "nothing that calls returned" : listed(parts);
  }

  Moved moved_;
  const StorageStack& stack_;
};

}  // namespace

Inference infer(const CountersSnapshot& before, const CountersSnapshot& after, const TreeReads& reads,
                const StorageStack& stack, const std::map<DeviceNumber, std::uint64_t>& open_on) {
  Inference inference;
  Moved moved(before, after, stack);
  Entries found;
  bool by_open_files = false;
  if (reads.read_bytes > 0) {
    const Moved untouched = moved;
    found = find_entries(moved, reads.read_bytes);
    if (found.unplaced > tolerance(reads.read_bytes)) {
      std::map<DeviceNumber, std::uint64_t> open_on_disks;
      for (const auto& [dev, bytes] : open_on) open_on_disks[stack.disk_of(dev)] += bytes;
      auto other = entries_of_open_files(untouched, reads.read_bytes, open_on_disks);
      if (other && other->unplaced < found.unplaced) {
        found = *std::move(other);
        moved = untouched;
        by_open_files = true;
      }
    }
  }
  inference.served_by = Placer(moved, stack).place(found.entries, found.unplaced);
  if (reads.rchar >= reads.read_bytes) {
    if (reads.rchar > reads.read_bytes) {
      inference.served_by.push_back({{"page-cache"}, reads.rchar - reads.read_bytes});
    }
  } else {
    cut_to_returned(inference.served_by, reads.rchar, inference.beyond);
    std::erase_if(inference.served_by, [](const PlacedBytes& part) { return part.bytes == 0; });
  }
  inference.doubt = Wording(before, after, stack).doubt(reads, found.entries, inference);
  if (by_open_files) {
    inference.doubt +=
        "; others read the same devices meanwhile, and the files that the target was seen to have open decided";
  }
  return inference;
}

}  // namespace servedby
