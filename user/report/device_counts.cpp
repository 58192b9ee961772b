// SPDX-License-Identifier: Apache-2.0
#include "report/device_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace servedby::report {
namespace {

const HookStatus* hook_named(const std::vector<HookStatus>& hooks, std::string_view name) {
  const auto found = std::ranges::find(hooks, name, &HookStatus::name);
  return found == hooks.end() ? nullptr : &*found;
}

bool attached(const std::vector<HookStatus>& hooks, std::initializer_list<std::string_view> names) {
  return std::ranges::all_of(names, [&](std::string_view name) {
    const HookStatus* hook = hook_named(hooks, name);
    return hook != nullptr && hook->attached;
  });
}

/// Whether a device of which `is` holds stands on `dev`, at any height.
template <class Is>
bool carries(const StorageStack& stack, DeviceNumber dev, Is is) {
  return std::ranges::any_of(stack.devices, [&](const auto& entry) {
    if (entry.first == dev || !is(entry.second)) return false;
    const auto below = stack.with_all_below(entry.first);
    return std::ranges::find(below, dev) != below.end();
  });
}

bool passes_on(const Device& device) { return bio_fate(device) == BioFate::passed_on; }
bool is_loop(const Device& device) { return device.kind == DeviceKind::loop; }

std::string missing(const std::vector<HookStatus>& hooks, std::string_view name) {
  const HookStatus* hook = hook_named(hooks, name);
  return fmt::format("{} is not attached{}", name,
                     hook == nullptr || hook->why_not.empty() ? "" : " (" + hook->why_not + ")");
}

/// Why the bytes of a device cannot be followed; empty where they can.
std::string obstacle(const Device& device, const std::vector<HookStatus>& hooks) {
  if (is_loop(device)) return attached(hooks, {"backing-lookup"}) ? "" : missing(hooks, "backing-lookup");
  if (!passes_on(device)) return {};
  const bool followed = device.kind == DeviceKind::dm || device.kind == DeviceKind::md || is_multipath(device);
  if (!followed) return "it takes bios as they come, and no hook says what it does with them";
  if (!attached(hooks, {"bio-remap"})) return missing(hooks, "bio-remap");
  if (has_stripes(device) && !attached(hooks, {"stripe-cache"}))
    return "what it rebuilds: " + missing(hooks, "stripe-cache");
  return {};
}

}  // namespace

KnownCounts known_counts(const StorageStack& stack, const std::vector<HookStatus>& hooks, DeviceNumber dev) {
  const Device* device = stack.find(dev);
  const bool requests = device == nullptr || bio_fate(*device) == BioFate::requests;
  KnownCounts known;
  known.unseen = known.writes = requests && attached(hooks, {"request-done"});
  known.reads = attached(hooks, {"bio-submit"}) && (!requests || attached(hooks, {"request-issue", "request-done"}));
  // Whose a read is that another device passed on, or a loop's worker made, is known from that device's hook.
  if (carries(stack, dev, passes_on)) known.reads = known.reads && attached(hooks, {"bio-remap"});
  if (carries(stack, dev, is_loop)) known.reads = known.reads && attached(hooks, {"backing-lookup", "direct-bio"});
  return known;
}

std::vector<std::string> not_followed(const StorageStack& stack, const std::vector<HookStatus>& hooks) {
  std::vector<std::string> lines;
  for (const auto& [dev, device] : stack.devices) {
    const std::string why = obstacle(device, hooks);
    if (!why.empty()) lines.push_back(fmt::format("{}: {}", device.name, why));
  }
  return lines;
}

}  // namespace servedby::report
