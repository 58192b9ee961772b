// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "record/recording.h"
#include "record/recording_format.h"
#include "record/text.h"

namespace servedby {

namespace format = recording_format;

namespace {

// Recording competes with what is being measured, for the processor and for the drive: the fastest level already makes
// records several times smaller.
constexpr int compression_level = 1;

std::uint32_t checksum(std::uint32_t sum, const void* bytes, std::size_t size) {
  return static_cast<std::uint32_t>(crc32(sum, static_cast<const Bytef*>(bytes), static_cast<uInt>(size)));
}

format::FileHeader file_header(format::State state) {
  format::FileHeader header{};
  std::memcpy(header.magic, format::magic, sizeof(header.magic));
  header.version = format::version;
  header.record_version = SB_RECORD_VERSION;
  header.state = state;
  header.checksum = checksum(0, &header, offsetof(format::FileHeader, checksum));
  return header;
}

}  // namespace

struct RecordingWriter::State {
  std::string path;
  int fd = -1;
  std::uint64_t offset = 0;  ///< bytes in the file
  std::uint32_t blocks = 0;
  std::vector<std::byte> frames;  ///< the block of records being filled
  std::uint32_t frames_held = 0;
  std::uint64_t records = 0, record_bytes = 0;
  bool finished = false;
  std::optional<Error> failed;

  State() { frames.reserve(format::block_bytes); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (fd < 0) return;
    // An incomplete recording goes as far as it can; there is nobody left to tell of an error.
    if (!finished && !failed) std::ignore = flush();
    ::close(fd);
  }

  Result<void> fail(int error_number) {
    const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
    failed =
        Error{"cannot write the recording", path, errno_text(error_number),
              std::string(full ? "make room, or record elsewhere; " : "") + "what was written stays, marked incomplete",
              error_number == EACCES || error_number == EPERM ? Exit::not_permitted : Exit::bad_input};
    return std::unexpected(*failed);
  }

  Result<void> write_at(const void* bytes, std::size_t size, std::uint64_t at) {
    const auto* next = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t written = ::pwrite(fd, next, size, static_cast<off_t>(at));
      if (written < 0) {
        if (errno == EINTR) continue;
        return fail(errno);
      }
      next += written;
      at += static_cast<std::uint64_t>(written);
      size -= static_cast<std::size_t>(written);
    }
    return {};
  }

  Result<void> sync() {
    if (::fdatasync(fd) != 0) return fail(errno);
    return {};
  }

  Result<void> write_block(format::Kind kind, const void* bytes, std::size_t size, std::uint32_t count) {
    format::BlockHeader header{};
    header.magic = format::block_magic;
    header.kind = kind;
    header.index = blocks;
    header.raw = static_cast<std::uint32_t>(size);
    header.records = count;
    std::vector<std::byte> packed(compressBound(static_cast<uLong>(size)));
    uLongf packed_size = static_cast<uLongf>(packed.size());
    const auto* source = static_cast<const Bytef*>(bytes);
    auto* target = reinterpret_cast<Bytef*>(packed.data());
    // The trailer says how long the file is, so its own length must be known beforehand.
    const bool smaller = kind != format::trailer &&
                         compress2(target, &packed_size, source, static_cast<uLong>(size), compression_level) == Z_OK &&
                         packed_size < size;
    header.encoding = smaller ? format::zlib : format::plain;
    header.stored = static_cast<std::uint32_t>(smaller ? packed_size : size);
    const void* stored = smaller ? static_cast<const void*>(packed.data()) : bytes;
    header.checksum = checksum(0, &header, offsetof(format::BlockHeader, checksum));
    header.checksum = checksum(header.checksum, stored, header.stored);
    if (auto done = write_at(&header, sizeof(header), offset); !done) return done;
    if (auto done = write_at(stored, header.stored, offset + sizeof(header)); !done) return done;
    offset += sizeof(header) + header.stored;
    ++blocks;
    return {};
  }

  Result<void> flush() {
    if (frames.empty()) return {};
    auto done = write_block(format::records, frames.data(), frames.size(), frames_held);
    frames.clear();
    frames_held = 0;
    return done;
  }

  Result<void> write_session(format::Kind kind, const Session& session) {
    nlohmann::json tree = session;
    wrap_bytes(tree);
    const std::string text = tree.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (text.size() > format::largest_session) {
      failed =
          Error{"cannot write the recording", path, "the description of the session is too large", "", Exit::bad_input};
      return std::unexpected(*failed);
    }
    return write_block(kind, text.data(), text.size(), 0);
  }
};

RecordingWriter::RecordingWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
RecordingWriter::RecordingWriter(RecordingWriter&&) noexcept = default;
RecordingWriter& RecordingWriter::operator=(RecordingWriter&&) noexcept = default;
RecordingWriter::~RecordingWriter() = default;

Result<RecordingWriter> RecordingWriter::create(const std::string& path, bool force) {
  const int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (force ? 0 : O_EXCL);
  auto state = std::make_unique<State>();
  state->path = path;
  state->fd = ::open(path.c_str(), how, 0644);
  if (state->fd < 0) {
    if (errno == EEXIST) {
      return std::unexpected(
          Error{"will not overwrite", path, "it exists", "give another name, or --force", Exit::usage});
    }
    return std::unexpected(system_error("cannot create the recording", path, errno, "give a path that can be written"));
  }
  struct stat status{};
  if (::fstat(state->fd, &status) != 0) return std::unexpected(system_error("cannot look at", path, errno));
  if (!S_ISREG(status.st_mode)) {
    // A pipe cannot be marked complete afterwards.
    state->finished = true;
    return std::unexpected(
        Error{"cannot record to", path, "it is not a regular file", "give the name of a file", Exit::usage});
  }
  if (::ftruncate(state->fd, 0) != 0) return std::unexpected(system_error("cannot empty", path, errno));
  const format::FileHeader header = file_header(format::incomplete);
  if (auto done = state->write_at(&header, sizeof(header), 0); !done) return std::unexpected(done.error());
  state->offset = sizeof(header);
  return RecordingWriter(std::move(state));
}

Result<void> RecordingWriter::begin(const Session& session) {
  State& state = *state_;
  if (state.failed) return std::unexpected(*state.failed);
  return state.write_session(format::setup, session);
}

Result<void> RecordingWriter::append(std::span<const std::byte> record) {
  State& state = *state_;
  if (state.failed) return std::unexpected(*state.failed);
  if (record.empty() || record.size() > longest_record) {
    const Error wrong{"cannot write the recording", state.path,
                      "a record of " + std::to_string(record.size()) + " bytes is impossible",
                      "this is a defect of servedby", Exit::bad_input};
    state.failed = wrong;
    return std::unexpected(wrong);
  }
  const std::uint64_t length = record.size();
  const std::size_t frame = sizeof(length) + format::padded(record.size());
  if (state.frames.size() + frame > format::block_bytes) {
    if (auto done = state.flush(); !done) return done;
  }
  const std::size_t at = state.frames.size();
  state.frames.resize(at + frame);
  std::memcpy(state.frames.data() + at, &length, sizeof(length));
  std::memcpy(state.frames.data() + at + sizeof(length), record.data(), record.size());
  ++state.frames_held;
  ++state.records;
  state.record_bytes += length;
  return {};
}

Result<void> RecordingWriter::finish(const Session& session) {
  State& state = *state_;
  if (state.failed) return std::unexpected(*state.failed);
  if (auto done = state.flush(); !done) return done;
  if (auto done = state.write_session(format::session, session); !done) return done;
  const format::Trailer trailer{state.records, state.record_bytes,
                                state.offset + sizeof(format::BlockHeader) + sizeof(format::Trailer)};
  if (auto done = state.write_block(format::trailer, &trailer, sizeof(trailer), 0); !done) return done;
  if (auto done = state.sync(); !done) return done;
  const format::FileHeader header = file_header(format::complete);
  if (auto done = state.write_at(&header, sizeof(header), 0); !done) return done;
  if (auto done = state.sync(); !done) return done;
  state.finished = true;
  return {};
}

std::uint64_t RecordingWriter::bytes_written() const { return state_->offset; }

}  // namespace servedby
