// SPDX-License-Identifier: Apache-2.0
#include "attribution/tally.h"

#include <algorithm>
#include <set>

namespace servedby::attribution {
namespace {

/// One row while it is being summed; `why` is a set so that the text does not depend on the order of events.
struct Row {
  std::uint64_t bytes = 0, prefetched = 0, reads = 0;
  std::set<std::string> why;
};

template <class Served>
bool largest_first(const Served& a, const Served& b) {
  return a.bytes != b.bytes ? a.bytes > b.bytes : a.via < b.via;
}

std::vector<ServedBy> rows(const std::map<Via, Row>& by_via) {
  std::vector<ServedBy> list;
  for (const auto& [via, row] : by_via) {
    if (row.bytes == 0) continue;
    ServedBy served;
    served.via = via;
    served.bytes = row.bytes;
    served.prefetched_bytes = row.prefetched;
    served.reads = row.reads;
    for (const std::string& why : row.why) served.why += (served.why.empty() ? "" : "; ") + why;
    list.push_back(std::move(served));
  }
  std::ranges::sort(list, largest_first<ServedBy>);
  return list;
}

std::vector<FilledBy> rows(const std::map<Via, std::uint64_t>& by_via) {
  std::vector<FilledBy> list;
  for (const auto& [via, bytes] : by_via)
    if (bytes != 0) list.push_back({via, bytes});
  std::ranges::sort(list, largest_first<FilledBy>);
  return list;
}

}  // namespace

void add_to(std::vector<Sum>& sums, CauseId cause, std::uint64_t bytes, std::uint64_t prefetched) {
  for (Sum& sum : sums) {
    if (sum.cause != cause) continue;
    sum.bytes += bytes;
    sum.prefetched += prefetched;
    return;
  }
  sums.push_back({cause, bytes, prefetched});
}

std::uint32_t CauseSets::id(std::span<const Sum> sums) {
  if (sums.size() == 1) return sums.front().cause;
  std::vector<CauseId> set;
  for (const Sum& sum : sums) set.push_back(sum.cause);
  std::ranges::sort(set);
  const auto [found, added] = ids_.try_emplace(set, static_cast<std::uint32_t>(sets_.size()) | kMany);
  if (added) sets_.push_back(std::move(set));
  return found->second;
}

std::vector<CauseId> CauseSets::causes(std::uint32_t set) const {
  return (set & kMany) == 0 ? std::vector<CauseId>{set} : sets_[set & ~kMany];
}

void Tally::add_call(std::span<const Sum> got, CauseSets& sets) {
  if (got.empty()) return;
  for (const Sum& sum : got) add_to(sums, sum.cause, sum.bytes, sum.prefetched);
  ++calls[sets.id(got)];
}

namespace {

/// As `via` says it; null where a device or a server is the end.
const char* end_name(End end) {
  switch (end) {
    case End::device:
    case End::server:
      return nullptr;
    case End::page_cache:
      return "page-cache";
    case End::hole:
      return "hole";
    case End::swap:
      return "swap";
    case End::unwritten:
      return "unwritten";
    case End::in_inode:
      return "inline";
    case End::zero:
      return "zero";
    case End::rebuilt:
      return "md-rebuilt";
    case End::stripe_cache:
      return "md-stripe-cache";
    case End::unknown:
      return "unknown";
  }
  return "unknown";
}

}  // namespace

Layers::Layers(const Causes& causes, const StorageStack& first, const StorageStack& later, bool lost) {
  const auto device = [&](DeviceNumber dev) {
    const Device* known = first.find(dev);
    return known != nullptr ? known : later.find(dev);
  };
  for (CauseId id = 0; id < causes.size(); ++id) {
    Cause cause = causes.at(id);
    // The device's kind may have been learned after its first request.
    if (cause.end == End::device && !cause.path.empty()) {
      const Device* last = device(cause.path.back());
      if (last == nullptr) {
        cause.end = End::unknown;
        cause.why = Why::device_unseen;
      } else if (last->kind == DeviceKind::loop) {
        cause.end = End::unknown;
        cause.why = Why::backing_unseen;
      } else if (causes.is_passing(cause.path.back())) {
        cause.end = End::unknown;
        cause.why = Why::remap_unseen;
      }
    }
    if (lost && (cause.end == End::page_cache || cause.end == End::stripe_cache)) {
      cause.end = End::unknown;
      cause.why = Why::events_lost;
      cause.warmed = false;
    }
    Rendered rendered;
    for (std::size_t i = 0; i < cause.path.size(); ++i) {
      const DeviceNumber dev = cause.path[i];
      const Device* known = device(dev);
      if (cause.end == End::server && i + 1 == cause.path.size())
        rendered.via.push_back(first.server_of(dev));
      else
        rendered.via.push_back(known != nullptr ? known->name : device_text(dev));
    }
    if (const char* end = end_name(cause.end)) rendered.via.emplace_back(end);
    rendered.why = why_text(cause.why);
    rendered.warmed = cause.warmed;
    rendered_.push_back(std::move(rendered));
  }
}

std::vector<ServedBy> Layers::served_by(const Tally& tally, const CauseSets& sets) const {
  std::map<Via, Row> by_via;
  for (const Sum& sum : tally.sums) {
    const Rendered& rendered = rendered_[sum.cause];
    Row& row = by_via[rendered.via];
    row.bytes += sum.bytes;
    row.prefetched += sum.prefetched;
    if (!rendered.why.empty()) row.why.insert(rendered.why);
  }
  for (const auto& [set, calls] : tally.calls) {
    std::set<const Row*> seen;
    for (const CauseId cause : sets.causes(set)) {
      Row& row = by_via[rendered_[cause].via];
      if (seen.insert(&row).second) row.reads += calls;
    }
  }
  return rows(by_via);
}

std::vector<FilledBy> Layers::filled_by(const std::vector<Sum>& sums) const {
  std::map<Via, std::uint64_t> by_via;
  for (const Sum& sum : sums) by_via[rendered_[sum.cause].via] += sum.bytes;
  return rows(by_via);
}

std::vector<ServedBy> summed(std::span<const std::vector<ServedBy>> lists) {
  std::map<Via, Row> by_via;
  for (const auto& list : lists)
    for (const ServedBy& served : list) {
      Row& row = by_via[served.via];
      row.bytes += served.bytes;
      row.prefetched += served.prefetched_bytes;
      row.reads += served.reads;
      // Each part of a text is one sentence of why_text(); none of them has a "; " in it.
      for (std::size_t at = 0; at < served.why.size();) {
        const std::size_t stop = std::min(served.why.find("; ", at), served.why.size());
        row.why.insert(served.why.substr(at, stop - at));
        at = stop + 2;
      }
    }
  return rows(by_via);
}

std::vector<FilledBy> summed(std::span<const std::vector<FilledBy>> lists) {
  std::map<Via, std::uint64_t> by_via;
  for (const auto& list : lists)
    for (const FilledBy& filled : list) by_via[filled.via] += filled.bytes;
  return rows(by_via);
}

}  // namespace servedby::attribution
