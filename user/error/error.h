// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>

namespace servedby {

/// Exit codes of every command (see interface.md and docs/result.md).
enum class Exit : int {
  done = 0,           ///< done; Ctrl-C on attach included
  answer_no = 1,      ///< done, and the answer is no
  usage = 2,          ///< wrong usage
  not_permitted = 3,  ///< not permitted, or not supported by this kernel
  bad_input = 4,      ///< an input cannot be read or is malformed
  incomplete = 5,     ///< done, but events were lost and the result says so
};

/// What a person needs when something fails: one line, never a bare errno.
struct Error {
  std::string what;  ///< what failed: "cannot open"
  std::string on;    ///< on what: a path, a PID, a hook
  std::string why;   ///< why: "No such file or directory"
  std::string todo;  ///< what to do about it; may be empty
  Exit exit = Exit::bad_input;

  /// "cannot open /x: No such file or directory; give a path that exists"
  [[nodiscard]] std::string line() const;
};

template <class T>
using Result = std::expected<T, Error>;

/// The text of an errno value.
[[nodiscard]] std::string errno_text(int error_number);

/// An Error whose `why` is the text of `error_number`; EACCES and EPERM become Exit::not_permitted.
[[nodiscard]] Error system_error(std::string what, std::string on, int error_number, std::string todo = {});

}  // namespace servedby
