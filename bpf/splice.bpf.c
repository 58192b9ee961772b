// SPDX-License-Identifier: GPL-2.0
// sendfile(2), splice(2), copy_file_range(2): a file's pages go into a pipe. Each step into the pipe is a read call.
#include "bpf/open_read.h"

static __always_inline void splice_enter(struct file *in, loff_t *pos, u64 count, const bool typed)
{
	struct task_state *state;

	if (!is_target(current_tgid()))
		return;
	state = task_state(current_tid());
	if (state && state->open && state->call.flags & SB_READ_SPLICE)
		return; /* an overlay passes it on to the file below */
	read_enter(in, count, pos, typed);
	state = task_state(current_tid());
	if (state && state->open)
		state->call.flags |= SB_READ_SPLICE;
}

/* Below an overlay the inner step returns first, and the same. */
static __always_inline void splice_exit(s64 returned)
{
	struct task_state *state = is_target(current_tgid()) ? task_state(current_tid()) : NULL;

	if (state && state->open && state->call.flags & SB_READ_SPLICE)
		read_exit(current_method(), returned);
}

static __always_inline void splice_looks_up(struct file *in, u64 count, const bool typed)
{
	struct task_state *state = is_target(current_tgid()) ? task_state(current_tid()) : NULL;

	if (state && state->open && state->call.flags & SB_READ_SPLICE)
		read_looks_up(&state->call, in, count, typed);
}

/* 6.1 has do_splice_to, 6.12 and 7.3 do_splice_read (looked up there; which commit renamed it is not known here). */
#define SPLICE(function)                                                                                            \
	SEC("?kprobe/" #function)                                                                                   \
	int BPF_KPROBE(kprobe_entry_##function, struct file *in, loff_t *pos, void *pipe, size_t count)             \
	{                                                                                                           \
		splice_enter(in, pos, count, false);                                                                \
		return 0;                                                                                           \
	}                                                                                                           \
	SEC("?fentry/" #function)                                                                                   \
	int BPF_PROG(fentry_entry_##function, struct file *in, loff_t *pos, void *pipe, size_t count)               \
	{                                                                                                           \
		splice_enter(in, pos, count, true);                                                                 \
		return 0;                                                                                           \
	}                                                                                                           \
	SEC("?fexit/" #function)                                                                                    \
	int BPF_PROG(fexit_##function, struct file *in, loff_t *pos, void *pipe, size_t count, unsigned int flags,  \
		     long returned)                                                                                 \
	{                                                                                                           \
		splice_exit(returned);                                                                              \
		return 0;                                                                                           \
	}                                                                                                           \
	SEC("?kretprobe/" #function)                                                                                \
	int BPF_KRETPROBE(kprobe_return_##function, long returned)                                                  \
	{                                                                                                           \
		splice_exit(returned);                                                                              \
		return 0;                                                                                           \
	}
SPLICE(do_splice_to)
SPLICE(do_splice_read)

/* 6.12 and 7.3 have it; on 6.1 a splice is a read with a pipe for its destination, so filemap_read is seen. */
SEC("?kprobe/filemap_splice_read")
int BPF_KPROBE(kprobe_splice_lookup, struct file *in, loff_t *pos, void *pipe, size_t count)
{
	splice_looks_up(in, count, false);
	return 0;
}

SEC("?fentry/filemap_splice_read")
int BPF_PROG(fentry_splice_lookup, struct file *in, loff_t *pos, void *pipe, size_t count)
{
	splice_looks_up(in, count, true);
	return 0;
}
