// SPDX-License-Identifier: Apache-2.0
#include "report/result_json.h"

#include <set>
#include <utility>

#include "record/text.h"
#include "report/device_counts.h"
#include "report/layer_names.h"

namespace servedby::report {
namespace {

template <class T>
void put(Tree& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = *value;
}

void put_text(Tree& object, const char* name, const std::string& text) {
  if (!text.empty()) object[name] = as_utf8(text);
}

Tree texts(const std::vector<std::string>& list) {
  Tree tree = Tree::array();
  for (const std::string& text : list) tree.push_back(as_utf8(text));
  return tree;
}

Tree counts(const std::map<std::string, std::uint64_t>& map) {
  Tree tree = Tree::object();
  for (const auto& [name, count] : map) tree[as_utf8(name)] = count;
  return tree;
}

/// A tree of other people's making (host facts, counters) with every text made UTF-8.
Tree clean(const nlohmann::json& value) {
  if (value.is_string()) return as_utf8(value.get_ref<const std::string&>());
  if (value.is_object()) {
    Tree tree = Tree::object();
    for (const auto& [key, child] : value.items()) tree[as_utf8(key)] = clean(child);
    return tree;
  }
  if (value.is_array()) {
    Tree tree = Tree::array();
    for (const nlohmann::json& child : value) tree.push_back(clean(child));
    return tree;
  }
  return Tree(value);
}

/// What a tier can know. Counters say how much was read, not by which calls, nor what I/O was started ahead of them.
enum class Knows { calls, sums };

Knows knows(const AttributionResult& result) { return result.tier == "counters" ? Knows::sums : Knows::calls; }

Tree reads_tree(const ReadTotals& reads, Knows known) {
  Tree tree{{"calls", reads.calls}};
  if (known == Knows::calls) tree["bytes_requested"] = reads.bytes_requested;
  tree["bytes_returned"] = reads.bytes_returned;
  return tree;
}

Tree served_tree(const std::vector<ServedBy>& served_by, Knows known) {
  Tree list = Tree::array();
  for (const ServedBy& served : served_by) {
    Tree entry{{"via", texts(served.via)}, {"bytes", served.bytes}};
    if (known == Knows::calls) {
      entry["prefetched_bytes"] = served.prefetched_bytes;
      entry["reads"] = served.reads;
    }
    put(entry, "wait_ns", served.wait_ns);
    entry["evidence"] = served.evidence == Evidence::traced ? "traced" : "inferred";
    put_text(entry, "why", served.why);
    list.push_back(std::move(entry));
  }
  return list;
}

Tree mmap_tree(const MmapFills& mmap) {
  Tree tree = Tree::object();
  put(tree, "faults_major", mmap.faults_major);
  put(tree, "faults_minor", mmap.faults_minor);
  tree["filled_by"] = Tree::array();
  for (const FilledBy& filled : mmap.filled_by) {
    tree["filled_by"].push_back(Tree{{"via", texts(filled.via)}, {"bytes", filled.bytes}});
  }
  return tree;
}

Tree file_tree(const FileResult& file, Knows known) {
  Tree tree{{"path", as_utf8(file.path)}};
  if (!is_utf8(file.path)) tree["path_bytes"] = hex_of(file.path);
  tree["dev"] = device_text(file.dev);
  tree["inode"] = file.inode;
  tree["reads"] = reads_tree(file.reads, known);
  if (known == Knows::calls) tree["by_method"] = counts(file.reads.by_method);
  tree["served_by"] = served_tree(file.served_by, known);
  tree["mmap"] = mmap_tree(file.mmap);
  if (known == Knows::calls) tree["wasted_bytes"] = file.wasted_bytes;
  return tree;
}

Tree ledger_tree(const std::vector<LedgerLine>& ledger) {
  Tree list = Tree::array();
  for (const LedgerLine& line : ledger) {
    Tree entry{{"boundary", line.boundary}};
    put(entry, "device", line.device);
    put(entry, "traced_target_bytes", line.traced_target_bytes);
    put(entry, "traced_other_bytes", line.traced_other_bytes);
    entry["parts"] = counts(line.parts);
    put(entry, "kernel_bytes", line.kernel_bytes);
    put_text(entry, "kernel_source", line.kernel_source);
    put(entry, "residual_bytes", line.residual_bytes);
    put(entry, "server_bytes", line.server_bytes);
    entry["bracket_bytes"] = line.bracket_bytes;
    list.push_back(std::move(entry));
  }
  return list;
}

Tree hooks_tree(const std::vector<HookStatus>& hooks) {
  Tree list = Tree::array();
  for (const HookStatus& hook : hooks) {
    Tree entry{{"name", as_utf8(hook.name)}};
    put_text(entry, "how", hook.how);
    put_text(entry, "tier", hook.tier);
    entry["attached"] = hook.attached;
    entry["served_by"] = hook.served_by;
    entry["second_sight"] = hook.second_sight;
    put_text(entry, "why_not", hook.why_not);
    put(entry, "runs", hook.runs);
    put(entry, "recursion_misses", hook.recursion_misses);
    list.push_back(std::move(entry));
  }
  return list;
}

Tree target_tree(const Session& session, const std::vector<std::uint32_t>& children) {
  Tree tree = Tree::object();
  if (session.target_pid != 0) tree["pid"] = session.target_pid;
  put_text(tree, "comm", session.target_comm);
  tree["children"] = children;
  put(tree, "exit_code", session.target_exit);
  tree["attached_live"] = session.attached_live;
  return tree;
}

/// Bytes that the kernel counted at `dev` over the session, whoever asked; nothing where it was not counting.
std::optional<std::uint64_t> kernel_bytes(const Session& session, DeviceNumber dev,
                                          std::uint64_t BlockCounters::* bytes) {
  const auto before = session.before.block.find(dev);
  const auto after = session.after.block.find(dev);
  if (before == session.before.block.end() || after == session.after.block.end()) return std::nullopt;
  if (!before->second.counting || !after->second.counting) return std::nullopt;
  if (after->second.*bytes < before->second.*bytes) return std::nullopt;  // another device under this number
  return after->second.*bytes - before->second.*bytes;
}

Tree loop_tree(const LoopBacking& loop) {
  Tree tree{{"path", as_utf8(loop.path)}, {"path_is_file", loop.file_known}, {"offset", loop.offset}};
  if (loop.size_limit != 0) tree["size_limit"] = loop.size_limit;
  tree["direct_io"] = loop.direct_io;
  return tree;
}

Tree layer_tree(const Session& session, const AttributionResult& result, DeviceNumber dev) {
  const auto made = result.made.find(dev);
  const Device* device = made != result.made.end() ? &made->second : session.stack.find(dev);
  Tree tree{{"name", as_utf8(device != nullptr ? device->name : device_text(dev))},
            {"dev", device_text(device != nullptr ? device->dev : dev)}};
  if (device != nullptr) {
    tree["kind"] = device_kind_name(device->kind);
    put(tree, "diskseq", device->diskseq);
    if (device->mapper_name) tree["mapper_name"] = as_utf8(*device->mapper_name);
    std::set<std::string> below;
    for (const DeviceNumber lower : device->below) below.insert(session.stack.name_of(session.stack.disk_of(lower)));
    tree["below"] = texts({below.begin(), below.end()});
    if (device->loop) tree["backing_file"] = loop_tree(*device->loop);
  }
  put(tree, "kernel_read_bytes", kernel_bytes(session, dev, &BlockCounters::read_bytes));
  put(tree, "kernel_write_bytes", kernel_bytes(session, dev, &BlockCounters::write_bytes));
  const auto found = session.counts.devices.find(dev);
  const sb_device_count count = found == session.counts.devices.end() ? sb_device_count{} : found->second;
  const KnownCounts known = known_counts(session.stack, session.hooks, dev);
  if (known.reads) {
    tree["target"] = Tree{{"bytes", count.target_read_bytes}, {"requests", count.target_read_requests}};
    tree["other"] = Tree{{"bytes", count.other_read_bytes}, {"requests", count.other_read_requests}};
  }
  if (known.unseen) tree["unseen"] = Tree{{"bytes", count.unseen_read_bytes}};
  if (known.writes) tree["writes"] = Tree{{"bytes", count.write_bytes}, {"requests", count.write_requests}};
  return tree;
}

Tree layers_tree(const Session& session, const AttributionResult& result) {
  std::set<DeviceNumber> devices;
  for (const auto& [dev, device] : session.stack.devices) {
    if (device.kind != DeviceKind::partition) devices.insert(dev);
  }
  for (const auto& [dev, count] : session.counts.devices) devices.insert(dev);
  for (const auto& [dev, device] : result.made) devices.insert(dev);
  Tree list = Tree::array();
  for (const DeviceNumber dev : devices) list.push_back(layer_tree(session, result, dev));
  return list;
}

Tree counters_tree(const Session& session) {
  Tree tree = Tree::object();
  if (session.before.monotonic_ns != 0) tree["before"] = clean(session.before);
  if (session.after.monotonic_ns != 0) tree["after"] = clean(session.after);
  return tree;
}

}  // namespace

Tree result_tree(const AttributionResult& result, const Session& session, std::string_view tool) {
  const Knows known = knows(result);
  Tree tree{{"schema", result_schema}, {"tool", as_utf8(tool)}};
  put_text(tree, "kernel", session.kernel);
  tree["host"] = clean(session.host);
  tree["clock"] = Tree{{"monotonic_to_realtime_ns", session.monotonic_to_realtime_ns},
                       {"uncertainty_ns", session.clock_uncertainty_ns}};
  put_text(tree, "started_at", session.started_at);
  if (!session.command.empty()) tree["command"] = texts(session.command);
  tree["target"] = target_tree(session, result.children);
  tree["tier"] = as_utf8(result.tier);
  tree["hooks"] = hooks_tree(session.hooks);
  tree["complete"] = result.complete;
  tree["losses"] = counts(result.losses);
  tree["recovered"] = counts(result.recovered);
  tree["edges"] = counts(result.edges);
  if (known == Knows::calls)
    tree["records"] = Tree{{"taken", result.records_taken}, {"lost", result.losses.at("ring")}};
  tree["warnings"] = texts(session.warnings);
  tree["reads"] = reads_tree(result.reads, known);
  if (known == Knows::calls) tree["reads"]["by_method"] = counts(result.reads.by_method);
  tree["served_by"] = served_tree(result.served_by, known);
  tree["mmap"] = mmap_tree(result.mmap);
  if (known == Knows::calls) {
    tree["wasted_bytes"] = result.wasted_bytes;
    tree["warmed_by_others_bytes"] = result.warmed_by_others_bytes;
  }
  tree["files"] = Tree::array();
  for (const FileResult& file : result.files) tree["files"].push_back(file_tree(file, known));
  tree["ledger"] = ledger_tree(result.ledger);
  tree["time"] = Tree::object();
  if (session.end_ns > session.begin_ns) tree["time"]["wall_ns"] = session.end_ns - session.begin_ns;
  tree["layers"] = layers_tree(session, result);
  tree["counters"] = counters_tree(session);
  if (!session.stack.not_seen.empty()) tree["not_seen"] = texts(session.stack.not_seen);
  return tree;
}

std::string json_text(const Tree& tree) {
  // Every text is UTF-8 by now; a tree that was not, would still be JSON.
  return tree.dump(2, ' ', false, Tree::error_handler_t::replace) + "\n";
}

}  // namespace servedby::report
