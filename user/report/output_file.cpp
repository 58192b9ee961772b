// SPDX-License-Identifier: Apache-2.0
#include "report/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace servedby::report {
namespace {

/// Returns 0 or an errno value.
int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

Error exists(const std::string& path) {
  return Error{"will not overwrite", path, "it exists", "give another name, or --force", Exit::usage};
}

Result<void> write_directly(const std::string& path, std::string_view content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return std::unexpected(system_error("cannot open", path, errno));
  int wrong = write_all(fd, content);
  if (::close(fd) != 0 && wrong == 0) wrong = errno;
  if (wrong != 0) return std::unexpected(system_error("cannot write to", path, wrong));
  return {};
}

}  // namespace

Result<void> write_output(const std::string& path, std::string_view content, bool force) {
  struct stat status{};
  const bool there = ::stat(path.c_str(), &status) == 0;
  if (there && S_ISDIR(status.st_mode)) return std::unexpected(system_error("cannot write to", path, EISDIR));
  if (there && !S_ISREG(status.st_mode)) return write_directly(path, content);
  if (there && !force) return std::unexpected(exists(path));

  const std::string beside = path + "." + std::to_string(::getpid()) + ".partial";
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return std::unexpected(system_error("cannot create", path, errno, "give a path that can be written"));
  int wrong = write_all(fd, content);
  if (wrong == 0 && ::fsync(fd) != 0) wrong = errno;
  if (::close(fd) != 0 && wrong == 0) wrong = errno;
  // link() does what rename() cannot: it fails where somebody else has taken the name meanwhile. Some file systems have
  // no links; there the check above has to do.
  if (wrong == 0 && !force && ::link(beside.c_str(), path.c_str()) == 0) {
    ::unlink(beside.c_str());
    return {};
  }
  if (wrong == 0 && !force && errno == EEXIST) wrong = EEXIST;
  if (wrong == 0 && ::rename(beside.c_str(), path.c_str()) != 0) wrong = errno;
  if (wrong == 0) return {};
  ::unlink(beside.c_str());
  if (wrong == EEXIST) return std::unexpected(exists(path));
  return std::unexpected(
      system_error("cannot write", path, wrong, wrong == ENOSPC ? "make room, or write elsewhere" : ""));
}

Result<void> print_output(std::string_view content) {
  const bool written = std::fwrite(content.data(), 1, content.size(), stdout) == content.size();
  if (!written || std::fflush(stdout) != 0)
    return std::unexpected(system_error("cannot write to", "standard output", errno));
  return {};
}

}  // namespace servedby::report
