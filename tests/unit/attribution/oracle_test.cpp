// SPDX-License-Identifier: Apache-2.0
// The same rules, written a second time byte by byte, against thousands of random sessions: fills, bios, requests,
// backing reads, evictions, misses and failures in any order.
#include <algorithm>
#include <random>
#include <set>

#include "scene.h"

namespace servedby::test {
namespace {

constexpr std::uint64_t kPage = 512;  // small pages, so that every byte can have a cell
constexpr std::uint64_t kPages = 16;

/// Where a byte came from, as an index of kVias; below the device, three further on.
enum Way : int { kCache, kDrive, kUnknown, kInnerCache, kInnerDrive, kInnerUnknown, kWays, kNoWay };
const Via kVias[kWays] = {{"page-cache"},          {"nvme0n1"},          {"unknown"},
                          {"loop0", "page-cache"}, {"loop0", "nvme0n1"}, {"loop0", "unknown"}};
Way below(Way way) { return static_cast<Way>(way + 3); }

/// What is known of one byte of a file.
struct Cell {
  enum { absent, announced, in_flight, filled } state = absent;
  Way via = kNoWay;
  bool failed = false, for_target = false, counted = false, mapped = false, warmed = false;
  std::uint32_t tid = 0, read = 0;
  std::uint64_t bio = 0, done_ns = 0;
};

struct Evidence {
  std::uint64_t begin = 0, end = 0, pos = 0, begin_ns = 0;
};

class Oracle {
 public:
  explicit Oracle(unsigned seed) : random(seed) {
    plain = scene.file(11, kNvme0, 1000 * kPage, kPages * kPage - 100);
    backing = scene.file(50, kNvme0, 5000 * kPage, (4 + kPages) * kPage);
    inner = scene.file(12, kLoop0, 4 * kPage, kPages * kPage - 7);
    cells[11].resize(kPages * kPage);
    cells[50].resize((4 + kPages) * kPage);
    cells[12].resize(kPages * kPage);
    for (const std::uint32_t tid : {100U, 101U, 102U}) scene.task_bytes[tid] = 0;
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (dice(9)) {
        case 0:
        case 1:
          submit(dice(2) ? plain : inner, someone());
          break;
        case 2:
        case 3:
          complete_some(plain);
          break;
        case 4:
          begin_request();
          break;
        case 5:
          fill_below();
          break;
        case 6:
          end_request();
          break;
        default:
          read(dice(2) ? plain : inner);
          break;
      }
    }
    end();
  }

  void check(std::size_t crowded_at) {
    scene.page_size = kPage;
    scene.crowded_at = crowded_at;
    scene.session.counts.requests_in_flight_at_end = 1;  // what is in flight at the end may really be
    const AttributionResult result = scene.result();
    expect_sound(result);
    EXPECT_EQ(bytes_of(result.served_by), named(served));
    EXPECT_EQ(bytes_of(result.mmap.filled_by), named(mapped));
    std::uint64_t prefetched_bytes = 0;
    for (const ServedBy& row : result.served_by) prefetched_bytes += row.prefetched_bytes;
    EXPECT_EQ(prefetched_bytes, prefetched);
    EXPECT_EQ(result.wasted_bytes, wasted);
    EXPECT_EQ(result.warmed_by_others_bytes, warmed);
    EXPECT_EQ(result.reads.bytes_returned, returned);
    EXPECT_EQ(result.recovered.at("completion_by_return"), by_return);
    EXPECT_EQ(result.recovered.at("completion_by_refill"), by_refill);
    EXPECT_EQ(result.losses.at("unmatched_backing"), unmatched);
    for (const auto& [name, bytes] : parts) EXPECT_EQ(result.ledger[0].parts.at(std::string(name)), bytes) << name;
    EXPECT_EQ(result.ledger[0].residual_bytes, 0);
    Bytes calls = named(reads);
    for (const ServedBy& row : result.served_by) EXPECT_EQ(row.reads, calls[row.via]);
  }

 private:
  static Bytes named(const std::map<Way, std::uint64_t>& ways) {
    Bytes bytes;
    for (const auto& [way, count] : ways) bytes[kVias[way]] = count;
    return bytes;
  }
  std::uint64_t dice(std::uint64_t sides) { return random() % sides; }
  Who someone() {
    if (dice(4) == 0) return other();
    const auto tid = static_cast<std::uint32_t>(100 + dice(3));
    return target(tid, dice(6) == 0 ? 0 : next_read[tid]);
  }
  std::pair<std::uint64_t, std::uint64_t> page_range(std::uint64_t pages) {
    const std::uint64_t first = dice(pages);
    return {first * kPage, (first + 1 + dice(std::min<std::uint64_t>(pages - first, 6))) * kPage};
  }

  /// A byte's old state ends without a return.
  void dispose(Cell& cell, const TestFile& file, std::uint64_t pos, bool refilled) {
    if (cell.state == Cell::absent) return;
    if (cell.counted) {
      ++parts[cell.mapped ? "exec_mmap" : "never_returned"];
      if (!cell.mapped) ++wasted;
    }
    if (cell.state == Cell::in_flight && refilled) {
      if (recovered.insert(cell.bio).second) ++by_refill;
      const Way via = recover(file, pos).first;
      if (cell.mapped) ++mapped[via];
    }
    cell = Cell{};
  }

  void submit(const TestFile& file, const Who& who) { submit(file, who, page_range(kPages)); }
  void submit(const TestFile& file, const Who& who, std::pair<std::uint64_t, std::uint64_t> range) {
    std::vector<Cell>& of_file = cells[file.id.ino];
    const bool hole = dice(12) == 0, announce = hole || dice(5) != 0;
    if (announce) {
      scene.fill(file, range.first, range.second - range.first, who);
      for (std::uint64_t p = range.first; p < std::min(range.second, file.size); ++p) {
        dispose(of_file[p], file, p, true);
        of_file[p].state = Cell::announced;
      }
    }
    if (hole) return;
    for (std::uint64_t begin = range.first; begin < range.second;) {
      const std::uint64_t end = std::min(range.second, begin + kPage * (1 + dice(4)));
      scene.bio(file, begin, end - begin, who);
      ++bios;
      const bool counted = (who.flags & SB_BY_TARGET) != 0;
      for (std::uint64_t p = begin; p < end; ++p) {
        if (p >= file.size) {
          if (counted) ++parts["past_end"];
          continue;
        }
        dispose(of_file[p], file, p, true);
        Cell& cell = of_file[p];
        cell.state = Cell::in_flight;
        cell.for_target = (who.flags & SB_FOR_TARGET) != 0;
        cell.counted = counted;
        cell.mapped = counted && who.read == 0;
        cell.tid = who.tid;
        cell.read = who.read;
        cell.bio = bios;
      }
      begin = end;
    }
  }

  void completed(Cell& cell, Way via, bool is_warmed) {
    cell.state = Cell::filled;
    cell.via = via;
    cell.warmed = is_warmed;
    cell.done_ns = scene.now;
    if (cell.mapped) ++mapped[via];
  }
  void failed(Cell& cell) {
    if (cell.counted) ++parts["failed"];
    cell = Cell{};
    cell.state = Cell::announced;
  }

  /// Requests of the drive over some pages: merges and splits fall out of the random range. Some are never recorded.
  void complete_some(const TestFile& file) { complete_some(file, page_range(kPages)); }
  void complete_some(const TestFile& file, std::pair<std::uint64_t, std::uint64_t> range) {
    Scene::Done how;
    how.status = dice(20) == 0 ? 10 : 0;
    how.issue_ns = dice(2) ? scene.now : 0;
    scene.done(file, range.first, range.second - range.first, how);
    for (std::uint64_t p = range.first; p < std::min(range.second, file.size); ++p) {
      Cell& cell = cells[file.id.ino][p];
      if (cell.state != Cell::in_flight) continue;
      if (how.status != 0)
        failed(cell);
      else
        completed(cell, kDrive, false);
    }
  }

  void begin_request() {
    const std::uint64_t request = 0xffff888100000000 + 4096 * dice(4);
    for (std::uint64_t pieces = 1 + dice(3); pieces > 0; --pieces) {
      const auto [begin, end] = page_range(kPages);
      scene.backing(inner, begin, end - begin, request, backing);
      latest[request] = scene.now;
      std::vector<Evidence>& list = evidence[request];
      const std::uint64_t pos = inner.base + begin;
      if (!list.empty() && list.back().end == begin && list.back().pos + (list.back().end - list.back().begin) == pos)
        list.back().end = end;
      else
        list.push_back({begin, end, pos, scene.now});
    }
  }

  void fill_below() {
    const auto [begin, end] = page_range(kPages);
    const std::uint64_t request = 0xffff888100000000 + 4096 * dice(4);
    const Who who = dice(5) == 0 ? other() : worker(request, dice(4) != 0);
    submit(backing, who, {inner.base + begin, inner.base + end});
    if (dice(5) != 0) complete_some(backing, {inner.base + begin, inner.base + end});
  }

  /// One byte of the backing file goes to a request. Via without the device; whether others had warmed it.
  std::pair<Way, bool> take_below(std::uint64_t pos, std::uint64_t begin_ns) {
    Cell& cell = cells[50][pos];
    std::pair<Way, bool> got{kCache, false};
    if (cell.state == Cell::announced) got.first = kUnknown;
    if (cell.state == Cell::in_flight) {
      if (recovered.insert(cell.bio).second) ++by_return;
      got.first = kDrive;
    }
    if (cell.state == Cell::filled) {
      if (cell.for_target || begin_ns < cell.done_ns)
        got.first = cell.via;
      else
        got.second = true;
    }
    cell = Cell{};
    return got;
  }
  /// One byte of the inner device, by the evidence of one request; empty where there is none.
  std::pair<Way, bool> by_evidence(std::vector<Evidence>& list, std::uint64_t p) {
    std::pair<Way, bool> got{kNoWay, false};
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Evidence e = list[i];
      if (p < e.begin || p >= e.end) continue;
      if (got.first == kNoWay) {
        got = take_below(e.pos + (p - e.begin), e.begin_ns);
        got.first = below(got.first);
      }
      const auto at = list.begin() + static_cast<std::ptrdiff_t>(i);
      const Evidence before{e.begin, p, e.pos, e.begin_ns}, after{p + 1, e.end, e.pos + (p + 1 - e.begin), e.begin_ns};
      if (after.begin < after.end)
        *at = after;
      else
        list.erase(at);
      if (before.begin < before.end) list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), before);
      if (before.begin == before.end && after.begin == after.end) --i;
    }
    return got;
  }
  /// A byte whose completion was missed.
  std::pair<Way, bool> recover(const TestFile& file, std::uint64_t p) {
    if (file.dev == kNvme0) return {kDrive, false};
    std::vector<std::pair<std::uint64_t, std::uint64_t>> order;
    for (const auto& [request, when] : latest) order.emplace_back(when, request);
    std::ranges::sort(order, std::greater{});
    for (const auto& [when, request] : order) {
      const auto got = by_evidence(evidence[request], p);
      if (got.first != kNoWay) return got;
    }
    return {kInnerUnknown, false};
  }

  void end_request() {
    const std::uint64_t request = 0xffff888100000000 + 4096 * dice(4);
    const auto [begin, end] = page_range(kPages);
    Scene::Done how;
    how.request = request;
    how.status = dice(20) == 0 ? 10 : 0;
    how.flags = dice(4) == 0 ? SB_REQUEST_PARTIAL : 0;
    scene.done(inner, begin, end - begin, how);
    std::vector<Evidence>& list = evidence[request];
    for (std::uint64_t p = begin; p < end; ++p) {
      std::pair<Way, bool> got{kNoWay, false};
      if (how.status == 0) got = by_evidence(list, p);
      Cell& cell = cells[12][p];
      if (p >= inner.size || cell.state != Cell::in_flight) continue;
      if (how.status != 0)
        failed(cell);
      else if (got.first == kNoWay)
        completed(cell, kInnerUnknown, false);
      else
        completed(cell, got.first, got.second);
    }
    if ((how.flags & SB_REQUEST_PARTIAL) != 0) return;
    if (how.status != 0) list.clear();
    if (!list.empty()) ++unmatched;
    while (!list.empty()) by_evidence(list, list.front().begin);
    evidence.erase(request);
    latest.erase(request);
  }

  void read(const TestFile& file) {
    const auto tid = static_cast<std::uint32_t>(100 + dice(3));
    const std::uint32_t number = next_read[tid]++;
    const std::uint64_t begin = dice(file.size);
    const std::uint64_t end = begin + dice(std::min<std::uint64_t>(file.size - begin, 6 * kPage) + 1);
    const std::uint64_t begin_ns = scene.now - dice(20);
    scene.read(file, begin, end - begin, target(tid, number), begin_ns);
    std::set<Way> got;
    for (std::uint64_t p = begin; p < end; ++p) {
      Cell& cell = cells[file.id.ino][p];
      Way via = kCache;
      bool is_warmed = false, is_prefetched = false;
      const bool same = cell.read == number && cell.tid == tid;
      if (cell.counted) ++parts["first_returned"];
      if (cell.state == Cell::announced) via = kUnknown;
      if (cell.state == Cell::in_flight) {
        if (recovered.insert(cell.bio).second) ++by_return;
        std::tie(via, is_warmed) = recover(file, p);
        is_prefetched = !same;
        if (cell.mapped) ++mapped[via];
      }
      if (cell.state == Cell::filled) {
        if (cell.for_target || begin_ns < cell.done_ns) {
          via = cell.via;
          is_warmed = cell.warmed;
          is_prefetched = !same;
        } else {
          is_warmed = true;
        }
      }
      cell = Cell{};
      ++served[via];
      got.insert(via);
      ++returned;
      prefetched += is_prefetched;
      warmed += is_warmed;
    }
    for (const Way via : got) ++reads[via];
  }

  void end() {
    for (const TestFile* file : {&plain, &inner, &backing})
      for (std::uint64_t p = 0; p < cells[file->id.ino].size(); ++p) dispose(cells[file->id.ino][p], *file, p, false);
  }

  std::mt19937 random;
  Scene scene;
  TestFile plain, backing, inner;
  std::map<std::uint64_t, std::vector<Cell>> cells;
  std::map<std::uint32_t, std::uint32_t> next_read{{100, 1}, {101, 1}, {102, 1}};
  std::map<std::uint64_t, std::vector<Evidence>> evidence;
  std::map<std::uint64_t, std::uint64_t> latest;
  std::set<std::uint64_t> recovered;
  std::uint64_t bios = 0;

  std::map<Way, std::uint64_t> served, mapped, reads;
  std::map<std::string_view, std::uint64_t> parts;
  std::uint64_t prefetched = 0, wasted = 0, warmed = 0, returned = 0, by_return = 0, by_refill = 0, unmatched = 0;
};

TEST(Oracle, RandomSessionsAgreeByteByByte) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    Oracle oracle(seed);
    oracle.run(20 + static_cast<int>(seed % 60));
    oracle.check(seed % 2 == 0 ? 4096 : seed % 5 + 1);  // every other one keeps what it can as bits
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace servedby::test
