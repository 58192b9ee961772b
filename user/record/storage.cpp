// SPDX-License-Identifier: Apache-2.0
#include "record/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

namespace servedby {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<DeviceKind, const char*>, 10> kind_names{{
    {DeviceKind::nvme, "nvme"},
    {DeviceKind::loop, "loop"},
    {DeviceKind::partition, "partition"},
    {DeviceKind::dm, "dm"},
    {DeviceKind::md, "md"},
    {DeviceKind::virtio, "virtio"},
    {DeviceKind::scsi, "scsi"},
    {DeviceKind::zram, "zram"},
    {DeviceKind::ram, "ram"},
    {DeviceKind::other, "other"},
}};

DeviceNumber device_named(const std::string& text, const json& where) {
  const auto dev = device_from_text(text);
  if (!dev) throw json::other_error::create(501, "not a device number: " + text, &where);
  return *dev;
}

DeviceNumber device_from(const json& value) { return device_named(value.get<std::string>(), value); }

template <class T>
void put(json& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}

template <class T>
void take(const json& object, const char* name, std::optional<T>& value) {
  if (const auto found = object.find(name); found != object.end()) value = found->get<T>();
}

json loop_json(const LoopBacking& loop) {
  json object{{"path", loop.path},           {"file_known", loop.file_known},
              {"offset", loop.offset},       {"size_limit", loop.size_limit},
              {"direct_io", loop.direct_io}, {"read_only", loop.read_only}};
  if (loop.dev) object["dev"] = device_text(*loop.dev);
  put(object, "inode", loop.inode);
  return object;
}

LoopBacking loop_from(const json& object) {
  LoopBacking loop;
  object.at("path").get_to(loop.path);
  object.at("file_known").get_to(loop.file_known);
  object.at("offset").get_to(loop.offset);
  object.at("size_limit").get_to(loop.size_limit);
  object.at("direct_io").get_to(loop.direct_io);
  object.at("read_only").get_to(loop.read_only);
  if (const auto dev = object.find("dev"); dev != object.end()) loop.dev = device_from(*dev);
  take(object, "inode", loop.inode);
  return loop;
}

json device_json(const Device& device) {
  json object{{"dev", device_text(device.dev)}, {"name", device.name}, {"kind", device_kind_name(device.kind)}};
  object["below"] = json::array();
  for (const DeviceNumber below : device.below) object["below"].push_back(device_text(below));
  if (device.bio_based) object["bio_based"] = true;
  put(object, "below_doubt", device.below_doubt);
  put(object, "size_bytes", device.size_bytes);
  put(object, "start_bytes", device.start_bytes);
  if (device.loop) object["loop"] = loop_json(*device.loop);
  put(object, "diskseq", device.diskseq);
  put(object, "mapper_name", device.mapper_name);
  object["facts"] = device.facts;
  return object;
}

Device device_from_object(const json& object) {
  Device device;
  device.dev = device_from(object.at("dev"));
  object.at("name").get_to(device.name);
  const auto kind = device_kind_from_name(object.at("kind").get<std::string>());
  if (!kind) throw json::other_error::create(501, "not a kind of device", &object);
  device.kind = *kind;
  for (const json& below : object.at("below")) device.below.push_back(device_from(below));
  device.bio_based = object.value("bio_based", false);
  take(object, "below_doubt", device.below_doubt);
  take(object, "size_bytes", device.size_bytes);
  take(object, "start_bytes", device.start_bytes);
  if (const auto loop = object.find("loop"); loop != object.end()) device.loop = loop_from(*loop);
  take(object, "diskseq", device.diskseq);
  take(object, "mapper_name", device.mapper_name);
  object.at("facts").get_to(device.facts);
  return device;
}

// Deeper than any real stack; a damaged recording may hold a ring or a tree that doubles at every level.
constexpr std::size_t deepest_chain = 32;
constexpr std::size_t most_chains = 4096;

void extend(const StorageStack& stack, DeviceNumber dev, std::vector<std::string>& names, std::set<DeviceNumber>& seen,
            std::vector<std::vector<std::string>>& chains) {
  const Device* device = stack.find(dev);
  const bool named = device == nullptr || device->kind != DeviceKind::partition;
  if (named) names.push_back(stack.name_of(dev));
  seen.insert(dev);
  bool ends = true;
  if (device != nullptr && seen.size() < deepest_chain) {
    for (const DeviceNumber below : device->below) {
      if (seen.contains(below)) continue;
      ends = false;
      extend(stack, below, names, seen, chains);
    }
  }
  // Two partitions of one disk below an array are one way down, not two.
  if (ends && chains.size() < most_chains && std::ranges::find(chains, names) == chains.end()) chains.push_back(names);
  seen.erase(dev);
  if (named) names.pop_back();
}

}  // namespace

std::string device_text(DeviceNumber dev) { return fmt::format("{}:{}", device_major(dev), device_minor(dev)); }

std::optional<DeviceNumber> device_from_text(std::string_view text) {
  unsigned major = 0;
  unsigned minor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc{} || second.ptr != end || major > 0xfff || minor > 0xfffff) return std::nullopt;
  return device_number(major, minor);
}

const char* device_kind_name(DeviceKind kind) {
  for (const auto& [value, name] : kind_names) {
    if (value == kind) return name;
  }
  return "other";
}

DeviceKind kind_of_disk(std::string_view name) {
  if (name.starts_with("nvme")) return DeviceKind::nvme;
  if (name.starts_with("loop")) return DeviceKind::loop;
  if (name.starts_with("dm-")) return DeviceKind::dm;
  if (name.starts_with("md")) return DeviceKind::md;
  if (name.starts_with("vd")) return DeviceKind::virtio;
  if (name.starts_with("sd") || name.starts_with("sr")) return DeviceKind::scsi;
  if (name.starts_with("zram")) return DeviceKind::zram;
  if (name.starts_with("ram")) return DeviceKind::ram;
  return DeviceKind::other;
}

std::optional<DeviceKind> device_kind_from_name(std::string_view name) {
  for (const auto& [value, text] : kind_names) {
    if (name == text) return value;
  }
  return std::nullopt;
}

BioFate bio_fate(const Device& device) {
  const bool stacked = device.kind == DeviceKind::dm || device.kind == DeviceKind::md;
  if (!device.bio_based && !stacked) return BioFate::requests;
  const bool memory = device.kind == DeviceKind::zram || device.kind == DeviceKind::ram;
  const bool alone = device.below.empty() && !device.facts.contains("backing_dev");
  return memory && alone ? BioFate::served : BioFate::passed_on;
}

bool has_stripes(const Device& device) {
  const auto level = device.facts.find("md_level");
  return device.kind == DeviceKind::md && level != device.facts.end() &&
         (level->second == "raid4" || level->second == "raid5" || level->second == "raid6");
}

bool is_multipath(const Device& device) {
  return device.kind == DeviceKind::nvme && device.bio_based && !device.below.empty();
}

const Device* StorageStack::find(DeviceNumber dev) const {
  const auto found = devices.find(dev);
  return found == devices.end() ? nullptr : &found->second;
}

std::string StorageStack::server_of(DeviceNumber file_system) const {
  const auto found = file_systems.find(file_system);
  return found == file_systems.end() ? std::string() : found->second.server;
}

DeviceNumber StorageStack::disk_of(DeviceNumber dev) const {
  const Device* device = find(dev);
  const bool partition = device != nullptr && device->kind == DeviceKind::partition && !device->below.empty();
  return partition ? device->below.front() : dev;
}

std::string StorageStack::name_of(DeviceNumber dev) const {
  const Device* device = find(dev);
  return device == nullptr ? device_text(dev) : device->name;
}

std::vector<std::vector<std::string>> StorageStack::chains_from(DeviceNumber dev) const {
  std::vector<std::vector<std::string>> chains;
  std::vector<std::string> names;
  std::set<DeviceNumber> seen;
  extend(*this, dev, names, seen, chains);
  return chains;
}

std::vector<DeviceNumber> StorageStack::with_all_below(DeviceNumber dev) const {
  std::vector<DeviceNumber> found{dev};
  for (std::size_t next = 0; next < found.size(); ++next) {
    const Device* device = find(found[next]);
    if (device == nullptr) continue;
    for (const DeviceNumber below : device->below) {
      if (std::ranges::find(found, below) == found.end()) found.push_back(below);
    }
  }
  return found;
}

void to_json(json& object, const StorageStack& stack) {
  object = json{{"devices", json::array()}, {"not_seen", stack.not_seen}};
  for (const auto& [dev, device] : stack.devices) object["devices"].push_back(device_json(device));
  for (const auto& [dev, system] : stack.file_systems) {
    json& entry = object["file_systems"][device_text(dev)] = json{{"type", system.type}};
    if (!system.server.empty()) entry["server"] = system.server;
  }
}

void from_json(const json& object, StorageStack& stack) {
  stack = StorageStack{};
  for (const json& entry : object.at("devices")) {
    Device device = device_from_object(entry);
    stack.devices.insert_or_assign(device.dev, std::move(device));
  }
  if (const auto systems = object.find("file_systems"); systems != object.end()) {
    for (const auto& [text, entry] : systems->items()) {
      FileSystem& system = stack.file_systems[device_named(text, entry)];
      entry.at("type").get_to(system.type);
      system.server = entry.value("server", std::string());
    }
  }
  object.at("not_seen").get_to(stack.not_seen);
}

}  // namespace servedby
