// SPDX-License-Identifier: Apache-2.0
// A container sees its root as an overlay whose directories lie in the host's mount namespace. But the runtime also
// binds small files into it (/etc/hosts, /etc/hostname, /etc/resolv.conf) out of its own storage tree, and such a mount
// carries the device number of the file system it comes from. When the bound file and the overlay's upper directory
// belong to one storage tree, they lie on one device, unless somebody mounted another one inside that tree: hence
// inferred, never known.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "stack/place.h"
#include "stack/wording.h"

namespace servedby {
namespace {

using Words = std::vector<std::string_view>;

Words words_of(std::string_view path) {
  Words words;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    if (slash != 0) words.push_back(path.substr(0, slash));
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return words;
}

// Directories that a container runtime keeps side by side in its storage tree: Docker (overlay2, containers,
// containerd), containerd (io.containerd.…), Podman and CRI-O (overlay, overlay-containers).
bool in_storage_tree(std::string_view name) {
  static constexpr std::array<std::string_view, 10> names{
      "overlay2", "containers", "containerd",         "volumes",        "buildkit",
      "image",    "rootfs",     "overlay-containers", "overlay-images", "overlay"};
  return name.starts_with("io.containerd.") || std::ranges::find(names, name) != names.end();
}

// Those of them that nobody else would call so: enough at the top of a file system, where no path before them speaks
// for it.
bool tells_alone(std::string_view name) {
  return name == "overlay2" || name == "containers" || name == "overlay-containers" ||
         name.starts_with("io.containerd.");
}

// The words of `hidden` up to each directory that has the shape of a storage tree: /var/lib/docker of
// /var/lib/docker/overlay2/ID/diff. The shortest first.
std::vector<Words> storage_trees(const Words& hidden) {
  std::vector<Words> trees;
  for (std::size_t i = 1; i < hidden.size(); ++i) {
    if (in_storage_tree(hidden[i])) trees.emplace_back(hidden.begin(), hidden.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return trees;
}

// The root of a bind mount is a path inside its file system: "/containers/ID/hosts" when the file system itself is
// mounted on /var/lib/docker, "/lib/docker/containers/ID/hosts" on /var, "/var/lib/docker/containers/ID/hosts" on /. So
// it must begin with some ending of the tree's path, followed by a directory of such a tree.
bool comes_from(const Words& root, const Words& tree) {
  for (std::size_t skip = 0; skip <= tree.size(); ++skip) {
    const std::size_t kept = tree.size() - skip;
    if (root.size() <= kept || !(kept == 0 ? tells_alone(root[kept]) : in_storage_tree(root[kept]))) continue;
    if (std::equal(tree.begin() + static_cast<std::ptrdiff_t>(skip), tree.end(), root.begin())) return true;
  }
  return false;
}

}  // namespace

std::optional<InferredMount> hidden_storage(const std::vector<Mount>& mounts, const std::string& hidden_directory) {
  const Words hidden = words_of(hidden_directory);
  for (const Words& tree : storage_trees(hidden)) {
    const Mount* first = nullptr;
    std::vector<std::string> points;
    for (const Mount& mount : mounts) {
      if (mount.type == "overlay" || mount.root == "/" || !comes_from(words_of(mount.root), tree)) continue;
      if (first != nullptr && mount.dev != first->dev) return std::nullopt;  // they disagree: not to be told
      if (first == nullptr) first = &mount;
      points.push_back(mount.point);
    }
    if (first == nullptr) continue;
    std::string path;
    for (const std::string_view word : tree) path += "/" + std::string(word);
    return InferredMount{
        *first, fmt::format("{} {} bound from {} ({}), out of the storage tree {} in which the overlay's hidden "
                            "directory {} lies; another file system mounted inside that tree would not show",
                            listed(points), points.size() == 1 ? "is" : "are", first->source, first->type, path,
                            hidden_directory)};
  }
  return std::nullopt;
}

}  // namespace servedby
