// SPDX-License-Identifier: Apache-2.0
// Devices that the session did not begin with, and numbers that stand for one device after another.
#include "scene.h"

namespace servedby::test {
namespace {

using testing::ElementsAre;
using testing::Pair;

struct Made : testing::Test {
  void device(DeviceNumber dev, const char* name, std::uint64_t diskseq) {
    sb_device record{};
    record.dev = dev;
    record.diskseq = diskseq;
    std::strncpy(record.name, name, sizeof(record.name) - 1);
    scene.put(record, SB_DEVICE, 0);
  }
  /// A cold read of a file on a loop device whose backing file is cold too.
  void through(const TestFile& inner, const TestFile& backing, std::uint64_t request, std::uint32_t number) {
    scene.fill(inner, 0, M, target(100, number));
    scene.bio(inner, 0, M, target(100, number));
    scene.backing(inner, 0, M, request, backing);
    scene.fill(backing, inner.base, M, worker(request));
    scene.bio(backing, inner.base, M, worker(request));
    scene.done(backing, inner.base, M);
    Scene::Done how;
    how.request = request;
    scene.done(inner, 0, M, how);
    scene.read(inner, 0, M, target(100, number));
  }
  void no_counters(DeviceNumber dev) {
    scene.session.before.block.erase(dev);
    scene.session.after.block.erase(dev);
  }
  Scene scene;
  TestFile first = scene.file(21, kNvme0, 0, 64 * M), second = scene.file(22, kNvme1, 0, 64 * M);
};

TEST_F(Made, ANumberThatIsUsedAgainIsAnotherLayer) {
  scene.stack.devices[kLoop0].loop.emplace().path = "/first";
  through(scene.file(11, kLoop0, 8 * M, M), first, 1, 1);
  device(kLoop0, "loop0", 12);
  through(scene.file(12, kLoop0, 8 * M, M), second, 1, 2);
  device(kLoop0, "loop0", 14);
  through(scene.file(13, kLoop0, 16 * M, M), first, 2, 3);
  const AttributionResult result = scene.result();
  expect_whole(result);
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"loop0", "nvme0n1"}, M), Pair(Via{"loop0#2", "nvme1n1"}, M),
                          Pair(Via{"loop0#3", "nvme0n1"}, M)));
  EXPECT_EQ(result.made.size(), 2U);
}

TEST_F(Made, ALoopDeviceThatHadNoFileWasNothingYet) {
  device(kLoop0, "loop0", 12);
  through(scene.file(11, kLoop0, 8 * M, M), first, 1, 1);
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(Via{"loop0", "nvme0n1"}, M)));
}

TEST_F(Made, ANewDeviceHasItsName) {
  const DeviceNumber loop9 = device_number(7, 9);
  device(loop9, "loop9", 12);
  through(scene.file(11, loop9, 8 * M, M), first, 1, 1);
  device(loop9, "loop9", 14);
  through(scene.file(12, loop9, 8 * M, M), second, 1, 2);
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by),
              ElementsAre(Pair(Via{"loop9", "nvme0n1"}, M), Pair(Via{"loop9#2", "nvme1n1"}, M)));
}

TEST_F(Made, ALoopDeviceOfWhichNothingWasSeenIsUnknown) {
  const DeviceNumber loop9 = device_number(7, 9);
  device(loop9, "loop9", 12);
  const TestFile inner = scene.file(11, loop9, 8 * M, M);
  scene.cold(inner, 0, M, target(100, 1));
  scene.read(inner, 0, M, target(100, 1));
  EXPECT_THAT(bytes_of(scene.result().served_by), ElementsAre(Pair(Via{"loop9", "unknown"}, M)));
}

TEST_F(Made, ADeviceThatNobodyKnowsIsUnknown) {
  const TestFile file = scene.file(11, device_number(253, 9), 0, M);
  scene.cold(file, 0, M, target(100, 1));
  scene.read(file, 0, M, target(100, 1));
  const AttributionResult result = scene.result();
  EXPECT_THAT(bytes_of(result.served_by), ElementsAre(Pair(Via{"253:9", "unknown"}, M)));
  EXPECT_EQ(result.served_by[0].why, "a device that was not known");
}

}  // namespace
}  // namespace servedby::test
