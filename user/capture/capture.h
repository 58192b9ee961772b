// SPDX-License-Identifier: Apache-2.0
// The kernel side, loaded and attached. Detached when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capture/hook_plan.h"
#include "error/error.h"
#include "record/session.h"

namespace servedby {

struct CaptureOptions {
  Tier tier = Tier::automatic;
  std::vector<std::string> without;                ///< hooks forced off, see hook_is()
  std::uint64_t ring_bytes = 16ULL * 1024 * 1024;  ///< a power of two, at least a page
  std::uint32_t drop_every = 0;                    ///< a test's sabotage: lose every so many completions; 0: none
};

class Capture {
 public:
  /// Loads and attaches every hook of the plan, each by the first way that works; what could not be attached is in
  /// hooks(). `stack` is every block device of the machine. Errors: Exit::not_permitted without the privilege, or where
  /// a hook that the answer rests on cannot be had in any way.
  [[nodiscard]] static Result<Capture> open(const CaptureOptions& options, const StorageStack& stack);
  ~Capture();
  Capture(Capture&&) noexcept;
  Capture& operator=(Capture&&) noexcept;

  /// From now on the process is a target, with all its threads and every child it forks. `pid` is as seen from the
  /// first PID namespace.
  [[nodiscard]] Result<void> follow(std::uint32_t pid);
  /// The PIDs followed at this moment.
  [[nodiscard]] std::vector<std::uint32_t> followed() const;

  /// Gives every record in the ring to `take`, in order; returns how many. Call it often: a full ring loses records.
  std::size_t drain(const std::function<void(std::span<const std::byte>)>& take);

  /// Hooks with what the kernel says of them now.
  [[nodiscard]] std::vector<HookStatus> hooks() const;
  [[nodiscard]] KernelCounts counts() const;
  /// Reads by aio and io_uring whose end was not seen yet: `without_end` those of processes that have ended, and which
  /// therefore have none in flight, but for the moment that the kernel takes to end them.
  struct AsyncReads {
    std::uint64_t in_flight = 0, without_end = 0;
  };
  [[nodiscard]] AsyncReads async_reads() const;
  /// Bytes of bios submitted by the target since open().
  [[nodiscard]] std::uint64_t process_bytes() const;
  /// The weakest tier among the attached hooks that the answer rests on.
  [[nodiscard]] std::string tier() const;
  /// Detaches every hook. Records already in the ring can still be drained.
  void detach();

 private:
  struct State;
  explicit Capture(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace servedby
