// SPDX-License-Identifier: Apache-2.0
// The process that is looked at: started by us and held before its first instruction, or already running.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "error/error.h"

namespace servedby {

/// A command that was forked and waits until release(). Its standard streams are ours.
class HeldCommand {
 public:
  /// Forks. Errors: the fork failed.
  [[nodiscard]] static Result<HeldCommand> hold(const std::vector<std::string>& arguments);
  ~HeldCommand();
  HeldCommand(HeldCommand&& other) noexcept;
  HeldCommand& operator=(HeldCommand&&) = delete;

  [[nodiscard]] std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }
  /// Lets it execute. An error is a command that cannot be started: why is the text of the errno, and not_found() says
  /// whether it is missing (exit code 127) or cannot be executed (126), as with env(1). One that a signal has ended
  /// while it was held is no error; it has ended().
  [[nodiscard]] Result<void> release();
  [[nodiscard]] bool not_found() const { return exec_errno_ == ENOENT; }
  /// Once released: sends it a signal that was meant for it.
  void pass_on(int signal) const;
  /// Whether it has ended. It is not waited for yet: /proc still has its counters.
  [[nodiscard]] bool ended() const;
  /// Waits for it. The exit status in the shell's way: 128 + signal for one that was killed.
  [[nodiscard]] int reap();

 private:
  HeldCommand() = default;
  pid_t pid_ = -1;
  int go_ = -1;       ///< written to let it execute
  int failure_ = -1;  ///< its errno arrives here if it cannot
  int exec_errno_ = 0;
  bool reaped_ = false;
  int status_ = 0;
};

/// Whether /proc shows the PIDs that system calls of ours mean. It shows others in a PID namespace that was entered
/// without mounting /proc anew (Exit::not_permitted).
[[nodiscard]] Result<void> check_proc();

/// A running process. Errors: no such process, a thread's TID (Exit::bad_input), or one that may not be looked at.
[[nodiscard]] Result<void> check_running(std::uint32_t pid);

/// Whether the process still runs; a zombie does not.
[[nodiscard]] bool still_runs(std::uint32_t pid);

}  // namespace servedby
