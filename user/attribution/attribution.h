// SPDX-License-Identifier: Apache-2.0
// Which layer had the bytes of each read. A pure function of its inputs: it opens no file, reads no clock, includes no
// libbpf header. Live capture and replay feed the same records and get the same result.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "attribution/result.h"
#include "record/session.h"

namespace servedby {

/// What must be known before the first record.
struct AttributionSetup {
  StorageStack stack;  ///< names and kinds of the devices
  /// page-cache is proven only while the hooks named fill-* and bio-submit are attached.
  std::vector<HookStatus> hooks;
  std::uint32_t page_size = 4096;  ///< bytes
  /// Runs of unreturned bytes of one file from which on scattered pages are kept as bits. Changes no answer; tests
  /// lower it.
  std::size_t crowded_at = 1024;
};

/// A file whose layout would say more about a record than was seen.
struct UnplacedFile {
  sb_file_id file{};
  std::string path;        ///< as the target opened it; empty: not known
  std::uint32_t tgid = 0;  ///< the process; 0: a loop device's worker, and the path is its backing file's
};

class Attribution {
 public:
  explicit Attribution(AttributionSetup setup);
  ~Attribution();
  Attribution(Attribution&&) noexcept;
  Attribution& operator=(Attribution&&) noexcept;

  /// One record as the kernel side wrote it (starts with sb_head, head.size bytes long), in the order of the ring.
  /// Unknown kinds are ignored; a record shorter than its kind asks is counted as losses["malformed"].
  void feed(std::span<const std::byte> record);

  /// Before a record is fed: the file, if any, of which it returns bytes that nothing was seen to fill. Whoever can
  /// look at the file feeds its sb_layout records first; once looked at, it is not asked for again.
  [[nodiscard]] std::optional<UnplacedFile> unplaced(std::span<const std::byte> record) const;

  /// Devices that were made since the session began, whose numbers were free before. Their counters began at 0.
  [[nodiscard]] std::vector<Device> made() const;

  /// Ends the session. `session` brings the counters, losses and hooks as they stood at its end. Call once.
  [[nodiscard]] AttributionResult finish(const Session& session);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace servedby
