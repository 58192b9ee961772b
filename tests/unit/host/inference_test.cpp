// SPDX-License-Identifier: Apache-2.0
#include "host/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace servedby {

static void PrintTo(const PlacedBytes& part, std::ostream* out) {
  for (const std::string& name : part.via) *out << name << ' ';
  *out << part.bytes;
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr std::uint64_t gib = 1ULL << 30;
const DeviceNumber loop0 = device_number(7, 0);
const DeviceNumber md = device_number(9, 127);
const DeviceNumber dm = device_number(252, 0);
const DeviceNumber drive_a = device_number(259, 0);
const DeviceNumber drive_b = device_number(259, 1);
const DeviceNumber part_a = device_number(259, 2);

PlacedBytes placed(std::vector<std::string> via, std::uint64_t bytes) { return {std::move(via), bytes}; }

/// A machine whose devices read so much between two snapshots.
struct Machine {
  StorageStack stack;
  CountersSnapshot before, after;

  void add(DeviceNumber dev, std::string name, DeviceKind kind, std::vector<DeviceNumber> below, std::uint64_t read) {
    Device device;
    device.dev = dev;
    device.name = std::move(name);
    device.kind = kind;
    device.below = std::move(below);
    device.size_bytes = 1000 * gib;
    if (kind == DeviceKind::loop) device.loop = LoopBacking{"/images/a", part_a, 12, true, 0, 0, false, false};
    stack.devices[dev] = device;
    before.block[dev].read_bytes = 7 * gib;
    after.block[dev].read_bytes = 7 * gib + read;
  }
  [[nodiscard]] Inference answer(std::uint64_t rchar, std::uint64_t read_bytes,
                                 const std::map<DeviceNumber, std::uint64_t>& open_on = {}) const {
    TreeReads reads;
    reads.rchar = rchar;
    reads.read_bytes = read_bytes;
    Inference inference = infer(before, after, reads, stack, open_on);
    std::uint64_t sum = 0;
    for (const PlacedBytes& part : inference.served_by) sum += part.bytes;
    EXPECT_EQ(sum, rchar) << "what is placed is what was returned";
    for (const PlacedBytes& part : inference.beyond) sum += part.bytes;
    EXPECT_EQ(sum, std::max(rchar, read_bytes));
    return inference;
  }
};

/// XFS on a loop device on a partition of the first drive, and a second drive.
Machine loop_machine(std::uint64_t loop_read, std::uint64_t drive_read, std::uint64_t other_read = 0) {
  Machine machine;
  machine.add(drive_a, "nvme0n1", DeviceKind::nvme, {}, drive_read);
  machine.add(drive_b, "nvme1n1", DeviceKind::nvme, {}, other_read);
  machine.add(part_a, "nvme0n1p2", DeviceKind::partition, {drive_a}, drive_read);
  machine.add(loop0, "loop0", DeviceKind::loop, {part_a}, loop_read);
  return machine;
}

TEST(Inference, cold_on_the_drive) {
  const Machine machine = loop_machine(0, 10 * gib);
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"nvme0n1"}, 10 * gib)));
}

TEST(Inference, warm) {
  const Machine machine = loop_machine(0, 0);
  const Inference inference = machine.answer(10 * gib, 0);
  EXPECT_THAT(inference.served_by, ElementsAre(placed({"page-cache"}, 10 * gib)));
  EXPECT_THAT(inference.doubt, HasSubstr("process 0: no process block reads"));
}

TEST(Inference, loop_whose_backing_file_is_cached) {
  const std::uint64_t read = 42'470'000'000;
  const Inference inference = loop_machine(read, 0).answer(read, read);
  EXPECT_THAT(inference.served_by, ElementsAre(placed({"loop0", "page-cache"}, read)));
  EXPECT_EQ(inference.doubt,
            "process 39.55 GiB, loop0 39.55 GiB, nvme0n1 0: the loop's backing file in the host's page cache; other "
            "readers of "
            "loop0 would look the same");
}

TEST(Inference, loop_whose_backing_file_is_cold) {
  // The host read a little ahead of what the loop device asked for.
  const Machine machine = loop_machine(10 * gib, 10 * gib + 800'000);
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"loop0", "nvme0n1"}, 10 * gib)));
}

TEST(Inference, loop_half_cached) {
  const Inference inference = loop_machine(10 * gib, 4 * gib).answer(12 * gib, 10 * gib);
  EXPECT_THAT(inference.served_by, ElementsAre(placed({"loop0", "page-cache"}, 6 * gib),
                                               placed({"loop0", "nvme0n1"}, 4 * gib), placed({"page-cache"}, 2 * gib)));
  EXPECT_THAT(inference.doubt, HasSubstr("2 GiB that calls returned beyond that"));
}

TEST(Inference, little_else_on_the_loop_does_not_matter) {
  const std::uint64_t read = 10 * gib;
  EXPECT_THAT(loop_machine(read + 4096, 0).answer(read, read).served_by,
              ElementsAre(placed({"loop0", "page-cache"}, read)));
  EXPECT_THAT(loop_machine(read - 4096, 0).answer(read, read).served_by,
              ElementsAre(placed({"loop0", "page-cache"}, read)));
}

TEST(Inference, little_on_the_loop_is_not_ours_when_we_read_the_drive) {
  const std::uint64_t read = 10 * gib;
  EXPECT_THAT(loop_machine(524288, read + 524288).answer(read, read).served_by, ElementsAre(placed({"nvme0n1"}, read)));
}

TEST(Inference, another_process_reads_the_loop_as_well) {
  // 4 of 14 GiB are another's. All 14 came from the cache, so ours did.
  EXPECT_THAT(loop_machine(14 * gib, 0).answer(10 * gib, 10 * gib).served_by,
              ElementsAre(placed({"loop0", "page-cache"}, 10 * gib)));
  // The drive delivered 5 of the 14: at least 5 of ours were cached, at least 1 was not, who knows of the rest.
  const Machine machine = loop_machine(14 * gib, 5 * gib);
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib, {{loop0, 50 * gib}}).served_by,
              ElementsAre(placed({"loop0", "page-cache"}, 5 * gib), placed({"loop0", "nvme0n1"}, 1 * gib),
                          placed({"loop0", "unknown"}, 4 * gib)));
  // Without the knowledge that our files lie on the loop device, 5 of ours may have been read straight from the drive.
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by,
              ElementsAre(placed({"loop0", "unknown"}, 5 * gib), placed({"unknown"}, 5 * gib)));
}

TEST(Inference, several_drives_moved) {
  // 10 of 25 GiB are ours: from the first drive none must be, from the second none.
  const Machine machine = loop_machine(0, 12 * gib, 13 * gib);
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"unknown"}, 10 * gib)));
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib, {{part_a, 50 * gib}}).served_by,
              ElementsAre(placed({"nvme0n1"}, 10 * gib)));
  // 10 of 13: at least 7 of ours come from the first.
  EXPECT_THAT(loop_machine(0, 10 * gib, 3 * gib).answer(10 * gib, 10 * gib).served_by,
              ElementsAre(placed({"nvme0n1"}, 7 * gib), placed({"unknown"}, 3 * gib)));
  // They add up to ours: both are ours.
  EXPECT_THAT(loop_machine(0, 6 * gib, 4 * gib).answer(10 * gib, 10 * gib).served_by,
              UnorderedElementsAre(placed({"nvme0n1"}, 6 * gib), placed({"nvme1n1"}, 4 * gib)));
}

TEST(Inference, files_on_the_loop_and_on_the_drive_below_it) {
  // 3 GiB through the loop device, 7 straight from the drive, which delivered 8 in all: 1 of them for the loop device.
  EXPECT_THAT(loop_machine(3 * gib, 8 * gib).answer(10 * gib, 10 * gib).served_by,
              UnorderedElementsAre(placed({"loop0", "page-cache"}, 2 * gib), placed({"loop0", "nvme0n1"}, 1 * gib),
                                   placed({"nvme0n1"}, 7 * gib)));
}

TEST(Inference, more_than_all_devices_delivered_is_unknown) {
  EXPECT_THAT(loop_machine(0, 0).answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"unknown"}, 10 * gib)));
  EXPECT_THAT(loop_machine(0, 4 * gib).answer(10 * gib, 10 * gib).served_by,
              ElementsAre(placed({"nvme0n1"}, 4 * gib), placed({"unknown"}, 6 * gib)));
}

TEST(Inference, open_files_that_cannot_explain_it_are_no_guide) {
  // A small file on the first drive is open; who else read from the loop device and both drives is not known.
  const Machine machine = loop_machine(0, 12 * gib, 13 * gib);
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib, {{part_a, gib}}).served_by,
              ElementsAre(placed({"unknown"}, 10 * gib)));
  // Where the numbers add up by themselves, they go first: an output file on the drive says nothing of what was read.
  EXPECT_THAT(loop_machine(10 * gib, 10 * gib).answer(10 * gib, 10 * gib, {{part_a, 50 * gib}}).served_by,
              ElementsAre(placed({"loop0", "nvme0n1"}, 10 * gib)));
  // 2 GiB of open files on one drive, the rest must come from the other.
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib, {{part_a, 2 * gib}, {drive_b, 50 * gib}}).served_by,
              ElementsAre(placed({"nvme1n1"}, 8 * gib), placed({"unknown"}, 2 * gib)));
}

TEST(Inference, direct_io_loop_never_has_a_cache) {
  Machine machine = loop_machine(10 * gib, 10 * gib);
  machine.stack.devices[loop0].loop->direct_io = true;
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"loop0", "nvme0n1"}, 10 * gib)));
  machine.after.block[drive_a].read_bytes -= 10 * gib;
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"loop0", "unknown"}, 10 * gib)));
}

TEST(Inference, array_members_share_as_their_counters_say) {
  Machine machine;
  machine.add(drive_a, "nvme0n1", DeviceKind::nvme, {}, 6 * gib);
  machine.add(drive_b, "nvme1n1", DeviceKind::nvme, {}, 4 * gib);
  machine.add(md, "md127", DeviceKind::md, {drive_a, drive_b}, 10 * gib);
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by,
              ElementsAre(placed({"md127", "nvme0n1"}, 6 * gib), placed({"md127", "nvme1n1"}, 4 * gib)));
  // Someone read 1 GiB more from a member: from which is not known, so neither is which of ours.
  machine.after.block[drive_b].read_bytes += gib;
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by,
              ElementsAre(placed({"md127", "nvme0n1"}, 5 * gib), placed({"md127", "nvme1n1"}, 4 * gib),
                          placed({"md127", "unknown"}, 1 * gib)));
}

TEST(Inference, loop_on_a_mapping_of_a_partition) {
  Machine machine = loop_machine(10 * gib, 10 * gib);
  machine.add(dm, "dm-0", DeviceKind::dm, {part_a}, 10 * gib);
  machine.stack.devices[loop0].below = {dm};
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by,
              ElementsAre(placed({"loop0", "dm-0", "nvme0n1"}, 10 * gib)));
}

TEST(Inference, devices_that_do_not_count_say_nothing) {
  Machine machine = loop_machine(10 * gib, 0);
  machine.after.block[drive_a].counting = false;
  const Inference inference = machine.answer(10 * gib, 10 * gib);
  EXPECT_THAT(inference.served_by, ElementsAre(placed({"loop0", "unknown"}, 10 * gib)));
  EXPECT_THAT(inference.doubt, HasSubstr("nvme0n1 not counted"));
  machine.after.block.erase(loop0);
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"unknown"}, 10 * gib)));
}

TEST(Inference, loop_whose_backing_place_is_not_known) {
  Machine machine = loop_machine(10 * gib, 0);
  machine.stack.devices[loop0].below.clear();
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"loop0", "page-cache"}, 10 * gib)));
  machine.after.block[drive_b].read_bytes += 3 * gib;
  machine.stack.devices[drive_b].below.clear();
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib, {{loop0, 50 * gib}}).served_by,
              ElementsAre(placed({"loop0", "page-cache"}, 7 * gib), placed({"loop0", "unknown"}, 3 * gib)));
}

TEST(Inference, loop_on_memory) {
  Machine machine = loop_machine(10 * gib, 0);
  machine.stack.devices[loop0].below.clear();
  machine.stack.devices[loop0].facts["backing_ends_in"] = "memory";
  EXPECT_THAT(machine.answer(10 * gib, 10 * gib).served_by, ElementsAre(placed({"loop0", "page-cache"}, 10 * gib)));
}

TEST(Inference, block_reads_beyond_what_calls_returned) {
  // 2 GiB of mappings or readahead: with one layer it is clear whose, with two it is not.
  const Inference one = loop_machine(0, 10 * gib).answer(8 * gib, 10 * gib);
  EXPECT_THAT(one.served_by, ElementsAre(placed({"nvme0n1"}, 8 * gib)));
  EXPECT_THAT(one.beyond, ElementsAre(placed({"nvme0n1"}, 2 * gib)));
  const Inference two = loop_machine(10 * gib, 4 * gib).answer(8 * gib, 10 * gib);
  EXPECT_THAT(two.served_by, ElementsAre(placed({"loop0", "page-cache"}, 4 * gib),
                                         placed({"loop0", "nvme0n1"}, 2 * gib), placed({"unknown"}, 2 * gib)));
  EXPECT_THAT(two.beyond, ElementsAre(placed({"unknown"}, 2 * gib)));
}

TEST(Inference, what_weakens_the_answer_is_said) {
  Machine machine = loop_machine(10 * gib, 0);
  machine.stack.devices[loop0].below_doubt = "its backing file is not visible here";
  TreeReads reads;
  reads.rchar = reads.read_bytes = 10 * gib;
  reads.ended_unseen = 2;
  reads.known = false;
  const std::string doubt = infer(machine.before, machine.after, reads, machine.stack).doubt;
  EXPECT_THAT(doubt, HasSubstr("loop0: its backing file is not visible here"));
  EXPECT_THAT(doubt, HasSubstr("2 processes ended unseen"));
  EXPECT_THAT(doubt, HasSubstr("were refused"));
}

TEST(Inference, a_ring_of_devices_ends) {
  Machine machine = loop_machine(10 * gib, 10 * gib);
  machine.stack.devices[drive_a].below = {loop0};
  static_cast<void>(machine.answer(10 * gib, 10 * gib, {{loop0, 50 * gib}}));
}

}  // namespace
}  // namespace servedby
