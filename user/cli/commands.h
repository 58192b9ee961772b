// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace servedby::cli {

/// A command adds its subcommand and options to `app` and leaves in `run` what to do when it was chosen. `run` returns
/// the exit code of the process.
struct Command {
  void (*add)(CLI::App& app, std::function<int()>& run);
};

/// Every command in the order of --help. A file command_<name>.cpp defines `extern const Command command_<name>`;
/// commands.cpp lists it.
const std::vector<const Command*>& all_commands();

/// Parses and runs. Returns the process's exit code (Exit::usage for a wrong option, one line on stderr).
int run_command_line(int argc, char** argv);

}  // namespace servedby::cli
