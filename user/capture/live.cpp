// SPDX-License-Identifier: Apache-2.0
#include "capture/live.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "capture/file_layout.h"
#include "capture/session_start.h"
#include "host/counters.h"

namespace servedby {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds drain_interval{4};
constexpr milliseconds settle_limit{2000};  ///< how long the target's last requests may take to complete

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

/// Leaves in `counts` what was counted after `before`.
void subtract(KernelCounts& counts, const KernelCounts& before) {
  for (const auto& [dev, earlier] : before.devices) {
    sb_device_count& count = counts.devices[dev];
    count.target_read_bytes -= earlier.target_read_bytes;
    count.other_read_bytes -= earlier.other_read_bytes;
    count.unseen_read_bytes -= earlier.unseen_read_bytes;
    count.target_read_requests -= earlier.target_read_requests;
    count.other_read_requests -= earlier.other_read_requests;
    count.write_bytes -= earlier.write_bytes;
    count.write_requests -= earlier.write_requests;
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
  KernelCounts counts_before;  ///< when nothing was followed yet

  std::size_t drain();
  void take(std::span<const std::byte> record);
  void snapshot_begin();
  void snapshot_end();
  [[nodiscard]] CountersSnapshot counters_now() const;
};

std::size_t Live::State::drain() {
  return capture->drain([this](std::span<const std::byte> record) {
    if (const auto file = attribution->unplaced(record))
      for (const sb_layout& layout : look_at(*file)) take(std::as_bytes(std::span(&layout, 1)));
    take(record);
  });
}

void Live::State::take(std::span<const std::byte> record) {
  attribution->feed(record);
  if (!recording || recording_failed) return;
  if (auto kept = recording->append(record); !kept) recording_failed = kept.error();
}

CountersSnapshot Live::State::counters_now() const {
  std::set<std::uint32_t> tasks;
  for (const std::uint32_t pid : capture->followed()) {
    if (tasks.contains(pid)) continue;  // a thread that its process has listed
    const auto threads = tasks_of(Root(), pid);
    tasks.insert(threads.begin(), threads.end());
  }
  StorageStack stack = session.stack;
  for (const Device& device : attribution->made()) stack.devices.try_emplace(device.dev, device);
  return take_counters(Root(), stack, std::vector<std::uint32_t>(tasks.begin(), tasks.end()));
}

/// What moved between the following of the first process and the end of the first snapshot may or may not be in it: the
/// bracket. What moved before is not of this session.
void Live::State::snapshot_begin() {
  session.before = counters_now();
  session.bracket.process_bytes = capture->process_bytes();
  add_difference(session.bracket.device_bytes, bytes_read(counts_before), bytes_read(capture->counts()));
}

void Live::State::snapshot_end() {
  const auto devices_before = bytes_read(capture->counts());
  const std::uint64_t process_before = capture->process_bytes();
  session.after = counters_now();
  // What was made since the session began has counted from 0.
  for (const Device& device : attribution->made())
    if (const auto after = session.after.block.find(device.dev); after != session.after.block.end()) {
      BlockCounters nothing;
      nothing.counting = after->second.counting;
      session.before.block.try_emplace(device.dev, nothing);
    }
  session.end_ns = monotonic_ns();
  capture->detach();
  session.counts = capture->counts();
  session.bracket.process_bytes += capture->process_bytes() - process_before;
  add_difference(session.bracket.device_bytes, devices_before, bytes_read(session.counts));
  subtract(session.counts, counts_before);
}

Live::Live(std::unique_ptr<State> state) : state_(std::move(state)) {}
Live::~Live() = default;
Live::Live(Live&&) noexcept = default;

Result<Live> Live::open(const LiveOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  state->session = session_of_this_machine();
  Session& session = state->session;
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
  state.counts_before = state.capture->counts();
  // A process that forks while it is being found: look until nothing new appears.
  std::set<std::uint32_t> known;
  for (bool grew = true; grew;) {
    grew = false;
    for (const std::uint32_t process : process_tree(Root(), pid)) {
      if (!known.insert(process).second) continue;
      if (auto followed = state.capture->follow(process); !followed) return followed;
      for (const std::uint32_t task : tasks_of(Root(), process))
        if (auto followed = state.capture->follow(task); !followed) return followed;
      grew = true;
    }
  }
  start_session(session, pid, command);
  state.snapshot_begin();
  if (state.recording) {
    if (auto begun = state.recording->begin(session); !begun) return begun;
  }
  return {};
}

void Live::watch(const std::function<bool()>& over) {
  while (!over()) {
    state_->drain();
    std::this_thread::sleep_for(drain_interval);
  }
}

LiveOutcome Live::end(std::optional<int> exit_code) {
  State& state = *state_;
  Session& session = state.session;
  session.target_exit = exit_code;
  const auto give_up = std::chrono::steady_clock::now() + settle_limit;
  while (exit_code && std::chrono::steady_clock::now() < give_up) {
    state.drain();
    if (state.capture->counts().requests_in_flight_at_end == 0 && state.capture->async_reads().without_end == 0) break;
    std::this_thread::sleep_for(drain_interval);
  }
  state.drain();
  state.snapshot_end();
  state.drain();
  session.hooks = state.capture->hooks();
  LiveOutcome outcome{session, state.attribution->finish(session), std::nullopt};
  if (state.recording && !state.recording_failed) {
    if (auto finished = state.recording->finish(session); !finished) state.recording_failed = finished.error();
  }
  outcome.recording_failed = state.recording_failed;
  return outcome;
}

}  // namespace servedby
