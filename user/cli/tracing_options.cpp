// SPDX-License-Identifier: Apache-2.0
#include "cli/tracing_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <utility>

#include "capture/obstacles.h"
#include "report/headline.h"
#include "report/output_file.h"
#include "report/result_json.h"
#include "report/text.h"

namespace servedby::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;
void note_interrupt(int signal) { interrupted = signal; }

constexpr std::array handled{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
std::array<struct sigaction, handled.size()> previous;

Tier tier_of(const std::string& name) {
  if (name == "fentry") return Tier::fentry;
  if (name == "kprobe") return Tier::kprobe;
  if (name == "counters") return Tier::counters;
  return Tier::automatic;
}

bool names_a_hook(const std::string& name) {
  const auto hooks = hook_plan(Tier::automatic, true);  // all there are
  return std::ranges::any_of(hooks, [&](const Hook& hook) { return hook_is(hook, name); });
}

}  // namespace

void TracingOptions::add_to(CLI::App& command, bool json_to_stdout) {
  command
      .add_option("--tier", tier, "How to look: auto, fentry, kprobe (all BPF), or counters (no privilege; inferred)")
      ->check(CLI::IsMember({"auto", "fentry", "kprobe", "counters"}))
      ->capture_default_str();
  command.add_option("--without", without, "Force a hook off, to test its absence; 'servedby doctor' lists them");
  command.add_option("-o,--output", output, "Write the result (JSON, servedby.result/1) to this file");
  command.add_option("--record", record, "Write the raw recording to this file; 'servedby report' renders it anywhere");
  command.add_flag("--force", force, "Overwrite the files of -o and --record");
  command.add_flag("--quiet", quiet, "No report for people");
  command.add_flag("--hooks", hooks, "Show the hooks in the report");
  if (json_to_stdout) command.add_flag("--json", json, "The result as JSON on stdout, nothing else there");
  command.add_option("--ring", ring_bytes, "Size of the ring between kernel and user side, a power of two")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command.add_option("--lose-completions", drop_every,
                     "Lose one of every N completions on purpose, to see that the ledger notices (a test of servedby)");
}

LiveOptions TracingOptions::live() const {
  LiveOptions options;
  options.capture.tier = tier_of(tier);
  options.capture.without = without;
  options.capture.ring_bytes = ring_bytes;
  options.capture.drop_every = drop_every;
  if (!record.empty()) options.record = record;
  options.force = force;
  return options;
}

std::optional<Error> TracingOptions::wrong() const {
  for (const std::string& name : without) {
    if (!names_a_hook(name)) {
      return Error{"no hook is called", name, "--without takes a hook's name", "servedby doctor lists them",
                   Exit::usage};
    }
  }
  const auto page = static_cast<std::uint64_t>(getpagesize());
  if (ring_bytes < page || (ring_bytes & (ring_bytes - 1)) != 0 || ring_bytes > (1ULL << 31)) {
    return Error{"cannot use a ring of",
                 fmt::format("{} bytes", ring_bytes),
                 fmt::format("it must be a power of two from {} to 2G", page),
                 {},
                 Exit::usage};
  }
  if (tier == "counters" && !record.empty()) {
    return Error{"cannot record", record, "the counters tier has no records", "leave out --record", Exit::usage};
  }
  for (const std::string& file : {output, record}) {
    if (file.empty() || force || access(file.c_str(), F_OK) != 0) continue;
    return Error{"cannot write", file, "it exists", "give another name, or --force", Exit::usage};
  }
  return std::nullopt;
}

void say_error(const std::string& command, const Error& error) {
  fmt::print(stderr, "servedby {}: {}\n", command, error.line());
}

Result<Opened> open_live(const std::string& command, const TracingOptions& options) {
  if (options.tier == "counters") return Opened{};
  std::optional<Error> why = tracing_obstacle();
  if (!why) {
    auto live = Live::open(options.live());
    if (live) return Opened{std::move(*live), {}};
    why = live.error();
  }
  // Counters leave nothing to record.
  if (options.tier != "auto" || !options.record.empty() || why->exit != Exit::not_permitted)
    return std::unexpected(*why);
  return Opened{std::nullopt,
                fmt::format("servedby {}: {}; answering from the kernel's counters instead\n", command, why->line())};
}

namespace {

Result<void> print(const report::Tree& tree, const TracingOptions& options, bool people_on_stderr) {
  if (options.json) return report::print_output(report::json_text(tree));
  if (options.quiet) return {};
  const int to = people_on_stderr ? STDERR_FILENO : STDOUT_FILENO;
  auto text = report::result_text(tree, {.colour = report::wants_colour(to), .hooks = options.hooks});
  if (!text) return std::unexpected(text.error());
  if (!people_on_stderr) return report::print_output(*text);
  std::fflush(stdout);
  fmt::print(stderr, "{}", *text);
  return {};
}

}  // namespace

Result<bool> deliver(const LiveOutcome& outcome, const TracingOptions& options, bool people_on_stderr) {
  const report::Tree tree = report::result_tree(outcome.result, outcome.session, "servedby " SERVEDBY_VERSION);
  if (!options.output.empty()) {
    if (auto written = report::write_output(options.output, report::json_text(tree), options.force); !written)
      return std::unexpected(written.error());
  }
  if (auto printed = print(tree, options, people_on_stderr); !printed) return std::unexpected(printed.error());
  return report::lost_something(tree);
}

Interruption::Interruption(bool ignore_interrupt) {
  for (std::size_t i = 0; i < handled.size(); ++i) {
    sigaction(handled[i], nullptr, &previous[i]);
    if (handled[i] == SIGHUP && previous[i].sa_handler == SIG_IGN) continue;  // nohup(1)
    struct sigaction action{};
    const bool of_terminal = handled[i] == SIGINT || handled[i] == SIGQUIT;
    action.sa_handler = ignore_interrupt && of_terminal ? SIG_IGN : note_interrupt;
    sigaction(handled[i], &action, nullptr);
  }
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &previous[i], nullptr);
}

bool Interruption::asked() { return interrupted != 0; }

int Interruption::take() {
  const int signal = interrupted;
  interrupted = 0;
  return signal;
}

}  // namespace servedby::cli
