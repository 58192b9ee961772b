// SPDX-License-Identifier: Apache-2.0
#include "report/headline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "report/layer_names.h"
#include "report/quantities.h"

namespace servedby::report {
namespace {

// From this share on one source is "the" answer and the rest is named beside it.
constexpr double nearly_all_percent = 95;
constexpr std::size_t most_named = 3;

struct Served {
  std::vector<std::string> via;
  std::uint64_t bytes = 0;
  Source source = Source::unknown;
  std::string why;
  bool inferred = false;
};

std::vector<Served> served_list(const Tree& result) {
  std::vector<Served> list;
  for (const Tree& entry : list_of(result, "served_by")) {
    Served served{texts_of(entry, "via"),
                  number_of(entry, "bytes"),
                  {},
                  text_in(entry, "why").value_or(""),
                  text_of(entry, "evidence") == "inferred"};
    served.source = source_of(served.via);
    if (served.bytes != 0) list.push_back(std::move(served));
  }
  std::ranges::sort(
      list, [](const Served& a, const Served& b) { return std::tie(b.bytes, a.via) < std::tie(a.bytes, b.via); });
  return list;
}

bool is_drive(const Tree& layer) {
  const std::string kind = text_in(layer, "kind").value_or("");
  return kind == "nvme" || kind == "scsi" || kind == "virtio";
}

/// "nvme0n1 read 0 bytes" for each drive that gave nothing to the target: the second half of "not the drive".
std::string idle_drives(const Tree& result) {
  std::vector<std::string> said;
  for (const Tree& layer : list_in(result, "layers")) {
    if (!is_drive(layer)) continue;
    const std::string name = printable(text_of(layer, "name"));
    const auto kernel = number_in(layer, "kernel_read_bytes");
    const Tree& target = object_in(layer, "target");
    if (kernel == 0U) {
      said.push_back(name + " read 0 bytes");
    } else if (!target.empty()) {
      const std::uint64_t bytes = number_of(target, "bytes");
      said.push_back(fmt::format("{} read {} for it", name, bytes == 0 ? "0 bytes" : size_text(bytes)));
    } else if (kernel) {
      said.push_back(fmt::format("{} read {} for all its readers", name, size_text(*kernel)));
    }
  }
  if (said.empty() || said.size() > most_named) return {};
  return "; " + fmt::format("{}", fmt::join(said, ", "));
}

std::string answer(const Tree& result, const std::vector<Served>& served, std::uint64_t total, bool complete) {
  const std::uint64_t wall = number_in(object_in(result, "time"), "wall_ns").value_or(0);
  const std::string in_time = wall == 0 ? "" : " in " + time_text(wall);
  const char* least = complete ? "" : "at least ";
  const std::uint64_t calls = number_of(object_of(result, "reads"), "calls");
  if (total == 0) {
    std::string text = calls == 0 ? fmt::format("No reads of files were seen{}", in_time)
                                  : fmt::format("{} read calls{} returned no bytes", calls, in_time);
    std::uint64_t filled = 0;
    for (const Tree& entry : list_of(object_of(result, "mmap"), "filled_by")) filled += number_of(entry, "bytes");
    if (filled != 0) text += fmt::format("; faults of its mappings filled {}{}", least, size_text(filled));
    return text + ".";
  }
  const Served& first = served.front();
  const auto amount = [&](const Served& one) { return least + size_text(one.bytes); };
  const auto part = [&](const Served& one) {
    const std::string share = complete ? fmt::format(" ({})", share_text(one.bytes, total)) : "";
    return amount(one) + share;
  };
  const bool drives_only = std::ranges::all_of(served, [](const Served& one) { return one.source == Source::device; });
  const auto may_be_a_drive = [](const Served& one) {
    return one.source == Source::device || one.source == Source::swap || one.source == Source::unknown;
  };
  const bool no_drive = std::ranges::none_of(served, may_be_a_drive);
  const bool nearly_all = static_cast<double>(first.bytes) * 100 >= static_cast<double>(total) * nearly_all_percent;
  std::string text;
  if (first.source == Source::unknown && (nearly_all || served.size() == 1)) {
    text =
        fmt::format("Not known: which layer had {} of the {}{} that were read", part(first), least, size_text(total));
  } else {
    const char* verdict = "Mixed";
    if (drives_only || (nearly_all && first.source == Source::device)) verdict = "The drive";
    if (no_drive || (nearly_all && !may_be_a_drive(first))) verdict = "Not the drive";
    if (nearly_all && first.source == Source::swap) verdict = "Swap";
    text = fmt::format("{}: {} came from {}", verdict, served.size() == 1 ? amount(first) : part(first),
                       via_words(first.via));
  }
  std::uint64_t unnamed = 0;
  for (std::size_t i = 1; i < served.size(); ++i) {
    if (i < most_named) {
      text += fmt::format(", {} from {}", part(served[i]), via_words(served[i].via));
    } else {
      unnamed += served[i].bytes;
    }
  }
  if (unnamed != 0) text += fmt::format(", {}{} from other layers", least, size_text(unnamed));
  text += in_time;
  if (no_drive) text += idle_drives(result);
  return text + ".";
}

std::string incompleteness(const Tree& result) {
  if (!lost_something(result))
    return "Not traced (complete: false): the answer is inferred from the kernel's counters.";
  std::vector<std::string> kinds;
  for (const auto& [name, count] : nonzero_in(result, "losses")) {
    kinds.push_back(fmt::format("{} {}", printable(name), count));
  }
  const std::string which = kinds.empty() ? "" : fmt::format(" (lost: {})", fmt::join(kinds, ", "));
  return fmt::format("INCOMPLETE{}: no number below is the whole; each is at least what is said.", which);
}

/// What the ledger says in one clause.
std::string ledger_clause(const Tree& result) {
  std::vector<std::string> agree, differ, unchecked;
  for (const Tree& line : list_of(result, "ledger")) {
    const std::string name = printable(text_in(line, "device").value_or(text_of(line, "boundary")));
    const auto residual = difference_in(line, "residual_bytes");
    if (!residual) {
      unchecked.push_back(name);
    } else if (*residual == 0) {
      agree.push_back(name);
    } else {
      differ.push_back(name + " " + verdict_of(line));
    }
  }
  std::vector<std::string> clauses;
  if (!agree.empty()) {
    clauses.push_back(fmt::format("the kernel's counters agree to the byte ({})", fmt::join(agree, ", ")));
  }
  if (!differ.empty()) {
    const char* subject = agree.empty() ? "by the kernel's counters " : "";
    clauses.push_back(fmt::format("{}{}", subject, fmt::join(differ, ", ")));
  }
  if (!unchecked.empty()) clauses.push_back(fmt::format("not checked: {}", fmt::join(unchecked, ", ")));
  return fmt::format("{}", fmt::join(clauses, "; "));
}

std::string sureness(const Tree& result, const std::vector<Served>& served) {
  const std::string tier = text_of(result, "tier");
  const bool inferred = tier == "counters" || std::ranges::any_of(served, &Served::inferred);
  std::string doubt;
  for (const Served& one : served) {
    if (one.inferred && doubt.empty()) doubt = one.why;
  }
  if (inferred) {
    std::string text = tier == "counters" ? "Inferred from counters, not traced" : "Partly inferred";
    text += doubt.empty() ? ": other readers of the same devices would look the same" : ": " + printable(doubt);
    return text + (text.ends_with('.') ? "" : ".");
  }
  const std::string ledger = ledger_clause(result);
  return fmt::format("Traced ({}){}{}.", printable(tier), ledger.empty() ? "" : "; ", ledger);
}

/// The first hook that the answer rests on and that is not there.
std::string missing_hook(const Tree& result) {
  for (const Tree& hook : list_in(result, "hooks")) {
    if (flag_of(hook, "attached") || !flag_of(hook, "served_by")) continue;
    return fmt::format("hook {} is not attached: {}", printable(text_of(hook, "name")),
                       printable(text_in(hook, "why_not").value_or("no reason was recorded")));
  }
  return {};
}

std::string what_would_change(const Tree& result, const std::vector<Served>& served) {
  const std::string missing = missing_hook(result);
  const auto unknown = std::ranges::find(served, Source::unknown, &Served::source);
  if (unknown != served.end()) {
    const std::string why = unknown->why.empty() ? missing : printable(unknown->why);
    if (why.empty()) return "Unknown without a reason given; servedby doctor shows which hooks work here.";
    return fmt::format("Unknown because: {}{}.", why, why == missing || missing.empty() ? "" : " (" + missing + ")");
  }
  if (text_of(result, "tier") == "counters") {
    return "As root, or with CAP_BPF and CAP_PERFMON, it would be traced; servedby doctor says what is missing.";
  }
  if (served.empty()) return {};
  switch (served.front().source) {
    case Source::page_cache:
      return "To read from the drive, evict first: servedby evict PATH (--through for what lies below a loop device).";
    case Source::backing_cache:
      return "To read from the drive, evict the backing file too: servedby evict --through PATH.";
    case Source::device:
      return "A second read would come from the page cache for as long as memory holds it (never with direct I/O).";
    case Source::swap:
    case Source::other:
    case Source::unknown:
      break;
  }
  return {};
}

}  // namespace

std::string verdict_of(const Tree& ledger_line) {
  const auto residual = difference_in(ledger_line, "residual_bytes");
  if (!residual) {
    const std::string source = printable(text_in(ledger_line, "kernel_source").value_or("the kernel did not count"));
    if (number_in(ledger_line, "kernel_bytes")) return "not traced; counted by " + source;
    return source.starts_with("not checked") ? source : "not checked: " + source;
  }
  if (*residual == 0) return "agrees to the byte";
  const std::uint64_t bracket = number_of(ledger_line, "bracket_bytes");
  const auto size = *residual < 0 ? ~static_cast<std::uint64_t>(*residual) + 1 : static_cast<std::uint64_t>(*residual);
  std::string differs = fmt::format("differs by {} bytes", difference_text(*residual));
  if (size <= number_in(ledger_line, "server_bytes").value_or(0))
    return fmt::format("{}, which servers had: the kernel may count them or not", differs);
  if (size <= bracket) return fmt::format("{}, within the {} in flight around the counters", differs, bracket);
  return differs;
}

bool lost_something(const Tree& result) {
  if (flag_of(result, "complete")) return false;
  return text_of(result, "tier") != "counters" || !nonzero_in(result, "losses").empty();
}

std::vector<std::string> headline(const Tree& result) {
  const std::uint64_t total = number_of(object_of(result, "reads"), "bytes_returned");
  const std::vector<Served> served = served_list(result);
  if (total != 0 && served.empty()) throw Malformed("served_by: no entry though bytes were returned");
  std::vector<std::string> lines;
  if (!flag_of(result, "complete")) lines.push_back(incompleteness(result));
  lines.push_back(answer(result, served, total, !lost_something(result)));
  lines.push_back(sureness(result, served));
  if (lines.size() < 3) {
    if (std::string change = what_would_change(result, served); !change.empty()) lines.push_back(std::move(change));
  }
  return lines;
}

}  // namespace servedby::report
