// SPDX-License-Identifier: GPL-2.0
// tmpfs: a file's pages are in memory, or in swap, and a read of a hole makes none. It has a read function of its own.
#include "bpf/account.h"
#include "bpf/open_read.h"

static __always_inline struct open_read *current_read(u64 kiocb)
{
	struct task_state *state = is_target(current_tgid()) ? task_state(current_tid()) : NULL;

	return state ? read_at_work(state, kiocb) : NULL;
}

/* From now on everybody's I/O of swap is of interest. */
static __always_inline void watch_swap(void)
{
	const struct file_key any = {.ino = SB_SWAP_INO};
	const struct tracked_file fresh = {};

	if (!bpf_map_lookup_elem(&files, &any) && bpf_map_update_elem(&files, &any, &fresh, BPF_ANY))
		count_loss(SB_LOSS_FILE_STATE);
}

static __always_inline void memory_looks_up(u64 kiocb, struct file *file, const bool typed)
{
	struct open_read *call = current_read(kiocb);
	struct inode *inode;
	u64 pages;

	if (!call)
		return;
	watch_swap();
	inode = FIELD(file, f_inode);
	pages = (FIELD(inode, i_size) + (1 << page_shift) - 1) >> page_shift;
	call->flags |= SB_READ_NO_PAGES;
	if (FIELD(inode, i_blocks) == pages << (page_shift - 9))
		call->flags |= SB_READ_IN_MEMORY;
}

/* A page is to be read from swap, or still in the swap cache: `*entry` is where it is, as the file's tree of pages says it (an
 * xarray's value). */
static __always_inline void memory_swapped_in(struct inode *inode, u64 index, void *entry_at)
{
	struct account account = {};
	struct sb_swapped *record;
	u64 entry = 0;

	account_of_current(&account);
	if (!(account.flags & SB_BY_TARGET))
		return;
	bpf_probe_read_kernel(&entry, sizeof(entry), entry_at);
	if (!(entry & 1)) { /* not a value */
		struct open_read *call = current_read(0);

		if (call)
			call->flags &= ~SB_READ_IN_MEMORY;
		return;
	}
	watch_swap();
	record = record_reserve(struct sb_swapped);
	if (!record)
		return;
	record_begin(&record->head, SB_SWAPPED, sizeof(*record), account.tid, bpf_ktime_get_ns());
	record->pos = index << page_shift;
	record->bytes = 1ULL << page_shift;
	record->file = inode_id(inode, false);
	record->swap = swap_area(entry >> 1, &record->swap_pos);
	record->tgid = account.tgid;
	record->read = account.read;
	record->flags = account.flags & ~SB_BIO_ASYNC;
	record->reader = account.reader;
	record_submit(record);
}

SEC("?kprobe/shmem_file_read_iter")
int BPF_KPROBE(kprobe_memory_lookup, struct kiocb *iocb)
{
	memory_looks_up((u64)iocb, BPF_CORE_READ(iocb, ki_filp), false);
	return 0;
}

SEC("?fentry/shmem_file_read_iter")
int BPF_PROG(fentry_memory_lookup, struct kiocb *iocb)
{
	memory_looks_up((u64)iocb, iocb->ki_filp, true);
	return 0;
}

SEC("?kprobe/shmem_file_splice_read")
int BPF_KPROBE(kprobe_memory_splice, struct file *in)
{
	memory_looks_up(0, in, false);
	return 0;
}

SEC("?fentry/shmem_file_splice_read")
int BPF_PROG(fentry_memory_splice, struct file *in)
{
	memory_looks_up(0, in, true);
	return 0;
}

/* On 6.1 it has more arguments than fentry can pass on. */
SEC("?kprobe/shmem_swapin_folio")
int BPF_KPROBE(kprobe_memory_swapped, struct inode *inode, unsigned long index, void *entry_at)
{
	memory_swapped_in(inode, index, entry_at);
	return 0;
}
