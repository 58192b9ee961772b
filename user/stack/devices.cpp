// SPDX-License-Identifier: Apache-2.0
#include "stack/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

namespace servedby {
namespace {

constexpr std::uint64_t sector_bytes =
    512;  // sysfs counts sizes in 512-byte sectors whatever the device's own sector is

DeviceKind kind_of(const Root& root, const std::string& directory, std::string_view name) {
  if (root.exists(directory + "/partition")) return DeviceKind::partition;
  if (root.exists(directory + "/dm")) return DeviceKind::dm;
  if (root.exists(directory + "/md")) return DeviceKind::md;
  return kind_of_disk(name);
}

void note(const Root& root, Device& device, const char* fact, const std::string& path) {
  if (auto value = root.line(path)) device.facts[fact] = *std::move(value);
}

void note_queue(const Root& root, Device& device, const std::string& directory) {
  for (const char* name :
       {"max_sectors_kb", "max_hw_sectors_kb", "max_segments", "nr_requests", "read_ahead_kb", "scheduler",
        "logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "rotational", "iostats",
        "io_timeout", "nomerges", "rq_affinity", "write_cache", "wbt_lat_usec"}) {
    note(root, device, name, directory + "/queue/" + name);
  }
  note(root, device, "read_only", directory + "/ro");
  note(root, device, "removable", directory + "/removable");
}

// The controller's model and firmware are in the nearest `device`; the PCIe link belongs to the PCI function above it,
// found by walking up the device tree, whatever drivers put between them.
void note_hardware(const Root& root, Device& device, const std::string& directory) {
  note(root, device, "model", directory + "/device/model");
  note(root, device, "vendor", directory + "/device/vendor");
  note(root, device, "firmware", directory + "/device/firmware_rev");
  if (!device.facts.contains("firmware")) note(root, device, "firmware", directory + "/device/rev");
  note(root, device, "transport", directory + "/device/transport");
  const auto place = root.resolve(directory + "/device");
  if (!place) return;
  for (std::string at = *place; at.size() > std::string_view("/sys/devices").size(); at.resize(at.rfind('/'))) {
    if (!device.facts.contains("numa_node")) note(root, device, "numa_node", at + "/numa_node");
    if (!root.exists(at + "/current_link_speed")) continue;
    device.facts["pci_address"] = at.substr(at.rfind('/') + 1);
    for (const char* name : {"current_link_speed", "current_link_width", "max_link_speed", "max_link_width"}) {
      note(root, device, name, at + "/" + name);
    }
    // What the slot above can do: a fast drive in a slow slot has a current link below its own maximum for that reason.
    const std::string port = at.substr(0, at.rfind('/'));
    note(root, device, "port_max_link_speed", port + "/max_link_speed");
    note(root, device, "port_max_link_width", port + "/max_link_width");
    break;
  }
}

void note_mapping(const Root& root, Device& device, const std::string& directory) {
  if (device.kind == DeviceKind::dm) {
    device.mapper_name = root.line(directory + "/dm/name");
    note(root, device, "dm_uuid", directory + "/dm/uuid");
    note(root, device, "dm_suspended", directory + "/dm/suspended");
  }
  if (device.kind == DeviceKind::md) {
    for (const auto& [fact, name] :
         std::array<std::pair<const char*, const char*>, 5>{{{"md_level", "level"},
                                                             {"md_raid_disks", "raid_disks"},
                                                             {"md_chunk_bytes", "chunk_size"},
                                                             {"md_state", "array_state"},
                                                             {"md_degraded", "degraded"}}}) {
      note(root, device, fact, directory + "/md/" + name);
    }
  }
}

// A loop device without a backing file is not set up and has no `loop` directory's content.
void note_loop(const Root& root, Device& device, const std::string& directory, StorageStack& stack) {
  const auto path = root.line(directory + "/loop/backing_file");
  if (!path) return;
  LoopBacking loop;
  loop.path = *path;
  loop.offset = root.number(directory + "/loop/offset").value_or(0);
  loop.size_limit = root.number(directory + "/loop/sizelimit").value_or(0);
  loop.direct_io = root.line(directory + "/loop/dio") == "1";
  loop.read_only = root.line(directory + "/ro") == "1";
  if (!root.exists(directory + "/loop/dio"))
    stack.not_seen.push_back(device.name + ": no dio attribute; taken as buffered");
  note(root, device, "autoclear", directory + "/loop/autoclear");
  device.loop = std::move(loop);
}

// A path of an NVMe multipath device is a disk that the kernel hides: it has no `dev` in sysfs, but diskstats numbers
// it.
std::map<std::string, DeviceNumber> numbers_in_diskstats(const Root& root) {
  std::map<std::string, DeviceNumber> numbers;
  std::istringstream lines(root.text("/proc/diskstats").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    unsigned major = 0;
    unsigned minor = 0;
    std::string name;
    if (words >> major >> minor >> name && (major != 0 || minor != 0)) numbers[name] = device_number(major, minor);
  }
  return numbers;
}

// nvme<subsystem>c<controller>n<namespace> is one path of nvme<subsystem>n<namespace>.
std::optional<std::string> multipath_head(std::string_view name) {
  const std::size_t c = name.find('c');
  const std::size_t n = name.find('n', c == std::string_view::npos ? 0 : c);
  if (!name.starts_with("nvme") || c == std::string_view::npos || n == std::string_view::npos) return std::nullopt;
  return std::string(name.substr(0, c)) + std::string(name.substr(n));
}

struct Reader {
  const Root& root;
  StorageStack stack;
  std::map<std::string, DeviceNumber> by_name;
  std::map<std::string, DeviceNumber> hidden;

  std::optional<DeviceNumber> number_of(const std::string& directory, const std::string& name) {
    if (const auto text = root.line(directory + "/dev")) return device_from_text(*text);
    const auto found = hidden.find(name);
    if (found != hidden.end()) return found->second;
    stack.not_seen.push_back(name + ": it has no device number in /sys or /proc/diskstats");
    return std::nullopt;
  }

  std::optional<DeviceNumber> add(const std::string& directory, const std::string& name,
                                  std::optional<DeviceNumber> disk) {
    const auto dev = number_of(directory, name);
    if (!dev) return std::nullopt;
    Device device;
    device.dev = *dev;
    device.name = name;
    std::ranges::replace(device.name, '!', '/');  // sysfs writes cciss!c0d0 for cciss/c0d0
    device.kind = kind_of(root, directory, name);
    if (const auto sectors = root.number(directory + "/size")) device.size_bytes = *sectors * sector_bytes;
    if (disk) {
      device.below.push_back(*disk);
      if (const auto start = root.number(directory + "/start")) device.start_bytes = *start * sector_bytes;
      note(root, device, "partition", directory + "/partition");
    } else {
      device.bio_based = root.exists(directory + "/queue") && !root.exists(directory + "/mq");
      device.diskseq = root.number(directory + "/diskseq");
      note_queue(root, device, directory);
      note_hardware(root, device, directory);
      note_mapping(root, device, directory);
      note(root, device, "hidden", directory + "/hidden");
      if (device.kind == DeviceKind::loop) note_loop(root, device, directory, stack);
    }
    by_name[name] = *dev;
    stack.devices[*dev] = std::move(device);
    return dev;
  }

  void read_all() {
    hidden = numbers_in_diskstats(root);
    const std::vector<std::string> disks = root.entries("/sys/block");
    if (disks.empty()) stack.not_seen.emplace_back("/sys/block: nothing there; devices cannot be named");
    for (const std::string& name : disks) {
      const std::string directory = "/sys/block/" + name;
      const auto disk = add(directory, name, std::nullopt);
      if (!disk) continue;
      for (const std::string& inner : root.entries(directory)) {
        if (inner.starts_with(name) && root.exists(directory + "/" + inner + "/partition")) {
          add(directory + "/" + inner, inner, disk);
        }
      }
    }
    for (const std::string& name : disks) stand_on_members(name);
  }

  // zram may write its pages back to a device of its own, "none" where it does not.
  void stand_on_backing(Device& device, const std::string& attribute) {
    const auto path = root.line(attribute);
    if (!path || *path == "none") return;
    device.facts["backing_dev"] = *path;
    const auto below = by_name.find(path->substr(path->rfind('/') + 1));
    if (below != by_name.end())
      device.below.push_back(below->second);
    else
      stack.not_seen.push_back(device.name + ": it writes back to " + *path + ", which is not in /sys/block");
  }

  void stand_on_members(const std::string& name) {
    const auto upper = by_name.find(name);
    if (upper != by_name.end()) {
      for (const std::string& member : root.entries("/sys/block/" + name + "/slaves")) {
        const auto below = by_name.find(member);
        if (below != by_name.end()) {
          stack.devices[upper->second].below.push_back(below->second);
        } else {
          stack.not_seen.push_back(name + ": its member " + member + " is not in /sys/block");
        }
      }
    }
    if (upper != by_name.end()) stand_on_backing(stack.devices[upper->second], "/sys/block/" + name + "/backing_dev");
    const auto head = multipath_head(name);
    if (!head || !by_name.contains(*head) || upper == by_name.end()) return;
    stack.devices[by_name[*head]].below.push_back(upper->second);
  }
};

}  // namespace

StorageStack block_devices(const Root& root) {
  Reader reader{root, {}, {}, {}};
  reader.read_all();
  return std::move(reader.stack);
}

std::string attributes_of(const StorageStack& stack, DeviceNumber dev) {
  const auto in_sysfs = [&](DeviceNumber number) {
    std::string name = stack.name_of(number);
    std::ranges::replace(name, '/', '!');
    return name;
  };
  const DeviceNumber disk = stack.disk_of(dev);
  std::string directory = "/sys/block/" + in_sysfs(disk);
  if (disk != dev) directory += "/" + in_sysfs(dev);
  return directory;
}

}  // namespace servedby
