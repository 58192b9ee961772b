// SPDX-License-Identifier: Apache-2.0
#include "capture/preemption.h"

#include <sys/utsname.h>

#include <string>

namespace servedby {
namespace {

bool is_calm(std::string_view mode) { return mode == "none" || mode == "voluntary"; }

}  // namespace

bool preempts(std::string_view build, const std::optional<std::string_view>& mode, std::string_view command_line) {
  if (build.find("PREEMPT") == std::string_view::npos) return false;
  if (build.find("PREEMPT_DYNAMIC") == std::string_view::npos) return true;  // chosen when it was built
  if (mode) {
    const std::size_t begin = mode->find('('), end = mode->find(')');
    if (begin < end && end != std::string_view::npos) return !is_calm(mode->substr(begin + 1, end - begin - 1));
  }
  constexpr std::string_view option = "preempt=";
  for (std::size_t at = 0; at < command_line.size();) {
    const std::size_t end = std::min(command_line.find_first_of(" \n", at), command_line.size());
    const std::string_view word = command_line.substr(at, end - at);
    if (word.starts_with(option)) return !is_calm(word.substr(option.size()));
    at = end + 1;
  }
  return true;
}

bool programs_are_preempted(const Root& root) {
  utsname kernel{};
  if (::uname(&kernel) != 0) return true;
  const auto mode = root.text("/sys/kernel/debug/sched/preempt");
  const auto command_line = root.text("/proc/cmdline");
  return preempts(kernel.version, mode ? std::optional<std::string_view>(*mode) : std::nullopt,
                  command_line ? std::string_view(*command_line) : std::string_view());
}

}  // namespace servedby
