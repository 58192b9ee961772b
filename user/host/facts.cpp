// SPDX-License-Identifier: Apache-2.0
#include "host/facts.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "host/group.h"
#include "stack/mounts.h"

namespace servedby {
namespace {

using nlohmann::json;

void put(json& object, const char* name, const std::optional<std::string>& value) {
  if (value && !value->empty()) object[name] = *value;
}

// "key : value" of cpuinfo, "key:  value kB" of meminfo.
std::optional<std::string> value_of(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return std::nullopt;
}

// "0-3,8" → 5
std::optional<std::uint64_t> count_in_list(const std::string& list) {
  std::uint64_t count = 0;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    const char* const end = range.data() + range.size();
    auto parsed = std::from_chars(range.data(), end, first);
    last = first;
    if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    if (parsed.ec != std::errc{} || parsed.ptr != end || last < first) return std::nullopt;
    count += last - first + 1;
  }
  return count == 0 ? std::nullopt : std::optional(count);
}

std::optional<std::string> hypervisor(const Root& root, const std::string& cpuinfo) {
  const std::string vendor = root.line("/sys/class/dmi/id/sys_vendor").value_or("");
  const std::string product = root.line("/sys/class/dmi/id/product_name").value_or("");
  static constexpr std::array<std::pair<std::string_view, const char*>, 10> known{{{"QEMU", "qemu"},
                                                                                   {"KVM", "kvm"},
                                                                                   {"VMware", "vmware"},
                                                                                   {"VirtualBox", "virtualbox"},
                                                                                   {"Virtual Machine", "hyper-v"},
                                                                                   {"Amazon EC2", "ec2"},
                                                                                   {"Google Compute Engine", "gce"},
                                                                                   {"Xen", "xen"},
                                                                                   {"Bochs", "bochs"},
                                                                                   {"OpenStack", "openstack"}}};
  for (const auto& [word, name] : known) {
    if (vendor.find(word) != std::string::npos || product.find(word) != std::string::npos) return name;
  }
  if (const auto type = root.line("/sys/hypervisor/type")) return type;
  const std::string flags = value_of(cpuinfo, "flags").value_or("");
  if ((" " + flags + " ").find(" hypervisor ") != std::string::npos) return "unknown hypervisor";
  return std::nullopt;
}

std::optional<std::string> container(const Root& root) {
  if (root.exists("/.dockerenv")) return "docker";
  if (root.exists("/run/.containerenv")) return "podman";
  if (const auto told = root.line("/run/systemd/container")) return told;
  const std::string groups = root.text("/proc/1/cgroup").value_or("") + root.text("/proc/self/cgroup").value_or("");
  static constexpr std::array<std::pair<std::string_view, const char*>, 5> words{{{"kubepods", "kubernetes"},
                                                                                  {"libpod", "podman"},
                                                                                  {"docker", "docker"},
                                                                                  {"containerd", "containerd"},
                                                                                  {"lxc", "lxc"}}};
  for (const auto& [word, name] : words) {
    if (groups.find(word) != std::string::npos) return name;
  }
  // An overlay as the root is what a container without any of these marks still has.
  for (const Mount& mount : parse_mounts(root.text("/proc/self/mountinfo").value_or(""))) {
    if (mount.point == "/" && mount.type == "overlay") return "unknown container";
  }
  return std::nullopt;
}

}  // namespace

json host_facts(const Root& root) {
  json host = json::object();
  host["kernel"] = json::object();
  put(host["kernel"], "release", root.line("/proc/sys/kernel/osrelease"));
  put(host["kernel"], "version", root.line("/proc/sys/kernel/version"));
  std::optional<std::string> machine = root.line("/proc/sys/kernel/arch");  // since 6.1
  if (utsname names{}; !machine && root.live() && ::uname(&names) == 0) machine = names.machine;
  put(host, "machine", machine);
  const std::string cpuinfo = root.text("/proc/cpuinfo").value_or("");
  if (const auto cpus = count_in_list(root.line("/sys/devices/system/cpu/online").value_or(""))) host["cpus"] = *cpus;
  put(host, "cpu_model", value_of(cpuinfo, "model name"));
  if (const auto nodes = count_in_list(root.line("/sys/devices/system/node/online").value_or(""))) {
    host["numa_nodes"] = *nodes;
  }
  if (const auto memory = value_of(root.text("/proc/meminfo").value_or(""), "MemTotal")) {
    std::uint64_t kibibytes = 0;
    const auto parsed = std::from_chars(memory->data(), memory->data() + memory->size(), kibibytes);
    if (parsed.ec == std::errc{}) host["memory_bytes"] = kibibytes * 1024;
  }
  put(host, "virtual", hypervisor(root, cpuinfo));
  put(host, "container", container(root));
  std::istringstream groups(root.text("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) host["cgroup"] = line.substr(3);
  }
  const auto own = root.live() ? static_cast<std::uint32_t>(::getpid()) : 1U;
  if (const auto directory = group_directory(root, own)) {
    json limits = json::object();
    put(limits, "memory_max", root.line(joined(*directory, "memory.max")));
    put(limits, "cpu_max", root.line(joined(*directory, "cpu.max")));
    put(limits, "io_max", root.line(joined(*directory, "io.max")));
    if (!limits.empty()) host["cgroup_limits"] = std::move(limits);
  }
  return host;
}

}  // namespace servedby
