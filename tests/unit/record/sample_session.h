// SPDX-License-Identifier: Apache-2.0
// A Session with a value in every field, none of them a default.
#pragma once

#include "record/session.h"

namespace servedby {

inline Session sample_session() {
  Session session;
  session.kernel = "6.12.117+deb12-amd64 #1 SMP";
  session.host = {{"cpus", 2}, {"memory_bytes", 0xffffffffffffffffULL}};
  session.started_at = "2026-11-30T14:42:33.000000001Z";
  session.monotonic_to_realtime_ns = -9007199254740993;  // not a double
  session.clock_uncertainty_ns = 9007199254740993;
  session.begin_ns = 18446744073709551614ULL;
  session.end_ns = 18446744073709551615ULL;
  session.page_size = 16384;
  session.command = {"cat", "caf\xc3\xa9", "not utf-8 \xff\xfe", ""};
  session.target_pid = 4242;
  session.target_comm = "c\xffmm";
  session.target_exit = 3;
  session.attached_live = true;
  session.tier = "kprobe";
  const HookStatus attached{.name = "read-entry",
                            .how = "kprobe:vfs_read",
                            .tier = "kprobe",
                            .attached = true,
                            .served_by = true,
                            .second_sight = true,
                            .why_not = "",
                            .runs = 9007199254740993,
                            .recursion_misses = 0};
  const HookStatus refused{.name = "fill-readahead",
                           .how = "",
                           .tier = "fentry",
                           .attached = false,
                           .served_by = true,
                           .second_sight = false,
                           .why_not = "not in this kernel's BTF",
                           .runs = std::nullopt,
                           .recursion_misses = std::nullopt};
  session.hooks = {attached, refused};
  for (std::size_t i = 0; i < session.counts.losses.size(); ++i) session.counts.losses[i] = (1ULL << 60) + i;
  for (std::size_t i = 0; i < session.counts.notes.size(); ++i) session.counts.notes[i] = (1ULL << 61) + i;
  session.counts.devices[device_number(259, 5)] = {1ULL << 63, 2, 3, 4, 5, 6, 7};
  session.counts.requests_in_flight_at_end = 8;
  session.counts.reads_in_flight_at_end = 9;
  Device drive;
  drive.dev = device_number(259, 5);
  drive.name = "nvme0n1";
  drive.kind = DeviceKind::nvme;
  drive.diskseq = 17;
  session.stack.devices.emplace(drive.dev, drive);
  session.stack.not_seen = {"sysfs of 8:1: refused"};
  session.before.monotonic_ns = 1;
  session.before.block[drive.dev].read_bytes = (1ULL << 53) + 1;
  session.before.notes["io"] = "refused";
  session.after.monotonic_ns = 2;
  session.after.block[drive.dev].read_bytes = (1ULL << 54) + 1;
  session.after.tasks[4242].rchar = (1ULL << 55) + 1;
  session.bracket.process_bytes = (1ULL << 56) + 1;
  session.bracket.device_bytes[drive.dev] = (1ULL << 57) + 1;
  session.warnings = {"one", "two"};
  return session;
}

}  // namespace servedby
