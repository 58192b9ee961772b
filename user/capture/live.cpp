// SPDX-License-Identifier: Apache-2.0
#include "capture/live.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "host/counters.h"
#include "host/facts.h"
#include "host/tasks.h"
#include "stack/layers.h"

namespace servedby {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds drain_interval{4};
constexpr milliseconds settle_limit{2000};  ///< how long the target's last requests may take to complete

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

std::map<DeviceNumber, std::uint64_t> bytes_read(const KernelCounts& counts) {
  std::map<DeviceNumber, std::uint64_t> bytes;
  for (const auto& [dev, count] : counts.devices) {
    bytes[dev] = count.target_read_bytes + count.other_read_bytes + count.unseen_read_bytes;
  }
  return bytes;
}

void add_difference(std::map<DeviceNumber, std::uint64_t>& to, const std::map<DeviceNumber, std::uint64_t>& before,
                    const std::map<DeviceNumber, std::uint64_t>& after) {
  for (const auto& [dev, bytes] : after) {
    const auto earlier = before.find(dev);
    const std::uint64_t moved = bytes - (earlier == before.end() ? 0 : earlier->second);
    if (moved != 0) to[dev] += moved;
  }
}

}  // namespace

struct Live::State {
  LiveOptions options;
  Session session;
  std::optional<Capture> capture;
  std::optional<Attribution> attribution;
  std::optional<RecordingWriter> recording;
  std::optional<Error> recording_failed;
  std::uint32_t root_pid = 0;

  std::size_t drain();
  void snapshot_begin();
  void snapshot_end();
  [[nodiscard]] std::vector<std::uint32_t> target_processes() const;
};

std::size_t Live::State::drain() {
  return capture->drain([this](std::span<const std::byte> record) {
    attribution->feed(record);
    if (!recording || recording_failed) return;
    if (auto kept = recording->append(record); !kept) recording_failed = kept.error();
  });
}

std::vector<std::uint32_t> Live::State::target_processes() const {
  std::vector<std::uint32_t> processes;
  for (const std::uint32_t pid : capture->followed()) {
    if (still_runs(pid)) processes.push_back(pid);
  }
  return processes;
}

/// Everything that moved between the attaching and the end of the first snapshot may or may not be in it: the bracket.
void Live::State::snapshot_begin() {
  session.before = take_counters(Root(), session.stack, target_processes());
  session.bracket.process_bytes = capture->process_bytes();
  session.bracket.device_bytes = bytes_read(capture->counts());
}

void Live::State::snapshot_end() {
  const auto devices_before = bytes_read(capture->counts());
  const std::uint64_t process_before = capture->process_bytes();
  session.after = take_counters(Root(), session.stack, target_processes());
  session.end_ns = clock_ns(CLOCK_MONOTONIC);
  capture->detach();
  session.counts = capture->counts();
  session.bracket.process_bytes += capture->process_bytes() - process_before;
  add_difference(session.bracket.device_bytes, devices_before, bytes_read(session.counts));
}

Live::Live(std::unique_ptr<State> state) : state_(std::move(state)) {}
Live::~Live() = default;
Live::Live(Live&&) noexcept = default;

Result<Live> Live::open(const LiveOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  Session& session = state->session;
  session.kernel = kernel_text();
  session.host = host_facts(Root());
  session.page_size = static_cast<std::uint32_t>(getpagesize());
  session.stack = whole_machine(Root());
  auto capture = Capture::open(options.capture, session.stack);
  if (!capture) return std::unexpected(capture.error());
  state->capture.emplace(std::move(*capture));
  session.hooks = state->capture->hooks();
  session.tier = state->capture->tier();
  state->attribution.emplace(AttributionSetup{session.stack, session.hooks, session.page_size});
  if (options.record) {
    auto recording = RecordingWriter::create(*options.record, options.force);
    if (!recording) return std::unexpected(recording.error());
    state->recording.emplace(std::move(*recording));
  }
  return Live(std::move(state));
}

Result<void> Live::begin(std::uint32_t pid, const std::vector<std::string>& command) {
  State& state = *state_;
  Session& session = state.session;
  state.root_pid = pid;
  session.command = command;
  session.target_pid = pid;
  session.attached_live = command.empty();
  session.target_comm = comm_of(pid);
  // A process that forks while it is being found: look until nothing new appears.
  std::set<std::uint32_t> known;
  for (bool grew = true; grew;) {
    grew = false;
    for (const std::uint32_t process : process_tree(pid)) {
      if (!known.insert(process).second) continue;
      if (auto followed = state.capture->follow(process); !followed) return followed;
      grew = true;
    }
  }
  relate_clocks(session);
  session.started_at = now_rfc3339();
  session.begin_ns = clock_ns(CLOCK_MONOTONIC);
  state.snapshot_begin();
  if (state.recording) {
    if (auto begun = state.recording->begin(session); !begun) return begun;
  }
  return {};
}

void Live::watch(const std::function<bool()>& over) {
  while (!over()) {
    state_->drain();
    if (state_->recording_failed) return;
    std::this_thread::sleep_for(drain_interval);
  }
}

Result<LiveOutcome> Live::end(std::optional<int> exit_code) {
  State& state = *state_;
  Session& session = state.session;
  session.target_exit = exit_code;
  const auto give_up = std::chrono::steady_clock::now() + settle_limit;
  while (exit_code && std::chrono::steady_clock::now() < give_up) {
    state.drain();
    if (state.capture->counts().requests_in_flight_at_end == 0) break;
    std::this_thread::sleep_for(drain_interval);
  }
  state.drain();
  state.snapshot_end();
  state.drain();
  session.hooks = state.capture->hooks();
  LiveOutcome outcome{session, state.attribution->finish(session)};
  if (state.recording && !state.recording_failed) {
    if (auto finished = state.recording->finish(session); !finished) state.recording_failed = finished.error();
  }
  if (state.recording_failed) return std::unexpected(*state.recording_failed);
  return outcome;
}

}  // namespace servedby
