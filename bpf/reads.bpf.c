// SPDX-License-Identifier: GPL-2.0
// Reads of the target: a call is entered, its pages are looked at, it returns. One record for each call, at its return.
//
// Entry by kprobe (or fentry). Return by two hooks, the system call's classic tracepoint and fexit, of which the first one
// that runs sends the record: on preemptible kernels either may be skipped (the tracepoint since system calls' tracepoints
// may fault, 6.13), and kretprobes run out of instances when more readers block than they have.
#include "bpf/account.h"
#include "bpf/open_read.h"

SEC("?kprobe/vfs_read")
int BPF_KPROBE(kprobe_read_entry, struct file *file, char *buffer, size_t count, loff_t *pos)
{
	read_enter(file, count, pos, false);
	return 0;
}

SEC("?fentry/vfs_read")
int BPF_PROG(fentry_read_entry, struct file *file, char *buffer, size_t count, loff_t *pos)
{
	read_enter(file, count, pos, true);
	return 0;
}

/* The length of a vectored read is in the caller's memory; filemap_read knows it. */
SEC("?kprobe/vfs_readv")
int BPF_KPROBE(kprobe_readv_entry, struct file *file, void *vec, unsigned long parts, loff_t *pos)
{
	read_enter(file, 0, pos, false);
	return 0;
}

SEC("?fentry/vfs_readv")
int BPF_PROG(fentry_readv_entry, struct file *file, void *vec, unsigned long parts, loff_t *pos)
{
	read_enter(file, 0, pos, true);
	return 0;
}

#define READ_RETURN(call, method)                                              \
	SEC("?tp/syscalls/sys_exit_" #call)                                    \
	int tracepoint_return_##call(struct trace_event_raw_sys_exit *context) \
	{                                                                      \
		read_exit(method, context->ret);                               \
		return 0;                                                      \
	}
READ_RETURN(read, SB_METHOD_READ)
READ_RETURN(pread64, SB_METHOD_PREAD)
READ_RETURN(readv, SB_METHOD_READV)
READ_RETURN(preadv, SB_METHOD_PREADV)
READ_RETURN(preadv2, SB_METHOD_PREADV2)

SEC("?fexit/vfs_read")
int BPF_PROG(fexit_read_return, struct file *file, char *buffer, size_t count, loff_t *pos, long returned)
{
	read_exit(current_method(), returned);
	return 0;
}

SEC("?fexit/vfs_readv")
int BPF_PROG(fexit_readv_return, struct file *file, void *vec, unsigned long parts, loff_t *pos, int flags, long returned)
{
	read_exit(current_method(), returned);
	return 0;
}

/* The page cache is looked at for a read call, or for an asynchronous read. */
static __always_inline void reader_looks_up(struct kiocb *iocb, struct iov_iter *iter, const bool typed)
{
	struct task_state *state = is_target(current_tgid()) ? task_state(current_tid()) : NULL;
	struct open_read *call = state ? read_at_work(state, (u64)iocb) : NULL;

	if (call)
		read_looks_up(call, FIELD(iocb, ki_filp), FIELD(iter, count), typed);
}

SEC("?kprobe/filemap_read")
int BPF_KPROBE(kprobe_read_lookup, struct kiocb *iocb, struct iov_iter *iter)
{
	reader_looks_up(iocb, iter, false);
	return 0;
}

SEC("?fentry/filemap_read")
int BPF_PROG(fentry_read_lookup, struct kiocb *iocb, struct iov_iter *iter)
{
	reader_looks_up(iocb, iter, true);
	return 0;
}
