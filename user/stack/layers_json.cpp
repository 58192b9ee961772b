// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "record/text.h"
#include "stack/layers.h"

namespace servedby {
namespace {

using nlohmann::json;

class Writer {
 public:
  explicit Writer(const PathLayers& layers) : layers_(layers), flat_(layers.stack) {
    for (const json& device : flat_.at("devices")) by_dev_[device.at("dev").get<std::string>()] = device;
  }

  [[nodiscard]] json whole() {
    json tree{{"path", layers_.path}, {"not_seen", layers_.stack.not_seen}};
    if (layers_.device) {
      tree["device"] = device(*layers_.device);
    } else {
      tree["file"] = file(0);
    }
    tree["stack"] = flat_;
    wrap_bytes(tree);
    return tree;
  }

 private:
  json device(DeviceNumber dev) {
    json object = json{{"dev", device_text(dev)}, {"name", layers_.stack.name_of(dev)}};
    if (const auto known = by_dev_.find(device_text(dev)); known != by_dev_.end()) object = known->second;
    object.erase("below");
    // A damaged or strange machine may show a ring; the tree must end.
    if (std::ranges::find(above_, dev) != above_.end()) return object;
    above_.push_back(dev);
    const auto backing = layers_.backing_files.find(dev);
    const Device* found = layers_.stack.find(dev);
    if (backing != layers_.backing_files.end()) {
      object["backing_file"] = file(backing->second);
    } else if (found != nullptr && !found->below.empty()) {
      object["on"] = json::array();
      for (const DeviceNumber below : found->below) object["on"].push_back(device(below));
    }
    above_.pop_back();
    return object;
  }

  json file(std::size_t index) {
    const FileLayer& layer = layers_.files[index];
    json object{{"path", layer.path}, {"reached", layer.reached}};
    if (layer.mount) {
      object["filesystem"] = json{{"type", layer.mount->type},       {"mounted_on", layer.mount->point},
                                  {"root", layer.mount->root},       {"source", layer.mount->source},
                                  {"options", layer.mount->options}, {"dev", device_text(layer.mount->dev)}};
      if (layer.mount->type == "overlay") object["overlay"] = overlay(*layer.mount);
    }
    if (layer.identity) {
      object["inode"] = layer.identity->inode;
      object["size_bytes"] = layer.identity->size;
      object["st_dev"] = device_text(layer.identity->st_dev);
    }
    if (layer.extents) {
      object["extents"] = json{{"count", layer.extents->count},
                               {"mean_bytes", layer.extents->mean_bytes},
                               {"largest_bytes", layer.extents->largest_bytes}};
    }
    if (layer.extents_why) object["extents_unknown"] = *layer.extents_why;
    object["evidence"] = layer.doubt ? "inferred" : "known";
    if (layer.doubt) object["doubt"] = *layer.doubt;
    if (layer.inner) object["layer"] = file(*layer.inner);
    if (!layer.ends_in.empty()) object["ends_in"] = layer.ends_in;
    if (!layer.devices.empty()) {
      object["on"] = json::array();
      for (const DeviceNumber dev : layer.devices) object["on"].push_back(device(dev));
    }
    return object;
  }

  static json overlay(const Mount& mount) {
    const OverlayDirectories directories = overlay_directories(mount.super);
    json object{{"lower", directories.lower}};
    if (directories.upper) object["upper"] = *directories.upper;
    if (directories.work) object["work"] = *directories.work;
    if (!directories.data.empty()) object["data"] = directories.data;
    return object;
  }

  const PathLayers& layers_;
  json flat_;
  std::map<std::string, json> by_dev_;
  std::vector<DeviceNumber> above_;
};

}  // namespace

json layers_json(const PathLayers& layers) { return Writer(layers).whole(); }

}  // namespace servedby
