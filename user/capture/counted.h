// SPDX-License-Identifier: Apache-2.0
// The counters tier: no BPF, no privilege but that of seeing the target's /proc/PID/io. The same result tree;
// everything in it is inferred.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/live.h"
#include "error/error.h"
#include "host/inference.h"
#include "host/sampling.h"

namespace servedby {

/// The result of what was counted. Pure. The served_by entries are marked inferred with the doubt; the ledger says what
/// each boundary counted, without a traced side. Never complete: nothing was traced.
[[nodiscard]] AttributionResult counted_result(const Sampled& sampled, const Inference& inference,
                                               const Session& session);

/// Samples a process tree until end().
class Counted {
 public:
  /// Begins. For a command of ours: before it executes. Errors: its counters are refused.
  [[nodiscard]] static Result<Counted> begin(std::uint32_t pid, const std::vector<std::string>& command);
  ~Counted();
  Counted(Counted&&) noexcept;
  Counted& operator=(Counted&&) = delete;

  /// For a command of ours: after it ended, before it is reaped.
  [[nodiscard]] LiveOutcome end(std::optional<int> exit_code);

 private:
  struct State;
  explicit Counted(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace servedby
