// SPDX-License-Identifier: Apache-2.0
#include "workload/model_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <vector>

#include "workload/random_words.h"
#include "workload/size_text.h"

namespace servedby {

namespace {

constexpr std::array<int, 3> ending_signals{SIGINT, SIGTERM, SIGHUP};

/// What the signal handler unlinks; only set while handlers are installed.
const char* volatile file_to_remove = nullptr;

void remove_and_die(int signal) {
  if (file_to_remove != nullptr) unlink(file_to_remove);
  // The handler was reset on entry (SA_RESETHAND): raising again ends the process by the signal itself.
  raise(signal);
}

/// The file under its temporary name: gone when this is, unless it was given its real name.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string name) : name_(std::move(name)) {
    file_to_remove = name_.c_str();
    struct sigaction action{};
    action.sa_handler = remove_and_die;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (std::size_t i = 0; i < ending_signals.size(); ++i) {
      sigaction(ending_signals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(ending_signals[i], &action, nullptr);  // nohup stays nohup
    }
  }
  ~TemporaryFile() {
    if (fd_ >= 0) {
      close(fd_);
      if (!renamed_) unlink(name_.c_str());
    }
    for (std::size_t i = 0; i < ending_signals.size(); ++i) sigaction(ending_signals[i], &before_[i], nullptr);
    file_to_remove = nullptr;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// 0 or an errno value.
  int create() {
    fd_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    return fd_ < 0 ? errno : 0;
  }
  int rename_to(const std::string& path, bool replace) {
    const int failed = renameat2(AT_FDCWD, name_.c_str(), AT_FDCWD, path.c_str(), replace ? 0 : RENAME_NOREPLACE);
    if (failed != 0 && !replace && (errno == EINVAL || errno == ENOSYS)) {
      // A file system without RENAME_NOREPLACE: the check at the beginning has to do.
      if (rename(name_.c_str(), path.c_str()) != 0) return errno;
    } else if (failed != 0) {
      return errno;
    }
    renamed_ = true;
    return 0;
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  std::string name_;
  int fd_ = -1;
  bool renamed_ = false;
  std::array<struct sigaction, ending_signals.size()> before_{};
};

int write_all(int fd, const char* data, std::size_t bytes) {
  while (bytes != 0) {
    const ssize_t wrote = write(fd, data, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    data += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
  return 0;
}

/// Writes `bytes` random bytes whose word i is random_word(seed, i), little-endian.
int write_random(int fd, std::uint64_t bytes, const ModelWriteOptions& options, std::uint64_t header_bytes) {
  constexpr std::uint64_t chunk_words = std::uint64_t{512} << 10U;
  std::vector<std::uint64_t> words(std::min(chunk_words, bytes / 8 + 1));
  for (std::uint64_t done = 0; done < bytes;) {
    for (std::uint64_t i = 0; i < words.size(); ++i) {
      words[i] = random_word(options.seed, done / 8 + i);
      if constexpr (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) words[i] = __builtin_bswap64(words[i]);
    }
    const std::uint64_t part = std::min<std::uint64_t>(words.size() * 8, bytes - done);
    if (const int failed = write_all(fd, reinterpret_cast<const char*>(words.data()), part); failed != 0) return failed;
    done += part;
    if (options.progress) options.progress(header_bytes + done, header_bytes + bytes);
  }
  return 0;
}

}  // namespace

Result<void> write_model(const std::string& path, const ModelPlan& plan, const ModelWriteOptions& options) {
  struct stat there{};
  if (!options.force && lstat(path.c_str(), &there) == 0)
    return std::unexpected(
        Error{"will not overwrite", path, "it exists", "give another name, or --force", Exit::usage});
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    return std::unexpected(
        Error{"cannot write", path, "it exists and is not a regular file", "give another name", Exit::bad_input});
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::string base = slash == std::string::npos ? path : path.substr(slash + 1);
  const auto failed = [&](int error_number) {
    const std::string todo = error_number == ENOSPC || error_number == EDQUOT
                                 ? fmt::format("free {} there, or give a smaller --size", size_text(plan.file_bytes))
                             : error_number == ENOENT ? "make its folder first"
                             : error_number == EEXIST ? "give another name, or --force"
                                                      : "";
    return std::unexpected(system_error("cannot write", path, error_number, todo));
  };
  TemporaryFile file(fmt::format("{}.{}.{}.part", folder, base, getpid()));
  if (const int error_number = file.create(); error_number != 0) return failed(error_number);
  // Ask for the space now: a full disk is then found before anything is written. Not every file system can.
  if (fallocate(file.fd(), 0, 0, static_cast<off_t>(plan.file_bytes)) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    return failed(errno);
  if (const int error_number = write_all(file.fd(), plan.header.data(), plan.header.size()); error_number != 0)
    return failed(error_number);
  if (const int error_number =
          write_random(file.fd(), plan.file_bytes - plan.header.size(), options, plan.header.size());
      error_number != 0)
    return failed(error_number);
  while (fdatasync(file.fd()) != 0)
    if (errno != EINTR) return failed(errno);
  if (const int error_number = file.rename_to(path, options.force); error_number != 0) return failed(error_number);
  return {};
}

}  // namespace servedby
