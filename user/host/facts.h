// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "stack/root.h"

namespace servedby {

/// The machine, for `host` of a result: kernel{release, version}, machine, cpus, cpu_model, numa_nodes, memory_bytes,
/// virtual (which hypervisor), container (which runtime), cgroup (path), cgroup_limits{memory_max, cpu_max, io_max} as
/// the kernel prints them. Absent means "not known", or that no mark of a hypervisor or container was found. No name,
/// address or serial number of the machine, nor its kernel command line, is in it: results are handed around.
[[nodiscard]] nlohmann::json host_facts(const Root& root = Root());

}  // namespace servedby
