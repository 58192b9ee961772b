// SPDX-License-Identifier: Apache-2.0
// Results made by hand: the situations that the text and the schema must get right.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attribution/result.h"
#include "record/session.h"

namespace servedby::samples {

inline constexpr std::uint64_t GiB = 1ULL << 30;
inline constexpr DeviceNumber drive_number = device_number(259, 0);
inline constexpr DeviceNumber loop_number = device_number(7, 0);

struct Sample {
  std::string name;
  AttributionResult result;
  Session session;
};

inline HookStatus hook(std::string name, bool attached, std::string why_not) {
  HookStatus hook;
  hook.name = std::move(name);
  hook.tier = "fentry";
  hook.attached = attached;
  hook.why_not = std::move(why_not);
  return hook;
}

/// A session on a machine with loop0 on nvme0n1; both kernel counters and kernel-side counts say 0 bytes.
inline Session session() {
  Session session;
  session.kernel = "6.12.117+deb12-amd64";
  session.host = {{"cpus", 2}};
  session.started_at = "2026-11-30T14:42:33Z";
  session.monotonic_to_realtime_ns = 1796049753000000000;
  session.clock_uncertainty_ns = 120;
  session.begin_ns = 5'000'000'000;
  session.end_ns = 8'210'000'000;
  session.command = {"model-loader", "--fast", "model.safetensors"};
  session.target_pid = 4242;
  session.target_comm = "model-loader";
  session.target_exit = 0;
  session.tier = "fentry";
  session.hooks = {hook("read-entry", true, ""), hook("scheduler", false, "not asked for")};
  for (const char* name : {"bio-submit", "bio-remap", "request-issue", "request-done", "backing-lookup", "direct-bio"})
    session.hooks.push_back(hook(name, true, ""));
  session.hooks[0].how = "fentry:vfs_read";
  session.hooks[0].served_by = true;
  session.hooks[0].runs = 1024;
  session.hooks[0].recursion_misses = 0;
  Device drive;
  drive.dev = drive_number;
  drive.name = "nvme0n1";
  drive.kind = DeviceKind::nvme;
  drive.diskseq = 9;
  Device loop;
  loop.dev = loop_number;
  loop.name = "loop0";
  loop.kind = DeviceKind::loop;
  loop.below = {drive_number};
  loop.loop = LoopBacking{"/srv/images/models.img", drive_number, 12, true, 0, 0, false, true};
  session.stack.devices = {{loop_number, loop}, {drive_number, drive}};
  session.before.monotonic_ns = 4'990'000'000;
  session.after.monotonic_ns = 8'220'000'000;
  for (const DeviceNumber dev : {loop_number, drive_number}) {
    session.before.block[dev].read_bytes = 4096;
    session.after.block[dev].read_bytes = 4096;
    session.counts.devices[dev] = {};
  }
  session.after.tasks[4242] = {GiB, 512, GiB, 3, 400};
  return session;
}

/// The target read `bytes` of `dev`, and the kernel's counters say so too.
inline void device_read(Session& session, DeviceNumber dev, std::uint64_t bytes) {
  session.counts.devices[dev].target_read_bytes += bytes;
  session.counts.devices[dev].target_read_requests += bytes / 524288;
  session.after.block[dev].read_bytes += bytes;
}

inline LedgerLine line(std::string boundary, std::optional<std::string> device, std::uint64_t bytes) {
  LedgerLine line;
  line.boundary = std::move(boundary);
  line.device = std::move(device);
  line.traced_target_bytes = bytes;
  if (line.device) line.traced_other_bytes = 0;
  line.kernel_bytes = bytes;
  line.kernel_source = line.device ? "/sys/block/" + *line.device + "/stat" : "/proc/PID/task/*/io read_bytes";
  line.residual_bytes = 0;
  return line;
}

/// One file, read by preads of 2 MiB, served as `served` says.
inline AttributionResult result(std::vector<ServedBy> served) {
  AttributionResult result;
  result.tier = "fentry";
  result.complete = true;
  result.losses = {{"ring", 0}, {"recursion", 0}, {"residual", 0}};
  result.recovered = {{"completion_by_second_sight", 0}};
  result.edges = {{"reads_in_flight_at_start", 0}, {"reads_in_flight_at_end", 0}};
  FileResult file;
  file.path = "/models/model.safetensors";
  file.dev = drive_number;
  file.inode = 131;
  for (const ServedBy& one : served) file.reads.bytes_returned += one.bytes;
  file.reads.bytes_requested = file.reads.bytes_returned;
  file.reads.calls = (file.reads.bytes_returned + 2097151) / 2097152;
  file.reads.by_method = {{"pread", file.reads.calls}};
  file.served_by = served;
  result.reads = file.reads;
  result.served_by = std::move(served);
  result.files = {file};
  return result;
}

inline ServedBy served(Via via, std::uint64_t bytes, std::uint64_t prefetched = 0) {
  ServedBy served;
  served.via = std::move(via);
  served.bytes = bytes;
  served.prefetched_bytes = prefetched;
  served.reads = (bytes + 2097151) / 2097152;
  return served;
}

inline Sample drive() {
  Sample sample{"drive", result({served({"nvme0n1"}, 2 * GiB, GiB)}), session()};
  device_read(sample.session, drive_number, 2 * GiB + 8192);
  sample.result.ledger = {line("process", std::nullopt, 2 * GiB + 8192), line("drive", "nvme0n1", 2 * GiB + 8192)};
  sample.result.ledger[0].parts = {{"first_returned", 2 * GiB}, {"metadata", 8192}, {"exec_mmap", 0}};
  return sample;
}

inline Sample page_cache() {
  Sample sample{"page-cache", result({served({"page-cache"}, 2 * GiB)}), session()};
  sample.result.ledger = {line("process", std::nullopt, 0)};
  return sample;
}

inline Sample backing_cache() {
  Sample sample{"backing-cache", result({served({"loop0", "page-cache"}, 42470000000)}), session()};
  device_read(sample.session, loop_number, 42470000000);
  sample.result.ledger = {line("process", std::nullopt, 42470000000), line("loop", "loop0", 42470000000)};
  return sample;
}

inline Sample loop_drive() {
  Sample sample{"loop-drive", result({served({"loop0", "nvme0n1"}, GiB)}), session()};
  device_read(sample.session, loop_number, GiB);
  device_read(sample.session, drive_number, GiB);
  sample.result.ledger = {line("process", std::nullopt, GiB), line("loop", "loop0", GiB),
                          line("drive", "nvme0n1", GiB)};
  return sample;
}

inline Sample mixed() {
  Sample sample{"mixed", result({served({"nvme0n1"}, 3 * GiB), served({"page-cache"}, GiB)}), session()};
  device_read(sample.session, drive_number, 3 * GiB);
  sample.result.ledger = {line("process", std::nullopt, 3 * GiB), line("drive", "nvme0n1", 3 * GiB)};
  sample.result.wasted_bytes = 12288;
  sample.result.files[0].wasted_bytes = 12288;
  sample.result.warmed_by_others_bytes = 4096;
  sample.result.mmap.faults_major = 7;
  sample.result.mmap.faults_minor = 81;
  sample.result.mmap.filled_by = {{{"nvme0n1"}, 131072}};
  return sample;
}

inline Sample unknown() {
  Sample sample{"unknown", result({served({"unknown"}, 2 * GiB)}), session()};
  sample.result.served_by[0].why = "the fill hook is off";
  sample.session.hooks.push_back(hook("fill-readahead", false, "forced off by --without"));
  sample.session.hooks.back().served_by = true;
  return sample;
}

inline Sample counters() {
  Sample sample{"counters", result({served({"loop0", "page-cache"}, 42470000000)}), session()};
  sample.result.tier = "counters";
  sample.result.complete = false;  // nothing was traced
  sample.session.tier = "counters";
  sample.session.hooks.clear();
  sample.session.counts.devices.clear();
  sample.session.after.block[loop_number].read_bytes += 42470000000;
  ServedBy& served = sample.result.served_by[0];
  served.evidence = Evidence::inferred;
  served.why = "other readers of loop0 would look the same";
  sample.session.warnings = {"inferred from counters: " + served.why};
  sample.result.files.clear();
  LedgerLine process;
  process.boundary = "process";
  process.kernel_bytes = 42470000000;
  process.kernel_source = "/proc/PID/task/*/io read_bytes";
  sample.result.ledger = {process};
  return sample;
}

inline Sample incomplete() {
  Sample sample = mixed();
  sample.name = "incomplete";
  sample.result.complete = false;
  sample.result.losses["ring"] = 123;
  sample.result.ledger[1].kernel_bytes = 3 * GiB + 524288;
  sample.result.ledger[1].residual_bytes = 524288;
  return sample;
}

inline Sample no_reads() {
  Sample sample{"no-reads", result({}), session()};
  sample.result.files.clear();
  sample.result.reads = {};
  return sample;
}

inline Sample attached() {
  Sample sample = drive();
  sample.name = "attached";
  sample.session.command.clear();
  sample.session.target_exit.reset();
  sample.session.attached_live = true;
  sample.result.edges["reads_in_flight_at_start"] = 8;
  sample.result.ledger[1].kernel_bytes = 2 * GiB + 8192 + 524288;
  sample.result.ledger[1].residual_bytes = 524288;
  sample.result.ledger[1].bracket_bytes = 1048576;
  sample.result.children = {4243, 4244};
  return sample;
}

/// Numbers that no double holds, and names that no JSON holds.
inline Sample extreme() {
  constexpr std::uint64_t odd = (1ULL << 53) + 1;
  constexpr std::uint64_t largest = 18446744073709551615ULL - odd;
  Sample sample{"extreme", result({served({"nvme0n1"}, largest), served({"page-cache"}, odd)}), session()};
  FileResult& bad = sample.result.files[0];
  bad.path = "/models/caf\xe9 \xf0\x9f\x98\x80 \x1b[31m\n.bin";
  bad.inode = 18446744073709551615ULL;
  FileResult lengthy = bad;
  lengthy.path = "/" + std::string(100000, 'x');
  lengthy.reads = {};
  lengthy.served_by.clear();
  sample.result.files.push_back(lengthy);
  sample.session.command = {"cat", "\xff"};
  sample.session.target_comm = "\xfe\x01";
  sample.session.warnings = {"about \xff"};
  sample.session.host["note"] = "\xfd";
  sample.session.stack.not_seen = {"/sys/\xfc"};
  LedgerLine negative = line("drive", "nvme0n1", 10);
  negative.kernel_bytes = 0;
  negative.residual_bytes = -10;
  sample.result.ledger = {negative};
  sample.result.complete = false;
  sample.result.losses["residual"] = 1;
  return sample;
}

inline std::vector<Sample> all() {
  return {drive(),    page_cache(), backing_cache(), loop_drive(), mixed(),  unknown(),
          counters(), incomplete(), no_reads(),      attached(),   extreme()};
}

}  // namespace servedby::samples
