// SPDX-License-Identifier: Apache-2.0
// Which kernel hooks observe what, and the ways to attach each. A plan is chosen hook by hook for the context the hook
// runs in; whether a way works is found out by trying it, never from the kernel's version.
#pragma once

#include <string>
#include <vector>

namespace servedby {

enum class Tier { automatic, fentry, kprobe, counters };

/// Where a hook is wanted.
enum class Wanted {
  always,
  where_bios_are_passed_on,  ///< there is a device without requests that passes bios on (dm, md, multipath)
  where_bios_are_served,     ///< there is one that serves them itself (zram, brd)
  where_there_are_stripes,   ///< there is md raid4, 5 or 6
};

/// One way to attach a hook: BPF programs that together observe it.
struct Way {
  std::string tier;                   ///< "fentry" | "kprobe" | "tracepoint" (a classic one: no weaker than either)
  std::string how;                    ///< for people: "kprobe submit_bio"
  std::vector<std::string> programs;  ///< names in the BPF object; all or none
  std::string function;               ///< only on kernels that have this function; "": not asked beforehand
};

struct Hook {
  std::string name;
  std::string sees;           ///< one line for people
  std::string why;            ///< why the first way is the first
  bool served_by = true;      ///< the answer rests on it
  std::string module;         ///< the kernel module that holds the function; "" for the kernel itself
  bool second_sight = false;  ///< another hook sees the same: its absence loses nothing
  std::vector<Way> ways;      ///< in the order to try
  Wanted wanted = Wanted::always;
  std::vector<std::string> only_on = {};  ///< wanted only where a file system of one of these types is mounted
};

/// The hooks in the order they are attached, with the ways that `tier` allows. Tier::automatic: where programs are
/// `preempted`, the ways that lose nothing in their context, fentry where no such way is known; else fentry, which
/// costs least, and kprobes where that is refused. Tier::fentry and Tier::kprobe: only that tier, but for hooks that
/// have none of it.
[[nodiscard]] std::vector<Hook> hook_plan(Tier tier, bool preempted);

/// True when `--without name` means this hook: its full name, or the part before the first dash ("fill" for
/// "fill-folio").
[[nodiscard]] bool hook_is(const Hook& hook, const std::string& name);

}  // namespace servedby
