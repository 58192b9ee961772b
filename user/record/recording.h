// SPDX-License-Identifier: Apache-2.0
// A recording: the kernel side's records and the Session of one capture in one file, from which the same result can be
// had again on another machine, without root. The layout of the file is described in recording_format.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "error/error.h"
#include "record/session.h"

namespace servedby {

/// Writes one recording. The file says "incomplete" from its first byte until finish() has brought everything to the
/// disk, so whatever ends the program earlier leaves a file that cannot pass for whole. For one thread.
class RecordingWriter {
 public:
  /// Creates the file, mode 0644 less the umask. Fails where it exists and `force` is not set (Exit::usage), and on
  /// what is not a regular file.
  [[nodiscard]] static Result<RecordingWriter> create(const std::string& path, bool force);

  RecordingWriter(RecordingWriter&&) noexcept;
  RecordingWriter& operator=(RecordingWriter&&) noexcept;
  /// Without finish(): what was appended is written out and the file stays marked incomplete.
  ~RecordingWriter();

  /// What is known before the first record: the Session whose stack and hooks attribution is set up with. A replay is
  /// set up with the same, and it is what makes an incomplete recording readable.
  [[nodiscard]] Result<void> begin(const Session& session);

  /// One record, byte for byte as the kernel side wrote it, at most `longest_record` bytes. After the first error every
  /// call returns that error.
  [[nodiscard]] Result<void> append(std::span<const std::byte> record);

  /// Writes the Session and the trailer, syncs, and only then marks the file complete. Call once.
  [[nodiscard]] Result<void> finish(const Session& session);

  /// Bytes of the file so far; what is still in the buffer does not count.
  [[nodiscard]] std::uint64_t bytes_written() const;

  static constexpr std::size_t longest_record = 64UL * 1024;  ///< bytes

 private:
  struct State;
  explicit RecordingWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Whether a recording whose capture did not finish may be opened.
enum class Incomplete { refused, accepted };

/// A recording that was opened and checked: every byte of it is covered by a checksum. An error is one line and
/// Exit::bad_input (or Exit::not_permitted where the file may not be read).
class Recording {
 public:
  [[nodiscard]] static Result<Recording> open(const std::string& path, Incomplete incomplete = Incomplete::refused);

  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  /// As it stood at the end; of an incomplete recording as it stood at the beginning, without any counters.
  [[nodiscard]] const Session& session() const;
  /// As it stood before the first record; the same as session() where that was not recorded.
  [[nodiscard]] const Session& session_at_start() const;
  /// False only with Incomplete::accepted: records and counters of the end are missing.
  [[nodiscard]] bool complete() const;
  [[nodiscard]] std::uint64_t records() const;

  /// Calls `each` with every record in order. The bytes are aligned to 8 and valid until `each` returns.
  [[nodiscard]] Result<void> for_each(const std::function<void(std::span<const std::byte>)>& each) const;

 private:
  struct State;
  explicit Recording(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Whether the file begins as a recording does. False also where it cannot be read.
[[nodiscard]] bool looks_like_recording(const std::string& path);

}  // namespace servedby
