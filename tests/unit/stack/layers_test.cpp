// SPDX-License-Identifier: Apache-2.0
#include "stack/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "machine_tree.h"
#include "stack/devices.h"

namespace servedby {
namespace {

using test::MachineTree;
using test::regular;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Chain = std::vector<std::string>;

const DeviceNumber loop0 = device_number(7, 0);
const DeviceNumber loop1 = device_number(7, 1);
const DeviceNumber nvme0 = device_number(259, 0);
const DeviceNumber root_partition = device_number(259, 2);

std::string fixture(const std::string& name) { return std::string(FIXTURES) + "/" + name + ".tree"; }

PathLayers looked_at(const MachineTree& tree, const std::string& path) {
  auto layers = layers_of(path, tree.root());
  EXPECT_TRUE(layers) << (layers ? "" : layers.error().line());
  return layers ? *layers : PathLayers{};
}

std::vector<std::string> names(const StorageStack& stack) {
  std::vector<std::string> found;
  for (const auto& [dev, device] : stack.devices) found.push_back(device.name);
  return found;
}

TEST(Layers, plain_partition) {
  MachineTree tree(fixture("partition"));
  tree.calls->files["/data/model"] = regular(root_partition, 12, 1ULL << 30);
  tree.calls->mapped["/data/model"] = FileExtents{4, 268435456, 536870912};
  const PathLayers layers = looked_at(tree, "/data/model");
  ASSERT_EQ(layers.files.size(), 1U);
  const FileLayer& file = layers.files[0];
  EXPECT_EQ(file.mount->id, 25U);
  EXPECT_EQ(file.mount->root, "/srv/data");
  EXPECT_THAT(file.devices, ElementsAre(root_partition));
  EXPECT_EQ(file.extents, (FileExtents{4, 268435456, 536870912}));
  EXPECT_EQ(file.doubt, std::nullopt);
  EXPECT_THAT(names(layers.stack), UnorderedElementsAre("nvme0n1", "nvme0n1p2"));
  EXPECT_THAT(layers.stack.chains_from(root_partition), ElementsAre(Chain{"nvme0n1"}));
  EXPECT_THAT(layers.stack.not_seen, IsEmpty());
  const Device& part = *layers.stack.find(root_partition);
  EXPECT_EQ(part.kind, DeviceKind::partition);
  EXPECT_EQ(part.start_bytes, 1050624ULL * 512);
  EXPECT_EQ(part.size_bytes, 7812986511ULL * 512);
  EXPECT_EQ(layers.stack.disk_of(root_partition), nvme0);
  const Device& drive = *layers.stack.find(nvme0);
  EXPECT_EQ(drive.kind, DeviceKind::nvme);
  EXPECT_EQ(drive.diskseq, 9U);
  for (const auto& [name, value] : std::map<std::string, std::string>{{"model", "Example SSD 4TB"},
                                                                      {"firmware", "1B2QNXH7"},
                                                                      {"max_sectors_kb", "128"},
                                                                      {"scheduler", "[none] mq-deadline"},
                                                                      {"read_ahead_kb", "128"},
                                                                      {"io_timeout", "30000"},
                                                                      {"current_link_speed", "16.0 GT/s PCIe"},
                                                                      {"max_link_speed", "32.0 GT/s PCIe"},
                                                                      {"current_link_width", "4"},
                                                                      {"port_max_link_speed", "32.0 GT/s PCIe"},
                                                                      {"pci_address", "0000:01:00.0"},
                                                                      {"numa_node", "0"}}) {
    EXPECT_EQ(drive.facts.at(name), value) << name;
  }
}

TEST(Layers, file_systems_without_a_block_device) {
  MachineTree tree(fixture("partition"));
  tree.calls->files["/run/x"] = regular(device_number(0, 21), 1);
  tree.calls->files["/mnt/share one/x"] = regular(device_number(0, 22), 1);
  EXPECT_EQ(looked_at(tree, "/run/x").files[0].ends_in, "memory");
  EXPECT_EQ(looked_at(tree, "/mnt/share one/x").files[0].ends_in, "nfs:server");
  EXPECT_THAT(looked_at(tree, "/run/x").stack.devices, IsEmpty());
}

TEST(Layers, loop_whose_file_the_driver_confirms) {
  MachineTree tree(fixture("loop_on_ext4"));
  tree.calls->files["/models/a"] = regular(loop0, 131);
  tree.calls->files["/var/lib/images/models.xfs"] = regular(root_partition, 77, 1ULL << 39);
  tree.calls->loops["loop0"] = LoopStatus{root_partition, 77};
  const PathLayers layers = looked_at(tree, "/models/a");
  ASSERT_EQ(layers.files.size(), 2U);
  EXPECT_THAT(layers.files[0].devices, ElementsAre(loop0));
  ASSERT_TRUE(layers.backing_files.contains(loop0));
  const FileLayer& backing = layers.files[layers.backing_files.at(loop0)];
  EXPECT_EQ(backing.path, "/var/lib/images/models.xfs");
  EXPECT_EQ(backing.reached, "backing file of loop0");
  EXPECT_THAT(backing.devices, ElementsAre(root_partition));
  EXPECT_EQ(backing.doubt, std::nullopt);
  EXPECT_EQ(layers.stack.find(loop0)->loop,
            (LoopBacking{"/var/lib/images/models.xfs", root_partition, 77, true, 0, 0, false, false}));
  EXPECT_THAT(layers.stack.find(loop0)->below, ElementsAre(root_partition));
  EXPECT_THAT(layers.stack.chains_from(loop0), ElementsAre(Chain{"loop0", "nvme0n1"}));
  EXPECT_THAT(names(layers.stack), UnorderedElementsAre("loop0", "nvme0n1", "nvme0n1p2"));
}

TEST(Layers, loop_whose_path_is_another_file_here) {
  MachineTree tree(fixture("loop_on_ext4"));
  tree.calls->files["/models/a"] = regular(loop0, 131);
  tree.calls->files["/var/lib/images/models.xfs"] = regular(root_partition, 78);
  tree.calls->loops["loop0"] = LoopStatus{root_partition, 77};
  const PathLayers layers = looked_at(tree, "/models/a");
  EXPECT_EQ(layers.files.size(), 1U);
  EXPECT_THAT(layers.backing_files, IsEmpty());
  const Device& loop = *layers.stack.find(loop0);
  EXPECT_FALSE(loop.loop->file_known);
  EXPECT_EQ(loop.loop->dev, root_partition);
  EXPECT_EQ(loop.loop->inode, 77U);
  EXPECT_THAT(loop.below, ElementsAre(root_partition));
  EXPECT_EQ(loop.below_doubt, std::nullopt);
}

TEST(Layers, loop_whose_driver_does_not_answer_is_taken_by_its_path_and_marked) {
  MachineTree tree(fixture("loop_on_ext4"));
  tree.calls->files["/models/a"] = regular(loop0, 131);
  tree.calls->files["/var/lib/images/models.xfs"] = regular(root_partition, 78);
  const PathLayers layers = looked_at(tree, "/models/a");
  const Device& loop = *layers.stack.find(loop0);
  EXPECT_FALSE(loop.loop->file_known);
  EXPECT_EQ(loop.loop->inode, 78U);
  EXPECT_THAT(loop.below, ElementsAre(root_partition));
  EXPECT_THAT(loop.below_doubt.value_or(""), HasSubstr("Permission denied"));
  EXPECT_THAT(layers.files.at(layers.backing_files.at(loop0)).doubt.value_or(""), HasSubstr("taken by its path"));
}

TEST(Layers, deleted_backing_file_is_known_by_the_driver_alone) {
  MachineTree tree(fixture("loop_on_ext4"));
  tree.calls->loops["loop1"] = LoopStatus{root_partition, 99};
  const Device loop = whole_machine(tree.root()).devices.at(loop1);
  EXPECT_EQ(loop.loop, (LoopBacking{"/var/lib/images/gone.img (deleted)", root_partition, 99, false, 1048576, 1048576,
                                    true, false}));
  EXPECT_THAT(loop.below, ElementsAre(root_partition));
}

TEST(Layers, a_file_that_happens_to_be_named_deleted_is_not_the_deleted_one) {
  MachineTree tree(fixture("loop_on_ext4"));
  tree.calls->files["/var/lib/images/gone.img (deleted)"] = regular(root_partition, 5);
  const Device loop = whole_machine(tree.root()).devices.at(loop1);
  EXPECT_EQ(loop.loop->inode, std::nullopt);
  EXPECT_FALSE(loop.loop->file_known);
}

TEST(Layers, loop_that_is_not_set_up) {
  const MachineTree tree(fixture("loop_on_ext4"));
  const Device loop = whole_machine(tree.root()).devices.at(device_number(7, 2));
  EXPECT_EQ(loop.loop, std::nullopt);
  EXPECT_EQ(loop.size_bytes, 0U);
  EXPECT_THAT(loop.below, IsEmpty());
}

TEST(Layers, overlay_takes_the_uppermost_layer_that_has_the_file) {
  MachineTree tree(fixture("overlay_visible"));
  const std::string docker = "/var/lib/docker/overlay2";
  auto& files = tree.calls->files;
  for (const char* name : {"/a", "/b", "/c"}) files[docker + "/c1/merged" + name] = regular(device_number(0, 45), 500);
  files[docker + "/c1/diff/a"] = regular(root_partition, 1);
  files[docker + "/b9/diff/a"] = regular(root_partition, 2);
  files[docker + "/b9/diff/b"] = regular(root_partition, 3);
  files[docker + "/b9/diff/c"] = regular(root_partition, 4, 17);  // another file of that name
  for (const char* name : {"/a", "/b", "/c"}) tree.calls->links[docker + "/l/BB:B" + name] = docker + "/b9/diff" + name;

  const PathLayers upper = looked_at(tree, docker + "/c1/merged/a");
  ASSERT_EQ(upper.files.size(), 2U);
  EXPECT_EQ(upper.files[0].inner, 1U);
  EXPECT_EQ(upper.files[1].path, docker + "/c1/diff/a");
  EXPECT_EQ(upper.files[1].reached, "overlay upper layer");
  EXPECT_THAT(upper.files[1].devices, ElementsAre(root_partition));
  EXPECT_EQ(upper.files[1].doubt, std::nullopt);

  const PathLayers lower = looked_at(tree, docker + "/c1/merged/b");
  ASSERT_EQ(lower.files.size(), 2U);
  EXPECT_EQ(lower.files[1].path, docker + "/b9/diff/b");
  EXPECT_EQ(lower.files[1].reached, "overlay lower layer");

  const PathLayers other = looked_at(tree, docker + "/c1/merged/c");
  EXPECT_EQ(other.files.size(), 1U);
  EXPECT_THAT(other.stack.not_seen, ElementsAre(HasSubstr("not visible here")));
}

TEST(Layers, container_with_hidden_upper_directory_on_a_loop) {
  MachineTree tree(fixture("container_hidden"));
  tree.calls->files["/workspace/model"] = regular(device_number(0, 52), 131);
  const PathLayers layers = looked_at(tree, "/workspace/model");
  ASSERT_EQ(layers.files.size(), 2U);
  const FileLayer& hidden = layers.files[1];
  EXPECT_THAT(hidden.path, HasSubstr("/snapshots/41/fs/workspace/model"));
  EXPECT_EQ(hidden.mount->type, "xfs");
  EXPECT_THAT(hidden.devices, ElementsAre(loop0));
  EXPECT_THAT(hidden.doubt.value_or(""),
              HasSubstr("/etc/resolv.conf, /etc/hostname and /etc/hosts are bound from /dev/loop0 "
                        "(xfs), out of the storage tree /var/lib/docker"));
  const Device& loop = *layers.stack.find(loop0);
  EXPECT_THAT(loop.below, ElementsAre(nvme0));
  EXPECT_THAT(loop.below_doubt.value_or(""), HasSubstr("nvme0n1 is the only storage"));
  EXPECT_FALSE(loop.loop->dev.has_value());
  EXPECT_FALSE(loop.loop->file_known);
  EXPECT_THAT(layers.stack.chains_from(loop0), ElementsAre(Chain{"loop0", "nvme0n1"}));
  const nlohmann::json json = layers_json(layers);
  EXPECT_EQ(json.at("file").at("layer").at("evidence"), "inferred");
  EXPECT_EQ(json.at("file").at("layer").at("on").at(0).at("on").at(0).at("name"), "nvme0n1");
  EXPECT_THAT(layers_text(layers), HasSubstr("inferred: /etc/resolv.conf"));
}

TEST(Layers, hidden_upper_directory_without_evidence_stays_unknown) {
  MachineTree tree(fixture("container_hidden"));
  tree.calls->files["/workspace/model"] = regular(device_number(0, 52), 131);
  const std::string mounts = tree.root().text("/proc/self/mountinfo").value();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = mounts;
    for (std::size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size()) {
      changed.replace(at, from.size(), to);
    }
    tree.put("/proc/self/mountinfo", changed);
    return looked_at(tree, "/workspace/model");
  };
  // Bound from somewhere else than a container storage tree.
  EXPECT_EQ(with("/containers/", "/srv/").files.size(), 1U);
  // Two bind mounts that name different devices.
  const PathLayers disagree =
      with("7:0 /containers/0123456789ab/hosts", "259:2 /var/lib/docker/containers/0123456789ab/hosts");
  EXPECT_EQ(disagree.files.size(), 1U);
  EXPECT_THAT(disagree.stack.not_seen, ElementsAre(HasSubstr("no bind mount shows their device")));
  // A named volume alone does not tell: any disk may have a directory of that name.
  EXPECT_EQ(with("/containers/", "/volumes/").files.size(), 1U);
  // The same tree, mounted one or three directories further up.
  EXPECT_EQ(with("7:0 /containers/", "7:0 /docker/containers/").files.size(), 2U);
  EXPECT_EQ(with("7:0 /containers/", "7:0 /var/lib/docker/containers/").files.size(), 2U);
  EXPECT_EQ(with("7:0 /containers/", "7:0 /var/lib/podman/containers/").files.size(), 1U);
}

TEST(Layers, file_systems_say_who_serves_them) {
  MachineTree tree(fixture("container_hidden"));
  tree.put("/proc/self/mountinfo",
           "20 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n"
           "21 20 0:41 / /net rw - nfs4 host:/export rw\n"
           "22 20 0:42 / /share rw - 9p share rw\n"
           "23 20 0:43 / /ssh rw - fuse.sshfs me@host:/ rw\n"
           "24 20 8:3 / /windows rw - fuseblk /dev/sda3 rw\n"
           "25 20 0:44 / /cifs rw - cifs //host/c rw\n"
           "26 20 0:45 / /tmp rw - tmpfs tmpfs rw\n");
  const StorageStack stack = whole_machine(tree.root());
  EXPECT_EQ(stack.file_systems.at(device_number(259, 2)), (FileSystem{"ext4", ""}));
  EXPECT_EQ(stack.server_of(device_number(0, 41)), "nfs:host");
  EXPECT_EQ(stack.server_of(device_number(0, 42)), "9p:share");
  EXPECT_EQ(stack.server_of(device_number(0, 43)), "fuse");
  EXPECT_EQ(stack.server_of(device_number(8, 3)), "fuse");
  EXPECT_EQ(stack.server_of(device_number(0, 44)), "cifs://host/c");
  EXPECT_EQ(stack.server_of(device_number(0, 45)), "");
}

TEST(Layers, hidden_backing_file_with_two_drives_stays_unknown) {
  MachineTree tree(fixture("container_hidden"));
  tree.put("/sys/block/sda/dev", "8:0\n");
  tree.put("/sys/block/sda/size", "1000\n");
  const StorageStack stack = whole_machine(tree.root());
  EXPECT_THAT(stack.devices.at(loop0).below, IsEmpty());
  EXPECT_THAT(stack.not_seen,
              ElementsAre(HasSubstr("loop0: its backing file /var/lib/docker-loop.xfs is not visible here")));
}

TEST(Layers, lvm_over_a_partition) {
  MachineTree tree(fixture("lvm"));
  tree.calls->files["/model"] = regular(device_number(252, 0), 9);
  const PathLayers layers = looked_at(tree, "/model");
  EXPECT_THAT(layers.stack.chains_from(device_number(252, 0)), ElementsAre(Chain{"dm-0", "nvme0n1"}));
  const Device& mapped = *layers.stack.find(device_number(252, 0));
  EXPECT_EQ(mapped.kind, DeviceKind::dm);
  EXPECT_EQ(mapped.mapper_name, "vg0-models");
  EXPECT_THAT(mapped.below, ElementsAre(device_number(259, 3)));
  EXPECT_THAT(mapped.facts.at("dm_uuid"), HasSubstr("LVM-"));
}

TEST(Layers, md_raid0_over_two_drives) {
  MachineTree tree(fixture("raid0"));
  tree.calls->files["/data/model"] = regular(device_number(9, 127), 9);
  const PathLayers layers = looked_at(tree, "/data/model");
  EXPECT_THAT(layers.stack.chains_from(device_number(9, 127)),
              ElementsAre(Chain{"md127", "nvme0n1"}, Chain{"md127", "nvme1n1"}));
  const Device& array = *layers.stack.find(device_number(9, 127));
  EXPECT_EQ(array.kind, DeviceKind::md);
  EXPECT_EQ(array.facts.at("md_level"), "raid0");
  EXPECT_EQ(array.facts.at("md_raid_disks"), "2");
  EXPECT_EQ(layers.stack.find(device_number(259, 1))->facts.at("numa_node"), "1");
  EXPECT_THAT(layers_text(layers), HasSubstr("└─ md127  md, raid0 of 2, chunk 524288 bytes"));
}

TEST(Layers, nvme_multipath_numbers_its_hidden_paths) {
  MachineTree tree(fixture("multipath"));
  tree.calls->files["/model"] = regular(nvme0, 9);
  const PathLayers layers = looked_at(tree, "/model");
  EXPECT_THAT(layers.stack.chains_from(nvme0),
              ElementsAre(Chain{"nvme0n1", "nvme0c0n1"}, Chain{"nvme0n1", "nvme0c1n1"}));
  EXPECT_EQ(layers.stack.find(device_number(259, 2))->facts.at("pci_address"), "0000:02:00.0");
  EXPECT_EQ(layers.stack.find(nvme0)->facts.at("model"), "Example Array");
  EXPECT_TRUE(is_multipath(*layers.stack.find(nvme0)));
  EXPECT_EQ(bio_fate(*layers.stack.find(nvme0)), BioFate::passed_on);
  EXPECT_EQ(bio_fate(*layers.stack.find(device_number(259, 2))), BioFate::requests);

  tree.remove("/proc/diskstats");
  const PathLayers without = looked_at(tree, "/model");
  EXPECT_THAT(without.stack.chains_from(nvme0), ElementsAre(Chain{"nvme0n1"}));
  EXPECT_THAT(whole_machine(tree.root()).not_seen, ElementsAre(HasSubstr("nvme0c0n1"), HasSubstr("nvme0c1n1")));
}

TEST(Layers, btrfs_has_an_anonymous_number_and_all_its_devices) {
  MachineTree tree(fixture("btrfs"));
  const DeviceNumber subvolume = device_number(0, 36);  // what stat says
  tree.calls->files["/models/a"] = regular(subvolume, 257);
  tree.calls->files["/images/inner.img"] = regular(device_number(0, 35), 258);
  tree.calls->loops["loop0"] = LoopStatus{device_number(0, 35), 258};
  const PathLayers layers = looked_at(tree, "/models/a");
  EXPECT_EQ(layers.files[0].mount->dev, device_number(0, 33));
  EXPECT_THAT(layers.files[0].devices, UnorderedElementsAre(nvme0, device_number(259, 2)));
  EXPECT_THAT(names(layers.stack), UnorderedElementsAre("nvme0n1", "nvme1n1", "nvme1n1p1"));
  EXPECT_THAT(layers_text(layers), HasSubstr("stat says device 0:36, the kernel's own number is 0:33"));
  // The driver speaks in stat's terms too; the number kept is the file system's own.
  const Device loop = whole_machine(tree.root()).devices.at(loop0);
  EXPECT_TRUE(loop.loop->file_known);
  EXPECT_EQ(loop.loop->dev, device_number(0, 33));
  EXPECT_THAT(loop.below, UnorderedElementsAre(nvme0, device_number(259, 2)));
}

TEST(Layers, loop_on_a_loop) {
  MachineTree tree(fixture("loop_on_ext4"));
  tree.put("/sys/devices/virtual/block/loop1/loop/backing_file", "/models/inner.img\n");
  tree.put("/proc/self/mountinfo",
           tree.root().text("/proc/self/mountinfo").value() + "31 21 7:1 / /inner rw - ext4 /dev/loop1 rw\n");
  auto& files = tree.calls->files;
  files["/inner/a"] = regular(loop1, 12);
  files["/models/inner.img"] = regular(loop0, 131);
  files["/var/lib/images/models.xfs"] = regular(root_partition, 77);
  tree.calls->loops = {{"loop0", {root_partition, 77}}, {"loop1", {loop0, 131}}};
  const PathLayers layers = looked_at(tree, "/inner/a");
  EXPECT_EQ(layers.files.size(), 3U);
  EXPECT_THAT(layers.stack.chains_from(loop1), ElementsAre(Chain{"loop1", "loop0", "nvme0n1"}));
  EXPECT_THAT(stack_of({"/inner/a"}, tree.root()).devices.size(), 4U);
}

TEST(Layers, what_has_no_storage_below_is_refused_in_one_line) {
  MachineTree tree(fixture("partition"));
  FileIdentity fifo = regular(root_partition, 3);
  fifo.mode = 0010644;
  tree.calls->files["/data/fifo"] = fifo;
  const auto refused = layers_of("/data/fifo", tree.root());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit, Exit::bad_input);
  EXPECT_THAT(refused.error().line(), HasSubstr("it is a FIFO"));
  const auto missing = layers_of("/data/none", tree.root());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().exit, Exit::bad_input);
  EXPECT_EQ(missing.error().line(), "cannot look at /data/none: No such file or directory; name a file that exists");
  EXPECT_THAT(stack_of({"/data/none"}, tree.root()).not_seen, ElementsAre(missing.error().line()));
}

TEST(Layers, a_device_node_and_a_directory_are_described) {
  MachineTree tree(fixture("partition"));
  FileIdentity node = regular(device_number(0, 6), 3);
  node.mode = 0060660;
  node.special = root_partition;
  tree.calls->files["/dev/nvme0n1p2"] = node;
  FileIdentity directory = regular(root_partition, 2);
  directory.mode = 0040755;
  tree.calls->files["/data"] = directory;
  const PathLayers device = looked_at(tree, "/dev/nvme0n1p2");
  EXPECT_EQ(device.device, root_partition);
  EXPECT_THAT(names(device.stack), UnorderedElementsAre("nvme0n1", "nvme0n1p2"));
  EXPECT_THAT(layers_text(device), testing::StartsWith("nvme0n1p2  partition 2"));
  EXPECT_EQ(layers_json(device).at("device").at("name"), "nvme0n1p2");
  EXPECT_THAT(looked_at(tree, "/data").files[0].devices, ElementsAre(root_partition));
}

TEST(Layers, a_hidden_sys_is_said) {
  MachineTree tree(fixture("partition"));
  tree.calls->files["/data/model"] = regular(root_partition, 12);
  tree.remove("/sys");
  const PathLayers layers = looked_at(tree, "/data/model");
  EXPECT_THAT(layers.stack.not_seen,
              UnorderedElementsAre(HasSubstr("/sys/block: nothing there"), HasSubstr("259:2: no such device")));
}

TEST(Layers, the_tree_for_people) {
  MachineTree tree(fixture("loop_on_ext4"));
  tree.calls->files["/models/a"] = regular(loop0, 131, 45097156608);
  tree.calls->files["/var/lib/images/models.xfs"] = regular(root_partition, 77, 549755813888);
  tree.calls->mapped["/models/a"] = FileExtents{1, 45097156608, 45097156608};
  tree.calls->mapped["/var/lib/images/models.xfs"] = FileExtents{4096, 134217728, 536870912};
  tree.calls->loops["loop0"] = LoopStatus{root_partition, 77};
  EXPECT_EQ(layers_text(looked_at(tree, "/models/a")), R"(/models/a
│  xfs on /models
│  42 GiB, 1 extent
└─ loop0  loop, 512 GiB
   │  buffered through the host's page cache from /var/lib/images/models.xfs
   │  requests up to 128 KiB (hardware 128 KiB), queue 1023, read-ahead 128 KiB, scheduler none, blocks 512/4096
   └─ /var/lib/images/models.xfs
      │  backing file of loop0, ext4 on /
      │  512 GiB, 4096 extents (mean 128 MiB, largest 512 MiB)
      └─ nvme0n1p2  partition 2, from 513 MiB, 3.64 TiB
         └─ nvme0n1  nvme, Example SSD 4TB, firmware 1B2QNXH7, 3.64 TiB
               PCIe 32.0 GT/s x4 now, 32.0 GT/s x4 at most, at 0000:01:00.0 (its port 32.0 GT/s x4), NUMA node 0
               requests up to 128 KiB (hardware 128 KiB), queue 1023, read-ahead 128 KiB, scheduler none, blocks 512/4096
)");
}

TEST(Layers, every_fixture_goes_through_json_unchanged) {
  for (const char* name :
       {"partition", "loop_on_ext4", "overlay_visible", "container_hidden", "lvm", "raid0", "multipath", "btrfs"}) {
    const MachineTree tree(fixture(name));
    const StorageStack stack = whole_machine(tree.root());
    EXPECT_FALSE(stack.devices.empty()) << name;
    EXPECT_EQ(nlohmann::json::parse(nlohmann::json(stack).dump()).get<StorageStack>(), stack) << name;
  }
}

}  // namespace
}  // namespace servedby
