// SPDX-License-Identifier: Apache-2.0
// A session written by hand: says what the kernel side would record, and keeps the counters that the kernel would have
// kept, so that every ledger can be checked. Every file lies in one piece on its device.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "attribution/attribution.h"

namespace servedby::test {

inline constexpr DeviceNumber kNvme0 = device_number(259, 0), kNvme1 = device_number(259, 1);
inline constexpr DeviceNumber kLoop0 = device_number(7, 0), kLoop1 = device_number(7, 1);
inline constexpr DeviceNumber kDm0 = device_number(253, 0), kVirtio = device_number(254, 0);
inline constexpr std::uint64_t K = 1024, M = 1024 * K;

/// A file in one piece: its byte p is byte base + p of `dev`.
struct TestFile {
  sb_file_id id{};
  DeviceNumber dev = kNvme0;
  std::uint64_t base = 0;
  std::uint64_t size = 0;
};

/// On whose account something happens.
struct Who {
  std::uint32_t tid = 100;
  std::uint32_t read = 0;  ///< open read call
  std::uint32_t flags = SB_BY_TARGET | SB_FOR_TARGET;
  std::uint64_t serving = 0;
  std::uint32_t tgid = 100;
  std::uint32_t reader = 0;  ///< whose number `read` is; 0: tid
};
inline Who target(std::uint32_t tid, std::uint32_t read) { return {tid, read}; }
inline Who worker(std::uint64_t request, bool for_target = true, std::uint32_t tid = 900) {
  return {tid, 0, SB_BY_WORKER | (for_target ? std::uint32_t{SB_FOR_TARGET} : 0U), request, 2};
}
inline Who other(std::uint32_t tid = 700) { return {tid, 0, 0, 0, tid}; }

class Scene {
 public:
  Scene() {
    add_device(kNvme0, "nvme0n1", DeviceKind::nvme);
    add_device(kNvme1, "nvme1n1", DeviceKind::nvme);
    add_device(kVirtio, "vda", DeviceKind::virtio);
    add_device(kLoop0, "loop0", DeviceKind::loop);
    add_device(kLoop1, "loop1", DeviceKind::loop);
    add_device(kDm0, "dm-0", DeviceKind::dm);
    for (const char* name :
         {"read-entry", "read-return", "fill-readahead", "fill-folio", "bio-submit", "request-done", "backing-lookup"})
      session.hooks.push_back({.name = name,
                               .how = std::string("kprobe:") + name,
                               .tier = "kprobe",
                               .attached = true,
                               .served_by = true,
                               .second_sight = false,
                               .why_not = "",
                               .runs = 1,
                               .recursion_misses = 0});
    session.tier = "kprobe";
    session.target_pid = 100;
  }

  Session session;
  std::uint64_t now = 1000;  ///< steps with every record
  std::vector<std::vector<std::byte>> records;

  TestFile file(std::uint64_t ino, DeviceNumber dev, std::uint64_t base, std::uint64_t size) {
    return {{ino, device_number(8, 1), 0}, dev, base, size};
  }

  template <class Record>
  void put(Record record, std::uint16_t kind, std::uint32_t tid) {
    record.head = {kind, sizeof(Record), tid, ++now};
    std::vector<std::byte> bytes(sizeof(Record));
    std::memcpy(bytes.data(), &record, sizeof(Record));
    records.push_back(std::move(bytes));
  }

  void fill(const TestFile& file, std::uint64_t pos, std::uint64_t bytes, const Who& who) {
    sb_fill record{};
    record.pos = pos;
    record.bytes = bytes;
    record.file_size = file.size;
    record.file = file.id;
    record.tgid = who.tgid;
    record.read = who.read;
    record.reader = who.reader;
    record.serving = who.serving;
    record.flags = who.flags | SB_FILL_READAHEAD;
    put(record, SB_FILL, who.tid);
  }

  sb_bio bio_record(const TestFile& file, std::uint64_t pos, std::uint64_t bytes, const Who& who,
                    std::uint32_t flags = SB_BIO_FILE) {
    sb_bio record{};
    record.bio = 0xffff888000000000 + 64 * ++bios_;
    record.sector = (file.base + pos) / 512;
    record.file_pos = pos;
    record.file_size = file.size;
    record.serving = who.serving;
    record.file = file.id;
    record.bytes = static_cast<std::uint32_t>(bytes);
    record.dev = file.dev;
    record.tgid = who.tgid;
    record.read = who.read;
    record.reader = who.reader;
    record.flags = who.flags | flags | SB_BIO_FIRST;
    return record;
  }
  void bio(sb_bio record, const Who& who) {
    if ((record.flags & SB_BY_TARGET) != 0) task_bytes[who.tid] += record.bytes;
    for_target_[{record.dev, record.sector}] = (record.flags & SB_FOR_TARGET) != 0;
    put(record, SB_BIO, who.tid);
  }
  void bio(const TestFile& file, std::uint64_t pos, std::uint64_t bytes, const Who& who,
           std::uint32_t flags = SB_BIO_FILE) {
    bio(bio_record(file, pos, bytes, who, flags), who);
  }

  /// A stacked device passes bytes [begin, + bytes) on to bytes [below, + bytes) of `dev`.
  void remap(DeviceNumber stacked, std::uint64_t begin, DeviceNumber dev, std::uint64_t below, std::uint64_t bytes,
             std::uint32_t flags = SB_FOR_TARGET) {
    sb_remap record{};
    record.old_sector = begin / 512;
    record.sector = below / 512;
    record.old_dev = stacked;
    record.dev = dev;
    record.bytes = static_cast<std::uint32_t>(bytes);
    record.flags = flags;
    put(record, SB_REMAP, 100);
  }

  /// A stacked device gives [begin, + bytes) itself.
  void given(DeviceNumber stacked, std::uint64_t begin, std::uint64_t bytes, sb_giving how) {
    sb_given record{};
    record.sector = begin / 512;
    record.dev = stacked;
    record.bytes = static_cast<std::uint32_t>(bytes);
    record.how = how;
    put(record, SB_GIVEN, 50);
  }

  struct Done {
    std::uint64_t request = 0;
    std::int32_t status = 0;
    std::uint32_t flags = 0;
    bool target = true;  ///< its bytes are the target's
    bool seen = true;    ///< there is a record
    std::uint64_t issue_ns = 0;
  };
  /// A request completed: the kernel counts it, whether or not there is a record.
  void done(DeviceNumber dev, std::uint64_t begin, std::uint64_t bytes, const Done& how) {
    session.after.block[dev].read_bytes += bytes;
    session.before.block[dev];
    sb_device_count& count = session.counts.devices[dev];
    (how.target ? count.target_read_bytes : count.other_read_bytes) += bytes;
    ++(how.target ? count.target_read_requests : count.other_read_requests);
    if (!how.seen) return;
    sb_request record{};
    record.request = how.request;
    record.sector = begin / 512;
    record.bytes = static_cast<std::uint32_t>(bytes);
    record.dev = dev;
    record.target_bytes = how.target ? record.bytes : 0;
    record.status = how.status;
    record.flags = how.flags;
    record.issue_ns = how.issue_ns;
    put(record, SB_REQUEST, 0);
  }
  void done(DeviceNumber dev, std::uint64_t begin, std::uint64_t bytes) { done(dev, begin, bytes, Done{}); }
  void done(const TestFile& file, std::uint64_t pos, std::uint64_t bytes, const Done& how) {
    done(file.dev, file.base + pos, bytes, how);
  }
  void done(const TestFile& file, std::uint64_t pos, std::uint64_t bytes) { done(file, pos, bytes, Done{}); }

  /// A loop worker reads the backing file for bytes [pos, + bytes) of an inner file, `request` being the device's
  /// request.
  void backing(const TestFile& inner, std::uint64_t pos, std::uint64_t bytes, std::uint64_t request,
               const TestFile& backing_file, std::uint32_t flags = SB_BACKING_BY_ADDRESS) {
    sb_backing record{};
    record.request = request;
    record.sector = (inner.base + pos) / 512;
    record.pos = inner.base + pos;
    record.bytes = bytes;
    record.file = backing_file.id;
    record.dev = inner.dev;
    record.flags = flags;
    put(record, SB_BACKING, 900);
  }

  /// Announced, submitted and completed, in bios of at most 512 KiB.
  void cold(const TestFile& file, std::uint64_t pos, std::uint64_t bytes, const Who& who) {
    fill(file, pos, bytes, who);
    for (std::uint64_t at = pos; at < pos + bytes; at += 512 * K)
      bio(file, at, std::min(512 * K, pos + bytes - at), who);
    Done how;
    how.target = (who.flags & SB_FOR_TARGET) != 0;
    for (std::uint64_t at = pos; at < pos + bytes; at += 512 * K)
      done(file, at, std::min(512 * K, pos + bytes - at), how);
  }

  sb_read read_record(const TestFile& file, std::uint64_t pos, std::int64_t returned, const Who& who,
                      std::uint64_t begin_ns = 0, std::uint64_t count = 0) {
    sb_read record{};
    record.begin_ns = begin_ns == 0 ? now : begin_ns;
    record.file = record.opened = file.id;
    record.pos = pos;
    record.count = count != 0 ? count : static_cast<std::uint64_t>(std::max<std::int64_t>(returned, 0));
    record.returned = returned;
    record.file_size = file.size;
    record.tgid = who.tgid;
    record.read = who.read;
    record.method = SB_METHOD_PREAD;
    record.flags = SB_READ_PAGE_CACHE;
    return record;
  }
  void read(const TestFile& file, std::uint64_t pos, std::uint64_t bytes, const Who& who, std::uint64_t begin_ns = 0) {
    put(read_record(file, pos, static_cast<std::int64_t>(bytes), who, begin_ns), SB_READ, who.tid);
  }

  void name(const TestFile& file, const std::vector<std::string>& leaf_first) {
    sb_file_name record{};
    record.file = record.opened = file.id;
    std::string path;
    for (const std::string& component : leaf_first) path += component + '\0';
    std::memcpy(record.path, path.data(), path.size());
    record.length = static_cast<std::uint32_t>(path.size());
    put(record, SB_FILE, 100);
  }

  void task(std::uint32_t event, std::uint32_t task, std::uint32_t tgid, std::uint64_t read_bytes = 0) {
    sb_task record{};
    record.event = event;
    record.task = task;
    record.tgid = tgid;
    record.read_bytes = read_bytes;
    put(record, SB_TASK, task);
  }

  AttributionResult result() {
    for (const auto& [tid, bytes] : task_bytes) session.after.tasks[tid].read_bytes = bytes;
    session.stack = stack;
    Attribution attribution({stack, session.hooks, page_size, crowded_at});
    for (const auto& record : records) attribution.feed(record);
    return attribution.finish(session);
  }

  void without(const std::string& hook) {
    for (HookStatus& status : session.hooks)
      if (status.name == hook) {
        status.attached = false;
        status.why_not = "forced off";
      }
  }

  StorageStack stack;
  std::uint32_t page_size = 4096;
  std::size_t crowded_at = 4096;
  std::map<std::uint32_t, std::uint64_t> task_bytes;  ///< read_bytes of /proc/PID/task/TID/io

 private:
  void add_device(DeviceNumber dev, const char* name, DeviceKind kind) {
    Device device;
    device.dev = dev;
    device.name = name;
    device.kind = kind;
    stack.devices[dev] = device;
  }
  std::uint64_t bios_ = 0;
  std::map<std::pair<DeviceNumber, std::uint64_t>, bool> for_target_;
};

using Bytes = std::map<Via, std::uint64_t>;

inline Bytes bytes_of(const std::vector<ServedBy>& served) {
  Bytes bytes;
  for (const ServedBy& row : served) bytes[row.via] += row.bytes;
  return bytes;
}
inline Bytes bytes_of(const std::vector<FilledBy>& filled) {
  Bytes bytes;
  for (const FilledBy& row : filled) bytes[row.via] += row.bytes;
  return bytes;
}
inline const ServedBy* row_of(const AttributionResult& result, const Via& via) {
  for (const ServedBy& row : result.served_by)
    if (row.via == via) return &row;
  return nullptr;
}

/// What holds of every result, whatever was fed.
inline void expect_sound(const AttributionResult& result) {
  std::uint64_t returned = 0, served = 0, calls = 0;
  for (const ServedBy& row : result.served_by) {
    served += row.bytes;
    EXPECT_LE(row.prefetched_bytes, row.bytes);
    EXPECT_LE(row.reads, result.reads.calls);
  }
  EXPECT_EQ(served, result.reads.bytes_returned);
  for (const FileResult& file : result.files) {
    std::uint64_t of_file = 0;
    for (const ServedBy& row : file.served_by) of_file += row.bytes;
    EXPECT_EQ(of_file, file.reads.bytes_returned);
    returned += of_file;
    calls += file.reads.calls;
  }
  EXPECT_EQ(returned, result.reads.bytes_returned);
  EXPECT_EQ(calls, result.reads.calls);
  for (const LedgerLine& line : result.ledger) {
    if (line.boundary != "process") continue;
    std::uint64_t parts = 0;
    for (const auto& [name, bytes] : line.parts) parts += bytes;
    EXPECT_EQ(parts, line.traced_target_bytes);
  }
}

/// The same, of a session in which nothing was lost.
inline void expect_whole(const AttributionResult& result) {
  expect_sound(result);
  EXPECT_TRUE(result.complete);
  for (const auto& [name, count] : result.losses) EXPECT_EQ(count, 0U) << name;
  for (const LedgerLine& line : result.ledger)
    EXPECT_EQ(line.residual_bytes, 0) << line.boundary << " " << line.device.value_or("");
}

}  // namespace servedby::test
