// SPDX-License-Identifier: Apache-2.0
// How many records a second attribution takes in on one core, and how much memory it holds, for streams that look like
// what a model load records. Prints one line for each stream: name, records, seconds, records a second, bytes of heap
// held at the end.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "attribution/attribution.h"

namespace {

using namespace servedby;

constexpr std::uint64_t K = 1024, M = 1024 * K, G = 1024 * M;
constexpr DeviceNumber kNvme = device_number(259, 0), kLoop = device_number(7, 0);

/// Records behind each other, as they lie in a ring.
class Stream {
 public:
  template <class Record>
  void put(Record record, std::uint16_t kind, std::uint32_t tid) {
    record.head = {kind, sizeof(Record), tid, ++now};
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof(Record));
    std::memcpy(bytes.data() + at, &record, sizeof(Record));
    ++records;
  }
  void fill(sb_file_id file, std::uint64_t pos, std::uint64_t size, std::uint32_t tid, std::uint32_t read,
            std::uint32_t flags, std::uint64_t serving = 0) {
    sb_fill record{};
    record.pos = pos;
    record.bytes = size;
    record.file_size = 1024 * G;
    record.file = file;
    record.read = read;
    record.flags = flags;
    record.serving = serving;
    put(record, SB_FILL, tid);
  }
  void bio(sb_file_id file, DeviceNumber dev, std::uint64_t pos, std::uint64_t size, std::uint32_t tid,
           std::uint32_t read, std::uint32_t flags, std::uint64_t serving = 0) {
    sb_bio record{};
    record.bio = 0xffff888000000000 + 128 * ++bios_;
    record.sector = (G + pos) / 512;
    record.file_pos = pos;
    record.file_size = 1024 * G;
    record.file = file;
    record.bytes = static_cast<std::uint32_t>(size);
    record.dev = dev;
    record.read = read;
    record.flags = flags | SB_BIO_FIRST;
    record.serving = serving;
    put(record, SB_BIO, tid);
  }
  void done(DeviceNumber dev, std::uint64_t pos, std::uint64_t size, std::uint64_t request = 0) {
    sb_request record{};
    record.request = request;
    record.sector = (G + pos) / 512;
    record.bytes = record.target_bytes = static_cast<std::uint32_t>(size);
    record.dev = dev;
    put(record, SB_REQUEST, 0);
  }
  void read(sb_file_id file, std::uint64_t pos, std::uint64_t size, std::uint32_t tid, std::uint32_t read,
            std::uint16_t flags = SB_READ_PAGE_CACHE) {
    sb_read record{};
    record.begin_ns = now;
    record.file = record.opened = file;
    record.pos = pos;
    record.count = size;
    record.returned = static_cast<std::int64_t>(size);
    record.read = read;
    record.tgid = 100;
    record.flags = flags;
    record.method = SB_METHOD_PREAD;
    put(record, SB_READ, tid);
  }

  std::vector<std::byte> bytes;
  std::uint64_t records = 0, now = 0;

 private:
  std::uint64_t bios_ = 0;
};

constexpr std::uint32_t kTarget = SB_BY_TARGET | SB_FOR_TARGET, kWorker = SB_BY_WORKER | SB_FOR_TARGET;
constexpr sb_file_id kModel{11, 8 << 20, 0}, kBacking{12, 8 << 20, 0};

/// 8 threads read 2 MiB tasks from an odd start, cold: windows of 512 KiB, many of them in flight at once.
void add_chunks(Stream& stream, std::uint64_t first, std::uint64_t groups) {
  for (std::uint64_t group = first; group < first + groups; ++group) {
    const auto number = static_cast<std::uint32_t>(group + 1);
    for (std::uint64_t at = 0; at < 16 * M; at += 512 * K) {
      const auto tid = static_cast<std::uint32_t>(100 + at / (2 * M));
      stream.fill(kModel, group * 16 * M + at, 512 * K, tid, number, kTarget);
      stream.bio(kModel, kNvme, group * 16 * M + at, 512 * K, tid, number, kTarget | SB_BIO_FILE);
    }
    for (std::uint64_t at = 0; at < 16 * M; at += 512 * K)
      stream.done(kNvme, group * 16 * M + (at * 7) % (16 * M), 512 * K);
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::uint64_t begin = group * 16 * M + i * 2 * M + 1234;
      stream.read(kModel, begin, 2 * M, static_cast<std::uint32_t>(100 + i), number);
    }
  }
}

Stream chunks(std::uint64_t tasks) {
  Stream stream;
  add_chunks(stream, 0, tasks / 8);
  return stream;
}

/// The same file through a loop device, both cold: four records of the drive's side for each request.
Stream through_loop(std::uint64_t requests) {
  Stream stream;
  for (std::uint64_t i = 0; i < requests; ++i) {
    const std::uint64_t at = i * 512 * K, request = 0xffff888100000000 + 4096 * (i % 64);
    const auto number = static_cast<std::uint32_t>(i + 1);
    stream.fill(kModel, at, 512 * K, 100, number, kTarget);
    stream.bio(kModel, kLoop, at, 512 * K, 100, number, kTarget | SB_BIO_FILE);
    sb_backing backing{};
    backing.request = request;
    backing.sector = (G + at) / 512;
    backing.pos = G + at;
    backing.bytes = 512 * K;
    backing.file = kBacking;
    backing.dev = kLoop;
    backing.flags = SB_BACKING_BY_ADDRESS;
    stream.put(backing, SB_BACKING, 900);
    stream.fill(kBacking, G + at, 512 * K, 900, 0, kWorker, request);
    stream.bio(kBacking, kNvme, G + at, 512 * K, 900, 0, kWorker | SB_BIO_FILE, request);
    stream.done(kNvme, G + at, 512 * K);
    stream.done(kLoop, at, 512 * K, request);
    stream.read(kModel, at, 512 * K, 100, number);
  }
  return stream;
}

/// Random 4 KiB direct reads at a queue depth of 32: the worst case, three records for 4 KiB.
Stream direct(std::uint64_t reads) {
  Stream stream;
  std::uint64_t state = 1;
  std::vector<std::uint64_t> places(32);
  for (std::uint64_t i = 0; i < reads; i += places.size()) {
    for (std::uint32_t t = 0; t < places.size(); ++t) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      places[t] = (state >> 40) * 4 * K;
      stream.bio(kModel, kNvme, places[t], 4 * K, 100 + t, static_cast<std::uint32_t>(i + 1), kTarget | SB_BIO_DIRECT);
    }
    for (std::uint32_t t = 0; t < places.size(); ++t) {
      stream.done(kNvme, places[t], 4 * K);
      stream.read(kModel, places[t], 4 * K, 100 + t, static_cast<std::uint32_t>(i + 1), SB_READ_DIRECT);
    }
  }
  return stream;
}

/// Warm 128 KiB reads: nothing but calls.
Stream warm(std::uint64_t reads) {
  Stream stream;
  for (std::uint64_t i = 0; i < reads; ++i)
    stream.read(kModel, i * 128 * K, 128 * K, 100, static_cast<std::uint32_t>(i + 1));
  return stream;
}

/// Faults of a mapping, 128 KiB each, in order: what they fill is never returned and has to be remembered.
Stream faults(std::uint64_t count) {
  Stream stream;
  for (std::uint64_t i = 0; i < count; ++i) {
    stream.fill(kModel, i * 128 * K, 128 * K, 100, 0, kTarget);
    stream.bio(kModel, kNvme, i * 128 * K, 128 * K, 100, 0, kTarget | SB_BIO_FILE);
    stream.done(kNvme, i * 128 * K, 128 * K);
  }
  return stream;
}

/// Random 4 KiB reads whose readahead of 128 KiB is never returned: the most that has to be remembered.
Stream wasteful(std::uint64_t reads) {
  Stream stream;
  for (std::uint64_t i = 0; i < reads; ++i) {
    const std::uint64_t at = (i * 7919) % reads * 128 * K;
    stream.fill(kModel, at, 128 * K, 100, static_cast<std::uint32_t>(i + 1), kTarget);
    stream.bio(kModel, kNvme, at, 128 * K, 100, static_cast<std::uint32_t>(i + 1), kTarget | SB_BIO_FILE);
    stream.done(kNvme, at, 128 * K);
    stream.read(kModel, at + 60 * K, 4 * K, 100, static_cast<std::uint32_t>(i + 1));
  }
  return stream;
}

Session session() {
  Session session;
  const auto add = [&](DeviceNumber dev, const char* name, DeviceKind kind) {
    Device device;
    device.dev = dev;
    device.name = name;
    device.kind = kind;
    session.stack.devices[dev] = device;
  };
  add(kNvme, "nvme0n1", DeviceKind::nvme);
  add(kLoop, "loop0", DeviceKind::loop);
  for (const char* name : {"fill-readahead", "fill-folio", "bio-submit", "backing-lookup"}) {
    HookStatus hook;
    hook.name = hook.how = name;
    hook.tier = "kprobe";
    hook.attached = true;
    hook.served_by = true;
    session.hooks.push_back(std::move(hook));
  }
  return session;
}

std::uint64_t heap_bytes() { return mallinfo2().uordblks; }

/// Of this thread: what one core does in a second, whatever else the machine does.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void feed_all(Attribution& attribution, std::span<const std::byte> records) {
  while (!records.empty()) {
    sb_head head;
    std::memcpy(&head, records.data(), sizeof(head));
    attribution.feed(records.subspan(0, head.size));
    records = records.subspan(head.size);
  }
}

/// A load that does not end, of a model of 1 TiB again and again: what is held after each tenth of it.
void measure_long(std::uint64_t records) {
  const Session whole = session();
  Attribution attribution({whole.stack, whole.hooks, 4096});
  constexpr std::uint64_t groups_in_model = 64 * K, step = 1024;
  Stream stream;
  stream.bytes.reserve(16 * M);
  const std::uint64_t before = heap_bytes();
  std::uint64_t fed = 0, tenths = 0, returned = 0;
  double took = 0;
  for (std::uint64_t group = 0; fed < records; group += step) {
    const std::uint64_t made_before = stream.records;
    stream.bytes.clear();
    add_chunks(stream, group % groups_in_model, step);
    returned += step * 16 * M;
    const double begin = processor_seconds();
    feed_all(attribution, stream.bytes);
    took += processor_seconds() - begin;
    fed += stream.records - made_before;
    if (fed * 10 / records == tenths) continue;
    tenths = fed * 10 / records;
    std::printf("%-10s %9llu records  %6.2f million records/s  %10llu bytes held\n", "long",
                static_cast<unsigned long long>(fed), static_cast<double>(fed) / took / 1e6,
                static_cast<unsigned long long>(heap_bytes() - before));
    std::fflush(stdout);
  }
  const std::uint64_t found = attribution.finish(whole).reads.bytes_returned;
  std::printf("%-10s %8.2f TiB returned, %s\n", "long", static_cast<double>(found) / static_cast<double>(1024 * G),
              found == returned ? "as made" : "NOT as made");
}

void measure(const char* name, const Stream& stream, int repeats) {
  const Session whole = session();
  double best = 0;
  std::uint64_t held = 0, returned = 0;
  for (int i = 0; i < repeats; ++i) {
    const std::uint64_t before = heap_bytes();
    Attribution attribution({whole.stack, whole.hooks, 4096});
    const double begin = processor_seconds();
    feed_all(attribution, stream.bytes);
    const double took = processor_seconds() - begin;
    held = heap_bytes() - before;
    returned = attribution.finish(whole).reads.bytes_returned;
    best = std::max(best, static_cast<double>(stream.records) / took);
  }
  std::printf("%-10s %9llu records  %6.2f million records/s  %10llu bytes held  %8.2f GiB returned\n", name,
              static_cast<unsigned long long>(stream.records), best / 1e6, static_cast<unsigned long long>(held),
              static_cast<double>(returned) / static_cast<double>(G));
}

}  // namespace

/// The best of REPEATS runs (default 5) of each stream; a stream's name as the second argument runs it alone. `--long
/// N`: one load of N records instead.
int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--long") {
    measure_long(std::strtoull(argv[2], nullptr, 10));
    return 0;
  }
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const std::string_view only = argc > 2 ? argv[2] : "";
  const auto run = [&](const char* name, auto&& make, std::uint64_t count) {
    if (only.empty() || only == name) measure(name, make(count), repeats);
  };
  run("chunks", chunks, 64000);
  run("loop", through_loop, 100000);
  run("direct", direct, 320000);
  run("warm", warm, 1000000);
  run("faults", faults, 300000);
  run("wasteful", wasteful, 200000);
  return 0;
}
