// SPDX-License-Identifier: Apache-2.0
#include "capture/hook_plan.h"

#include <algorithm>

namespace servedby {
namespace {

const char* const in_process =
    "runs in process context, where preemptible kernels skip fentry programs; a kprobe is not skipped there";
const char* const in_interrupt =
    "runs in interrupt context, where kprobes share one guard and are skipped; this is not";

Way kprobe(std::string how, std::vector<std::string> programs, std::string function = "") {
  return {"kprobe", std::move(how), std::move(programs), std::move(function)};
}
Way fentry(std::string how, std::vector<std::string> programs, std::string function = "") {
  return {"fentry", std::move(how), std::move(programs), std::move(function)};
}
/// A classic tracepoint: stable, skipped by nobody, and the same in every tier.
Way tracepoint(std::string how, std::vector<std::string> programs) {
  return {"tracepoint", std::move(how), std::move(programs), ""};
}

std::vector<Hook> every_hook() {
  return {
      {"task-fork",
       "children of the target",
       "one event a fork",
       true,
       "",
       false,
       {tracepoint("tracepoint sched_process_fork", {"tracepoint_fork"})}},
      {"task-exit",
       "a task's own accounting, final",
       "one event an exit",
       true,
       "",
       false,
       {tracepoint("tracepoint sched_process_exit", {"tracepoint_exit"})}},
      {"read-entry",
       "a read call of the target: file and range",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe vfs_read, vfs_readv", {"kprobe_read_entry", "kprobe_readv_entry"}),
        fentry("fentry vfs_read, vfs_readv", {"fentry_read_entry", "fentry_readv_entry"})}},
      {"read-return",
       "what the call returned",
       "either of two hooks may be skipped on preemptible kernels; this is the first",
       true,
       "",
       true,
       {tracepoint("tracepoint sys_exit_read, _pread64, _readv, _preadv, _preadv2",
                   {"tracepoint_return_read", "tracepoint_return_pread64", "tracepoint_return_readv",
                    "tracepoint_return_preadv", "tracepoint_return_preadv2"})}},
      {"read-end",
       "what the call returned, seen inside it",
       "the second of the two",
       true,
       "",
       true,
       {fentry("fexit vfs_read, vfs_readv", {"fexit_read_return", "fexit_readv_return"})}},
      {"read-lookup",
       "the page cache that serves the call",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe filemap_read", {"kprobe_read_lookup"}), fentry("fentry filemap_read", {"fentry_read_lookup"})}},
      {"aio-entry",
       "a read of io_submit(2)",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe aio_read", {"kprobe_aio_entry"}), fentry("fentry aio_read", {"fentry_aio_entry"})}},
      {"aio-return",
       "what it returned, where the page cache had it",
       "either of two hooks may be skipped on preemptible kernels; this is the first",
       true,
       "",
       true,
       {kprobe("kprobe aio_complete_rw", {"kprobe_aio_return"})}},
      {"aio-end",
       "what it returned, where a drive had it",
       in_interrupt,
       true,
       "",
       true,
       {fentry("fentry aio_complete_rw", {"fentry_aio_return"})}},
      {"uring-entry",
       "a read of io_uring",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe io_read", {"kprobe_uring_entry"}), fentry("fentry io_read", {"fentry_uring_entry"})}},
      {"uring-fixed",
       "the same into registered buffers, where that is a function of its own",
       in_process,
       true,
       "",
       true,
       {kprobe("kprobe io_read_fixed", {"kprobe_uring_fixed_entry"}, "io_read_fixed"),
        fentry("fentry io_read_fixed", {"fentry_uring_fixed_entry"}, "io_read_fixed")}},
      {"uring-return",
       "what it returned",
       "one event a completion",
       true,
       "",
       false,
       {tracepoint("tracepoint io_uring_complete", {"tracepoint_uring_return"})}},
      {"splice-entry",
       "a step of sendfile, splice, copy_file_range",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe do_splice_read", {"kprobe_entry_do_splice_read"}, "do_splice_read"),
        kprobe("kprobe do_splice_to", {"kprobe_entry_do_splice_to"}, "do_splice_to"),
        fentry("fentry do_splice_read", {"fentry_entry_do_splice_read"}, "do_splice_read"),
        fentry("fentry do_splice_to", {"fentry_entry_do_splice_to"}, "do_splice_to")}},
      {"splice-return",
       "what it moved",
       "either of two hooks may be skipped on preemptible kernels; this is the first",
       true,
       "",
       true,
       {kprobe("kretprobe do_splice_read", {"kprobe_return_do_splice_read"}, "do_splice_read"),
        kprobe("kretprobe do_splice_to", {"kprobe_return_do_splice_to"}, "do_splice_to")}},
      {"splice-end",
       "what it moved, seen inside it",
       "the second of the two",
       true,
       "",
       true,
       {fentry("fexit do_splice_read", {"fexit_do_splice_read"}, "do_splice_read"),
        fentry("fexit do_splice_to", {"fexit_do_splice_to"}, "do_splice_to")}},
      {"splice-lookup",
       "the page cache that serves it, where that is a function of its own",
       in_process,
       true,
       "",
       true,
       {kprobe("kprobe filemap_splice_read", {"kprobe_splice_lookup"}, "filemap_splice_read"),
        fentry("fentry filemap_splice_read", {"fentry_splice_lookup"}, "filemap_splice_read")}},
      {"memory-lookup",
       "files that are in memory (tmpfs), and what comes back from swap",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe shmem_file_read_iter, shmem_swapin_folio", {"kprobe_memory_lookup", "kprobe_memory_swapped"},
               "shmem_swapin_folio"),
        fentry("fentry shmem_file_read_iter, kprobe shmem_swapin_folio",
               {"fentry_memory_lookup", "kprobe_memory_swapped"}, "shmem_swapin_folio")}},
      {"memory-splice",
       "the same for a splice, where that is a function of its own",
       in_process,
       true,
       "",
       true,
       {kprobe("kprobe shmem_file_splice_read", {"kprobe_memory_splice"}, "shmem_file_splice_read"),
        fentry("fentry shmem_file_splice_read", {"fentry_memory_splice"}, "shmem_file_splice_read")}},
      {"fill-readahead",
       "runs of pages about to be filled",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe read_pages", {"kprobe_fill_readahead"}),
        fentry("fentry read_pages", {"fentry_fill_readahead"})}},
      {"fill-folio",
       "single folios about to be filled",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe filemap_read_folio", {"kprobe_fill_folio"}),
        fentry("fentry filemap_read_folio", {"fentry_fill_folio"})}},
      {"unpack-begin",
       "a compressed extent of btrfs is about to be read: which pages it will be unpacked to",
       in_process,
       true,
       "btrfs",
       false,
       {kprobe("kprobe btrfs_submit_compressed_read, submit_bio",
               {"kprobe_unpack_begins", "kprobe_unpack_ends", "kprobe_unpack_told"}),
        fentry("kprobe btrfs_submit_compressed_read, fentry submit_bio",
               {"kprobe_unpack_begins", "kprobe_unpack_ends", "fentry_unpack_told"})},
       Wanted::always,
       {"btrfs"}},
      {"page-added",
       "pages that a file system of whole blocks (squashfs, erofs) fills besides those it is asked for",
       "one event a page of such a file system",
       true,
       "",
       false,
       {tracepoint("tracepoint mm_filemap_add_to_page_cache", {"tracepoint_page_added"})},
       Wanted::always,
       {"squashfs", "erofs"}},
      {"direct-bio",
       "which bytes of a file a direct bio holds",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe iomap_dio_submit_bio", {"kprobe_direct_bio"}),
        fentry("fentry iomap_dio_submit_bio", {"fentry_direct_bio"})}},
      {"direct-simple",
       "the same, on the shorter way that 7.3 has",
       in_process,
       true,
       "",
       true,
       {kprobe("kprobe __iomap_dio_read_simple", {"kprobe_direct_simple"}, "__iomap_dio_read_simple"),
        fentry("fentry __iomap_dio_read_simple", {"fentry_direct_simple"}, "__iomap_dio_read_simple")}},
      {"bio-submit",
       "bios as they are submitted",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe submit_bio", {"kprobe_bio_submit"}), fentry("fentry submit_bio", {"fentry_bio_submit"})}},
      {"bio-remap",
       "bytes that a stacked device (dm, md, NVMe multipath) passes on: where they lie below",
       "two hooks that preemption cannot skip",
       true,
       "",
       false,
       {kprobe("tracepoint block_bio_remap, kprobe submit_bio_noacct", {"tracepoint_remap", "kprobe_bio_below"}),
        fentry("tracepoint block_bio_remap, fentry submit_bio_noacct", {"tracepoint_remap", "fentry_bio_below"})},
       Wanted::where_bios_are_passed_on},
      {"page-read",
       "pages that a disk in memory fills without a bio, where it has a function for that",
       in_process,
       true,
       "",
       true,
       {kprobe("kprobe bdev_read_page", {"kprobe_page_read"}, "bdev_read_page"),
        fentry("fentry bdev_read_page", {"fentry_page_read"}, "bdev_read_page")},
       Wanted::where_bios_are_served},
      {"backing-lookup",
       "a loop worker's reads of its backing file",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe filemap_read", {"kprobe_backing_lookup"}),
        fentry("fentry filemap_read", {"fentry_backing_lookup"})}},
      {"request-issue",
       "requests given to a driver, with the bios in them",
       in_process,
       true,
       "",
       false,
       {kprobe("kprobe blk_mq_start_request", {"kprobe_request_issue"}),
        fentry("fentry blk_mq_start_request", {"fentry_request_issue"})}},
      {"request-done",
       "requests that completed",
       in_interrupt,
       true,
       "",
       true,
       {fentry("tp_btf block_rq_complete", {"btf_request_done"}),
        kprobe("raw_tp block_rq_complete", {"raw_request_done"})}},
      {"nvme-done",
       "completions as the NVMe driver sees them",
       in_interrupt,
       true,
       "nvme_core",
       true,
       {fentry("tp_btf nvme_complete_rq", {"btf_nvme_done"}), kprobe("raw_tp nvme_complete_rq", {"raw_nvme_done"})}},
      {"loop-done",
       "completions as the loop driver sees them",
       "runs in the worker, where preemptible kernels skip the block layer's hook",
       true,
       "loop",
       true,
       {kprobe("kprobe lo_complete_rq", {"kprobe_loop_done"})}},
  };
}

}  // namespace

std::vector<Hook> hook_plan(Tier tier, bool preempted) {
  if (tier == Tier::counters) return {};
  std::vector<Hook> hooks = every_hook();
  if (tier == Tier::automatic && preempted) return hooks;
  const std::string wanted = tier == Tier::kprobe ? "kprobe" : "fentry";
  // Where nothing is skipped one sight is enough: of a return, since the other costs every read, and of a loop
  // request's completion.
  if (wanted == "fentry") std::erase_if(hooks, [](const Hook& hook) { return hook.name == "loop-done"; });
  for (const char* family : {"read", "aio", "splice"}) {
    const std::string kept = family + std::string(wanted == "kprobe" ? "-return" : "-end");
    const std::string other = family + std::string(wanted == "kprobe" ? "-end" : "-return");
    const auto spare = std::ranges::find(hooks, other, &Hook::name);
    const auto one = std::ranges::find(hooks, kept, &Hook::name);
    one->second_sight = false;
    if (tier == Tier::automatic) one->ways.insert(one->ways.end(), spare->ways.begin(), spare->ways.end());
    hooks.erase(spare);
  }
  for (Hook& hook : hooks) {
    const auto other = std::stable_partition(hook.ways.begin(), hook.ways.end(), [&](const Way& way) {
      return way.tier == wanted || way.tier == "tracepoint";
    });
    if (tier != Tier::automatic && other != hook.ways.begin()) hook.ways.erase(other, hook.ways.end());
    hook.why = tier == Tier::automatic
                   ? "this kernel does not preempt programs, so none is skipped; this way costs least"
                   : "the " + wanted + " tier was asked for";
  }
  return hooks;
}

bool hook_is(const Hook& hook, const std::string& name) {
  return hook.name == name || hook.name.substr(0, hook.name.find('-')) == name;
}

}  // namespace servedby
