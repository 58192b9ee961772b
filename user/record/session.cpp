// SPDX-License-Identifier: Apache-2.0
// A Session as JSON and back, exactly: 64-bit integers stay integers, what is absent stays absent.
#include "record/session.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace servedby {
namespace {

using nlohmann::json;

template <class T>
void put(json& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}

template <class T>
void take(const json& object, const char* name, std::optional<T>& value) {
  if (const auto found = object.find(name); found != object.end()) value = found->get<T>();
}

json hook_json(const HookStatus& hook) {
  json object{{"name", hook.name},           {"how", hook.how},
              {"tier", hook.tier},           {"attached", hook.attached},
              {"served_by", hook.served_by}, {"second_sight", hook.second_sight},
              {"why_not", hook.why_not}};
  put(object, "runs", hook.runs);
  put(object, "recursion_misses", hook.recursion_misses);
  return object;
}

HookStatus hook_from(const json& object) {
  HookStatus hook;
  object.at("name").get_to(hook.name);
  object.at("how").get_to(hook.how);
  object.at("tier").get_to(hook.tier);
  object.at("attached").get_to(hook.attached);
  object.at("served_by").get_to(hook.served_by);
  object.at("second_sight").get_to(hook.second_sight);
  object.at("why_not").get_to(hook.why_not);
  take(object, "runs", hook.runs);
  take(object, "recursion_misses", hook.recursion_misses);
  return hook;
}

json device_count_json(const sb_device_count& count) {
  return json{{"target_read_bytes", count.target_read_bytes},
              {"other_read_bytes", count.other_read_bytes},
              {"unseen_read_bytes", count.unseen_read_bytes},
              {"target_read_requests", count.target_read_requests},
              {"other_read_requests", count.other_read_requests},
              {"write_bytes", count.write_bytes},
              {"write_requests", count.write_requests}};
}

sb_device_count device_count_from(const json& object) {
  sb_device_count count{};
  count.target_read_bytes = object.at("target_read_bytes").get<std::uint64_t>();
  count.other_read_bytes = object.at("other_read_bytes").get<std::uint64_t>();
  count.unseen_read_bytes = object.at("unseen_read_bytes").get<std::uint64_t>();
  count.target_read_requests = object.at("target_read_requests").get<std::uint64_t>();
  count.other_read_requests = object.at("other_read_requests").get<std::uint64_t>();
  count.write_bytes = object.at("write_bytes").get<std::uint64_t>();
  count.write_requests = object.at("write_requests").get<std::uint64_t>();
  return count;
}

DeviceNumber device_key(const std::string& key, const json& where) {
  const auto dev = device_from_text(key);
  if (!dev) throw json::other_error::create(501, "not a device number: " + key, &where);
  return *dev;
}

/// Counters that this version knows and the file does not stay 0; the other way round they would be lost, so that
/// throws.
template <std::size_t N>
void counts_from(const json& list, std::array<std::uint64_t, N>& counts) {
  if (!list.is_array() || list.size() > N) throw json::other_error::create(501, "not a list of counters", &list);
  counts.fill(0);
  std::transform(list.begin(), list.end(), counts.begin(),
                 [](const json& count) { return count.get<std::uint64_t>(); });
}

json counts_json(const KernelCounts& counts) {
  json object{{"losses", counts.losses},
              {"notes", counts.notes},
              {"devices", json::object()},
              {"requests_in_flight_at_end", counts.requests_in_flight_at_end},
              {"reads_in_flight_at_end", counts.reads_in_flight_at_end}};
  for (const auto& [dev, count] : counts.devices) object["devices"][device_text(dev)] = device_count_json(count);
  return object;
}

KernelCounts kernel_counts_from(const json& object) {
  KernelCounts counts;
  counts_from(object.at("losses"), counts.losses);
  counts_from(object.at("notes"), counts.notes);
  for (const auto& [key, count] : object.at("devices").items()) {
    counts.devices.emplace(device_key(key, object), device_count_from(count));
  }
  object.at("requests_in_flight_at_end").get_to(counts.requests_in_flight_at_end);
  object.at("reads_in_flight_at_end").get_to(counts.reads_in_flight_at_end);
  return counts;
}

json bracket_json(const Bracket& bracket) {
  json object{{"process_bytes", bracket.process_bytes}, {"device_bytes", json::object()}};
  for (const auto& [dev, bytes] : bracket.device_bytes) object["device_bytes"][device_text(dev)] = bytes;
  return object;
}

Bracket bracket_from(const json& object) {
  Bracket bracket;
  object.at("process_bytes").get_to(bracket.process_bytes);
  for (const auto& [key, bytes] : object.at("device_bytes").items()) {
    bracket.device_bytes.emplace(device_key(key, object), bytes.get<std::uint64_t>());
  }
  return bracket;
}

}  // namespace

void to_json(json& object, const Session& session) {
  object = json{{"kernel", session.kernel},
                {"host", session.host},
                {"started_at", session.started_at},
                {"monotonic_to_realtime_ns", session.monotonic_to_realtime_ns},
                {"clock_uncertainty_ns", session.clock_uncertainty_ns},
                {"begin_ns", session.begin_ns},
                {"end_ns", session.end_ns},
                {"page_size", session.page_size},
                {"command", session.command},
                {"target_pid", session.target_pid},
                {"target_comm", session.target_comm},
                {"attached_live", session.attached_live},
                {"tier", session.tier},
                {"hooks", json::array()},
                {"counts", counts_json(session.counts)},
                {"stack", session.stack},
                {"before", session.before},
                {"after", session.after},
                {"bracket", bracket_json(session.bracket)},
                {"warnings", session.warnings}};
  put(object, "target_exit", session.target_exit);
  for (const HookStatus& hook : session.hooks) object["hooks"].push_back(hook_json(hook));
}

void from_json(const json& object, Session& session) {
  session = Session{};
  object.at("kernel").get_to(session.kernel);
  session.host = object.at("host");
  object.at("started_at").get_to(session.started_at);
  object.at("monotonic_to_realtime_ns").get_to(session.monotonic_to_realtime_ns);
  object.at("clock_uncertainty_ns").get_to(session.clock_uncertainty_ns);
  object.at("begin_ns").get_to(session.begin_ns);
  object.at("end_ns").get_to(session.end_ns);
  object.at("page_size").get_to(session.page_size);
  object.at("command").get_to(session.command);
  object.at("target_pid").get_to(session.target_pid);
  object.at("target_comm").get_to(session.target_comm);
  object.at("attached_live").get_to(session.attached_live);
  object.at("tier").get_to(session.tier);
  for (const json& hook : object.at("hooks")) session.hooks.push_back(hook_from(hook));
  session.counts = kernel_counts_from(object.at("counts"));
  object.at("stack").get_to(session.stack);
  object.at("before").get_to(session.before);
  object.at("after").get_to(session.after);
  session.bracket = bracket_from(object.at("bracket"));
  object.at("warnings").get_to(session.warnings);
  take(object, "target_exit", session.target_exit);
}

}  // namespace servedby
