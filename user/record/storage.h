// SPDX-License-Identifier: Apache-2.0
// The storage stack under the target's files, as values: stack/ reads it from the machine, a recording carries it,
// attribution uses it. No I/O here.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace servedby {

/// A device number as the kernel keeps it: major << 20 | minor (include/linux/kdev_t.h). Not stat's encoding.
using DeviceNumber = std::uint32_t;
[[nodiscard]] constexpr DeviceNumber device_number(unsigned major, unsigned minor) { return (major << 20) | minor; }
[[nodiscard]] constexpr unsigned device_major(DeviceNumber dev) { return dev >> 20; }
[[nodiscard]] constexpr unsigned device_minor(DeviceNumber dev) { return dev & 0xfffff; }
[[nodiscard]] std::string device_text(DeviceNumber dev);  ///< "259:5"
/// The number in "259:5" as sysfs and mountinfo print it; nothing if the text is anything else.
[[nodiscard]] std::optional<DeviceNumber> device_from_text(std::string_view text);

enum class DeviceKind { nvme, loop, partition, dm, md, virtio, scsi, zram, ram, other };
[[nodiscard]] const char* device_kind_name(DeviceKind kind);
[[nodiscard]] std::optional<DeviceKind> device_kind_from_name(std::string_view name);
/// What a whole disk is, by the name that its driver gave it.
[[nodiscard]] DeviceKind kind_of_disk(std::string_view name);

/// What a loop device reads from. `dev` and `inode` are what the driver itself names (LOOP_GET_STATUS64) or, where that
/// is refused, those of `path`; `file_known` says whether the path in this mount namespace is that very file.
struct LoopBacking {
  std::string path;                    ///< /sys/block/loopN/loop/backing_file, as the kernel prints it
  std::optional<DeviceNumber> dev;     ///< s_dev of the backing file's file system; absent: not known
  std::optional<std::uint64_t> inode;  ///< absent: not known
  bool file_known = false;
  std::uint64_t offset = 0;      ///< bytes into the backing file
  std::uint64_t size_limit = 0;  ///< bytes; 0: none
  bool direct_io = false;        ///< the `dio` attribute
  bool read_only = false;
  friend bool operator==(const LoopBacking&, const LoopBacking&) = default;
};

/// One block device. Absent means "not known", never zero.
struct Device {
  DeviceNumber dev = 0;
  std::string name;  ///< kernel name: nvme0n1, loop0, dm-3, nvme0n1p2
  DeviceKind kind = DeviceKind::other;
  std::vector<DeviceNumber> below;  ///< what it stands on: a partition's disk, dm/md members, a loop's backing device
  bool bio_based = false;           ///< it has no requests of its own (no `mq` in sysfs): it takes bios as they come
  std::optional<std::string> below_doubt;  ///< present: `below` was inferred, and this is why it may be wrong
  std::optional<std::uint64_t> size_bytes;
  std::optional<std::uint64_t> start_bytes;  ///< partitions: where it starts on its disk
  std::optional<LoopBacking> loop;
  std::optional<std::uint64_t> diskseq;
  std::optional<std::string> mapper_name;  ///< dm: the name a person gave it
  std::map<std::string, std::string>
      facts;  ///< queue limits, scheduler, read-ahead, PCIe link, NUMA node, as sysfs prints them
  friend bool operator==(const Device&, const Device&) = default;
};

/// What becomes of the bios that come to a device.
enum class BioFate {
  requests,   ///< they become requests of its own
  passed_on,  ///< to devices below; where they go is known only from hooks
  served,     ///< by the device itself, out of memory, as they come
};
[[nodiscard]] BioFate bio_fate(const Device& device);
/// An md array that may serve reads from a stripe cache of its own: raid4, 5, 6.
[[nodiscard]] bool has_stripes(const Device& device);
/// One device to the eye, and several paths to it below (native NVMe multipath).
[[nodiscard]] bool is_multipath(const Device& device);

/// A mounted file system.
struct FileSystem {
  std::string type;    ///< as mountinfo names it: "ext4", "fuse.sshfs"
  std::string server;  ///< who has its bytes, as `via` says it ("9p:share", "nfs:host", "fuse"); empty: its own device
  friend bool operator==(const FileSystem&, const FileSystem&) = default;
};

/// Every device under the files of interest, by number.
struct StorageStack {
  std::map<DeviceNumber, Device> devices;
  std::map<DeviceNumber, FileSystem> file_systems;  ///< by s_dev, as the kernel's events carry it
  std::vector<std::string> not_seen;                ///< what could not be looked at, and why, one line each

  [[nodiscard]] const Device* find(DeviceNumber dev) const;
  /// The server of a file system that has no device of its own; empty where it has one, or is not known.
  [[nodiscard]] std::string server_of(DeviceNumber file_system) const;
  /// The whole disk of a partition, or the device itself.
  [[nodiscard]] DeviceNumber disk_of(DeviceNumber dev) const;
  /// "nvme0n1", or "259:5" where the number is not in the stack.
  [[nodiscard]] std::string name_of(DeviceNumber dev) const;
  /// Every chain of names from `dev` down to a drive, as `via` of a result lists them: partitions left out, one chain
  /// for each member of an array. {{"loop0", "nvme0n1"}}; a device outside the stack is {{"259:5"}}. A chain ends where
  /// nothing below is known; a ring (a damaged recording) is cut.
  [[nodiscard]] std::vector<std::vector<std::string>> chains_from(DeviceNumber dev) const;
  /// `dev` and all that it stands on, each once, `dev` first.
  [[nodiscard]] std::vector<DeviceNumber> with_all_below(DeviceNumber dev) const;
  friend bool operator==(const StorageStack&, const StorageStack&) = default;
};

/// The form in recordings and results: devices as an array in order of their numbers, numbers as "259:5", absent fields
/// left out. from_json gives back an equal value and throws nlohmann::json::exception on anything malformed.
void to_json(nlohmann::json& json, const StorageStack& stack);
void from_json(const nlohmann::json& json, StorageStack& stack);

}  // namespace servedby
