// SPDX-License-Identifier: GPL-2.0
// tmpfs: a file's pages are in memory, or in swap, and a read of a hole makes none. It has a read function of its own.
#include "bpf/account.h"
#include "bpf/open_read.h"

static __always_inline struct open_read *current_read(u64 kiocb)
{
	struct task_state *state = is_target(current_tgid()) ? task_state(current_tid()) : NULL;

	return state ? read_at_work(state, kiocb) : NULL;
}

static __always_inline void memory_looks_up(u64 kiocb, struct file *file, const bool typed)
{
	struct open_read *call = current_read(kiocb);
	struct inode *inode;
	u64 pages;

	if (!call)
		return;
	inode = FIELD(file, f_inode);
	pages = (FIELD(inode, i_size) + (1 << page_shift) - 1) >> page_shift;
	call->flags |= SB_READ_NO_PAGES;
	if (FIELD(inode, i_blocks) == pages << (page_shift - 9))
		call->flags |= SB_READ_IN_MEMORY;
}

static __always_inline void memory_swapped_in(void)
{
	struct open_read *call = current_read(0);

	if (call)
		call->flags &= ~SB_READ_IN_MEMORY;
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
int BPF_KPROBE(kprobe_memory_swapped)
{
	memory_swapped_in();
	return 0;
}
