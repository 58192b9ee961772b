// SPDX-License-Identifier: Apache-2.0
#include "stack/open_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "machine_tree.h"
#include "stack/layers.h"

namespace servedby {
namespace {

using test::MachineTree;
using test::regular;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

const DeviceNumber loop0 = device_number(7, 0);
const DeviceNumber partition = device_number(259, 2);

struct Process {
  explicit Process(const std::string& name) : tree(std::string(FIXTURES) + "/" + name + ".tree") {
    tree.put("/proc/42/mountinfo", tree.root().text("/proc/self/mountinfo").value());
  }
  void open(int descriptor, std::uint64_t mount, FileIdentity file, const std::string& flags = "0100000") {
    file.mount_id = mount;
    const std::string name = std::to_string(descriptor);
    tree.put("/proc/42/fd/" + name, "");
    tree.put("/proc/42/fdinfo/" + name, "pos:\t0\nflags:\t" + flags + "\nmnt_id:\t1\n");
    tree.calls->files["/proc/42/fd/" + name] = file;
  }
  [[nodiscard]] std::map<DeviceNumber, std::uint64_t> seen() const {
    const Root root = tree.root();
    const StorageStack stack = whole_machine(root);
    OpenFiles files(root, stack);
    files.look_at(42);
    files.look_at(42);
    files.look_at(43);
    return files.bytes_on();
  }
  MachineTree tree;
};

TEST(OpenFiles, sizes_of_files_open_for_reading_each_once) {
  Process process("loop_on_ext4");
  process.open(3, 30, regular(loop0, 131, 1000));
  process.open(4, 30, regular(loop0, 131, 1000));               // the same file again
  process.open(5, 30, regular(loop0, 132, 50), "0100002");      // read and write
  process.open(6, 21, regular(partition, 9, 7000), "0101001");  // an output file
  process.open(7, 99, regular(partition, 10, 7000));            // of a mount that is not to be seen
  FileIdentity pipe = regular(partition, 11);
  pipe.mode = 0010600;
  process.open(8, 21, pipe);
  EXPECT_THAT(process.seen(), ElementsAre(Pair(loop0, 1050)));
}

TEST(OpenFiles, through_an_overlay_whose_directories_are_hidden) {
  Process process("container_hidden");
  process.open(3, 500, regular(device_number(0, 52), 131, 1000));
  EXPECT_THAT(process.seen(), ElementsAre(Pair(loop0, 1000)));
}

TEST(OpenFiles, through_an_overlay_whose_directories_are_visible) {
  Process process("overlay_visible");
  FileIdentity directory = regular(partition, 2);
  directory.mode = 0040755;
  process.tree.calls->files["/var/lib/docker/overlay2/c1/diff"] = directory;
  process.open(3, 40, regular(device_number(0, 45), 131, 1000));
  EXPECT_THAT(process.seen(), ElementsAre(Pair(partition, 1000)));
}

TEST(OpenFiles, a_process_that_may_not_be_looked_into) { EXPECT_THAT(Process("loop_on_ext4").seen(), IsEmpty()); }

}  // namespace
}  // namespace servedby
