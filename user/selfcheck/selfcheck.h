// SPDX-License-Identifier: Apache-2.0
// Proves the answers on this very kernel and drive: makes a file, brings it into cache states whose answer is known to
// the byte, reads it under the profiler, and compares.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "capture/live.h"
#include "error/error.h"

namespace servedby {

struct SelfcheckOptions {
  std::string directory = ".";        ///< on the file system and drive in question; writable
  std::uint64_t bytes = 64ULL << 20;  ///< of the file that is made
  Tier tier = Tier::automatic;
  std::function<void(const std::string&)> progress;  ///< one line for each step; may be empty
};

/// One state that was made, what it demands and what was answered.
struct Proof {
  std::string state;                            ///< "file evicted"
  std::map<std::string, std::uint64_t> wanted;  ///< "loop0 > page-cache" → bytes
  std::map<std::string, std::uint64_t> found;
  bool complete = false;  ///< nothing was lost and every counter of the kernel agreed
  std::string skipped;    ///< why it could not be made here; empty: it was
  std::string problem;    ///< what is wrong; empty: exact

  [[nodiscard]] bool exact() const { return skipped.empty() && problem.empty(); }
};

struct Selfcheck {
  std::string path, kernel, tier;
  std::vector<Proof> proofs;

  /// Every state that could be made was answered exactly, and at least one was made.
  [[nodiscard]] bool exact() const;
};

/// Runs it; about 20 s. What it makes is removed on every exit but SIGKILL, the loop device detached. Errors: the
/// directory cannot be written, no drive is below it, or the kernel refuses tracing.
[[nodiscard]] Result<Selfcheck> selfcheck(const SelfcheckOptions& options);

/// servedby.selfcheck/1
[[nodiscard]] nlohmann::ordered_json selfcheck_json(const Selfcheck& check, const std::string& tool);
[[nodiscard]] std::string selfcheck_text(const Selfcheck& check);

}  // namespace servedby
