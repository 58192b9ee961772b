// SPDX-License-Identifier: Apache-2.0
#include "capture/target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <utility>

namespace servedby {
namespace {

/// In the child: waits to be let go, then executes. Only async-signal-safe calls.
[[noreturn]] void wait_and_execute(int go, int failure, const std::vector<char*>& arguments, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a child that was never released must not outlive us
  if (getppid() != parent) _exit(127);
  pollfd released{go, POLLIN, 0};  // polled, not read: the first read of the session is to be the command's own
  while (poll(&released, 1, -1) < 0 && errno == EINTR) {
  }
  if ((released.revents & POLLIN) == 0) _exit(127);
  prctl(PR_SET_PDEATHSIG, 0);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &error, sizeof(error));
  _exit(error == ENOENT ? 127 : 126);
}

/// The process that a task belongs to; 0 if /proc does not show it.
std::uint32_t process_of(std::uint32_t task) {
  std::ifstream status(fmt::format("/proc/{}/status", task));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Tgid:")) return static_cast<std::uint32_t>(std::stoul(line.substr(5)));
  }
  return 0;
}

}  // namespace

Result<HeldCommand> HeldCommand::hold(const std::vector<std::string>& arguments) {
  std::array<int, 2> go{};
  std::array<int, 2> failure{};
  if (pipe2(go.data(), O_CLOEXEC) != 0) return std::unexpected(system_error("cannot make", "a pipe", errno));
  if (pipe2(failure.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    close(go[0]);
    close(go[1]);
    return std::unexpected(system_error("cannot make", "a pipe", error));
  }
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);
    close(failure[0]);
    wait_and_execute(go[0], failure[1], words, parent);
  }
  const int error = errno;
  close(go[0]);
  close(failure[1]);
  if (pid < 0) {
    close(go[1]);
    close(failure[0]);
    return std::unexpected(system_error("cannot start", arguments.front(), error));
  }
  HeldCommand command;
  command.pid_ = pid;
  command.go_ = go[1];
  command.failure_ = failure[0];
  return command;
}

HeldCommand::HeldCommand(HeldCommand&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      go_(std::exchange(other.go_, -1)),
      failure_(std::exchange(other.failure_, -1)),
      exec_errno_(other.exec_errno_),
      reaped_(other.reaped_),
      status_(other.status_) {}

HeldCommand::~HeldCommand() {
  if (failure_ >= 0) close(failure_);
  if (go_ < 0) return;
  close(go_);  // never released: it reads the end of the pipe and exits
  if (pid_ > 0 && !reaped_) waitpid(pid_, nullptr, 0);
}

Result<void> HeldCommand::release() {
  // Ctrl-C may have ended it while it was held; then nobody is at the other end of the pipe.
  struct sigaction ignore{};
  struct sigaction before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  const char word = 'g';
  const ssize_t told = write(go_, &word, 1);
  const int error = errno;
  sigaction(SIGPIPE, &before, nullptr);
  close(std::exchange(go_, -1));
  if (told != 1 && error != EPIPE) return std::unexpected(system_error("cannot start", "the command", error));
  int failed = 0;
  ssize_t got = 0;
  do {
    got = read(failure_, &failed, sizeof(failed));  // ends when the exec closes the other end
  } while (got < 0 && errno == EINTR);
  close(std::exchange(failure_, -1));
  if (got == sizeof(failed)) {
    exec_errno_ = failed;
    return std::unexpected(system_error("cannot run", "the command", failed));
  }
  return {};
}

bool HeldCommand::ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

void HeldCommand::pass_on(int signal) const {
  if (pid_ > 0 && !reaped_) kill(pid_, signal);
}

int HeldCommand::reap() {
  while (!reaped_ && waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

Result<void> check_proc() {
  std::array<char, 32> self{};  // a link to our own PID, as this /proc counts
  const ssize_t length = readlink("/proc/self", self.data(), self.size());
  if (length > 0 && std::string(self.data(), static_cast<std::size_t>(length)) == std::to_string(getpid())) return {};
  return std::unexpected(Error{"cannot look at", "processes",
                               "/proc is not mounted, or shows the PIDs of another PID namespace",
                               "mount the /proc of this one (unshare --mount-proc)", Exit::not_permitted});
}

Result<void> check_running(std::uint32_t pid) {
  if (auto visible = check_proc(); !visible) return visible;
  const auto refuse = [&](std::string why, std::string todo, Exit exit) -> Result<void> {
    return std::unexpected(
        Error{"cannot attach to", fmt::format("PID {}", pid), std::move(why), std::move(todo), exit});
  };
  const char* const another = "give the PID of a running process";
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)
    return refuse("no such process", another, Exit::bad_input);
  const std::uint32_t leader = process_of(pid);
  if (leader == 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM)
    return refuse("/proc does not show it to this user", "run as the user who owns it, or as root",
                  Exit::not_permitted);
  if (leader != 0 && leader != pid)
    return refuse(fmt::format("it is a thread of PID {}", leader), fmt::format("give --pid {}", leader),
                  Exit::bad_input);
  if (!still_runs(pid)) return refuse("it has already ended", another, Exit::bad_input);
  return {};
}

bool still_runs(std::uint32_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(stat, text)) return false;
  const auto after_name = text.rfind(')');
  if (after_name == std::string::npos || after_name + 2 >= text.size()) return false;
  const char state = text[after_name + 2];
  return state != 'Z' && state != 'X';
}

}  // namespace servedby
