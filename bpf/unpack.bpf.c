// SPDX-License-Identifier: GPL-2.0
// File systems that unpack what they read. btrfs reads a compressed extent into pages of nobody's; the bio that it was given
// has the file's pages, of the rest of the extent too, which nobody asked for. Whoever is given the extent submits its bios at
// once, in the same task: that is the join. squashfs and erofs fill whole blocks: their new pages are told as they are added.
#include "bpf/account.h"
#include "bpf/bio_pages.h"

static __always_inline bool of_interest(struct bio *bio, u32 tid, u32 tgid)
{
	struct task_state *state = task_state(tid);
	struct file_key key;
	struct page *page;

	if (is_target(tgid) || (state && state->serving))
		return true;
	page = BPF_CORE_READ(bio, bi_io_vec, bv_page);
	key = file_key(inode_id(BPF_CORE_READ(page_folio(page), mapping, host), false));
	return bpf_map_lookup_elem(&files, &key) != NULL;
}

static __always_inline void unpack_begins(u64 first, u64 second)
{
	struct unpack_state unpack = {};
	struct bio *bio = read_to_unpack(first, second);
	u32 tid = current_tid();

	if (!bio || !of_interest(bio, tid, current_tgid()))
		return;
	unpack.bio = (u64)bio;
	unpack.number = bpf_ktime_get_ns() ^ (u64)tid << 44;
	if (bpf_map_update_elem(&unpacks, &tid, &unpack, BPF_ANY))
		count_loss(SB_LOSS_REQUEST_STATE);
}

static __always_inline void unpack_ends(void)
{
	u32 tid = current_tid();

	bpf_map_delete_elem(&unpacks, &tid);
}

/* The pages are those of the bio that btrfs was given, and others that it has added since: all of them are there when the first
 * bio that reads the extent is submitted. */
static __always_inline void unpack_told(void)
{
	struct account account = {};
	struct walk walk = {.kind = SB_UNPACK};
	struct unpack_state *unpack;
	u32 tid = current_tid();
	struct bio *bio;

	unpack = bpf_map_lookup_elem(&unpacks, &tid);
	if (!unpack || unpack->said)
		return;
	unpack->said = 1;
	bio = (struct bio *)unpack->bio;
	account_of_current(&account);
	walk.segments = BPF_CORE_READ(bio, bi_io_vec);
	walk.bio = unpack->number;
	walk.serving = account.serving;
	walk.tid = account.tid;
	walk.tgid = account.tgid;
	walk.read = account.read;
	walk.reader = account.reader;
	walk.flags = account.flags | SB_BIO_FIRST;
	send_runs(&walk, BPF_CORE_READ(bio, bi_iter.bi_size));
	if (walk.left)
		count_loss(SB_LOSS_BIO_PARTS);
}

SEC("?kprobe/submit_bio")
int BPF_KPROBE(kprobe_unpack_told)
{
	unpack_told();
	return 0;
}

SEC("?fentry/submit_bio")
int BPF_PROG(fentry_unpack_told)
{
	unpack_told();
	return 0;
}

SEC("?kprobe/btrfs_submit_compressed_read")
int BPF_KPROBE(kprobe_unpack_begins, u64 first, u64 second)
{
	unpack_begins(first, second);
	return 0;
}

SEC("?kretprobe/btrfs_submit_compressed_read")
int BPF_KRETPROBE(kprobe_unpack_ends)
{
	unpack_ends();
	return 0;
}

SEC("?tp/filemap/mm_filemap_add_to_page_cache")
int tracepoint_page_added(struct trace_event_raw_mm_filemap_op_page_cache *context)
{
	struct account account = {};
	struct sb_file_id id = {};
	u32 dev = context->s_dev;
	u64 pos, bytes;

	if (!bpf_map_lookup_elem(&spilling, &dev))
		return 0;
	id.ino = context->i_ino; /* these file systems have no generations */
	id.dev = dev;
	account_of_current(&account);
	if (!account.flags) {
		struct file_key key = file_key(id);

		if (!bpf_map_lookup_elem(&files, &key))
			return 0;
	}
	pos = (u64)context->index << page_shift;
	bytes = 1ULL << (page_shift + (context->order & 31));
	send_fill(&account, id, pos, bytes, pos + bytes, SB_FILL_ADDED);
	return 0;
}
