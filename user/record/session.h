// SPDX-License-Identifier: Apache-2.0
// Everything about a capture that is not a record: what attribution needs from the machine, as values. A recording
// carries one Session at its end; replaying its records with it gives the identical result.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "record/counters.h"
#include "record/record.h"
#include "record/storage.h"

namespace servedby {

/// One hook of the plan: what it observes, how it was attached, or why it was not.
struct HookStatus {
  std::string name;  ///< "read-entry", "fill-readahead", "request-done", …
  std::string how;   ///< "kprobe:submit_bio", "tp_btf:nvme_complete_rq", …
  std::string tier;  ///< "fentry" | "kprobe" | "tracepoint"
  bool attached = false;
  bool served_by = false;  ///< the answer of served_by[] rests on it
  bool second_sight =
      false;            ///< another hook sees the same: what this one misses is lost only if that one missed it too
  std::string why_not;  ///< when not attached
  std::optional<std::uint64_t> runs, recursion_misses;  ///< as the kernel counts them (bpf_prog_info)
  friend bool operator==(const HookStatus&, const HookStatus&) = default;
};

/// What the kernel side counted besides the records.
struct KernelCounts {
  std::array<std::uint64_t, SB_LOSSES> losses{};  ///< by enum sb_loss
  std::array<std::uint64_t, SB_NOTES> notes{};    ///< by enum sb_note
  std::map<DeviceNumber, sb_device_count> devices;
  std::uint64_t requests_in_flight_at_end = 0;  ///< of the target
  std::uint64_t reads_in_flight_at_end = 0;
};

/// The bytes that moved while a counters snapshot was being taken: what was in flight around it.
struct Bracket {
  std::uint64_t process_bytes = 0;
  std::map<DeviceNumber, std::uint64_t> device_bytes;
};

struct Session {
  std::string kernel;  ///< "6.12.117+deb12-amd64 #1 SMP …"
  nlohmann::json host = nlohmann::json::object();
  std::string started_at;  ///< RFC 3339
  std::int64_t monotonic_to_realtime_ns = 0;
  std::uint64_t clock_uncertainty_ns = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;  ///< CLOCK_MONOTONIC
  std::uint32_t page_size = 4096;
  std::vector<std::string> command;  ///< run; empty for attach
  std::uint32_t target_pid = 0;
  std::string target_comm;
  std::optional<int> target_exit;  ///< exit code of the command where it ended
  bool attached_live = false;      ///< attach to a running process: edges are expected at both ends
  std::string tier;                ///< the weakest hook in served_by
  std::vector<HookStatus> hooks;
  KernelCounts counts;
  StorageStack stack;
  CountersSnapshot before, after;
  Bracket bracket;
  std::vector<std::string> warnings;  ///< one line each, for the reader of the result
};

void to_json(nlohmann::json& json, const Session& session);
void from_json(const nlohmann::json& json, Session& session);

}  // namespace servedby
