// SPDX-License-Identifier: Apache-2.0
// servedby selfcheck: the answers proven on this very kernel and drive.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/tracing_options.h"
#include "report/output_file.h"
#include "selfcheck/selfcheck.h"

namespace servedby::cli {
namespace {

struct Options {
  SelfcheckOptions check;
  bool json = false;
};

int run_selfcheck(Options options) {
  const Interruption interruption(false);  // a Ctrl-C ends the step, and what was made is removed
  if (isatty(STDERR_FILENO) != 0 && !options.json) {
    options.check.progress = [](const std::string& step) { fmt::print(stderr, "{} ...\n", step); };
  }
  const auto check = selfcheck(options.check);
  if (!check) {
    say_error("selfcheck", check.error());
    return static_cast<int>(check.error().exit);
  }
  const std::string content =
      options.json ? selfcheck_json(*check, "servedby " SERVEDBY_VERSION).dump(2) + "\n" : selfcheck_text(*check);
  if (auto printed = report::print_output(content); !printed) {
    say_error("selfcheck", printed.error());
    return static_cast<int>(printed.error().exit);
  }
  return static_cast<int>(check->exact() ? Exit::done : Exit::answer_no);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "selfcheck", "Prove the answers on this very kernel and drive: known cache states, exact bytes; about 20 s");
  command->footer(
      "Makes a file in DIRECTORY and, as root, a loop device over it; both are gone afterwards.\n"
      "Exit code 0: exact on this machine; 1: not, and it says what is not.");
  command->add_option("DIRECTORY", options->check.directory, "On the file system and drive in question")
      ->capture_default_str();
  command->add_option("--size", options->check.bytes, "Size of the file")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1} << 20, std::uint64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--json", options->json, "The result as JSON, servedby.selfcheck/1");
  command->callback([options, &run] { run = [options] { return run_selfcheck(*options); }; });
}

}  // namespace

extern const Command command_selfcheck;
const Command command_selfcheck{add};

}  // namespace servedby::cli
