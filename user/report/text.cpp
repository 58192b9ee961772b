// SPDX-License-Identifier: Apache-2.0
#include "report/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "report/headline.h"
#include "report/layer_names.h"
#include "report/quantities.h"
#include "report/result_json.h"
#include "report/table.h"

namespace servedby::report {
namespace {

using Align = Table::Align;

/// Of bytes that must not be taken for the whole.
const char* bytes_title(bool complete) { return complete ? "bytes" : "bytes (at least)"; }

std::string decimal(const std::optional<std::uint64_t>& number) { return number ? std::to_string(*number) : ""; }

/// "nvme0n1 50.0 %, page-cache 50.0 %"; shares of an incomplete result would be shares of an unknown whole, so it gets
/// sizes.
std::string split_text(const Tree& served_by, std::uint64_t whole, bool complete) {
  std::vector<std::string> parts;
  for (const Tree& entry : served_by) {
    const std::uint64_t bytes = number_of(entry, "bytes");
    if (bytes == 0) continue;
    const std::string layer = via_text(texts_of(entry, "via"));
    parts.push_back(fmt::format("{} {}", layer, complete ? share_text(bytes, whole) : size_text(bytes)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Whether one of `lines` says it already.
bool said_in(const std::vector<std::string>& lines, const std::string& text) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

std::string layers_text(const Tree& result, bool complete, const std::vector<std::string>& headline) {
  const Tree& reads = object_of(result, "reads");
  const std::uint64_t total = number_of(reads, "bytes_returned");
  if (total == 0) return {};
  Table table({{"Served by", Align::left},
               {bytes_title(complete)},
               {"size"},
               {"share"},
               {"prefetched"},
               {"reads"},
               {"waited"},
               {"evidence", Align::left}});
  std::map<std::string, std::string> reasons;
  std::uint64_t sum = 0;
  for (const Tree& entry : list_of(result, "served_by")) {
    const std::uint64_t bytes = number_of(entry, "bytes");
    const std::string layer = via_text(texts_of(entry, "via"));
    const auto wait = number_in(entry, "wait_ns");
    const std::string evidence = text_of(entry, "evidence");
    sum += bytes;
    table.add({layer, std::to_string(bytes), size_text(bytes), complete ? share_text(bytes, total) : "",
               decimal(number_in(entry, "prefetched_bytes")), decimal(number_in(entry, "reads")),
               wait ? time_text(*wait) : "", evidence});
    const auto why = text_in(entry, "why");
    if (why && !said_in(headline, printable(*why))) {
      std::string& layers = reasons[printable(*why)];  // one doubt is often that of several layers
      layers += (layers.empty() ? "" : ", ") + layer;
    }
  }
  if (sum != total) throw Malformed(fmt::format("served_by: sums to {}, reads.bytes_returned is {}", sum, total));
  table.add(
      {"total", std::to_string(total), size_text(total), "", "", std::to_string(number_of(reads, "calls")), "", ""});
  std::string text = table.text(0);
  for (const auto& [why, layers] : reasons) text += fmt::format("  {}: {}\n", layers, why);
  return text;
}

std::string files_text(const Tree& result, bool complete, std::size_t most) {
  const Tree& files = list_of(result, "files");
  if (files.empty()) return {};
  Table table({{"File: " + std::string(bytes_title(complete))},
               {"size"},
               {"reads"},
               {"served by", Align::left},
               {"path", Align::left}});
  std::size_t shown = 0;
  std::uint64_t hidden_bytes = 0;
  for (const Tree& file : files) {
    const Tree& reads = object_of(file, "reads");
    const std::uint64_t bytes = number_of(reads, "bytes_returned");
    const Tree& served_by = list_of(file, "served_by");
    const std::string path = printable(text_of(file, "path"));
    const std::uint64_t calls = number_of(reads, "calls");
    if (shown < most) {
      table.add({std::to_string(bytes), size_text(bytes), std::to_string(calls), split_text(served_by, bytes, complete),
                 path});
      ++shown;
    } else {
      hidden_bytes += bytes;
    }
  }
  std::string text = table.text(0);
  if (shown < files.size()) {
    text += fmt::format("  and {} more files, {} bytes; --json has them all\n", files.size() - shown, hidden_bytes);
  }
  return text;
}

std::string ledger_text(const Tree& result) {
  const Tree& ledger = list_of(result, "ledger");
  if (ledger.empty()) return {};
  Table table({{"Ledger", Align::left}, {"kernel counted"}, {"traced: target"}, {"others"}, {"", Align::left}});
  std::string parts;
  for (const Tree& line : ledger) {
    const auto device = text_in(line, "device");
    const std::string boundary = printable(text_of(line, "boundary"));
    const std::string name = device ? boundary + " " + printable(*device) : boundary;
    table.add({name, decimal(number_in(line, "kernel_bytes")), decimal(number_in(line, "traced_target_bytes")),
               decimal(number_in(line, "traced_other_bytes")), verdict_of(line)});
    std::vector<std::string> named;
    for (const auto& [part, bytes] : nonzero_in(line, "parts"))
      named.push_back(fmt::format("{} {}", printable(part), bytes));
    if (!named.empty()) parts += fmt::format("  {}: {}\n", name, fmt::join(named, ", "));
  }
  return table.text(0) + parts;
}

std::string mmap_text(const Tree& result) {
  const Tree& mmap = object_of(result, "mmap");
  const auto major = number_in(mmap, "faults_major"), minor = number_in(mmap, "faults_minor");
  std::vector<std::string> filled;
  for (const Tree& entry : list_of(mmap, "filled_by")) {
    filled.push_back(fmt::format("{} {}", via_text(texts_of(entry, "via")), number_of(entry, "bytes")));
  }
  if (filled.empty() && major.value_or(0) == 0) return {};
  std::string text = "Mappings:";
  if (major) text += fmt::format(" {} major faults", *major);
  if (minor) text += fmt::format("{} {} minor", major ? "," : "", *minor);
  if (!filled.empty())
    text += fmt::format("{} filled bytes from {}", major || minor ? ";" : "", fmt::join(filled, ", "));
  return text + " (what a mapping returns from memory cannot be seen)\n";
}

std::string counts_line(const char* title, const Tree& result, const char* name) {
  std::vector<std::string> parts;
  for (const auto& [key, count] : nonzero_in(result, name))
    parts.push_back(fmt::format("{} {}", printable(key), count));
  return parts.empty() ? "" : fmt::format("{}: {}\n", title, fmt::join(parts, ", "));
}

/// Names that occur in any `via` of the answer.
std::set<std::string> layers_used(const Tree& result) {
  std::set<std::string> names;
  for (const Tree* list : {&list_of(result, "served_by"), &list_of(object_of(result, "mmap"), "filled_by")}) {
    for (const Tree& entry : *list) {
      for (std::string& name : texts_of(entry, "via")) names.insert(std::move(name));
    }
  }
  return names;
}

/// Warnings, but not those that only repeat the doubt of an answer.
std::string warnings_text(const Tree& result) {
  std::vector<std::string> doubts;
  for (const Tree& entry : list_of(result, "served_by")) {
    if (const auto why = text_in(entry, "why"); why && !why->empty()) doubts.push_back(*why);
  }
  std::string text;
  if (list_in(result, "warnings").empty()) return text;
  for (const std::string& warning : texts_of(result, "warnings")) {
    const bool repeats = std::ranges::any_of(doubts, [&](const std::string& why) { return warning.ends_with(why); });
    if (!repeats) text += fmt::format("Warning: {}\n", printable(warning));
  }
  return text;
}

std::string remarks_text(const Tree& result) {
  std::string text = mmap_text(result);
  if (const auto bytes = number_in(result, "wasted_bytes"); bytes.value_or(0) != 0) {
    text += fmt::format("Read for nothing: {} bytes were filled for the target and never returned\n", *bytes);
  }
  if (const auto bytes = number_in(result, "warmed_by_others_bytes"); bytes.value_or(0) != 0) {
    text += fmt::format(
        "Warmed by others: {} of the bytes from the page cache were filled by another process during the session\n",
        *bytes);
  }
  const std::set<std::string> used = layers_used(result);
  for (const Tree& layer : list_in(result, "layers")) {
    if (!used.contains(text_of(layer, "name"))) continue;
    const Tree& backing = object_in(layer, "backing_file");
    if (backing.empty()) continue;
    text += fmt::format("{} reads {} ({})\n", printable(text_of(layer, "name")), printable(text_of(backing, "path")),
                        flag_of(backing, "direct_io") ? "direct I/O" : "buffered");
  }
  text += counts_line("Lost", result, "losses");
  text += counts_line("Recovered (missed by one hook, seen by another)", result, "recovered");
  text += counts_line("At the edges of the session (not lost)", result, "edges");
  text += warnings_text(result);
  if (list_in(result, "not_seen").empty()) return text;
  for (const std::string& line : texts_of(result, "not_seen")) text += fmt::format("Not seen: {}\n", printable(line));
  return text;
}

std::string hooks_text(const Tree& result) {
  if (list_in(result, "hooks").empty()) return {};
  Table table({{"Hook", Align::left}, {"how", Align::left}, {"runs"}, {"skipped"}, {"why not", Align::left}});
  for (const Tree& hook : list_in(result, "hooks")) {
    const bool attached = flag_of(hook, "attached");
    table.add({printable(text_of(hook, "name")),
               attached ? printable(text_in(hook, "how").value_or("")) : "not attached",
               decimal(number_in(hook, "runs")), decimal(number_in(hook, "recursion_misses")),
               printable(text_in(hook, "why_not").value_or(""))});
  }
  return table.text(0);
}

std::string context_line(const Tree& result) {
  std::vector<std::string> parts;
  const Tree& target = object_in(result, "target");
  const auto pid = number_in(target, "pid");
  std::string who;
  if (!list_in(result, "command").empty()) {
    who = printable(fmt::format("{}", fmt::join(texts_of(result, "command"), " ")));
  } else {
    who = printable(text_in(target, "comm").value_or(""));
  }
  if (pid) who += fmt::format("{}PID {}", who.empty() ? "" : ", ", *pid);
  if (const std::size_t children = list_in(target, "children").size(); children != 0) {
    who += fmt::format(" and {} child process{}", children, children == 1 ? "" : "es");
  }
  if (!who.empty()) parts.push_back(who);
  if (const auto kernel = text_in(result, "kernel")) parts.push_back("kernel " + printable(*kernel));
  if (const auto started = text_in(result, "started_at")) parts.push_back(printable(*started));
  parts.push_back(printable(text_of(result, "tool")));
  return fmt::format("{}\n", fmt::join(parts, "; "));
}

std::string whole_text(const Tree& result, const TextStyle& style) {
  if (text_of(result, "schema") != result_schema) throw Malformed(std::string("schema: not ") + result_schema);
  const bool complete = !lost_something(result);
  const std::vector<std::string> lines = headline(result);
  std::string text;
  bool first = true;
  for (const std::string& line : lines) {
    const char* on = !style.colour || !first ? "" : complete ? "\033[1m" : "\033[1;31m";
    text += on + line + (*on == '\0' ? "\n" : "\033[0m\n");
    first = false;
  }
  for (const std::string& block :
       {layers_text(result, complete, lines), files_text(result, complete, style.most_files), ledger_text(result),
        remarks_text(result), style.hooks ? hooks_text(result) : std::string(), context_line(result)}) {
    if (!block.empty()) text += "\n" + block;
  }
  return text;
}

}  // namespace

Result<std::string> result_text(const Tree& result, const TextStyle& style) {
  try {
    return whole_text(result, style);
  } catch (const Malformed& wrong) {
    return std::unexpected(Error{"cannot render the result", "", printable(wrong.what()),
                                 "it must be a servedby.result/1 as docs/result.md describes it", Exit::bad_input});
  }
}

bool wants_colour(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace servedby::report
