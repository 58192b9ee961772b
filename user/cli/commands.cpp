// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "error/error.h"

namespace servedby::cli {

extern const Command command_run;
extern const Command command_attach;
extern const Command command_doctor;
extern const Command command_selfcheck;
extern const Command command_layers;
extern const Command command_residency;
extern const Command command_evict;
extern const Command command_probe;
extern const Command command_model;
extern const Command command_report;

const std::vector<const Command*>& all_commands() {
  static const std::vector<const Command*> commands{
      &command_run,       &command_attach, &command_doctor, &command_selfcheck, &command_layers,
      &command_residency, &command_evict,  &command_probe,  &command_model,     &command_report,
  };
  return commands;
}

int run_command_line(int argc, char** argv) {
  CLI::App app{"Which layer served each read: page cache, a loop device's backing file in the cache, or the drive."};
  app.name("servedby");
  app.set_version_flag("--version", std::string("servedby ") + SERVEDBY_VERSION);
  app.require_subcommand(1);
  std::vector<std::function<int()>> runs(all_commands().size());
  for (size_t i = 0; i < runs.size(); ++i) all_commands()[i]->add(app, runs[i]);
  const auto known = app.get_subcommands([](const CLI::App*) { return true; });
  if (argc > 1 && argv[1][0] != '-' &&
      std::ranges::none_of(known, [&](const CLI::App* command) { return command->get_name() == argv[1]; })) {
    fmt::print(stderr, "servedby: no command is called {}; see servedby --help\n", argv[1]);
    return static_cast<int>(Exit::usage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::RequiredError& missing) {
    // A misspelt option is the likelier reason why something else is missing.
    const auto unknown = app.remaining(true);
    if (unknown.empty()) {
      fmt::print(stderr, "servedby: {}; see servedby --help\n", missing.what());
    } else {
      fmt::print(stderr, "servedby: {} is not known here; see servedby --help\n", unknown.front());
    }
    return static_cast<int>(Exit::usage);
  } catch (const CLI::ParseError& wrong) {
    fmt::print(stderr, "servedby: {}; see servedby --help\n", wrong.what());
    return static_cast<int>(Exit::usage);
  }
  for (const auto& run : runs) {
    if (run) return run();
  }
  return static_cast<int>(Exit::usage);
}

}  // namespace servedby::cli
