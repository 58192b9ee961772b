// SPDX-License-Identifier: Apache-2.0
// The result, of what the records left: layers by name, files, the ledger, and whether it is whole.
#include <algorithm>
#include <tuple>

#include "attribution/state.h"

namespace servedby {

/// Settles what was filled or is in flight when the session ends.
void Attribution::State::end_runs(const Session& session) {
  // Nothing was in flight when the hooks went away: what seems to be had its completion missed.
  const char* how = session.counts.requests_in_flight_at_end == 0 ? "completion_by_end" : nullptr;
  for (std::uint32_t i = 0; i < resolver.files().size(); ++i) resolver.settle_swapped(resolver.file(i), 0, UINT64_MAX);
  std::vector<Run> all;
  for (std::uint32_t i = 0; i < resolver.files().size(); ++i) {
    File& file = resolver.file(i);
    all.clear();
    file.fills.take_all(all);
    resolver.dispose(file, all, how);
  }
  for (auto& [key, call] : direct) resolver.drop(call.fills);
}

void Attribution::State::list_files(const Layers& layers, AttributionResult& result) {
  for (const File& file : resolver.files())
    if ((!file.mapped.empty() || file.wasted != 0) && !opened_as.contains(file.key)) listing_of(file.key, file.key);
  // What the pages of a real file did belongs to the name that it was first opened by.
  std::map<FileKey, std::vector<std::uint32_t>> real_files;
  for (std::uint32_t i = 0; i < resolver.files().size(); ++i) {
    const auto opened = opened_as.find(resolver.files()[i].key);
    if (opened != opened_as.end()) real_files[opened->second].push_back(i);
  }
  std::vector<std::vector<ServedBy>> served;
  std::vector<std::vector<FilledBy>> filled;
  for (const auto& [opened, listing] : listings) {
    FileResult file;
    file.path = listing.path.empty() ? "(unnamed)" : listing.path;
    file.dev = listing.real.dev;
    file.inode = listing.real.ino;
    file.reads = listing.calls.totals();
    file.served_by = layers.served_by(listing.tally, sets);
    std::vector<Sum> mapped;
    for (const std::uint32_t i : real_files[opened]) {
      file.wasted_bytes += resolver.files()[i].wasted;
      for (const Sum& sum : resolver.files()[i].mapped) add_to(mapped, sum.cause, sum.bytes, 0);
    }
    file.mmap.filled_by = layers.filled_by(mapped);
    for (const Sum& sum : listing.tally.sums)
      if (layers.is_warmed(sum.cause)) result.warmed_by_others_bytes += sum.bytes;
    result.wasted_bytes += file.wasted_bytes;
    result.reads.calls += file.reads.calls;
    result.reads.bytes_requested += file.reads.bytes_requested;
    result.reads.bytes_returned += file.reads.bytes_returned;
    for (const auto& [method, calls] : file.reads.by_method) result.reads.by_method[method] += calls;
    served.push_back(file.served_by);
    filled.push_back(file.mmap.filled_by);
    if (file.reads.calls != 0 || !file.mmap.filled_by.empty() || file.wasted_bytes != 0)
      result.files.push_back(std::move(file));
  }
  result.served_by = summed(served);
  result.mmap.filled_by = summed(filled);
  std::ranges::sort(result.files, [](const FileResult& a, const FileResult& b) {
    return std::tuple(b.reads.bytes_returned, a.path, a.dev, a.inode) <
           std::tuple(a.reads.bytes_returned, b.path, b.dev, b.inode);
  });
}

/// Whether the result is whole, from its losses and its ledger.
void Attribution::State::judge(const Session& session, AttributionResult& result) const {
  std::uint64_t outside = 0;
  for (const LedgerLine& line : result.ledger) {
    if (!line.residual_bytes) continue;
    const auto residual = static_cast<std::uint64_t>(*line.residual_bytes);
    const std::uint64_t distance = *line.residual_bytes < 0 ? 0 - residual : residual;
    if (distance > line.bracket_bytes) ++outside;
  }
  result.losses["residual"] = outside;
  // A completion that one of its two hooks missed is recovered if the other saw it, and the kernel's counters judge
  // that.
  std::uint64_t missed = 0;
  for (const HookStatus& hook : session.hooks)
    if (hook.attached && hook.second_sight) missed += hook.recursion_misses.value_or(0);
  const bool checked =
      std::ranges::all_of(result.ledger, [](const LedgerLine& line) { return line.residual_bytes.has_value(); });
  (outside == 0 && checked ? result.recovered["second_sight_misses"] : result.losses["recursion"]) += missed;
  result.complete = std::ranges::all_of(result.losses, [](const auto& loss) { return loss.second == 0; });
}

AttributionResult Attribution::State::finish(const Session& session) {
  AttributionResult result;
  result.tier = session.tier;
  const auto& losses = session.counts.losses;
  std::uint64_t recursion = 0, served_by_recursion = 0;
  for (const HookStatus& hook : session.hooks) {
    if (!hook.attached || hook.second_sight) continue;
    recursion += hook.recursion_misses.value_or(0);
    if (hook.served_by) served_by_recursion += hook.recursion_misses.value_or(0);
  }
  const bool fill_hidden = losses[SB_LOSS_RING] != 0 || losses[SB_LOSS_TASK_STATE] != 0 ||
                           losses[SB_LOSS_REQUEST_STATE] != 0 || losses[SB_LOSS_FILE_STATE] != 0 ||
                           losses[SB_LOSS_BIO_PARTS] != 0 || served_by_recursion != 0 || malformed != 0;
  end_runs(session);
  list_files(Layers(resolver.causes, setup.stack, session.stack, fill_hidden), result);

  const Ledger::Accounting accounting = resolver.ledger.accounting(session);
  if (accounting.counters) {
    result.mmap.faults_major = accounting.counters->faults_major;
    result.mmap.faults_minor = accounting.counters->faults_minor;
  }
  result.ledger = resolver.ledger.lines(session, setup.stack);
  result.made = made;
  result.children = resolver.ledger.children(session.target_pid);
  result.records_taken = taken;
  result.losses = {{"ring", losses[SB_LOSS_RING]},
                   {"task_state", losses[SB_LOSS_TASK_STATE]},
                   {"request_state", losses[SB_LOSS_REQUEST_STATE]},
                   {"file_state", losses[SB_LOSS_FILE_STATE]},
                   {"read_entry", losses[SB_LOSS_READ_ENTRY]},
                   {"bio_parts", losses[SB_LOSS_BIO_PARTS]},
                   {"dropped", losses[SB_LOSS_DROPPED]},
                   {"dropped_bytes", session.counts.notes[SB_NOTE_DROPPED_BYTES]},
                   {"path_failed", losses[SB_LOSS_PATH_FAILED]},
                   {"recursion", recursion},
                   {"malformed", malformed},
                   {"unmatched_backing", resolver.unmatched_backing},
                   {"unseen_backing", resolver.unseen_backing}};
  result.recovered = resolver.recovered;
  result.recovered["second_sight_misses"] = 0;
  result.recovered["completion_by_second_sight"] = session.counts.notes[SB_NOTE_COMPLETION_RECOVERED];
  result.edges = {{"reads_in_flight_at_start", session.counts.notes[SB_NOTE_READ_BEFORE_START]},
                  {"requests_in_flight_at_start", session.counts.notes[SB_NOTE_REQUEST_BEFORE_START]},
                  {"reads_in_flight_at_end", session.counts.reads_in_flight_at_end},
                  {"requests_in_flight_at_end", session.counts.requests_in_flight_at_end}};
  judge(session, result);
  return result;
}

}  // namespace servedby
