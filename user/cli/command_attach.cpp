// SPDX-License-Identifier: Apache-2.0
// servedby attach --pid PID: a process that already runs, with everything below it.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "capture/counted.h"
#include "capture/live.h"
#include "capture/target.h"
#include "cli/commands.h"
#include "cli/tracing_options.h"

namespace servedby::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  TracingOptions tracing;
  std::uint32_t pid = 0;
  std::uint64_t duration_ms = 0;
};

int fail(const Error& error) {
  say_error("attach", error);
  return static_cast<int>(error.exit);
}

/// When to end: the duration is over, the process has ended, or somebody asked.
std::function<bool()> over(const Options& options, std::optional<Clock::time_point>& next_look) {
  const auto until = Clock::now() + std::chrono::milliseconds(options.duration_ms);
  return [&options, until, &next_look] {
    if (Interruption::asked()) return true;
    const auto now = Clock::now();
    if (options.duration_ms != 0 && now >= until) return true;
    if (next_look && now < *next_look) return false;
    next_look = now + std::chrono::milliseconds(50);
    return !still_runs(options.pid);
  };
}

int report(const LiveOutcome& outcome, const Options& options) {
  const auto lost = deliver(outcome, options.tracing, false);
  if (!lost) return fail(lost.error());
  if (outcome.recording_failed) return fail(*outcome.recording_failed);
  return static_cast<int>(*lost ? Exit::incomplete : Exit::done);
}

int attach_counted(const Options& options, const std::string& instead) {
  auto counted = Counted::begin(options.pid, {});
  if (!counted) return fail(counted.error());
  fmt::print(stderr, "{}", instead);
  std::optional<Clock::time_point> next_look;
  const auto ended = over(options, next_look);
  while (!ended()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return report(counted->end(std::nullopt), options);
}

int attach_traced(Live& live, const Options& options) {
  if (!still_runs(options.pid)) {
    return fail({"cannot attach to", fmt::format("PID {}", options.pid), "it ended while the hooks were being attached",
                 "servedby run sees a command from its start", Exit::bad_input});
  }
  if (auto begun = live.begin(options.pid, {}); !begun) return fail(begun.error());
  if (!options.tracing.quiet && !options.tracing.json) {
    fmt::print(stderr, "servedby attach: watching PID {}; Ctrl-C ends and reports\n", options.pid);
  }
  std::optional<Clock::time_point> next_look;
  live.watch(over(options, next_look));
  return report(live.end(std::nullopt), options);
}

int attach(const Options& options) {
  if (auto wrong = options.tracing.wrong()) return fail(*wrong);
  if (auto running = check_running(options.pid); !running) return fail(running.error());
  const Interruption interruption(false);
  auto opened = open_live("attach", options.tracing);
  if (!opened) return fail(opened.error());
  std::optional<Live>& live = opened->live;
  return live ? attach_traced(*live, options) : attach_counted(options, opened->instead);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "attach", "Attach to a running process and everything below it; say which layer served each read from now on");
  command->footer(
      "Ends with the process, after --duration, or on Ctrl-C, and always reports.\n\n"
      "  servedby attach --pid $(pgrep -f main.py) --duration 60s");
  command->add_option("-p,--pid", options->pid, "The process")
      ->required()
      ->check(CLI::Range(1U, 4194304U));  // PID_MAX_LIMIT
  command->add_option("--duration", options->duration_ms, "End after this time: 500ms, 60s, 5m")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, std::uint64_t>{{"ms", 1}, {"s", 1000}, {"m", 60000}},
                                        CLI::AsNumberWithUnit::UNIT_REQUIRED));
  options->tracing.add_to(*command, true);
  command->callback([options, &run] { run = [options] { return attach(*options); }; });
}

}  // namespace

extern const Command command_attach;
const Command command_attach{add};

}  // namespace servedby::cli
