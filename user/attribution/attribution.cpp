// SPDX-License-Identifier: Apache-2.0
#include "attribution/attribution.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "attribution/state.h"

namespace servedby {
namespace {

constexpr std::uint64_t kSector = 512;
constexpr unsigned kOwnMajor = 0xfff;  ///< numbers of our own, for devices whose number stood for another before
constexpr std::uint64_t kMostOfACall = 0x7ffff000;  ///< MAX_RW_COUNT with pages of 4 KiB: no call returns more

/// No read call is open for longer than this, as far as others' fills of its pages are concerned.
constexpr std::uint64_t kLongestRead = 600'000'000'000;

/// An asynchronous read may end this many reads later than the ones after it.
constexpr std::uint32_t kMostOverlapping = 65536;

/// Whose number `read` is.
template <class Record>
std::uint32_t reader_of(const Record& record) {
  return record.reader != 0 ? record.reader : record.head.tid;
}

std::optional<std::uint64_t> end_of(std::uint64_t begin, std::uint64_t bytes) {
  if (begin > UINT64_MAX - bytes) return std::nullopt;
  return begin + bytes;
}

/// A path from its components, leaf first, each NUL-terminated.
std::string path_of(const sb_file_name& name) {
  std::string path;
  const std::size_t length = std::min<std::size_t>(name.length, sizeof(name.path));
  for (std::size_t at = 0; at < length;) {
    const std::size_t size = strnlen(name.path + at, length - at);
    const std::string_view component(name.path + at, size);
    if (!component.empty() && component != "/") path.insert(0, "/" + std::string(component));
    at += size + 1;
  }
  return (name.cut != 0 ? "..." : "") + path;
}

}  // namespace

Attribution::Attribution(AttributionSetup setup) : state_(std::make_unique<State>(std::move(setup))) {}
Attribution::~Attribution() = default;
Attribution::Attribution(Attribution&&) noexcept = default;
Attribution& Attribution::operator=(Attribution&&) noexcept = default;

namespace {

/// The bytes of a record as a struct; nullopt where they are too few.
template <class Record>
std::optional<Record> as(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data(), sizeof(record));
  return record;
}

}  // namespace

void Attribution::feed(std::span<const std::byte> record) {
  State& state = *state_;
  const auto head = as<sb_head>(record);
  if (!head || head->size < sizeof(sb_head) || head->size > record.size()) {
    ++state.malformed;
    return;
  }
  if (head->kind != SB_LAYOUT) ++state.taken;
  record = record.first(head->size);
  const auto give = [&]<class Record>(void (State::*on)(const Record&)) {
    if (const auto whole = as<Record>(record))
      (state.*on)(*whole);
    else
      ++state.malformed;
  };
  switch (head->kind) {
    case SB_READ:
      return give(&State::on_read);
    case SB_BIO:
      return give(&State::on_bio);
    case SB_UNPACK:
      return give(&State::on_unpack);
    case SB_FILL:
      return give(&State::on_fill);
    case SB_REQUEST:
      return give(&State::on_request);
    case SB_BACKING:
      return give(&State::on_backing);
    case SB_REMAP:
      return give(&State::on_remap);
    case SB_GIVEN:
      return give(&State::on_given);
    case SB_LAYOUT:
      return give(&State::on_layout);
    case SB_DEVICE:
      return give(&State::on_device);
    case SB_SWAPPED:
      return give(&State::on_swapped);
    case SB_TASK:
      return give(&State::on_task);
    case SB_FILE:
      return give(&State::on_name);
    default:
      return;
  }
}

std::vector<Device> Attribution::made() const {
  std::vector<Device> devices;
  for (const auto& [dev, device] : state_->made)
    if (device_major(dev) != kOwnMajor) devices.push_back(device);
  return devices;
}

AttributionResult Attribution::finish(const Session& session) { return state_->finish(session); }

Listing& Attribution::State::listing_of(const FileKey& opened, const FileKey& real) {
  if (last_listing != nullptr && last_opened == opened && last_listing->real == real) return *last_listing;
  const auto [found, added] = listings.try_emplace(opened);
  if (added || found->second.real.ino == 0) found->second.real = real;
  // Below an overlay the real file is known only from the first look into its pages.
  if (found->second.real == opened) found->second.real = real;
  opened_as.try_emplace(real, opened);
  last_listing = &found->second;
  last_opened = opened;
  return found->second;
}

void Attribution::State::on_read(const sb_read& read) {
  if (read.returned > static_cast<std::int64_t>(kMostOfACall)) {
    ++malformed;
    return;
  }
  const auto returned = static_cast<std::uint64_t>(std::max<std::int64_t>(read.returned, 0));
  const auto end = end_of(read.pos, returned);
  if (!end) {
    ++malformed;
    return;
  }
  if (read.tgid != last_process) resolver.ledger.saw_process(last_process = read.tgid);
  Listing& listing = listing_of(FileKey(read.opened), FileKey(read.file));
  ++listing.calls.calls;
  ++listing.calls.by_method[method_index(read.method)];
  // The length of a vectored read is not known where it never reached the page cache.
  listing.calls.requested += std::max(std::min<std::uint64_t>(read.count, kMostOfACall), returned);
  listing.calls.returned += returned;
  std::uint32_t& last = last_returned[read.head.tid];
  last = std::max(last, read.read);
  if (read.method == SB_METHOD_AIO || read.method == SB_METHOD_IO_URING) asynchronous.insert(read.head.tid);
  if (returned != 0) got(read, listing, read.pos, *end);
  if (!direct.empty()) {
    const auto call = direct.find(call_key(read.head.tid, read.read));
    if (call != direct.end()) {
      resolver.drop(call->second.fills);
      direct.erase(call);
    }
  }
}

/// Says who had the bytes that a call returned.
void Attribution::State::got(const sb_read& read, Listing& listing, std::uint64_t begin, std::uint64_t end) {
  slices.clear();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> rest{{begin, end}};
  const auto call = direct.empty() ? direct.end() : direct.find(call_key(read.head.tid, read.read));
  if (call != direct.end()) {
    resolver.consume_direct(call->second.fills, begin, end, 0, slices);
    std::ranges::sort(slices, {}, &Slice::begin);
    rest.clear();
    std::uint64_t at = begin;
    for (const Slice& slice : slices) {
      if (slice.begin > at) rest.emplace_back(at, slice.begin);
      at = std::max(at, slice.end);
    }
    if (at < end) rest.emplace_back(at, end);
  }
  const bool paged = (read.flags & SB_READ_PAGE_CACHE) != 0, is_direct = (read.flags & SB_READ_DIRECT) != 0;
  for (const auto& [from, to] : rest) {
    if (!paged && is_served(read.file.dev)) {  // asked for page by page nowhere: only the server has them
      slices.push_back({from, to, resolver.causes.server(read.file.dev)});
      resolver.ledger.process.from_servers += to - from;
      // NFS accounts what a direct read asked for, though the file ends before.
      if (to == end && is_direct && read.count > end - begin)
        resolver.ledger.process.from_servers += read.count - (end - begin);
    } else if (!paged && (read.flags & SB_READ_NO_PAGES) != 0) {
      const bool there = (read.flags & SB_READ_IN_MEMORY) != 0;
      const CauseId absent =
          there ? resolver.causes.ended(End::page_cache) : resolver.causes.ended(End::unknown, Why::no_page_cache);
      File& file = resolver.file(resolver.file_index(FileKey(read.file)));
      resolver.settle_swapped(file, from, to);
      resolver.consume(file, from, to, {read.begin_ns, read.head.tid, read.read, absent}, 0, slices);
    } else if (!paged && (is_direct || call != direct.end())) {
      resolver.place(resolver.file(resolver.file_index(FileKey(read.file))), from, to, Why::direct_unseen, slices);
    } else {
      const CauseId absent = paged ? resolver.absent(read.file.dev, (read.flags & SB_READ_FILLS_MORE) != 0)
                                   : resolver.causes.ended(End::unknown, Why::not_paged);
      File& file = resolver.file(resolver.file_index(FileKey(read.file)));
      resolver.consume(file, from, to, {read.begin_ns, read.head.tid, read.read, absent}, 0, slices);
    }
  }
  sums.clear();
  for (const Slice& slice : slices)
    add_to(sums, slice.cause, slice.end - slice.begin, slice.prefetched ? slice.end - slice.begin : 0);
  listing.tally.add_call(sums, sets);
}

void Attribution::State::on_bio(const sb_bio& bio) {
  const auto device_begin = bio.sector <= UINT64_MAX / kSector ? std::optional(bio.sector * kSector) : std::nullopt;
  if (bio.bytes == 0 || !device_begin || !end_of(*device_begin, bio.bytes) || !end_of(bio.file_pos, bio.bytes)) {
    ++malformed;
    return;
  }
  ProcessParts& process = resolver.ledger.process;
  const bool by_target = (bio.flags & SB_BY_TARGET) != 0, meta = (bio.flags & SB_BIO_META) != 0;
  const bool counted = by_target && (bio.flags & SB_BIO_NO_ACCOUNT) == 0;
  without_requests(bio.dev, bio.bytes, bio.flags);
  if ((bio.flags & SB_BIO_WRITE) != 0) return swap_written(bio);
  if (counted) process.traced += bio.bytes;
  if ((bio.flags & SB_BIO_PACKED) != 0) {
    if (counted) process.compressed += bio.bytes;
    PackedExtent& extent = resolver.extents[bio.file_pos];
    sb_bio piece = bio;
    piece.file_pos = extent.bytes;
    extent.bytes += bio.bytes;
    submit(piece, extent.compressed, 0, bio.bytes,
           (bio.flags & SB_FOR_TARGET) != 0 ? std::uint8_t{kForTarget} : std::uint8_t{0});
    return;
  }
  const std::uint64_t within =
      bio.file_pos >= bio.file_size ? 0 : std::min<std::uint64_t>(bio.bytes, bio.file_size - bio.file_pos);
  if ((bio.flags & SB_BIO_DIRECT) != 0) {
    if (counted) {
      process.direct += within;
      process.past_end += bio.bytes - within;
    }
    if (within == 0) return;
    const auto owner = static_cast<std::uint8_t>((bio.flags & SB_FOR_TARGET) != 0 ? kForTarget : 0);
    if (bio.serving != 0) {
      submit(bio, resolver.servings.at(bio.serving).direct, 0, within, owner);
    } else if (counted && bio.read != 0) {
      Direct& call = direct[call_key(reader_of(bio), bio.read)];
      call.outlives_task = (bio.flags & SB_BIO_ASYNC) != 0;
      submit(bio, call.fills, 0, within, owner);
    }
    return;
  }
  if ((bio.flags & SB_BIO_SWAP) != 0) {
    if (counted) process.swap += bio.bytes;
    const auto owner = static_cast<std::uint8_t>((bio.flags & SB_FOR_TARGET) != 0 ? kForTarget : 0);
    const std::uint32_t file = resolver.file_index(FileKey(bio.file));
    return submit(bio, resolver.file(file).fills, file, bio.bytes, owner);
  }
  // A block device's own pages have a range too: they may be returned to somebody who reads the device as a file.
  if ((bio.flags & SB_BIO_FILE) == 0 && !(meta && bio.file.ino != 0)) {
    if (counted) (meta ? process.metadata : process.other) += bio.bytes;
    return;
  }
  if (bio.file.ino == 0) {
    if (counted) process.other += bio.bytes;
    return;
  }
  if (counted) (meta ? process.metadata : process.past_end) += bio.bytes - within;
  if (within == 0) return;
  std::uint8_t owner = 0;
  if ((bio.flags & SB_FOR_TARGET) != 0) owner |= kForTarget;
  if (by_target) owner |= counted ? kCounted : kApart;
  if (counted && meta) owner |= kMeta;
  if (by_target && !meta && bio.read == 0 && (bio.flags & SB_BY_ADVICE) == 0) owner |= kMapped;
  const std::uint32_t file = resolver.file_index(FileKey(bio.file));
  submit(bio, resolver.file(file).fills, file, within, owner);
}

/// What was read from a place in swap, and not wanted, is no more.
void Attribution::State::swap_written(const sb_bio& bio) {
  File& swap = resolver.file(resolver.file_index(FileKey(bio.file)));
  runs.clear();
  swap.fills.take(bio.file_pos, bio.file_pos + bio.bytes, runs);
  resolver.dispose(swap, runs, "completion_by_refill");
}

/// `within` bytes of a bio are read into the pages, or for the call, that `fills` describes.
void Attribution::State::submit(const sb_bio& bio, Fills& fills, std::uint32_t file, std::uint64_t within,
                                std::uint8_t owner) {
  const std::uint64_t end = bio.file_pos + within;
  const bool is_file = (bio.flags & (SB_BIO_DIRECT | SB_BIO_PACKED)) == 0;
  const auto settle = [&] {
    if (is_file)
      resolver.dispose(resolver.file(file), runs, "completion_by_refill");
    else
      for (const Run& run : runs)
        if (run.fill.state == FillState::in_flight)
          resolver.bios.retire(run.fill.bio, run.begin + run.fill.to_device, run.end + run.fill.to_device);
  };
  const std::uint64_t device_begin = bio.sector * kSector;
  const bool first = (bio.flags & SB_BIO_FIRST) != 0;
  runs.clear();
  if (!first) {  // the same bio may be in flight over these bytes, in a recording that is not what it should be
    fills.take(bio.file_pos, end, runs);
    settle();
    runs.clear();
  }
  Fill fill;
  fill.state = FillState::in_flight;
  fill.owner = owner;
  fill.read = bio.read;
  fill.tid = bio.read == 0 ? 0 : reader_of(bio);
  fill.bio = resolver.bios.open(bio.bio, bio.dev, 0, bio.head.time_ns, first);
  fill.to_device = device_begin - bio.file_pos;
  resolver.bios.add({device_begin, device_begin + within, bio.file_pos, &fills, file, fill.bio});
  fills.replace(bio.file_pos, end, fill, runs);
  if (first && !runs.empty()) settle();
  if ((bio.flags & SB_BIO_SERVED) != 0) served_at_once(bio.dev, device_begin, device_begin + within, bio.head.time_ns);
  if (is_file && fills.crowded()) compact(fills, bio.head.time_ns);
}

/// Bytes of a file will be unpacked from an extent that is being read.
void Attribution::State::on_unpack(const sb_bio& bio) {
  if (bio.bytes == 0 || !end_of(bio.file_pos, bio.bytes) || bio.file.ino == 0) {
    ++malformed;
    return;
  }
  const std::uint64_t end = std::min(bio.file_pos + bio.bytes, bio.file_size);
  if (bio.file_pos >= end) return;
  Fill fill;
  fill.state = FillState::packed;
  fill.to_device = bio.bio;
  fill.read = bio.read;
  fill.tid = bio.read == 0 ? 0 : reader_of(bio);
  if ((bio.flags & SB_FOR_TARGET) != 0) fill.owner |= kForTarget;
  if ((bio.flags & SB_BY_TARGET) != 0) {
    fill.owner |= kApart;
    if (bio.read == 0 && (bio.flags & SB_BY_ADVICE) == 0) fill.owner |= kMapped;
  }
  resolver.extents[bio.bio].file_bytes += end - bio.file_pos;
  File& file = resolver.file(resolver.file_index(FileKey(bio.file)));
  runs.clear();
  file.fills.replace(bio.file_pos, end, fill, runs);
  if (!runs.empty()) resolver.dispose(file, runs, "completion_by_refill");
}

void Attribution::State::compact(Fills& fills, std::uint64_t now_ns) {
  fills.compact(page, now_ns > kLongestRead ? now_ns - kLongestRead : 0, [&](std::uint32_t tid, std::uint32_t read) {
    const auto last = last_returned.find(tid);
    if (last == last_returned.end()) return false;
    const std::uint32_t late = asynchronous.contains(tid) ? kMostOverlapping : 0;
    return last->second >= late && read <= last->second - late;
  });
}

void Attribution::State::on_fill(const sb_fill& fill) {
  const auto end = end_of(fill.pos, fill.bytes);
  if (!end || fill.file.ino == 0) {
    ++malformed;
    return;
  }
  const std::uint64_t within = std::min<std::uint64_t>(*end, fill.file_size);
  if (fill.pos >= within) return;
  Fill announced;
  announced.why = resolver.unpacks(fill.file.dev) ? Why::unpacked : Why::fill_unseen;
  File& file = resolver.file(resolver.file_index(FileKey(fill.file)));
  if (is_served(fill.file.dev)) served(fill, within - fill.pos, file, announced);
  runs.clear();
  file.fills.replace(fill.pos, within, announced, runs);
  if (!runs.empty()) resolver.dispose(file, runs, "completion_by_refill");
  if (file.fills.crowded()) compact(file.fills, fill.head.time_ns);
}

/// What a server is about to fill is filled by nobody else, and returned only once it is.
void Attribution::State::served(const sb_fill& record, std::uint64_t bytes, File& file, Fill& fill) {
  const bool by_target = (record.flags & SB_BY_TARGET) != 0, for_target = (record.flags & SB_FOR_TARGET) != 0;
  fill.state = FillState::filled;
  fill.why = Why::none;
  fill.cause = resolver.causes.server(record.file.dev);
  fill.read = record.read;
  fill.tid = record.read == 0 ? 0 : reader_of(record);
  fill.done_ns = for_target ? 0 : record.head.time_ns;
  if (for_target) fill.owner |= kForTarget;
  if (!by_target) return;
  fill.owner |= kApart;
  resolver.ledger.process.from_servers += record.bytes;  // whole pages, as the kernel counts them
  if (record.read != 0 || (record.flags & SB_BY_ADVICE) != 0) return;
  fill.owner |= kMapped;
  add_to(file.mapped, fill.cause, bytes, 0);
}

void Attribution::State::on_request(const sb_request& request) {
  if ((request.flags & SB_REQUEST_WRITE) != 0) return;
  const auto begin = request.sector <= UINT64_MAX / kSector ? std::optional(request.sector * kSector) : std::nullopt;
  const auto end = begin ? end_of(*begin, request.bytes) : std::nullopt;
  if (!end) {
    ++malformed;
    return;
  }
  resolver.ledger.request(request);
  Serving* serving = resolver.servings.empty() ? nullptr : resolver.servings.find(request.request);
  if (serving != nullptr && serving->dev != request.dev) serving = nullptr;
  slices.clear();
  if (request.status == 0 && request.bytes != 0)
    resolver.serve(request.dev, serving, *begin, *end, request.issue_ns, slices);
  parts.clear();
  resolver.bios.complete(request.dev, *begin, *end, request.issue_ns, parts);
  bool unseen = false;
  for (const Part& part : parts) {
    if (request.status == 0)
      resolver.fill(part, slices, request.head.time_ns);
    else
      resolver.fail(part);
    for (const Slice& slice : slices)
      unseen = unseen || (slice.unseen && slice.begin < part.end && slice.end > part.begin);
  }
  if (unseen && backing_watched && request.target_bytes != 0 && (request.flags & SB_REQUEST_ISSUE_UNSEEN) == 0)
    ++resolver.unseen_backing;
  if (serving != nullptr && (request.flags & SB_REQUEST_PARTIAL) == 0) {
    if (request.status != 0) serving->backings.clear();
    resolver.discard(*serving);
    resolver.servings.erase(request.request);
  }
}

void Attribution::State::on_backing(const sb_backing& backing) {
  const auto begin = backing.sector <= UINT64_MAX / kSector ? std::optional(backing.sector * kSector) : std::nullopt;
  const auto end = begin ? end_of(*begin, backing.bytes) : std::nullopt;
  if (!end || backing.bytes == 0 || !end_of(backing.pos, backing.bytes) || backing.file.ino == 0) {
    ++malformed;
    return;
  }
  if (Serving* known = resolver.servings.find(backing.request);
      known != nullptr && known->dev != backing.dev && !known->backings.empty())
    resolver.discard(*known);  // the address is used again, by another device
  resolver.servings.add(backing.request, backing.dev,
                        {*begin, *end, backing.pos, backing.head.time_ns, (backing.flags & SB_BACKING_BY_RANGE) != 0,
                         resolver.file_index(FileKey(backing.file)), (backing.flags & SB_BACKING_DIRECT) != 0});
}

/// A bio came to a device; one that has no requests of its own counts it.
void Attribution::State::without_requests(DeviceNumber dev, std::uint64_t bytes, std::uint32_t flags) {
  if ((flags & (SB_BIO_STACKED | SB_BIO_SERVED)) == 0) return;
  if ((flags & SB_BIO_STACKED) != 0) resolver.causes.passes_on(dev);
  if ((flags & SB_FOR_TARGET) != 0) resolver.ledger.bio(dev, bytes);
}

/// A device that serves bios as they come had bytes [begin, end) of it.
void Attribution::State::served_at_once(DeviceNumber dev, std::uint64_t begin, std::uint64_t end,
                                        std::uint64_t time_ns) {
  slices.assign(1, {begin, end, resolver.causes.device(dev)});
  parts.clear();
  resolver.bios.complete(dev, begin, end, 0, parts);
  for (const Part& part : parts) resolver.fill(part, slices, time_ns);
}

/// What is in flight on the stacked device goes on below it.
void Attribution::State::on_remap(const sb_remap& remap) {
  const std::uint64_t most = (UINT64_MAX - remap.bytes) / kSector;
  if (remap.bytes == 0 || remap.old_sector > most || remap.sector > most || remap.old_dev == remap.dev) {
    ++malformed;
    return;
  }
  without_requests(remap.dev, remap.bytes, remap.flags);
  const std::uint64_t begin = remap.old_sector * kSector, to_below = remap.sector * kSector - begin;
  parts.clear();
  resolver.bios.complete(remap.old_dev, begin, begin + remap.bytes, 0, parts);
  for (const Part& part : parts) {
    const Bio above = resolver.bios.at(part.bio);
    const BioSlot below = resolver.bios.open(above.address, remap.dev, resolver.causes.append(above.above, above.dev),
                                             remap.head.time_ns, true);
    goes_on(part, below, to_below);
  }
  if ((remap.flags & SB_BIO_SERVED) != 0)
    served_at_once(remap.dev, begin + to_below, begin + to_below + remap.bytes, remap.head.time_ns);
}

/// What is in flight is in flight as `bio` now, `shift` further on.
void Attribution::State::goes_on(const Part& part, BioSlot bio, std::uint64_t shift) {
  part.fills->change(part.bio, part.at, part.at + (part.end - part.begin), [&](Fill& fill, std::uint64_t) {
    fill.bio = bio;
    fill.to_device += shift;
  });
  resolver.bios.add({part.begin + shift, part.end + shift, part.at, part.fills, part.file, bio});
}

/// A stacked device gives what is in flight on it itself.
void Attribution::State::on_given(const sb_given& given) {
  const std::uint64_t most = (UINT64_MAX - given.bytes) / kSector;
  if (given.bytes == 0 || given.sector > most) {
    ++malformed;
    return;
  }
  const std::uint64_t begin = given.sector * kSector, end = begin + given.bytes;
  parts.clear();
  resolver.bios.complete(given.dev, begin, end, 0, parts);
  if (given.how == SB_GIVEN_ZERO) {
    for (const Part& part : parts) {
      const Bio bio = resolver.bios.at(part.bio);
      const BioSlot zeroed = resolver.bios.open(bio.address, bio.dev, bio.above, bio.submit_ns, true);
      resolver.bios.set_zeroed(zeroed);
      goes_on(part, zeroed, 0);
    }
    return;
  }
  const End how = given.how == SB_GIVEN_REBUILT  ? End::rebuilt
                  : given.how == SB_GIVEN_CACHED ? End::stripe_cache
                                                 : End::unknown;
  const Why why = how == End::unknown ? Why::remap_unseen : Why::none;
  slices.assign(1, {begin, end, resolver.causes.below(given.dev, resolver.causes.ended(how, why))});
  for (const Part& part : parts) resolver.fill(part, slices, given.head.time_ns);
}

void Attribution::State::on_layout(const sb_layout& layout) {
  File& file = resolver.file(resolver.file_index(FileKey(layout.file)));
  if (layout.extent == SB_EXTENT_LOOKED || !file.layout) file.layout.emplace();
  if (layout.extent == SB_EXTENT_HOLE) file.layout->add(layout.begin, layout.end, End::hole);
  if (layout.extent == SB_EXTENT_UNWRITTEN) file.layout->add(layout.begin, layout.end, End::unwritten);
  if (layout.extent == SB_EXTENT_INLINE) file.layout->add(layout.begin, layout.end, End::in_inode);
}

void Attribution::State::on_device(const sb_device& record) {
  Device device;
  device.dev = record.dev;
  device.name = std::string(record.name, strnlen(record.name, sizeof(record.name)));
  device.kind = kind_of_disk(device.name);
  device.diskseq = record.diskseq;
  unsigned& devices = devices_of_number[record.dev];
  DeviceNumber number = record.dev;
  if (const Device* known = setup.stack.find(record.dev)) {
    // A loop device that had no file was nothing yet.
    if (devices == 0) devices = known->kind == DeviceKind::loop && !known->loop ? 0 : 1;
    if (++devices == 1) return;
    number = device_number(kOwnMajor, static_cast<unsigned>(made.size()));
    device.name += "#" + std::to_string(devices);
    resolver.causes.becomes(record.dev, number);
  } else {
    devices = 1;
  }
  made[number] = device;
  setup.stack.devices[number] = std::move(device);
}

void Attribution::State::on_swapped(const sb_swapped& record) {
  if (record.bytes == 0 || !end_of(record.pos, record.bytes) || !end_of(record.swap_pos, record.bytes) ||
      record.file.ino == 0) {
    ++malformed;
    return;
  }
  Swapped swapped{record.bytes, record.swap_pos, resolver.file_index(FileKey(record.swap)), 0, record.read, 0};
  if (record.read != 0) swapped.tid = reader_of(record);
  if (record.read == 0 && (record.flags & SB_BY_ADVICE) == 0) swapped.owner = kMapped;
  resolver.file(resolver.file_index(FileKey(record.file))).swapped[record.pos] = swapped;
}

void Attribution::State::on_task(const sb_task& task) {
  resolver.ledger.task(task);
  last_returned.erase(task.task);  // its number begins anew with its next owner
  if (task.event != SB_TASK_EXIT || direct.empty()) return;
  for (auto call = direct.begin(); call != direct.end();) {
    if (call->first >> 32 != task.task || call->second.outlives_task) {
      ++call;
      continue;
    }
    resolver.drop(call->second.fills);
    call = direct.erase(call);
  }
}

void Attribution::State::on_name(const sb_file_name& name) {
  Listing& listing = listing_of(FileKey(name.opened), FileKey(name.file));
  if (listing.path.empty()) listing.path = path_of(name);
}

}  // namespace servedby
