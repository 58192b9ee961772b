// SPDX-License-Identifier: Apache-2.0
// What run and attach have in common: their options, and how a result leaves.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "capture/live.h"
#include "error/error.h"

namespace servedby::cli {

struct TracingOptions {
  std::string tier = "auto";
  std::vector<std::string> without;
  std::uint64_t ring_bytes = CaptureOptions{}.ring_bytes;
  std::uint32_t drop_every = 0;
  std::string output, record;
  bool json = false, force = false, quiet = false, strict = false, hooks = false;

  void add_to(CLI::App& command, bool json_to_stdout);
  [[nodiscard]] LiveOptions live() const;
  /// What is wrong with them, before anything is started.
  [[nodiscard]] std::optional<Error> wrong() const;
};

/// "servedby run: …" on stderr.
void say_error(const std::string& command, const Error& error);

/// Writes the result: the file of -o, JSON to stdout if asked for, text to `people` (stdout or stderr) unless quiet.
[[nodiscard]] Result<void> deliver(const LiveOutcome& outcome, const TracingOptions& options, bool people_on_stderr);

/// While it lives SIGINT, SIGTERM and SIGHUP are noted instead of killing: a session that is interrupted still reports.
class Interruption {
 public:
  /// `ignore_interrupt`: SIGINT and SIGQUIT of the terminal are left to the command that shares it.
  explicit Interruption(bool ignore_interrupt);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  [[nodiscard]] static bool asked();
};

}  // namespace servedby::cli
