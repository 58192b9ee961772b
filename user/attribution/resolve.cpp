// SPDX-License-Identifier: Apache-2.0
#include "attribution/resolve.h"

#include <algorithm>
#include <string_view>

namespace servedby::attribution {
namespace {

using Range = std::pair<std::uint64_t, std::uint64_t>;

/// Takes [begin, end) out of a list of ranges.
void subtract(std::vector<Range>& ranges, std::uint64_t begin, std::uint64_t end) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto [from, to] = ranges[i];
    if (to <= begin || from >= end) continue;
    ranges[i] = {from, std::max(from, begin)};
    if (end < to) ranges.emplace_back(std::min(end, to), to);
  }
  std::erase_if(ranges, [](const Range& range) { return range.first >= range.second; });
}

/// Why bytes without any record may not be called page cache; Why::none where they may.
Why unproven(const std::vector<HookStatus>& hooks) {
  bool fill = false, bio = false;
  for (const HookStatus& hook : hooks) {
    if (hook.name.starts_with("fill-")) {
      if (!hook.attached) return Why::fill_hook_off;
      fill = true;
    }
    if (hook.name == "bio-submit") bio = hook.attached;
  }
  if (!fill) return Why::fill_hook_off;
  return bio ? Why::none : Why::bio_hook_off;
}

}  // namespace

Resolver::Resolver(const StorageStack& stack, const std::vector<HookStatus>& hooks, std::size_t crowded_at)
    : causes(stack), crowded_at_(crowded_at) {
  const Why why = unproven(hooks);
  absent_ = causes.ended(why == Why::none ? End::page_cache : End::unknown, why);
  warmed_ = why == Why::none ? causes.ended(End::page_cache, Why::none, true) : absent_;
  unannounced_ = causes.ended(End::unknown, why == Why::none ? Why::unannounced : why);
  scratch_.resize(kMaxRecursion + 2);
  const auto attached = [&](std::string_view name) {
    return std::ranges::any_of(hooks, [&](const HookStatus& hook) { return hook.name == name && hook.attached; });
  };
  for (const auto& [dev, system] : stack.file_systems) {
    if (system.type == "btrfs") fill_more_[dev] = attached("unpack-begin");
    if (system.type != "squashfs" && system.type != "erofs") continue;
    fill_more_[dev] = attached("page-added");
    unpacking_.insert(dev);
  }
}

CauseId Resolver::absent(DeviceNumber file_system, bool fills_more) const {
  const auto known = fill_more_.find(file_system);
  const bool seen = known == fill_more_.end() ? !fills_more : known->second;
  return seen ? absent_ : unannounced_;
}

std::uint32_t Resolver::file_index(const FileKey& key) {
  const auto [found, added] = index_.try_emplace(key, static_cast<std::uint32_t>(files_.size()));
  if (added) {
    File& file = files_.emplace_back();
    file.key = key;
    file.fills.set_crowded_at(crowded_at_);
  }
  return found->second;
}

CauseId Resolver::cause_for(const Fill& fill, const Consumer& consumer) const {
  // Somebody else's fill counts for the layer only if this consumer had to wait for it.
  return (fill.owner & kForTarget) != 0 || consumer.begin_ns < fill.done_ns ? fill.cause : warmed_;
}

void Resolver::consume(File& file, std::uint64_t begin, std::uint64_t end, const Consumer& consumer, int depth,
                       std::vector<Slice>& out) {
  if (depth > kMaxRecursion) {
    out.push_back({begin, end, causes.ended(End::unknown, Why::too_deep)});
    return;
  }
  std::vector<Run>& runs = scratch_[static_cast<std::size_t>(depth)];
  runs.clear();
  file.fills.take(begin, end, runs);
  std::uint64_t at = begin;
  for (const Run& run : runs) {
    if (run.begin > at) out.push_back({at, run.begin, consumer.absent});
    at = run.end;
    const Fill& fill = run.fill;
    const bool prefetched = fill.read == 0 || fill.read != consumer.read || fill.tid != consumer.tid;
    if ((fill.owner & kCounted) != 0) ledger.process.first_returned += run.end - run.begin;
    switch (fill.state) {
      case FillState::announced:
        place(file, run.begin, run.end, fill.why, out);
        break;
      case FillState::filled: {
        const CauseId cause = cause_for(fill, consumer);
        out.push_back({run.begin, run.end, cause, cause == fill.cause && prefetched});
        break;
      }
      case FillState::packed: {
        const Fill from = unpacked(run, "completion_by_return", depth);
        const CauseId cause = cause_for(from, consumer);
        out.push_back({run.begin, run.end, cause, cause == from.cause && prefetched});
        if ((fill.owner & kMapped) != 0) add_to(file.mapped, from.cause, run.end - run.begin, 0);
        release(fill.to_device, run.end - run.begin);
        break;
      }
      case FillState::in_flight: {
        const std::size_t first = out.size();
        recover(run, "completion_by_return", depth + 1, out);
        for (std::size_t i = first; i < out.size(); ++i) {
          out[i].prefetched = prefetched;
          if ((fill.owner & kMapped) != 0) add_to(file.mapped, out[i].cause, out[i].end - out[i].begin, 0);
        }
        break;
      }
    }
  }
  if (at < end) out.push_back({at, end, consumer.absent});
}

Fill Resolver::unpacked(const Run& run, const char* how, int depth) {
  const std::uint64_t number = run.fill.to_device;
  if (PackedExtent& extent = extents[number]; !extent.known) {
    extent.known = true;
    extent.cause = causes.ended(End::unknown, Why::fill_unseen);
    std::vector<Run> read;
    std::vector<Slice> slices;
    std::uint64_t done_ns = 0;
    extent.compressed.take_all(read);
    for (const Run& part : read) {
      done_ns = std::max(done_ns, part.fill.done_ns);
      if (part.fill.state == FillState::in_flight)
        recover(part, how, depth + 1, slices);
      else if (part.fill.state == FillState::filled)
        slices.push_back({part.begin, part.end, part.fill.cause});
      else
        slices.push_back({part.begin, part.end, causes.ended(End::unknown, part.fill.why)});
    }
    PackedExtent& read_extent = extents[number];  // in a damaged recording it may lie below itself, and be gone
    read_extent.known = true;
    read_extent.done_ns = done_ns;
    if (!slices.empty()) read_extent.cause = slices.front().cause;
    // Each byte of the file may be made of any byte of the extent.
    if (std::ranges::any_of(slices, [&](const Slice& slice) { return slice.cause != read_extent.cause; }))
      read_extent.cause = causes.ended(End::unknown, Why::packed_mixed);
  }
  Fill from = run.fill;
  from.cause = extents[number].cause;
  from.done_ns = extents[number].done_ns;
  return from;
}

void Resolver::release(std::uint64_t number, std::uint64_t bytes) {
  PackedExtent& extent = extents[number];
  extent.file_bytes -= std::min(extent.file_bytes, bytes);
  if (extent.file_bytes != 0) return;
  drop(extent.compressed);
  extents.erase(number);
}

void Resolver::place(const File& file, std::uint64_t begin, std::uint64_t end, Why why, std::vector<Slice>& out) {
  const bool may_be_empty = why == Why::fill_unseen || why == Why::direct_unseen;
  if (!file.layout || !may_be_empty) {
    out.push_back({begin, end, causes.ended(End::unknown, why)});
    return;
  }
  file.layout->split(begin, end, [&](std::uint64_t from, std::uint64_t to, std::optional<End> empty) {
    out.push_back({from, to, empty ? causes.ended(*empty) : causes.ended(End::unknown, why)});
  });
}

void Resolver::settle_swapped(File& file, std::uint64_t begin, std::uint64_t end) {
  auto page = file.swapped.upper_bound(begin);
  if (page != file.swapped.begin()) --page;
  while (page != file.swapped.end() && page->first < end) {
    const auto [pos, from] = *page;
    if (pos + from.bytes <= begin) {
      ++page;
      continue;
    }
    page = file.swapped.erase(page);
    std::vector<Run> runs;
    Fills& swap = files_[from.swap_file].fills;
    swap.take(from.swap_pos, from.swap_pos + from.bytes, runs);
    Fill fill;
    fill.why = Why::no_page_cache;
    const bool whole = runs.size() == 1 && runs[0].end - runs[0].begin == from.bytes;
    if (whole && runs[0].fill.state != FillState::announced && (runs[0].fill.owner & kCounted) == 0) {
      const Fill& read = runs[0].fill;
      if (read.state == FillState::in_flight)  // its page is in the file: the I/O is over
        bios.retire(read.bio, runs[0].begin + read.to_device, runs[0].end + read.to_device);
      fill = {.state = FillState::filled,
              .owner = static_cast<std::uint8_t>((read.owner & kForTarget) | (from.owner & kMapped)),
              .tid = read.tid,
              .read = read.read,
              .cause = causes.ended(End::swap),
              .done_ns = read.done_ns};
      if ((fill.owner & kMapped) != 0) add_to(file.mapped, fill.cause, from.bytes, 0);
    } else {
      dispose(files_[from.swap_file], runs, "completion_by_refill");
    }
    runs.clear();
    file.fills.replace(pos, pos + from.bytes, fill, runs);
    dispose(file, runs, "completion_by_refill");
  }
}

void Resolver::consume_direct(Fills& direct, std::uint64_t begin, std::uint64_t end, int depth,
                              std::vector<Slice>& out) {
  if (depth > kMaxRecursion) return;
  std::vector<Run>& runs = scratch_[static_cast<std::size_t>(depth)];
  runs.clear();
  direct.take(begin, end, runs);
  for (const Run& run : runs) {
    if (run.fill.state == FillState::filled)
      out.push_back({run.begin, run.end, run.fill.cause});
    else if (run.fill.state == FillState::in_flight)
      recover(run, "completion_by_return", depth + 1, out);
  }
}

void Resolver::recover(const Run& run, const char* how, int depth, std::vector<Slice>& out) {
  const Bio bio = bios.at(run.fill.bio);
  const std::uint64_t to_device = run.fill.to_device;
  if (!bio.zeroed && bios.first_recovery(run.fill.bio)) ++recovered[how];
  bios.retire(run.fill.bio, run.begin + to_device, run.end + to_device);
  const std::size_t first = out.size();
  const std::uint64_t begin = run.begin + to_device, end = run.end + to_device;
  std::vector<Range> open{{begin, end}};
  // The bytes were returned, so their request completed; what was seen of how it was served is as good as ever.
  if (!servings.empty() && depth <= kMaxRecursion)
    for (const std::uint64_t request : servings.covering(bio.dev, begin, end)) {
      const std::vector<Range> wanted = open;
      for (const auto& [from, to] : wanted)
        if (Serving* serving = servings.find(request)) consume_backing(*serving, from, to, 0, depth, open, out);
    }
  const CauseId rest = bio.zeroed ? causes.below(bio.dev, causes.ended(End::zero)) : causes.device(bio.dev);
  for (const auto& [from, to] : open) out.push_back({from, to, rest});
  for (std::size_t i = first; i < out.size(); ++i) {
    out[i].begin -= to_device;
    out[i].end -= to_device;
    out[i].cause = causes.under(bio.above, out[i].cause);
  }
}

void Resolver::serve(DeviceNumber dev, Serving* serving, std::uint64_t begin, std::uint64_t end, std::uint64_t issue_ns,
                     std::vector<Slice>& out) {
  if (serving == nullptr) {
    out.push_back({begin, end, causes.device(dev), false, causes.served_by_file(dev)});
    return;
  }
  std::vector<Range> open{{begin, end}};
  consume_backing(*serving, begin, end, issue_ns, 0, open, out);
  // Where a part of a request is known to be served by a file, the rest of it is too.
  const CauseId rest = causes.served_by_file(dev) ? causes.device(dev)
                                                  : causes.below(dev, causes.ended(End::unknown, Why::backing_unseen));
  for (const auto& [from, to] : open) out.push_back({from, to, rest, false, true});
}

/// Takes the bytes that a request's worker read for [begin, end) of its device; what was not read stays in `open`.
void Resolver::consume_backing(Serving& serving, std::uint64_t begin, std::uint64_t end, std::uint64_t issue_ns,
                               int depth, std::vector<Range>& open, std::vector<Slice>& out) {
  const DeviceNumber dev = serving.dev;
  std::vector<Backing> backings;
  std::vector<Backing> kept;
  for (const Backing& backing : serving.backings) {
    if (backing.end <= begin || backing.begin >= end) {
      kept.push_back(backing);
      continue;
    }
    const auto piece = [&](std::uint64_t from, std::uint64_t to) {
      Backing part = backing;
      part.begin = from;
      part.end = to;
      part.pos = backing.pos + (from - backing.begin);
      return part;
    };
    if (backing.begin < begin) kept.push_back(piece(backing.begin, begin));
    if (backing.end > end) kept.push_back(piece(end, backing.end));
    backings.push_back(piece(std::max(begin, backing.begin), std::min(end, backing.end)));
  }
  serving.backings = std::move(kept);
  std::vector<Slice> got;
  const auto read = [&](const Backing& backing, auto&& how) {
    std::vector<Range> wanted;
    for (const auto& [from, to] : open)
      if (from < backing.end && to > backing.begin)
        wanted.emplace_back(std::max(from, backing.begin), std::min(to, backing.end));
    for (const auto& [from, to] : wanted) {
      const std::uint64_t to_file = backing.pos - backing.begin;
      got.clear();
      how(backing, from + to_file, to + to_file);
      for (const Slice& slice : got) {
        out.push_back({slice.begin - to_file, slice.end - to_file, causes.below(dev, slice.cause)});
        subtract(open, slice.begin - to_file, slice.end - to_file);
      }
    }
  };
  for (const Backing& backing : backings)
    if (backing.direct)
      read(backing, [&](const Backing&, std::uint64_t from, std::uint64_t to) {
        consume_direct(serving.direct, from, to, depth + 1, got);
      });
  // A direct read may have fallen back to the page cache: then there is evidence of both kinds.
  for (const Backing& backing : backings)
    if (!backing.direct)
      read(backing, [&](const Backing& from_file, std::uint64_t from, std::uint64_t to) {
        const std::uint64_t begin_ns = from_file.late ? issue_ns : from_file.begin_ns;
        File& backed = file(from_file.file);
        consume(backed, from, to, {begin_ns, 0, 0, absent(backed.key.dev, false)}, depth + 1, got);
      });
  for (const Backing& backing : backings)
    if (backing.direct)
      read(backing, [&](const Backing& from_file, std::uint64_t from, std::uint64_t to) {
        place(file(from_file.file), from, to, Why::direct_unseen, got);
      });
}

void Resolver::dispose(File& file, const std::vector<Run>& runs, const char* how) {
  for (const Run& run : runs) {
    const std::uint64_t bytes = run.end - run.begin;
    if ((run.fill.owner & kCounted) != 0) {
      if ((run.fill.owner & kMeta) != 0) {
        ledger.process.metadata += bytes;
      } else if ((run.fill.owner & kMapped) != 0) {
        ledger.process.exec_mmap += bytes;
      } else {
        ledger.process.never_returned += bytes;
        file.wasted += bytes;
      }
    }
    if ((run.fill.owner & kApart) != 0 && (run.fill.owner & kMapped) == 0) file.wasted += bytes;
    if (run.fill.state == FillState::packed) {
      // How the extent was read matters to nobody else.
      if ((run.fill.owner & kMapped) != 0)
        add_to(file.mapped, unpacked(run, "completion_by_refill", 1).cause, bytes, 0);
      release(run.fill.to_device, bytes);
    }
    if (run.fill.state != FillState::in_flight || how == nullptr) continue;
    // Pages cannot be filled anew while they are being filled, so this completion was missed.
    std::vector<Slice> slices;
    recover(run, how, 1, slices);
    if ((run.fill.owner & kMapped) != 0)
      for (const Slice& slice : slices) add_to(file.mapped, slice.cause, slice.end - slice.begin, 0);
  }
}

void Resolver::fill(const Part& part, const std::vector<Slice>& slices, std::uint64_t done_ns) {
  const PathId above = bios.at(part.bio).above;
  for (const Slice& slice : slices) {
    const std::uint64_t begin = std::max(part.begin, slice.begin), end = std::min(part.end, slice.end);
    if (begin >= end) continue;
    const CauseId cause = causes.under(above, slice.cause);
    const std::uint64_t at = part.at + (begin - part.begin);
    part.fills->change(part.bio, at, at + (end - begin), [&](Fill& fill, std::uint64_t bytes) {
      fill.state = FillState::filled;
      fill.cause = cause;
      fill.bio = 0;
      fill.to_device = 0;
      fill.done_ns = (fill.owner & kForTarget) != 0 ? 0 : done_ns;
      if ((fill.owner & kMapped) != 0) add_to(file(part.file).mapped, cause, bytes, 0);
    });
  }
}

void Resolver::fail(const Part& part) {
  part.fills->change(part.bio, part.at, part.at + (part.end - part.begin), [&](Fill& fill, std::uint64_t bytes) {
    if ((fill.owner & kCounted) != 0) ledger.process.failed += bytes;
    const std::uint32_t tid = fill.tid, read = fill.read;
    fill = {};
    fill.why = Why::fill_failed;
    fill.tid = tid;
    fill.read = read;
  });
}

void Resolver::drop(Fills& direct) {
  std::vector<Run> runs;
  direct.take_all(runs);
  for (const Run& run : runs)
    if (run.fill.state == FillState::in_flight)
      bios.retire(run.fill.bio, run.begin + run.fill.to_device, run.end + run.fill.to_device);
}

void Resolver::discard(Serving& serving) {
  if (!serving.backings.empty()) ++unmatched_backing;
  // The worker read these bytes too, so they are not the first returned when somebody takes them next.
  while (!serving.backings.empty()) {
    const Backing backing = serving.backings.front();
    std::vector<Range> open{{backing.begin, backing.end}};
    std::vector<Slice> ignored;
    consume_backing(serving, backing.begin, backing.end, 0, 0, open, ignored);
  }
  drop(serving.direct);
}

}  // namespace servedby::attribution
