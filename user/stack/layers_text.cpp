// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "stack/layers.h"
#include "stack/wording.h"

namespace servedby {
namespace {

class Drawing {
 public:
  explicit Drawing(const PathLayers& layers) : layers_(layers) {}

  std::string whole() {
    if (layers_.device) {
      device(*layers_.device, "", "");
    } else {
      file(0, "", "");
    }
    for (const std::string& line : layers_.stack.not_seen) text_ += "not seen: " + line + "\n";
    return std::move(text_);
  }

 private:
  // `head` stands before the node's own line, `body` before what belongs to it.
  void file(std::size_t index, const std::string& head, const std::string& body) {
    const FileLayer& layer = layers_.files[index];
    text_ += head + layer.path + "\n";
    for (const std::string& line : file_lines(layer)) text_ += body + margin(has_children(layer)) + line + "\n";
    if (layer.inner) {
      file(*layer.inner, body + "└─ ", body + "   ");
      return;
    }
    devices(layer.devices, body);
    if (!layer.ends_in.empty()) text_ += body + "└─ " + layer.ends_in + " (no block device below)\n";
  }

  void devices(const std::vector<DeviceNumber>& list, const std::string& body) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool last = i + 1 == list.size();
      device(list[i], body + (last ? "└─ " : "├─ "), body + (last ? "   " : "│  "));
    }
  }

  void device(DeviceNumber dev, const std::string& head, const std::string& body) {
    const Device* found = layers_.stack.find(dev);
    if (found == nullptr || std::ranges::find(above_, dev) != above_.end()) {
      text_ += head + layers_.stack.name_of(dev) + (found == nullptr ? "  (not in /sys/block)\n" : "  (see above)\n");
      return;
    }
    const auto backing = layers_.backing_files.find(dev);
    const bool read_from = backing != layers_.backing_files.end();
    text_ += head + found->name + "  " + headline(*found) + "\n";
    for (const std::string& line : device_lines(*found)) {
      text_ += body + margin(read_from || !found->below.empty()) + line + "\n";
    }
    above_.push_back(dev);
    if (read_from) {
      file(backing->second, body + "└─ ", body + "   ");
    } else {
      devices(found->below, body);
    }
    above_.pop_back();
  }

  [[nodiscard]] static bool has_children(const FileLayer& layer) {
    return layer.inner || !layer.devices.empty() || !layer.ends_in.empty();
  }
  [[nodiscard]] static std::string margin(bool children) { return children ? "│  " : "   "; }

  [[nodiscard]] static std::vector<std::string> file_lines(const FileLayer& layer) {
    std::vector<std::string> lines;
    std::string first;
    if (layer.reached != "asked for") first += layer.reached + ", ";
    if (layer.mount) {
      first += layer.mount->type + " on " + layer.mount->point;
      if (layer.mount->root != "/")
        first += fmt::format(" (bound from {} of {})", layer.mount->root, layer.mount->source);
    } else {
      first += "file system unknown";
    }
    lines.push_back(first);
    std::string second;
    if (layer.identity && (layer.identity->mode & 0170000) == 0100000) second = bytes_text(layer.identity->size);
    if (layer.extents) {
      second += fmt::format("{}{} extent{}", second.empty() ? "" : ", ", layer.extents->count,
                            layer.extents->count == 1 ? "" : "s");
      if (layer.extents->count > 1) {
        second += fmt::format(" (mean {}, largest {})", bytes_text(layer.extents->mean_bytes),
                              bytes_text(layer.extents->largest_bytes));
      }
    }
    if (layer.extents_why)
      second += fmt::format("{}extents unknown: {}", second.empty() ? "" : ", ", *layer.extents_why);
    if (!second.empty()) lines.push_back(second);
    if (layer.mount && layer.mount->type == "overlay") add_overlay(lines, *layer.mount);
    if (layer.identity && layer.mount && layer.identity->st_dev != layer.mount->dev && layer.mount->type != "overlay") {
      lines.push_back(fmt::format("stat says device {}, the kernel's own number is {}",
                                  device_text(layer.identity->st_dev), device_text(layer.mount->dev)));
    }
    if (layer.doubt) lines.push_back("inferred: " + *layer.doubt);
    return lines;
  }

  static void add_overlay(std::vector<std::string>& lines, const Mount& mount) {
    const OverlayDirectories overlay = overlay_directories(mount.super);
    std::string line = overlay.upper ? "upper " + *overlay.upper : std::string("read-only, no upper directory");
    line += fmt::format(", {} lower director{}", overlay.lower.size(), overlay.lower.size() == 1 ? "y" : "ies");
    lines.push_back(std::move(line));
  }

  [[nodiscard]] static std::string fact(const Device& device, const char* name) {
    const auto found = device.facts.find(name);
    return found == device.facts.end() ? std::string() : found->second;
  }

  [[nodiscard]] static std::string kibibytes(const std::string& text) {
    std::uint64_t amount = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), amount);
    constexpr std::uint64_t unlimited = 0x7fffffff;  // how a driver without a limit says so
    if (parsed.ec == std::errc{} && amount >= unlimited) return "no limit";
    return parsed.ec == std::errc{} ? bytes_text(amount * 1024) : text;
  }

  // "[none] mq-deadline" is how sysfs marks the scheduler in use.
  [[nodiscard]] static std::string chosen(const std::string& schedulers) {
    const std::size_t open = schedulers.find('[');
    const std::size_t close = schedulers.find(']');
    if (open == std::string::npos || close == std::string::npos || close < open) return schedulers;
    return schedulers.substr(open + 1, close - open - 1);
  }

  // sysfs prints "32.0 GT/s PCIe".
  [[nodiscard]] static std::string speed_of(const Device& device, const char* name) {
    const std::string speed = fact(device, name);
    return speed.substr(0, speed.find(" PCIe"));
  }

  [[nodiscard]] static std::string headline(const Device& device) {
    std::vector<std::string> parts{device_kind_name(device.kind)};
    if (device.kind == DeviceKind::partition) {
      parts.front() += " " + fact(device, "partition");
      if (device.start_bytes) parts.push_back("from " + bytes_text(*device.start_bytes));
    }
    if (device.mapper_name) parts.push_back(*device.mapper_name);
    if (!fact(device, "md_level").empty()) {
      parts.push_back(fact(device, "md_level") + " of " + fact(device, "md_raid_disks"));
      if (const std::string chunk = fact(device, "md_chunk_bytes"); !chunk.empty() && chunk != "0") {
        parts.push_back("chunk " + chunk + " bytes");
      }
    }
    if (!fact(device, "model").empty()) parts.push_back(fact(device, "model"));
    if (!fact(device, "firmware").empty()) parts.push_back("firmware " + fact(device, "firmware"));
    if (device.size_bytes) parts.push_back(bytes_text(*device.size_bytes));
    if (fact(device, "rotational") == "1" && device.kind == DeviceKind::scsi) parts.push_back("rotational");
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  [[nodiscard]] static std::vector<std::string> device_lines(const Device& device) {
    std::vector<std::string> lines;
    if (device.loop) lines.push_back(loop_line(*device.loop));
    if (device.loop && !device.loop->file_known) {
      lines.push_back("the backing file is not proven to be the file of that name here");
    }
    if (const std::string speed = speed_of(device, "current_link_speed"); !speed.empty()) {
      lines.push_back(fmt::format("PCIe {} x{} now, {} x{} at most, at {}", speed, fact(device, "current_link_width"),
                                  speed_of(device, "max_link_speed"), fact(device, "max_link_width"),
                                  fact(device, "pci_address")));
      if (const std::string port = speed_of(device, "port_max_link_speed"); !port.empty()) {
        lines.back() += fmt::format(" (its port {} x{})", port, fact(device, "port_max_link_width"));
      }
      const std::string node = fact(device, "numa_node");
      if (!node.empty() && node != "-1") lines.back() += ", NUMA node " + node;
    }
    if (const std::string queue = queue_line(device); !queue.empty()) lines.push_back(queue);
    if (device.below_doubt) lines.push_back("below inferred: " + *device.below_doubt);
    return lines;
  }

  [[nodiscard]] static std::string loop_line(const LoopBacking& loop) {
    std::string line = (loop.direct_io ? "direct I/O on " : "buffered through the host's page cache from ") + loop.path;
    if (loop.offset != 0) line += ", from " + bytes_text(loop.offset);
    if (loop.size_limit != 0) line += ", limited to " + bytes_text(loop.size_limit);
    if (loop.read_only) line += ", read-only";
    return line;
  }

  [[nodiscard]] static std::string queue_line(const Device& device) {
    std::vector<std::string> parts;
    if (const std::string most = fact(device, "max_sectors_kb"); !most.empty()) {
      parts.push_back(fmt::format("requests up to {} (hardware {})", kibibytes(most),
                                  kibibytes(fact(device, "max_hw_sectors_kb"))));
    }
    if (const std::string depth = fact(device, "nr_requests"); !depth.empty()) parts.push_back("queue " + depth);
    if (const std::string ahead = fact(device, "read_ahead_kb"); !ahead.empty()) {
      parts.push_back("read-ahead " + kibibytes(ahead));
    }
    if (const std::string name = fact(device, "scheduler"); !name.empty()) parts.push_back("scheduler " + chosen(name));
    if (const std::string block = fact(device, "logical_block_size"); !block.empty()) {
      parts.push_back("blocks " + block + "/" + fact(device, "physical_block_size"));
    }
    if (fact(device, "iostats") == "0") parts.emplace_back("not counted (iostats 0)");
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  const PathLayers& layers_;
  std::string text_;
  std::vector<DeviceNumber> above_;
};

}  // namespace

std::string layers_text(const PathLayers& layers) { return Drawing(layers).whole(); }

}  // namespace servedby
