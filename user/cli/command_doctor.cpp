// SPDX-License-Identifier: Apache-2.0
// servedby doctor: what this kernel and these privileges allow, hook by hook.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "capture/capture.h"
#include "capture/obstacles.h"
#include "capture/preemption.h"
#include "cli/commands.h"
#include "cli/tracing_options.h"
#include "report/device_counts.h"
#include "report/output_file.h"
#include "stack/layers.h"

namespace servedby::cli {
namespace {

std::string conditions_text(const std::vector<Condition>& conditions) {
  std::string text = "What tracing needs\n";
  for (const Condition& condition : conditions) {
    text += fmt::format("  {:4} {:24} {}\n", condition.met ? "yes" : "NO", condition.name, condition.found);
    if (!condition.met) text += fmt::format("       to lift it: {}\n", condition.lift);
  }
  return text;
}

std::string plan_text(const std::vector<HookStatus>& hooks, const std::vector<Hook>& plan) {
  std::string text = "\nThe hook plan, each hook as it was attached just now\n";
  for (const HookStatus& status : hooks) {
    const auto hook = std::ranges::find(plan, status.name, &Hook::name);
    text += fmt::format("  {:15} {:4} {}\n", status.name, status.attached ? "yes" : "NO",
                        status.attached ? status.how : status.why_not);
    if (hook == plan.end()) continue;
    text += fmt::format("  {:15}      sees {}\n", "", hook->sees);
    if (status.attached) text += fmt::format("  {:15}      {}\n", "", hook->why);
    if (status.attached && !status.why_not.empty())
      text += fmt::format("  {:15}      before: {}\n", "", status.why_not);
    if (!status.attached && hook->second_sight) {
      text += fmt::format("  {:15}      another hook sees the same, so nothing is lost\n", "");
    }
  }
  return text;
}

std::string unknown_text(const std::vector<std::string>& lines) {
  std::string text = lines.empty() ? "" : "\nDevices here whose bytes stay unknown\n";
  for (const std::string& line : lines) text += fmt::format("  {}\n", line);
  return text;
}

int doctor(const TracingOptions& options) {
  const auto conditions = tracing_conditions();
  std::string text = conditions_text(conditions);
  Exit exit = Exit::done;
  if (tracing_obstacle()) {
    text +=
        "\nNo hook can be attached here. run and attach answer from the kernel's counters (--tier counters): "
        "inferred.\n";
    exit = Exit::not_permitted;
  } else {
    const LiveOptions live = options.live();
    const StorageStack stack = whole_machine();
    auto capture = Capture::open(live.capture, stack);
    if (!capture) {
      say_error("doctor", capture.error());
      exit = capture.error().exit;
    } else {
      text += plan_text(capture->hooks(), hook_plan(live.capture.tier, programs_are_preempted(Root())));
      text += unknown_text(report::not_followed(stack, capture->hooks()));
      text += fmt::format("\ntier: {}\n", capture->tier());
    }
  }
  if (auto printed = report::print_output(text); !printed) {
    say_error("doctor", printed.error());
    return static_cast<int>(printed.error().exit);
  }
  return static_cast<int>(exit);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<TracingOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "What this kernel and these privileges allow, hook by hook, and what would lift each limit");
  command->add_option("--tier", options->tier, "The plan to try: auto, fentry or kprobe")
      ->check(CLI::IsMember({"auto", "fentry", "kprobe"}))
      ->capture_default_str();
  command->callback([options, &run] { run = [options] { return doctor(*options); }; });
}

}  // namespace

extern const Command command_doctor;
const Command command_doctor{add};

}  // namespace servedby::cli
