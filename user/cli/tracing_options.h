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

struct Opened {
  std::optional<Live> live;  ///< the hooks, attached; nothing where the kernel's counters are to answer
  std::string instead;       ///< then, with --tier auto: why, to be said once they do
};

/// Attaches the hooks, unless --tier counters, or --tier auto where tracing is not permitted or not supported.
[[nodiscard]] Result<Opened> open_live(const std::string& command, const TracingOptions& options);

/// Writes the result: the file of -o, JSON to stdout if asked for, text to `people` (stdout or stderr) unless quiet.
/// True where the exit code has to say that something was lost.
[[nodiscard]] Result<bool> deliver(const LiveOutcome& outcome, const TracingOptions& options, bool people_on_stderr);

/// While it lives SIGINT, SIGTERM and SIGHUP are noted instead of killing: a session that is interrupted still reports.
class Interruption {
 public:
  /// `ignore_interrupt`: SIGINT and SIGQUIT of the terminal are left to the command that shares it.
  explicit Interruption(bool ignore_interrupt);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  [[nodiscard]] static bool asked();
  /// The signal that was noted, once; 0: none. For a command that it is to be passed on to.
  [[nodiscard]] static int take();
};

}  // namespace servedby::cli
