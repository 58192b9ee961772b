// SPDX-License-Identifier: Apache-2.0
#include "capture/session_start.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "host/facts.h"
#include "stack/layers.h"

namespace servedby {
namespace {

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ULL + static_cast<std::uint64_t>(now.tv_nsec);
}

/// CLOCK_REALTIME − CLOCK_MONOTONIC, with the doubt: half of what passed between the two readings around it.
void relate_clocks(Session& session) {
  std::uint64_t best = ~0ULL;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = clock_ns(CLOCK_MONOTONIC);
    const std::uint64_t real = clock_ns(CLOCK_REALTIME);
    const std::uint64_t after = clock_ns(CLOCK_MONOTONIC);
    if (after - before >= best) continue;
    best = after - before;
    session.monotonic_to_realtime_ns = static_cast<std::int64_t>(real) - static_cast<std::int64_t>(before + best / 2);
    session.clock_uncertainty_ns = best / 2;
  }
}

std::string now_rfc3339() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

std::string kernel_text() {
  utsname names{};
  if (uname(&names) != 0) return {};
  return fmt::format("{} {} {} {}", names.sysname, names.release, names.version, names.machine);
}

std::string comm_of(std::uint32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string comm;
  std::getline(file, comm);
  return comm;
}

}  // namespace

std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

Session session_of_this_machine() {
  Session session;
  session.kernel = kernel_text();
  session.host = host_facts(Root());
  session.page_size = static_cast<std::uint32_t>(getpagesize());
  session.stack = whole_machine(Root());
  return session;
}

void start_session(Session& session, std::uint32_t pid, const std::vector<std::string>& command) {
  session.command = command;
  session.target_pid = pid;
  session.attached_live = command.empty();
  session.target_comm = command.empty() ? comm_of(pid) : command.front().substr(command.front().rfind('/') + 1);
  relate_clocks(session);
  session.started_at = now_rfc3339();
  session.begin_ns = monotonic_ns();
}

}  // namespace servedby
