// SPDX-License-Identifier: Apache-2.0
#include "stack/fuse.h"

#include <gmock/gmock.h>

#include "machine_tree.h"

namespace servedby {
namespace {

using test::MachineTree;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr DeviceNumber one = device_number(0, 46), two = device_number(0, 47);

struct Fuse : testing::Test {
  MachineTree tree{std::string(FIXTURES) + "/partition.tree"};

  void open(int pid, int descriptor, const std::string& link, const std::string& info = "pos:\t0\nflags:\t02\n") const {
    const std::string folder = "/proc/" + std::to_string(pid);
    tree.put(folder + "/fd/" + std::to_string(descriptor), "");
    tree.put(folder + "/fdinfo/" + std::to_string(descriptor), info);
    tree.calls->links[folder + "/fd/" + std::to_string(descriptor)] = link;
  }
  void connected(int pid, int descriptor, unsigned connection) const {
    open(pid, descriptor, "/dev/fuse", "pos:\t0\nfuse_connection:\t" + std::to_string(connection) + "\n");
  }
};

TEST_F(Fuse, the_kernel_names_the_connection) {
  connected(100, 3, one);
  connected(100, 4, one);
  connected(200, 3, two);
  open(300, 3, "/dev/null");
  EXPECT_THAT(fuse_daemons(tree.root(), {one, two}), ElementsAre(Pair(one, 100U), Pair(two, 200U)));
}

TEST_F(Fuse, two_processes_that_answer_one_file_system_are_no_answer) {
  connected(100, 3, one);
  connected(101, 3, one);
  EXPECT_THAT(fuse_daemons(tree.root(), {one}), IsEmpty());
}

TEST_F(Fuse, where_it_does_not_the_only_one_is_certain) {
  open(100, 7, "/dev/fuse");
  EXPECT_THAT(fuse_daemons(tree.root(), {one}), ElementsAre(Pair(one, 100U)));
  EXPECT_THAT(fuse_daemons(tree.root(), {one, two}), IsEmpty());
  open(101, 7, "/dev/fuse");
  EXPECT_THAT(fuse_daemons(tree.root(), {one}), IsEmpty());
}

TEST_F(Fuse, a_connection_that_is_another_file_systems_is_not_guessed_at) {
  connected(100, 3, two);
  EXPECT_THAT(fuse_daemons(tree.root(), {one}), IsEmpty());
}

}  // namespace
}  // namespace servedby
