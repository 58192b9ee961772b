// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

int main(int argc, char** argv) { return servedby::cli::run_command_line(argc, argv); }
