// SPDX-License-Identifier: Apache-2.0
#include "capture/capture.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <optional>
#include <set>
#include <utility>

#include "capture/hook_plan.h"
#include "capture/kernel_functions.h"
#include "capture/obstacles.h"
#include "capture/preemption.h"
#include "observers.skel.h"
#include "record/record.h"

#include "bpf/state_layout.h"

namespace servedby {
namespace {

/// What libbpf said last about a program it could not load or find: it names the program only in its log.
struct LoadLog {
  std::string program;  ///< the program the last complaint was about
  std::string text;     ///< the last complaints
};
LoadLog* current_log = nullptr;

int take_libbpf_message(libbpf_print_level level, const char* format, va_list arguments) {
  if (level == LIBBPF_DEBUG || current_log == nullptr) return 0;
  std::string line(512, '\0');
  const int length = vsnprintf(line.data(), line.size(), format, arguments);
  line.resize(static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(line.size() - 1))));
  const std::string mark = "prog '";
  if (const auto at = line.find(mark); at != std::string::npos) {
    const auto end = line.find('\'', at + mark.size());
    current_log->program = line.substr(at + mark.size(), end - at - mark.size());
  }
  if (current_log->text.size() < 4096) current_log->text += line;
  return 0;
}

/// The sentence in libbpf's log that says why, without the program's listing.
std::string complaint(const LoadLog& log, int error) {
  std::string last;
  std::size_t from = 0;
  while (from < log.text.size()) {
    const std::size_t end = std::min(log.text.find('\n', from), log.text.size());
    const std::string line = log.text.substr(from, end - from);
    from = end + 1;
    for (const char* telling : {"failed to find", "invalid", "not allowed", "Permission", "too", "R0 ", "unknown"}) {
      if (line.find(telling) != std::string::npos && line.size() < 200) last = line;
    }
  }
  const std::string reason = errno_text(error);
  return last.empty() ? reason : fmt::format("{} ({})", reason, last);
}

/// How often a kprobe was hit while its CPU was inside another one, and so did not run: the program's own count of
/// misses has none of these. Told by the link since 6.7 (the header of libbpf 1.1 ends before that field); 0 where it
/// is not told.
std::uint64_t kprobe_misses(const bpf_link* link) {
  struct {
    std::uint32_t type, id, program, pad;
    std::uint32_t event, pad_event;
    std::uint64_t function;
    std::uint32_t function_length, offset;
    std::uint64_t address, missed, cookie;
  } info{};
  constexpr std::uint32_t perf_event_link = 7, kprobe = 3, kretprobe = 4;
  std::uint32_t size = sizeof(info);
  if (bpf_obj_get_info_by_fd(bpf_link__fd(link), &info, &size) != 0) return 0;
  return info.type == perf_event_link && (info.event == kprobe || info.event == kretprobe) ? info.missed : 0;
}

struct LinkDeleter {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, LinkDeleter>;

struct SkeletonDeleter {
  void operator()(observers* skeleton) const { observers__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<observers, SkeletonDeleter>;

struct RingDeleter {
  void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

/// A hook with the way it is being tried by, and what became of the ways before.
struct Plan {
  Hook hook;
  std::size_t way = 0;  ///< == hook.ways.size(): none is left
  bool off = false;
  std::string why_not;
  std::vector<Link> links;

  [[nodiscard]] bool wanted() const { return !off && way < hook.ways.size(); }
  [[nodiscard]] const Way& chosen() const { return hook.ways[way]; }
  void give_up_way(const std::string& reason) {
    if (!why_not.empty()) why_not += "; ";
    why_not += chosen().how + ": " + reason;
    ++way;
  }
};

template <class Value>
Value per_cpu_sum(int map, std::uint32_t key, Value (*add)(Value, const Value&)) {
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return {};
  constexpr std::size_t stride = (sizeof(Value) + 7) / 8 * 8;
  std::vector<std::byte> values(stride * static_cast<std::size_t>(cpus));
  Value sum{};
  if (bpf_map_lookup_elem(map, &key, values.data()) != 0) return sum;
  for (std::size_t cpu = 0; cpu < static_cast<std::size_t>(cpus); ++cpu) {
    Value one{};
    std::copy_n(values.data() + cpu * stride, sizeof(Value), reinterpret_cast<std::byte*>(&one));
    sum = add(sum, one);
  }
  return sum;
}

std::uint16_t bios_of(const Device& device) {
  switch (bio_fate(device)) {
    case BioFate::requests:
      return BIOS_BECOME_REQUESTS;
    case BioFate::passed_on:
      return has_stripes(device) ? BIOS_STRIPED : BIOS_PASSED_ON;
    case BioFate::served:
      return BIOS_SERVED;
  }
  return BIOS_BECOME_REQUESTS;
}

/// Why a hook is not wanted with these devices; nothing where it is.
std::optional<std::string> not_wanted(Wanted wanted, const StorageStack& stack) {
  const auto any = [&](BioFate fate) {
    return std::ranges::any_of(stack.devices, [&](const auto& entry) { return bio_fate(entry.second) == fate; });
  };
  if (wanted == Wanted::where_bios_are_passed_on && !any(BioFate::passed_on))
    return "there is no dm, md or NVMe multipath device here";
  const bool stripes = std::ranges::any_of(stack.devices, [](const auto& entry) { return has_stripes(entry.second); });
  if (wanted == Wanted::where_there_are_stripes && !stripes) return "there is no md raid4, 5 or 6 here";
  if (wanted == Wanted::where_bios_are_served && !any(BioFate::served)) return "there is no disk in memory here";
  return std::nullopt;
}

bool has_mounted(const StorageStack& stack, const std::string& type) {
  return std::ranges::any_of(stack.file_systems, [&](const auto& entry) { return entry.second.type == type; });
}

std::uint64_t add_counts(std::uint64_t a, const std::uint64_t& b) { return a + b; }

sb_device_count add_device_counts(sb_device_count a, const sb_device_count& b) {
  a.target_read_bytes += b.target_read_bytes;
  a.other_read_bytes += b.other_read_bytes;
  a.unseen_read_bytes += b.unseen_read_bytes;
  a.target_read_requests += b.target_read_requests;
  a.other_read_requests += b.other_read_requests;
  a.write_bytes += b.write_bytes;
  a.write_requests += b.write_requests;
  return a;
}

template <class Key, class Value, class Visit>
void each_entry(int map, Visit visit) {
  Key key{};
  Key next{};
  const Key* from = nullptr;
  while (bpf_map_get_next_key(map, from, &next) == 0) {
    Value value{};
    if (bpf_map_lookup_elem(map, &next, &value) == 0) visit(next, value);
    key = next;
    from = &key;
  }
}

}  // namespace

struct Capture::State {
  std::vector<Plan> plans;
  Skeleton skeleton;
  std::unique_ptr<ring_buffer, RingDeleter> ring;
  std::function<void(std::span<const std::byte>)> take;
  std::vector<HookStatus> final_hooks;
  bool detached = false;

  [[nodiscard]] int map_fd(const char* name) const { return bpf_object__find_map_fd_by_name(skeleton->obj, name); }

  Result<void> load(const CaptureOptions& options);
  Result<bool> attach();
  Result<void> describe(const StorageStack& stack);
  Plan* plan_of_program(const std::string& program);
  [[nodiscard]] std::optional<Error> missing_read_hook() const;
};

/// Without the entry of a read and one sight of its return nothing can be said.
std::optional<Error> Capture::State::missing_read_hook() const {
  bool entry = false;
  bool end = false;
  std::string why;
  for (const Plan& plan : plans) {
    const bool is_entry = plan.hook.name == "read-entry";
    const bool is_end = plan.hook.name == "read-return" || plan.hook.name == "read-end";
    if (is_entry && plan.wanted()) entry = true;
    if (is_end && plan.wanted()) end = true;
    if ((is_entry || is_end) && !plan.wanted()) why += (why.empty() ? "" : "; ") + plan.why_not;
  }
  if (entry && end) return std::nullopt;
  return Error{"cannot attach", "the hooks of a read call", why,
               "servedby doctor says what this kernel allows; --tier counters works without", Exit::not_permitted};
}

Plan* Capture::State::plan_of_program(const std::string& program) {
  for (Plan& plan : plans) {
    if (!plan.wanted()) continue;
    const auto& programs = plan.chosen().programs;
    if (std::find(programs.begin(), programs.end(), program) != programs.end()) return &plan;
  }
  return nullptr;
}

/// Loads the programs of the chosen ways; a way whose program the kernel refuses is given up and the rest tried again.
Result<void> Capture::State::load(const CaptureOptions& options) {
  for (;;) {
    LoadLog log;
    current_log = &log;
    skeleton.reset(observers__open());
    if (!skeleton) {
      current_log = nullptr;
      return std::unexpected(system_error("cannot open", "the BPF object", errno));
    }
    skeleton->rodata->page_shift =
        static_cast<std::uint32_t>(std::countr_zero(static_cast<unsigned long>(getpagesize())));
    skeleton->rodata->drop_every = options.drop_every;
    bpf_map__set_max_entries(skeleton->maps.records, static_cast<std::uint32_t>(options.ring_bytes));
    // What can be in flight grows with the hardware queues, so with the processors.
    const auto in_flight = std::clamp(static_cast<std::uint32_t>(libbpf_num_possible_cpus()) * 4096U, 8192U, 262144U);
    bpf_map__set_max_entries(skeleton->maps.requests, in_flight);
    bpf_map__set_max_entries(skeleton->maps.bios, in_flight);
    for (const Plan& plan : plans) {
      if (!plan.wanted()) continue;
      for (const std::string& name : plan.chosen().programs) {
        bpf_program* program = bpf_object__find_program_by_name(skeleton->obj, name.c_str());
        if (program != nullptr) bpf_program__set_autoload(program, true);
      }
    }
    const int failed = bpf_object__load(skeleton->obj);
    current_log = nullptr;
    if (failed == 0) return {};
    Plan* refused = plan_of_program(log.program);
    if (refused == nullptr) {
      return std::unexpected(system_error("cannot load", "the BPF programs", -failed,
                                          failed == -EPERM || failed == -ENOMEM
                                              ? "run as root, and raise the locked-memory limit (ulimit -l)"
                                              : "servedby doctor says what this kernel allows"));
    }
    refused->give_up_way(complaint(log, -failed));
  }
}

/// Attaches the chosen ways. False: a way could not be attached and was given up, so the object must be loaded again.
Result<bool> Capture::State::attach() {
  for (Plan& plan : plans) plan.links.clear();
  for (Plan& plan : plans) {
    if (!plan.wanted()) continue;
    for (const std::string& name : plan.chosen().programs) {
      LoadLog log;
      current_log = &log;
      bpf_program* program = bpf_object__find_program_by_name(skeleton->obj, name.c_str());
      Link link(program == nullptr ? nullptr : bpf_program__attach(program));
      const int error = errno;
      current_log = nullptr;
      if (!link) {
        plan.give_up_way(errno_text(error));
        plan.links.clear();
        if (plan.wanted()) return false;  // its next way is not loaded yet
        break;
      }
      plan.links.push_back(std::move(link));
    }
  }
  return true;
}

Result<void> Capture::State::describe(const StorageStack& stack) {
  const int devices = map_fd("devices");
  const int backing_files = map_fd("backing_files");
  std::uint32_t slot = 0;
  for (const auto& [dev, system] : stack.file_systems) {
    const std::uint32_t one = 1;
    if (system.type != "squashfs" && system.type != "erofs") continue;
    if (bpf_map_update_elem(map_fd("spilling"), &dev, &one, BPF_ANY) != 0) {
      return std::unexpected(system_error("cannot track", system.type, errno));
    }
  }
  for (const auto& [dev, device] : stack.devices) {
    if (device.kind == DeviceKind::partition) continue;
    const tracked_device tracked{
        .slot = slot++,
        .serves_backing = device.kind == DeviceKind::loop ? std::uint16_t{1} : std::uint16_t{0},
        .bios = bios_of(device),
        .diskseq = device.diskseq.value_or(0)};
    if (bpf_map_update_elem(devices, &dev, &tracked, BPF_ANY) != 0) {
      return std::unexpected(system_error("cannot track", device.name, errno));
    }
    if (!device.loop || !device.loop->dev || !device.loop->inode) continue;
    const file_key file{*device.loop->inode, *device.loop->dev, 0};
    const backing_of backing{dev, 0, device.loop->offset};
    if (bpf_map_update_elem(backing_files, &file, &backing, BPF_ANY) != 0) {
      return std::unexpected(system_error("cannot track the backing file of", device.name, errno));
    }
  }
  const std::uint32_t zero = 0;
  const std::uint64_t next = slot;
  if (bpf_map_update_elem(map_fd("slots"), &zero, &next, BPF_ANY) != 0)
    return std::unexpected(system_error("cannot track", "devices that are still to be made", errno));
  return {};
}

Capture::Capture(std::unique_ptr<State> state) : state_(std::move(state)) {}
Capture::~Capture() = default;
Capture::Capture(Capture&&) noexcept = default;
Capture& Capture::operator=(Capture&&) noexcept = default;

Result<Capture> Capture::open(const CaptureOptions& options, const StorageStack& stack) {
  if (auto obstacle = tracing_obstacle()) return std::unexpected(*obstacle);
  libbpf_set_print(take_libbpf_message);
  const KernelFunctions functions;
  auto state = std::make_unique<State>();
  for (Hook& hook : hook_plan(options.tier, programs_are_preempted(Root()))) {
    Plan plan;
    plan.off = std::any_of(options.without.begin(), options.without.end(),
                           [&](const std::string& name) { return hook_is(hook, name); });
    if (plan.off) plan.why_not = "switched off by --without";
    if (const auto why = not_wanted(hook.wanted, stack)) {
      plan.off = true;
      plan.why_not = *why;
    }
    if (!hook.only_on.empty() &&
        std::ranges::none_of(hook.only_on, [&](const std::string& type) { return has_mounted(stack, type); })) {
      plan.off = true;
      plan.why_not = fmt::format("no {} is mounted here", fmt::join(hook.only_on, " or "));
    }
    plan.hook = std::move(hook);
    while (plan.wanted() && !plan.chosen().function.empty() && !functions.may_have(plan.chosen().function)) {
      plan.give_up_way("this kernel has no such function");
    }
    state->plans.push_back(std::move(plan));
  }
  for (;;) {
    if (auto loaded = state->load(options); !loaded) return std::unexpected(loaded.error());
    if (auto described = state->describe(stack); !described) return std::unexpected(described.error());
    auto attached = state->attach();
    if (!attached) return std::unexpected(attached.error());
    if (*attached) break;
    for (Plan& plan : state->plans) plan.links.clear();
  }
  if (auto missing = state->missing_read_hook()) return std::unexpected(*missing);
  const auto sample = [](void* context, void* data, std::size_t size) {
    // Room behind a record is the kernel side's own.
    const std::size_t record = size < sizeof(sb_head) ? size : static_cast<const sb_head*>(data)->size;
    static_cast<State*>(context)->take({static_cast<const std::byte*>(data), std::min(size, record)});
    return 0;
  };
  state->ring.reset(ring_buffer__new(state->map_fd("records"), sample, state.get(), nullptr));
  if (!state->ring) return std::unexpected(system_error("cannot map", "the ring of records", errno));
  return Capture(std::move(state));
}

Result<void> Capture::follow(std::uint32_t pid) {
  const std::uint32_t one = 1;
  if (bpf_map_update_elem(state_->map_fd("targets"), &pid, &one, BPF_ANY) != 0) {
    return std::unexpected(system_error("cannot follow", fmt::format("PID {}", pid), errno));
  }
  return {};
}

std::vector<std::uint32_t> Capture::followed() const {
  std::vector<std::uint32_t> pids;
  each_entry<std::uint32_t, std::uint32_t>(state_->map_fd("targets"), [&](std::uint32_t pid, std::uint32_t value) {
    if (value != TARGET_ENDED) pids.push_back(pid);
  });
  return pids;
}

std::size_t Capture::drain(const std::function<void(std::span<const std::byte>)>& take) {
  state_->take = take;
  const int taken = ring_buffer__consume(state_->ring.get());
  state_->take = nullptr;
  return taken > 0 ? static_cast<std::size_t>(taken) : 0;
}

std::vector<HookStatus> Capture::hooks() const {
  if (state_->detached) return state_->final_hooks;
  std::vector<HookStatus> hooks;
  for (const Plan& plan : state_->plans) {
    HookStatus status;
    status.name = plan.hook.name;
    status.served_by = plan.hook.served_by;
    status.second_sight = plan.hook.second_sight;
    status.attached = plan.wanted();
    status.why_not = plan.why_not;
    if (plan.wanted()) {
      status.how = plan.chosen().how;
      status.tier = plan.chosen().tier;
      std::uint64_t misses = 0;
      for (const std::string& name : plan.chosen().programs) {
        bpf_program* program = bpf_object__find_program_by_name(state_->skeleton->obj, name.c_str());
        bpf_prog_info info{};
        std::uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) == 0) misses += info.recursion_misses;
      }
      for (const Link& link : plan.links) misses += kprobe_misses(link.get());
      status.recursion_misses = misses;
    }
    hooks.push_back(std::move(status));
  }
  return hooks;
}

Capture::AsyncReads Capture::async_reads() const {
  const std::vector<std::uint32_t> pids = followed();
  const std::set<std::uint32_t> alive(pids.begin(), pids.end());
  AsyncReads reads;
  each_entry<std::uint64_t, async_read>(state_->map_fd("async_reads"), [&](std::uint64_t, const async_read& read) {
    if (read.started == 0 || read.ended != 0) return;
    ++(alive.contains(read.call.tgid) ? reads.in_flight : reads.without_end);
  });
  return reads;
}

KernelCounts Capture::counts() const {
  KernelCounts counts;
  const int tallies = state_->map_fd("tallies");
  for (std::uint32_t i = 0; i < SB_LOSSES; ++i) counts.losses[i] = per_cpu_sum<std::uint64_t>(tallies, i, add_counts);
  for (std::uint32_t i = 0; i < SB_NOTES; ++i) {
    counts.notes[i] = per_cpu_sum<std::uint64_t>(tallies, SB_LOSSES + i, add_counts);
  }
  const int device_counts = state_->map_fd("device_counts");
  std::map<std::uint32_t, DeviceNumber> slots;  // the kernel side adds devices as they are made
  each_entry<std::uint32_t, tracked_device>(
      state_->map_fd("devices"), [&](DeviceNumber dev, const tracked_device& device) { slots[device.slot] = dev; });
  for (const auto& [slot, dev] : slots) {
    const auto count = per_cpu_sum<sb_device_count>(device_counts, slot, add_device_counts);
    const bool quiet =
        count.target_read_bytes + count.other_read_bytes + count.unseen_read_bytes + count.write_bytes == 0;
    if (!quiet) counts.devices[dev] = count;
  }
  each_entry<std::uint64_t, request_state>(state_->map_fd("requests"),
                                           [&](std::uint64_t, const request_state& request) {
                                             if (request.target_bytes != 0 && (request.flags & REQUEST_DONE) == 0)
                                               ++counts.requests_in_flight_at_end;
                                           });
  each_entry<std::uint32_t, task_state>(state_->map_fd("tasks"), [&](std::uint32_t, const task_state& task) {
    if (task.open != 0) ++counts.reads_in_flight_at_end;
  });
  const AsyncReads async = async_reads();
  counts.reads_in_flight_at_end += async.in_flight;
  counts.losses[SB_LOSS_READ_ENTRY] += async.without_end;
  return counts;
}

std::uint64_t Capture::process_bytes() const {
  return per_cpu_sum<std::uint64_t>(state_->map_fd("process_bytes"), 0, add_counts);
}

std::string Capture::tier() const {
  std::string weakest = "fentry";
  for (const HookStatus& hook : hooks()) {
    if (hook.attached && hook.served_by && hook.tier == "kprobe") weakest = "kprobe";
  }
  return weakest;
}

void Capture::detach() {
  if (state_->detached) return;
  state_->final_hooks = hooks();
  state_->detached = true;
  for (Plan& plan : state_->plans) plan.links.clear();
}

}  // namespace servedby
