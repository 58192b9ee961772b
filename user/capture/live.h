// SPDX-License-Identifier: Apache-2.0
// A capture from its first hook to its last record: attach, follow, drain into attribution (and a recording), and take
// the kernel's counters at both ends, so that the ledger can be checked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attribution/attribution.h"
#include "capture/capture.h"
#include "error/error.h"
#include "record/recording.h"
#include "record/session.h"

namespace servedby {

struct LiveOptions {
  CaptureOptions capture;
  std::optional<std::string> record;  ///< path of a recording
  bool force = false;                 ///< it may be overwritten
};

/// What came of it.
struct LiveOutcome {
  Session session;
  AttributionResult result;
  std::optional<Error> recording_failed;  ///< the result is whole all the same
};

class Live {
 public:
  /// Hooks attached, nothing followed yet. Errors as of Capture::open, and a recording that cannot be made.
  [[nodiscard]] static Result<Live> open(const LiveOptions& options);
  ~Live();
  Live(Live&&) noexcept;
  Live& operator=(Live&&) = delete;

  /// Follows the process and everything below it, then takes the counters: the session begins. `command` is empty for a
  /// process that already ran.
  [[nodiscard]] Result<void> begin(std::uint32_t pid, const std::vector<std::string>& command);

  /// Drains until `over` says so; asks it every few milliseconds. A recording that fails does not end it.
  void watch(const std::function<bool()>& over);

  /// Waits a moment for the target's requests to complete, takes the counters, detaches, and attributes what is left.
  [[nodiscard]] LiveOutcome end(std::optional<int> exit_code);

 private:
  struct State;
  explicit Live(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace servedby
