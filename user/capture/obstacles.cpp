// SPDX-License-Identifier: Apache-2.0
#include "capture/obstacles.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace servedby {
namespace {

constexpr unsigned cap_sys_admin = 21, cap_perfmon = 38, cap_bpf = 39;
constexpr ino_t first_pid_namespace = 0xEFFFFFFC;  // include/linux/proc_ns.h: PROC_PID_INIT_INO

std::string text_of(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::uint64_t effective_capabilities() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("CapEff:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

Condition privilege() {
  const std::uint64_t caps = effective_capabilities();
  const auto has = [caps](unsigned cap) { return (caps >> cap & 1) != 0; };
  const bool enough = has(cap_sys_admin) || (has(cap_bpf) && has(cap_perfmon));
  return {"privilege", enough,
          enough ? "CAP_BPF and CAP_PERFMON, or more" : "neither CAP_SYS_ADMIN nor CAP_BPF with CAP_PERFMON",
          "run as root, or give the container CAP_BPF and CAP_PERFMON; --tier counters works without"};
}

Condition type_information() {
  const bool there = access("/sys/kernel/btf/vmlinux", R_OK) == 0;
  return {"kernel type information", there, there ? "/sys/kernel/btf/vmlinux" : "no readable /sys/kernel/btf/vmlinux",
          "use a kernel built with CONFIG_DEBUG_INFO_BTF; --tier counters works without"};
}

Condition lockdown() {
  const std::string text = text_of("/sys/kernel/security/lockdown");
  const bool locked = text.find("[confidentiality]") != std::string::npos;
  return {"lockdown", !locked,
          locked ? "the kernel is locked down for confidentiality and refuses to be traced" : "does not forbid tracing",
          "boot without lockdown=confidentiality; --tier counters works with it"};
}

Condition pid_namespace() {
  struct stat status{};
  const bool known = stat("/proc/self/ns/pid", &status) == 0;
  const bool first = known && status.st_ino == first_pid_namespace;
  return {"PID namespace", first,
          first ? "the machine's first" : "not in the machine's first PID namespace, so PIDs mean something else here",
          "run it outside the container (or with --pid=host); --tier counters works inside"};
}

Condition tracefs() {
  const bool there =
      access("/sys/kernel/tracing/events", R_OK) == 0 || access("/sys/kernel/debug/tracing/events", R_OK) == 0;
  return {
      "tracefs", there, there ? "mounted" : "tracefs is not readable: classic tracepoints cannot be attached",
      "mount -t tracefs tracefs /sys/kernel/tracing (with lockdown=confidentiality it stays empty); --tier counters "
      "works without"};
}

}  // namespace

std::vector<Condition> tracing_conditions() {
  return {privilege(), type_information(), lockdown(), pid_namespace(), tracefs()};
}

std::optional<Error> tracing_obstacle() {
  for (const Condition& condition : tracing_conditions()) {
    if (!condition.met)
      return Error{"cannot trace", "this kernel", condition.found, condition.lift, Exit::not_permitted};
  }
  return std::nullopt;
}

}  // namespace servedby
