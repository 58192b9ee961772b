// SPDX-License-Identifier: Apache-2.0
#include "stack/layers.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "stack/place.h"

namespace servedby {
namespace {

const char* special_kind(std::uint32_t mode) {
  if (S_ISFIFO(mode)) return "it is a FIFO";
  if (S_ISSOCK(mode)) return "it is a socket";
  if (S_ISCHR(mode)) return "it is a character device";
  return nullptr;
}

Error cannot_look(const Root& root, const std::string& path, int error) {
  std::error_code ignored;
  if (error == ENOENT && root.live() && std::filesystem::is_symlink(path, ignored)) {
    return Error{"cannot look at", path, "a link that leads to nothing", "name the file itself", Exit::bad_input};
  }
  return system_error("cannot look at", path, error,
                      error == EACCES ? "run as a user who may reach it" : "name a file that exists");
}

// Loops on loops: each backing file can lie on further loop devices.
void add_backing_files(View& view, PathLayers& layers) {
  std::vector<DeviceNumber> next;
  const auto add_devices = [&](std::size_t from) {
    for (std::size_t i = from; i < layers.files.size(); ++i) {
      next.insert(next.end(), layers.files[i].devices.begin(), layers.files[i].devices.end());
    }
  };
  add_devices(0);
  if (layers.device) next.push_back(*layers.device);
  for (std::set<DeviceNumber> seen; !next.empty();) {
    const DeviceNumber dev = next.back();
    next.pop_back();
    if (!seen.insert(dev).second) continue;
    const Device* device = view.stack.find(dev);
    if (device == nullptr) {
      layers.stack.not_seen.push_back(fmt::format("{}: no such device in /sys/block", device_text(dev)));
      continue;
    }
    layers.stack.devices[dev] = *device;
    next.insert(next.end(), device->below.begin(), device->below.end());
    if (!device->loop) continue;
    const std::size_t before = layers.files.size();
    if (const auto index = place_backing_file(view, layers.files, *device)) {
      layers.backing_files[dev] = *index;
      add_devices(before);
    }
  }
}

Result<PathLayers> layers_in(View& view, const std::string& path) {
  const SystemCalls& calls = view.root.calls();
  PathLayers layers;
  layers.path = path;
  const auto real = calls.canonical(path);
  if (!real) return std::unexpected(cannot_look(view.root, path, real.error()));
  const auto identity = calls.identity(*real);
  if (!identity) return std::unexpected(cannot_look(view.root, path, identity.error()));
  if (const char* kind = special_kind(identity->mode)) {
    return std::unexpected(
        Error{"no storage below", path, kind, "name a file, a directory or a block device", Exit::bad_input});
  }
  const std::size_t told = view.stack.not_seen.size();
  if (S_ISBLK(identity->mode)) {
    layers.device = identity->special;
  } else {
    static_cast<void>(place_file(view, layers.files, *real, "asked for", *identity));
  }
  add_backing_files(view, layers);
  // What concerns this path, and whatever is said of devices below it; not the troubles of other loop devices.
  const auto& lines = view.stack.not_seen;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    bool ours = i >= told || lines[i].starts_with("/");
    for (const auto& [dev, device] : layers.stack.devices) ours = ours || lines[i].starts_with(device.name + ":");
    if (ours && std::ranges::find(layers.stack.not_seen, lines[i]) == layers.stack.not_seen.end()) {
      layers.stack.not_seen.push_back(lines[i]);
    }
  }
  return layers;
}

}  // namespace

Result<PathLayers> layers_of(const std::string& path, const Root& root) {
  View view = look(root);
  place_loops(view);
  return layers_in(view, path);
}

StorageStack stack_of(const std::vector<std::string>& paths, const Root& root) {
  StorageStack stack;
  View view = look(root);
  place_loops(view);
  const auto add = [&](const std::string& line) {
    if (std::ranges::find(stack.not_seen, line) == stack.not_seen.end()) stack.not_seen.push_back(line);
  };
  for (const std::string& path : paths) {
    const auto layers = layers_in(view, path);
    if (!layers) {
      add(layers.error().line());
      continue;
    }
    stack.devices.insert(layers->stack.devices.begin(), layers->stack.devices.end());
    for (const std::string& line : layers->stack.not_seen) add(line);
  }
  return stack;
}

StorageStack whole_machine(const Root& root) {
  View view = look(root);
  note_file_systems(view);
  place_loops(view);
  return std::move(view.stack);
}

}  // namespace servedby
