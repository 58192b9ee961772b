// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any stream of records, well formed or not. Whatever is fed, every returned byte has exactly one
// cause, every traced byte one part, and the same stream gives the same result.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "attribution/attribution.h"

namespace {

using namespace servedby;

void must(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "attribution_feed: %s\n", what);
  std::abort();
}

/// The input, as small numbers; zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}
  [[nodiscard]] bool done() const { return left_.empty(); }
  std::uint64_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  /// Mostly small numbers of sectors, now and then the edges of 64 bits.
  std::uint64_t place() {
    const std::uint64_t value = byte();
    if (value == 255) return UINT64_MAX - byte() * 512;
    if (value == 254) return byte() << (8 * (byte() % 8));
    return value * 512 + (value % 7 == 0 ? byte() : 0);
  }

 private:
  std::span<const std::uint8_t> left_;
};

sb_file_id file_of(Input& input) {
  const std::uint64_t which = input.byte();
  return {which % 5, 8, static_cast<std::uint32_t>(which / 128)};
}
std::uint32_t device_of(Input& input) {
  constexpr DeviceNumber devices[] = {device_number(259, 0), device_number(7, 0), device_number(7, 1),
                                      device_number(253, 0), device_number(1, 1)};
  return devices[input.byte() % std::size(devices)];
}

template <class Record>
std::vector<std::byte> bytes_of(Record record, std::uint16_t kind, Input& input, std::uint64_t& now) {
  record.head = {kind, sizeof(Record), static_cast<std::uint32_t>(input.byte() % 4), now += input.byte() % 8};
  std::vector<std::byte> bytes(sizeof(Record));
  std::memcpy(bytes.data(), &record, sizeof(Record));
  const std::uint64_t spoil = input.byte();
  if (spoil == 255) bytes.resize(input.byte() % (bytes.size() + 1));
  if (spoil == 254 && !bytes.empty()) bytes[input.byte() % bytes.size()] = static_cast<std::byte>(input.byte());
  return bytes;
}

std::vector<std::byte> next_record(Input& input, std::uint64_t& now) {
  switch (input.byte() % 10) {
    case 0: {
      sb_read read{};
      read.begin_ns = now - input.byte() % 16;
      read.file = file_of(input);
      read.opened = input.byte() % 4 == 0 ? file_of(input) : read.file;
      read.pos = input.place();
      read.returned = static_cast<std::int64_t>(input.place());
      read.count = input.place();
      read.read = static_cast<std::uint32_t>(input.byte() % 4);
      read.tgid = read.read;
      read.method = static_cast<std::uint16_t>(input.byte());
      read.flags = static_cast<std::uint16_t>(input.byte() % 128);
      return bytes_of(read, SB_READ, input, now);
    }
    case 1:
    case 2: {
      sb_bio bio{};
      bio.bio = input.byte() % 16 * 64;
      bio.sector = input.place() / 512;
      bio.file_pos = input.place();
      bio.file_size = input.place();
      bio.serving = input.byte() % 4;
      bio.file = file_of(input);
      bio.bytes = static_cast<std::uint32_t>(input.place());
      bio.dev = device_of(input);
      bio.read = static_cast<std::uint32_t>(input.byte() % 4);
      bio.flags = static_cast<std::uint32_t>(input.byte() | input.byte() << 8);
      const bool unpack = (bio.flags & SB_BIO_PACKED) != 0 && input.byte() % 2 == 0;
      if ((bio.flags & SB_BIO_PACKED) != 0) (unpack ? bio.bio : bio.file_pos) = input.byte() % 4;
      return bytes_of(bio, unpack ? SB_UNPACK : SB_BIO, input, now);
    }
    case 3: {
      sb_fill fill{};
      fill.pos = input.place();
      fill.bytes = input.place();
      fill.file_size = input.place();
      fill.file = file_of(input);
      fill.flags = static_cast<std::uint32_t>(input.byte());
      return bytes_of(fill, SB_FILL, input, now);
    }
    case 4: {
      sb_request request{};
      request.request = input.byte() % 4;
      request.issue_ns = input.byte() % 2 == 0 ? 0 : now;
      request.sector = input.place() / 512;
      request.bytes = static_cast<std::uint32_t>(input.place());
      request.dev = device_of(input);
      request.target_bytes = static_cast<std::uint32_t>(input.byte() * 512);
      request.status = input.byte() % 8 == 0 ? 10 : 0;
      request.flags = static_cast<std::uint32_t>(input.byte() % 32);
      return bytes_of(request, SB_REQUEST, input, now);
    }
    case 5: {
      sb_backing backing{};
      backing.request = input.byte() % 4;
      backing.sector = input.place() / 512;
      backing.pos = input.place();
      backing.bytes = input.place();
      backing.file = file_of(input);
      backing.dev = device_of(input);
      backing.flags = static_cast<std::uint32_t>(input.byte() % 8);
      return bytes_of(backing, SB_BACKING, input, now);
    }
    case 6: {
      sb_task task{};
      task.task = static_cast<std::uint32_t>(input.byte() % 4);
      task.tgid = task.task;
      task.event = static_cast<std::uint32_t>(input.byte() % 3);
      task.read_bytes = input.place();
      return bytes_of(task, SB_TASK, input, now);
    }
    case 7: {
      sb_swapped page{};
      page.pos = input.place();
      page.swap_pos = input.place();
      page.bytes = input.place();
      page.file = file_of(input);
      page.swap = file_of(input);
      page.read = static_cast<std::uint32_t>(input.byte() % 4);
      page.flags = static_cast<std::uint32_t>(input.byte() % 16);
      return bytes_of(page, SB_SWAPPED, input, now);
    }
    case 8: {
      sb_device device{};
      device.dev = device_of(input);
      device.diskseq = input.byte();
      for (int i = 0; i < 4; ++i) device.name[i] = static_cast<char>(input.byte());
      return bytes_of(device, SB_DEVICE, input, now);
    }
    default: {
      sb_file_name name{};
      name.file = file_of(input);
      name.opened = file_of(input);
      name.length = static_cast<std::uint32_t>(input.place());
      for (int i = 0; i < 8; ++i) name.path[i] = static_cast<char>(input.byte());
      return bytes_of(name, SB_FILE, input, now);
    }
  }
}

void check(const AttributionResult& result) {
  std::uint64_t served = 0;
  for (const ServedBy& row : result.served_by) {
    served += row.bytes;
    must(row.prefetched_bytes <= row.bytes, "more was prefetched than served");
    must(row.reads <= result.reads.calls, "more reads than calls");
    must(!row.via.empty() && row.via.size() <= 17, "an odd way");
    must(row.bytes != 0, "a row without bytes");
  }
  must(served == result.reads.bytes_returned, "the sum of served_by is not what was returned");
  std::uint64_t returned = 0;
  for (const FileResult& file : result.files) {
    std::uint64_t of_file = 0;
    for (const ServedBy& row : file.served_by) of_file += row.bytes;
    must(of_file == file.reads.bytes_returned, "the sum of a file is not what was returned");
    returned += of_file;
  }
  must(returned == result.reads.bytes_returned, "the sum of the files is not what was returned");
  std::uint64_t parts = 0;
  for (const auto& [name, bytes] : result.ledger.at(0).parts) parts += bytes;
  must(parts == result.ledger.at(0).traced_target_bytes, "the parts are not what was traced");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Session session;
  const std::uint64_t how = input.byte();
  const auto add = [&](DeviceNumber dev, const char* name, DeviceKind kind) {
    Device device;
    device.dev = dev;
    device.name = name;
    device.kind = kind;
    session.stack.devices[dev] = device;
  };
  add(device_number(259, 0), "nvme0n1", DeviceKind::nvme);
  add(device_number(7, 0), "loop0", DeviceKind::loop);
  add(device_number(253, 0), "dm-0", DeviceKind::dm);
  AttributionSetup setup{session.stack, {}, 4096};
  add(device_number(7, 1), "loop1", DeviceKind::loop);  // learned later
  for (const char* name : {"fill-readahead", "bio-submit", "backing-lookup"}) {
    HookStatus hook;
    hook.name = hook.how = name;
    hook.tier = "kprobe";
    hook.attached = (how & 1) == 0;
    hook.served_by = true;
    session.hooks.push_back(std::move(hook));
  }
  setup.hooks = session.hooks;
  if ((how & 16) != 0) setup.crowded_at = 2;
  if ((how & 32) != 0) setup.page_size = 512;
  session.counts.losses[SB_LOSS_RING] = (how & 2) / 2;
  session.counts.requests_in_flight_at_end = (how & 4) / 4;
  session.attached_live = (how & 8) != 0;

  Attribution once(setup), twice(setup);
  for (std::uint64_t now = 1000; !input.done();) {
    const std::vector<std::byte> record = next_record(input, now);
    once.feed(record);
    twice.feed(record);
  }
  const AttributionResult a = once.finish(session), b = twice.finish(session);
  check(a);
  must(a.served_by.size() == b.served_by.size() && a.wasted_bytes == b.wasted_bytes && a.recovered == b.recovered &&
           a.losses == b.losses,
       "the same records gave another result");
  for (std::size_t i = 0; i < a.served_by.size(); ++i)
    must(a.served_by[i].via == b.served_by[i].via && a.served_by[i].bytes == b.served_by[i].bytes,
         "the same records gave another result");
  return 0;
}
