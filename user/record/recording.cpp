// SPDX-License-Identifier: Apache-2.0
#include "record/recording.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "record/recording_format.h"
#include "record/text.h"

namespace servedby {

namespace format = recording_format;

namespace {

std::uint32_t checksum(std::uint32_t sum, const void* bytes, std::size_t size) {
  return static_cast<std::uint32_t>(crc32(sum, static_cast<const Bytef*>(bytes), static_cast<uInt>(size)));
}

Error damaged(const std::string& path, std::string why, std::string todo = "record again") {
  return Error{"cannot read the recording", path, std::move(why), std::move(todo), Exit::bad_input};
}

Error incomplete_error(const std::string& path) {
  return damaged(path, "it is incomplete: its capture did not finish",
                 "give --incomplete to read it as far as it goes");
}

/// JSON text of a Session. The parser is given a limit of depth, because walking and freeing a tree recurse.
Result<Session> parse_session(const std::string& path, const std::vector<std::byte>& bytes) {
  const auto* first = reinterpret_cast<const char*>(bytes.data());
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > format::deepest_session) throw std::length_error("nested too deep");
    return true;
  };
  try {
    nlohmann::json tree = nlohmann::json::parse(first, first + bytes.size(), shallow);
    unwrap_bytes(tree);
    return tree.get<Session>();
  } catch (const std::exception& wrong) {
    return std::unexpected(damaged(path, std::string("its session is malformed: ") + wrong.what()));
  }
}

}  // namespace

struct Recording::State {
  struct Place {
    std::uint64_t at = 0;  ///< of the stored bytes
    format::BlockHeader header{};
  };

  std::string path;
  int fd = -1;
  std::uint64_t file_bytes = 0;
  bool complete = false;
  std::vector<Place> blocks;  ///< of records
  Session session, at_start;
  std::uint64_t records = 0;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (fd >= 0) ::close(fd);
  }

  [[nodiscard]] Result<void> read_at(void* bytes, std::size_t size, std::uint64_t at) const {
    if (at > file_bytes || size > file_bytes - at) return std::unexpected(damaged(path, "it is cut short"));
    auto* next = static_cast<char*>(bytes);
    while (size > 0) {
      const ssize_t got = ::pread(fd, next, size, static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return std::unexpected(system_error("cannot read the recording", path, errno));
      if (got == 0) return std::unexpected(damaged(path, "it is cut short"));
      next += got;
      at += static_cast<std::uint64_t>(got);
      size -= static_cast<std::size_t>(got);
    }
    return {};
  }

  /// Reads and checks the header of the file; sets `complete`.
  Result<void> read_header() {
    format::FileHeader header{};
    if (file_bytes < sizeof(header)) return std::unexpected(damaged(path, "it is no recording of servedby", ""));
    if (auto done = read_at(&header, sizeof(header), 0); !done) return done;
    if (std::memcmp(header.magic, format::magic, sizeof(header.magic)) != 0) {
      return std::unexpected(damaged(path, "it is no recording of servedby", ""));
    }
    if (header.version > format::version || header.record_version > SB_RECORD_VERSION) {
      return std::unexpected(damaged(path,
                                     "a newer servedby wrote it (format " + std::to_string(header.version) +
                                         ", records " + std::to_string(header.record_version) + ")",
                                     "read it with that version"));
    }
    if (header.checksum != checksum(0, &header, offsetof(format::FileHeader, checksum)) ||
        header.state > format::complete) {
      return std::unexpected(damaged(path, "its header is damaged"));
    }
    if (header.version != format::version || header.record_version != SB_RECORD_VERSION) {
      return std::unexpected(damaged(path, "an older servedby wrote it", "read it with that version"));
    }
    complete = header.state == format::complete;
    return {};
  }

  /// The stored bytes of the block at `at`, checked; `place` says where they are. `index` is the number it must have.
  [[nodiscard]] Result<std::vector<std::byte>> read_block(std::uint64_t at, std::uint32_t index, Place& place) const {
    format::BlockHeader& header = place.header;
    if (auto done = read_at(&header, sizeof(header), at); !done) return std::unexpected(done.error());
    const std::string where = "block " + std::to_string(index) + " ";
    const bool known =
        header.kind >= format::setup && header.kind <= format::trailer && header.encoding <= format::zlib;
    if (header.magic != format::block_magic || header.index != index || !known ||
        header.raw > format::largest(header.kind) || header.stored > header.raw ||
        (header.encoding == format::plain && header.stored != header.raw)) {
      return std::unexpected(damaged(path, where + "is damaged"));
    }
    place.at = at + sizeof(header);
    std::vector<std::byte> stored(std::min<std::uint64_t>(header.stored, file_bytes));
    if (header.stored > stored.size()) return std::unexpected(damaged(path, "it is cut short"));
    if (auto done = read_at(stored.data(), stored.size(), place.at); !done) return std::unexpected(done.error());
    const std::uint32_t sum =
        checksum(checksum(0, &header, offsetof(format::BlockHeader, checksum)), stored.data(), stored.size());
    if (sum != header.checksum) return std::unexpected(damaged(path, where + "is damaged: its checksum differs"));
    return stored;
  }

  [[nodiscard]] Result<std::vector<std::byte>> unpack(const Place& place, std::vector<std::byte> stored) const {
    if (place.header.encoding == format::plain) return stored;
    std::vector<std::byte> raw(place.header.raw);
    uLongf size = static_cast<uLongf>(raw.size());
    const int done = uncompress(reinterpret_cast<Bytef*>(raw.data()), &size,
                                reinterpret_cast<const Bytef*>(stored.data()), static_cast<uLong>(stored.size()));
    if (done != Z_OK || size != raw.size()) {
      return std::unexpected(damaged(path, "block " + std::to_string(place.header.index) + " cannot be unpacked"));
    }
    return raw;
  }

  /// Takes a session or trailer block, or notes where a block of records lies. `ended`: the trailer was seen and
  /// agrees.
  Result<void> take_block(const Place& place, std::vector<std::byte> stored, std::uint64_t end,
                          std::optional<std::uint32_t>& have_session, bool& ended) {
    const std::uint32_t kind = place.header.kind;
    if (kind == format::records) {
      blocks.push_back(place);
      records += place.header.records;
      return {};
    }
    auto raw = unpack(place, std::move(stored));
    if (!raw) return std::unexpected(raw.error());
    if (kind == format::trailer) {
      format::Trailer trailer{};
      if (raw->size() != sizeof(trailer)) return std::unexpected(damaged(path, "its trailer is damaged"));
      std::memcpy(&trailer, raw->data(), sizeof(trailer));
      if (trailer.records != records || trailer.file_bytes != end || trailer.file_bytes != file_bytes) {
        return std::unexpected(damaged(path, "its trailer does not fit the file"));
      }
      ended = true;
      return {};
    }
    auto parsed = parse_session(path, *raw);
    if (!parsed) return std::unexpected(parsed.error());
    session = std::move(*parsed);
    if (!have_session) at_start = session;
    have_session = kind;
    return {};
  }

  /// Walks the whole file. An incomplete recording ends where the first block is not whole.
  Result<void> read_blocks() {
    std::optional<std::uint32_t> have_session;
    bool ended = false;
    std::uint64_t at = sizeof(format::FileHeader);
    for (std::uint32_t index = 0; at < file_bytes && !ended; ++index) {
      Place place;
      auto stored = read_block(at, index, place);
      if (!stored) {
        if (!complete) break;
        return std::unexpected(stored.error());
      }
      at = place.at + place.header.stored;
      if (auto done = take_block(place, std::move(*stored), at, have_session, ended); !done) return done;
    }
    if (!have_session) return std::unexpected(damaged(path, "it ends before it says what was recorded"));
    if (complete && (!ended || *have_session != format::session)) {
      return std::unexpected(damaged(path, "it is cut short"));
    }
    if (!complete) {
      // The counters of the end are missing, so those of the beginning have nothing to be compared with.
      session.before = CountersSnapshot{};
      session.after = CountersSnapshot{};
      session.bracket = Bracket{};
    }
    return {};
  }
};

Recording::Recording(std::unique_ptr<State> state) : state_(std::move(state)) {}
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;
Recording::~Recording() = default;

Result<Recording> Recording::open(const std::string& path, Incomplete incomplete) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (state->fd < 0) {
    return std::unexpected(system_error("cannot open the recording", path, errno, "give the path of a recording"));
  }
  struct stat status{};
  if (::fstat(state->fd, &status) != 0) return std::unexpected(system_error("cannot look at", path, errno));
  if (!S_ISREG(status.st_mode)) {
    return std::unexpected(damaged(path, "it is not a regular file", "give the path of a recording"));
  }
  state->file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (auto done = state->read_header(); !done) return std::unexpected(done.error());
  if (!state->complete && incomplete == Incomplete::refused) return std::unexpected(incomplete_error(path));
  if (auto done = state->read_blocks(); !done) return std::unexpected(done.error());
  return Recording(std::move(state));
}

const Session& Recording::session() const { return state_->session; }
const Session& Recording::session_at_start() const { return state_->at_start; }
bool Recording::complete() const { return state_->complete; }
std::uint64_t Recording::records() const { return state_->records; }

Result<void> Recording::for_each(const std::function<void(std::span<const std::byte>)>& each) const {
  for (const State::Place& known : state_->blocks) {
    State::Place place;
    auto stored = state_->read_block(known.at - sizeof(format::BlockHeader), known.header.index, place);
    if (!stored) return std::unexpected(stored.error());
    auto raw = state_->unpack(place, std::move(*stored));
    if (!raw) return std::unexpected(raw.error());
    std::span<const std::byte> rest(*raw);
    std::uint32_t frames = 0;
    while (!rest.empty()) {
      std::uint64_t length = 0;
      if (rest.size() >= sizeof(length)) std::memcpy(&length, rest.data(), sizeof(length));
      if (length == 0 || length > RecordingWriter::longest_record ||
          format::padded(length) > rest.size() - sizeof(length)) {
        return std::unexpected(
            damaged(state_->path, "block " + std::to_string(known.header.index) + " holds a damaged record"));
      }
      each(rest.subspan(sizeof(length), length));
      rest = rest.subspan(sizeof(length) + format::padded(length));
      ++frames;
    }
    if (frames != known.header.records) {
      return std::unexpected(
          damaged(state_->path, "block " + std::to_string(known.header.index) + " holds another number of records"));
    }
  }
  return {};
}

bool looks_like_recording(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  char first[sizeof(format::magic)] = {};
  const ssize_t got = ::read(fd, first, sizeof(first));
  ::close(fd);
  return got == static_cast<ssize_t>(sizeof(first)) && std::memcmp(first, format::magic, sizeof(first)) == 0;
}

}  // namespace servedby
