// SPDX-License-Identifier: Apache-2.0
// Unpacks fixtures/NAME.tree, a machine's /proc and /sys in one readable file, into a directory of its own:
//   # comment
//   [/sys/devices/virtual/block/loop0]     a directory
//   loop/dio = 0                           a file in it (or below it) with one line
//   device -> /sys/devices/…               a link
//   mountinfo =                            a file with the indented lines that follow
#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "stack/root.h"

namespace servedby::test {

/// System calls that answer from tables; what is not in them is missing, or refused for a loop device.
struct Answers final : SystemCalls {
  std::map<std::string, FileIdentity> files;
  std::map<std::string, std::string> links;
  std::map<std::string, LoopStatus> loops;
  std::map<std::string, FileExtents> mapped;
  int loop_refusal = EACCES;

  [[nodiscard]] std::expected<FileIdentity, int> identity(const std::string& path) const override {
    return find(files, path, ENOENT);
  }
  [[nodiscard]] std::expected<std::string, int> canonical(const std::string& path) const override {
    if (const auto link = links.find(path); link != links.end()) return link->second;
    if (files.contains(path)) return path;
    return std::unexpected(ENOENT);
  }
  [[nodiscard]] std::expected<std::string, int> link(const std::string& path) const override {
    return find(links, path, ENOENT);
  }
  [[nodiscard]] std::expected<LoopStatus, int> loop_status(const std::string& name) const override {
    return find(loops, name, loop_refusal);
  }
  [[nodiscard]] std::expected<FileExtents, int> extents(const std::string& path) const override {
    return find(mapped, path, EOPNOTSUPP);
  }

 private:
  template <class Value>
  static std::expected<Value, int> find(const std::map<std::string, Value>& table, const std::string& key,
                                        int missing) {
    const auto found = table.find(key);
    if (found == table.end()) return std::unexpected(missing);
    return found->second;
  }
};

/// Directory of the unpacked tree, gone with this object.
class MachineTree {
 public:
  explicit MachineTree(const std::string& source) : calls(std::make_shared<Answers>()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "servedby-tree-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a directory for a fixture");
    directory_ = pattern;
    unpack(source);
  }
  ~MachineTree() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  MachineTree(const MachineTree&) = delete;
  MachineTree& operator=(const MachineTree&) = delete;

  [[nodiscard]] Root root() const { return Root(directory_, calls); }
  /// Writes or replaces one file of the tree.
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path target = directory_ + path;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target) << text;
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(directory_ + path); }

  std::shared_ptr<Answers> calls;

 private:
  void unpack(const std::string& source) const {
    std::ifstream lines(source);
    if (!lines) throw std::runtime_error("no fixture " + source);
    std::string section;
    std::string open;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  ")) {
        std::ofstream(directory_ + open, std::ios::app) << line.substr(2) << '\n';
      } else if (line.starts_with('[')) {
        section = line.substr(1, line.rfind(']') - 1);
      } else if (const auto arrow = line.find(" -> "); arrow != std::string::npos && !line.starts_with('#')) {
        link(section + "/" + line.substr(0, arrow), line.substr(arrow + 4));
      } else if (const auto equals = line.find(" ="); equals != std::string::npos && !line.starts_with('#')) {
        open = section + "/" + line.substr(0, equals);
        put(open, equals + 3 < line.size() ? line.substr(equals + 3) + "\n" : "");
      }
    }
  }
  void link(const std::string& path, const std::string& to) const {
    const std::filesystem::path at = directory_ + path;
    std::filesystem::create_directories(at.parent_path());
    std::filesystem::create_symlink(std::filesystem::relative(directory_ + to, at.parent_path()), at);
  }

  std::string directory_;
};

/// A regular file as statx would tell it.
[[nodiscard]] inline FileIdentity regular(DeviceNumber dev, std::uint64_t inode, std::uint64_t size = 4096) {
  FileIdentity identity;
  identity.st_dev = dev;
  identity.inode = inode;
  identity.mode = 0100644;
  identity.size = size;
  identity.modified_ns = 1'700'000'000'000'000'000;
  return identity;
}

}  // namespace servedby::test
