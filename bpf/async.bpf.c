// SPDX-License-Identifier: GPL-2.0
// Reads that end elsewhere than where they began: aio and io_uring. Followed by the address of their kiocb from the call that
// takes them up (in the task, or in a worker of io_uring's, perhaps several times) to their completion, wherever that is.
#include "bpf/account.h"
#include "bpf/open_read.h"

#define IORING_OP_READV 1

static __always_inline void async_begins(struct kiocb *iocb, u64 pos, u64 count, u64 token, const bool again, const bool typed)
{
	struct async_read fresh = {}, *known;
	u64 address = (u64)iocb;
	struct task_state *state;
	struct file *file;

	if (!is_target(current_tgid()))
		return;
	state = task_state_made(current_tid());
	if (!state)
		return;
	state->kiocb = 0;
	known = bpf_map_lookup_elem(&async_reads, &address);
	if (known && again && known->token == token && !known->ended) {
		fresh.call.read = known->call.read;
		fresh.call.tid = known->call.tid;
	} else {
		if (known && known->started && !known->ended)
			count_loss(SB_LOSS_READ_ENTRY); /* its end was not seen */
		file = FIELD(iocb, ki_filp);
		if (!read_begins(&fresh.call, state, file, pos, count, typed)) {
			if (known)
				bpf_map_delete_elem(&async_reads, &address);
			return;
		}
		fresh.token = token;
		if (bpf_map_update_elem(&async_reads, &address, &fresh, BPF_ANY)) {
			count_loss(SB_LOSS_REQUEST_STATE);
			return;
		}
	}
	state->kiocb = address;
	state->kiocb_read = fresh.call.read;
	state->kiocb_reader = fresh.call.tid;
	state->kiocb_in = current_system_call();
}

static __always_inline void async_ends(u64 address, u16 method, s64 returned)
{
	struct async_read *known = bpf_map_lookup_elem(&async_reads, &address);

	if (!known || known->ended)
		return;
	known->ended = 1;
	read_ends(&known->call, method, returned, bpf_ktime_get_ns());
	bpf_map_delete_elem(&async_reads, &address);
}

static __always_inline void aio_begins(struct kiocb *iocb, const struct iocb *asked, bool vectored, const bool typed)
{
	async_begins(iocb, FIELD(asked, aio_offset), vectored ? 0 : FIELD(asked, aio_nbytes), 0, false, typed);
}

SEC("?kprobe/aio_read")
int BPF_KPROBE(kprobe_aio_entry, struct kiocb *iocb, const struct iocb *asked, bool vectored)
{
	aio_begins(iocb, asked, vectored, false);
	return 0;
}

SEC("?fentry/aio_read")
int BPF_PROG(fentry_aio_entry, struct kiocb *iocb, const struct iocb *asked, bool vectored)
{
	aio_begins(iocb, asked, vectored, true);
	return 0;
}

/* In interrupt context after direct I/O, in the submitting task where the page cache had everything. */
SEC("?kprobe/aio_complete_rw")
int BPF_KPROBE(kprobe_aio_return, struct kiocb *iocb, long returned)
{
	async_ends((u64)iocb, SB_METHOD_AIO, returned);
	return 0;
}

SEC("?fentry/aio_complete_rw")
int BPF_PROG(fentry_aio_return, struct kiocb *iocb, long returned)
{
	async_ends((u64)iocb, SB_METHOD_AIO, returned);
	return 0;
}

/* A request of io_uring begins with its kiocb: an address, which no program's types know. */
static __always_inline void uring_begins(struct io_kiocb *request)
{
	struct kiocb *iocb = (void *)request;
	struct io_rw *rw = (void *)request;
	struct file *file = BPF_CORE_READ(iocb, ki_filp);
	s64 pos = BPF_CORE_READ(iocb, ki_pos);
	u64 count = 0;

	if (pos == -1) /* the file's own position */
		pos = BPF_CORE_READ(file, f_pos);
	if (bpf_core_type_exists(struct io_rw) && BPF_CORE_READ(request, opcode) != IORING_OP_READV)
		count = BPF_CORE_READ(rw, len);
	async_begins(iocb, pos, count, BPF_CORE_READ(request, cqe.user_data), true, false);
}

SEC("?kprobe/io_read")
int BPF_KPROBE(kprobe_uring_entry, struct io_kiocb *request)
{
	uring_begins(request);
	return 0;
}

SEC("?fentry/io_read")
int BPF_PROG(fentry_uring_entry, struct io_kiocb *request)
{
	uring_begins(request);
	return 0;
}

/* Reads into registered buffers have a function of their own on 7.3, not on 6.1 and 6.12. */
SEC("?kprobe/io_read_fixed")
int BPF_KPROBE(kprobe_uring_fixed_entry, struct io_kiocb *request)
{
	uring_begins(request);
	return 0;
}

SEC("?fentry/io_read_fixed")
int BPF_PROG(fentry_uring_fixed_entry, struct io_kiocb *request)
{
	uring_begins(request);
	return 0;
}

SEC("?tp/io_uring/io_uring_complete")
int tracepoint_uring_return(struct trace_event_raw_io_uring_complete *context)
{
	async_ends((u64)context->req, SB_METHOD_IO_URING, context->res);
	return 0;
}
