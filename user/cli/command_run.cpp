// SPDX-License-Identifier: Apache-2.0
// servedby run -- CMD: a command traced from before its first instruction.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "capture/counted.h"
#include "capture/live.h"
#include "capture/obstacles.h"
#include "capture/target.h"
#include "cli/commands.h"
#include "cli/tracing_options.h"

namespace servedby::cli {
namespace {

// As env(1) and timeout(1): trouble of our own, a command that cannot be executed, one that is not found.
constexpr int own_trouble = 125, not_executable = 126, not_found = 127;

struct Options {
  TracingOptions tracing;
  std::vector<std::string> command;
};

int fail(const Error& error) {
  say_error("run", error);
  return error.exit == Exit::usage ? static_cast<int>(Exit::usage) : own_trouble;
}

int cannot_start(const HeldCommand& command, const Options& options, Error error) {
  error.on = options.command.front();
  error.todo =
      command.not_found() ? "give a command that is on the PATH, or its full path" : "check that it may be executed";
  say_error("run", error);
  return command.not_found() ? not_found : not_executable;
}

int report(const LiveOutcome& outcome, const Options& options, int exit_code) {
  if (auto delivered = deliver(outcome, options.tracing, true); !delivered) return fail(delivered.error());
  const bool lost = !outcome.result.complete && outcome.result.tier != "counters";
  return lost && options.tracing.strict ? own_trouble : exit_code;
}

int run_counted(const Options& options) {
  auto command = HeldCommand::hold(options.command);
  if (!command) return fail(command.error());
  Interruption interruption(true);
  auto counted = Counted::begin(command->pid(), options.command);
  if (!counted) return fail(counted.error());
  if (auto released = command->release(); !released) return cannot_start(*command, options, released.error());
  while (!command->ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  LiveOutcome outcome = counted->end(std::nullopt);
  const int exit_code = command->reap();
  outcome.session.target_exit = exit_code;
  return report(outcome, options, exit_code);
}

int run_traced(const Options& options) {
  auto live = Live::open(options.tracing.live());
  if (!live) return fail(live.error());
  auto command = HeldCommand::hold(options.command);
  if (!command) return fail(command.error());
  Interruption interruption(true);
  if (auto begun = live->begin(command->pid(), options.command); !begun) return fail(begun.error());
  if (auto released = command->release(); !released) return cannot_start(*command, options, released.error());
  live->watch([&] { return command->ended(); });
  while (!command->ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the recording failed
  const int exit_code = command->reap();
  auto outcome = live->end(exit_code);
  if (!outcome) return fail(outcome.error());
  return report(*outcome, options, exit_code);
}

int run_command(const Options& options) {
  if (auto wrong = options.tracing.wrong()) return fail(*wrong);
  if (options.tracing.output == "-") {
    return fail({"cannot write the result to", "stdout", "it belongs to the command", "give -o FILE", Exit::usage});
  }
  if (options.tracing.tier == "counters") return run_counted(options);
  if (options.tracing.tier == "auto") {
    if (auto obstacle = tracing_obstacle()) {
      if (!options.tracing.record.empty()) return fail(*obstacle);
      fmt::print(stderr, "servedby run: {}; answering from the kernel's counters instead\n", obstacle->line());
      return run_counted(options);
    }
  }
  return run_traced(options);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "run", "Run a command and say which layer served each of its reads, those of its children and threads too");
  command->footer(
      "The command keeps stdin, stdout and stderr; the report goes to stderr when it ends, and its exit code is passed "
      "on.\n"
      "125: trouble of servedby's own, 126: the command cannot be executed, 127: it is not found.\n\n"
      "  servedby run -- python3 load.py\n"
      "  servedby run -o result.json -- ./llama-server -m model.gguf");
  options->tracing.add_to(*command, false);
  command->add_flag("--strict", options->tracing.strict,
                    "Exit 125 when events were lost, whatever the command returned");
  command->add_option("CMD", options->command, "The command and its arguments, after --")->required();
  command->positionals_at_end();
  command->callback([options, &run] { run = [options] { return run_command(*options); }; });
}

}  // namespace

extern const Command command_run;
const Command command_run{add};

}  // namespace servedby::cli
