// SPDX-License-Identifier: Apache-2.0
// servedby run -- CMD: a command traced from before its first instruction.
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
  const auto lost = deliver(outcome, options.tracing, true);
  if (!lost) return fail(lost.error());
  if (outcome.recording_failed) return fail(*outcome.recording_failed);
  return options.tracing.strict && *lost ? own_trouble : exit_code;
}

/// SIGTERM and SIGHUP reach only us, as a rule; the command is to end, and then we report. As timeout(1) does.
bool ended(const HeldCommand& command) {
  if (const int signal = Interruption::take(); signal != 0) command.pass_on(signal);
  return command.ended();
}

int run_counted(const Options& options, const std::string& instead) {
  auto command = HeldCommand::hold(options.command);
  if (!command) return fail(command.error());
  Interruption interruption(true);
  auto counted = Counted::begin(command->pid(), options.command);
  if (!counted) return fail(counted.error());
  fmt::print(stderr, "{}", instead);
  if (auto released = command->release(); !released) return cannot_start(*command, options, released.error());
  while (!ended(*command)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  LiveOutcome outcome = counted->end(std::nullopt);
  const int exit_code = command->reap();
  outcome.session.target_exit = exit_code;
  return report(outcome, options, exit_code);
}

int run_traced(Live& live, const Options& options) {
  auto command = HeldCommand::hold(options.command);
  if (!command) return fail(command.error());
  Interruption interruption(true);
  if (auto begun = live.begin(command->pid(), options.command); !begun) return fail(begun.error());
  if (auto released = command->release(); !released) return cannot_start(*command, options, released.error());
  live.watch([&] { return ended(*command); });
  const int exit_code = command->reap();
  return report(live.end(exit_code), options, exit_code);
}

int run_command(const Options& options) {
  if (auto wrong = options.tracing.wrong()) return fail(*wrong);
  if (options.tracing.output == "-") {
    return fail({"cannot write the result to", "stdout", "it belongs to the command", "give -o FILE", Exit::usage});
  }
  auto opened = open_live("run", options.tracing);
  if (!opened) return fail(opened.error());
  std::optional<Live>& live = opened->live;
  return live ? run_traced(*live, options) : run_counted(options, opened->instead);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "run", "Run a command and say which layer served each of its reads, those of its children and threads too");
  command->footer(
      "The command keeps stdin, stdout and stderr; the report goes to stderr when it ends, and its exit code is passed "
      "on. SIGTERM and SIGHUP are passed on to it.\n"
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
