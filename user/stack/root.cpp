// SPDX-License-Identifier: Apache-2.0
#include "stack/root.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

namespace servedby {

namespace fs = std::filesystem;

Root::Root(std::string prefix, std::shared_ptr<const SystemCalls> calls)
    : prefix_(std::move(prefix)), calls_(std::move(calls)) {
  if (prefix_.empty()) return;
  std::error_code failed;
  const fs::path real = fs::canonical(prefix_, failed);
  if (!failed) prefix_ = real.string();
  while (prefix_.ends_with('/')) prefix_.pop_back();
}

std::expected<std::string, int> Root::text(const std::string& path) const {
  // O_NONBLOCK: a stray FIFO in a container's /proc or /sys must not hang us. procfs and sysfs do not care.
  const int file = ::open((prefix_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::unexpected(errno);
  std::string content;
  std::array<char, 16384> buffer{};
  int error = 0;
  for (;;) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got > 0) {
      content.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      break;
    } else if (errno != EINTR) {
      error = errno;
      break;
    }
  }
  ::close(file);
  if (error != 0) return std::unexpected(error);
  return content;
}

std::optional<std::string> Root::line(const std::string& path) const {
  auto content = text(path);
  if (!content) return std::nullopt;
  content->resize(std::min(content->size(), content->find('\n')));
  content->resize(content->find_last_not_of(" \t\r") + 1);
  return *std::move(content);
}

std::optional<std::uint64_t> Root::number(const std::string& path) const {
  const auto digits = line(path);
  if (!digits) return std::nullopt;
  std::uint64_t value = 0;
  const char* const end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

std::vector<std::string> Root::entries(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator next(prefix_ + path, failed), end; !failed && next != end; next.increment(failed)) {
    names.push_back(next->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

bool Root::exists(const std::string& path) const { return ::access((prefix_ + path).c_str(), F_OK) == 0; }

std::optional<std::string> Root::resolve(const std::string& path) const {
  std::error_code failed;
  std::string real = fs::canonical(prefix_ + path, failed).string();
  if (failed || !real.starts_with(prefix_ + "/")) return std::nullopt;
  return real.substr(prefix_.size());
}

}  // namespace servedby
