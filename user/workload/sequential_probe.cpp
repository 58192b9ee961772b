// SPDX-License-Identifier: Apache-2.0
#include "workload/sequential_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "formats/safetensors.h"
#include "workload/data_checksum.h"

namespace servedby {

namespace {

struct Subject {
  RegularFile file;
  std::uint64_t sum_from = 0;  ///< first byte that the checksum covers
};

/// Where the tensors begin, from the first chunk; 0 for what is not safetensors. The header is not read on its own, so
/// that every byte of the file is read once.
std::uint64_t first_summed_byte(std::string_view beginning, const RegularFile& file) {
  const auto header = safetensors_header_bytes(beginning, file.bytes(), file.path());
  return header && beginning.size() > 8 && beginning[8] == '{' ? 8 + *header : 0;
}

/// Reads the file from its start to the size it had when it was opened.
Result<void> read_through(Subject& subject, std::vector<char>& buffer, bool sum, ProbedFile& probed,
                          std::uint64_t& calls) {
  const RegularFile& file = subject.file;
  if (lseek(file.fd(), 0, SEEK_SET) < 0) return std::unexpected(system_error("cannot seek in", file.path(), errno));
  for (std::uint64_t at = 0; at < file.bytes();) {
    const std::size_t ask = std::min<std::uint64_t>(buffer.size(), file.bytes() - at);
    const ssize_t got = read(file.fd(), buffer.data(), ask);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(system_error("cannot read", file.path(), errno));
    if (got == 0)
      return std::unexpected(
          Error{"short read of", file.path(),
                fmt::format("truncated while being read: it had {} bytes, now it ended at {}", file.bytes(), at),
                "copy or download the file again", Exit::bad_input});
    ++calls;
    const auto bytes = static_cast<std::uint64_t>(got);
    if (at == 0) subject.sum_from = first_summed_byte({buffer.data(), bytes}, file);
    if (sum && at + bytes > subject.sum_from) {
      const std::uint64_t skip = subject.sum_from > at ? subject.sum_from - at : 0;
      *probed.checksum += checksum_part(buffer.data() + skip, bytes - skip, at + skip);
    }
    at += bytes;
    probed.bytes += bytes;
  }
  return {};
}

}  // namespace

Result<ProbeResult> probe_sequential(const std::vector<std::string>& paths, const SequentialOptions& options) {
  std::vector<Subject> subjects;
  ProbeResult result;
  result.probe = "sequential";
  for (const std::string& path : paths) {
    auto file = open_regular_file(path);
    if (!file) return std::unexpected(file.error());
    Subject subject{.file = *std::move(file)};
    ProbedFile probed{.path = path, .tensors = {}, .checksum = {}};
    if (options.checksum) probed.checksum = 0;
    subjects.push_back(std::move(subject));
    result.files.push_back(std::move(probed));
  }
  result.settings = {{"passes", std::uint64_t{options.passes}}, {"chunk_bytes", options.chunk_bytes}};

  std::vector<char> buffer(options.chunk_bytes);
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned pass = 0; pass < options.passes; ++pass)
    for (std::size_t i = 0; i < subjects.size(); ++i)
      if (auto read = read_through(subjects[i], buffer, options.checksum && pass == 0, result.files[i], result.calls);
          !read)
        return std::unexpected(read.error());
  result.wall_ns =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  return result;
}

}  // namespace servedby
