// SPDX-License-Identifier: GPL-2.0
// A loop worker reads its backing file for a request. The join is by address where the driver reads with the kiocb inside
// its command (exact), else by backing file and position: then one request is read page by page, and one record is sent when
// its range is whole.
#include "bpf/account.h"

static __always_inline void send_backing(struct task_state *state, u32 tid, u32 flags)
{
	struct sb_backing *record = record_reserve(struct sb_backing);

	if (!record)
		return;
	record_begin(&record->head, SB_BACKING, sizeof(*record), tid, bpf_ktime_get_ns());
	record->request = state->serving;
	record->sector = state->run_sector;
	record->pos = state->run_begin;
	record->bytes = state->run_end - state->run_begin;
	record->file = state->backing;
	record->dev = state->serving_dev;
	record->flags = flags;
	record_submit(record);
	state->run_begin = state->run_end;
}

/* A request the driver reads in one piece, with the kiocb inside its command. */
static __always_inline void serve_by_address(u64 request, struct request_state *in_flight, struct sb_file_id file, u64 pos,
					     u64 bytes, u32 flags)
{
	u32 tid = current_tid();
	struct task_state *state = task_state_made(tid);

	if (!state)
		return;
	state->serving = request;
	state->serving_issue_ns = in_flight->issue_ns;
	state->serving_dev = in_flight->dev;
	state->serving_end = 0;
	state->backing = file;
	state->run_begin = pos;
	state->run_end = pos + bytes;
	state->run_sector = in_flight->sector;
	if (in_flight->flags & REQUEST_WATCHED)
		send_backing(state, tid, flags | SB_BACKING_BY_ADDRESS);
}

/* A piece of a request that the driver reads segment by segment. */
static __always_inline void serve_by_range(struct sb_file_id file, u64 pos, u64 bytes)
{
	struct file_key key = {.ino = file.ino, .dev = file.dev}; /* the driver does not tell the generation */
	struct backing_of *backing = bpf_map_lookup_elem(&backing_files, &key);
	struct request_state *in_flight;
	struct task_state *state;
	u32 tid = current_tid();

	if (!backing || pos < backing->offset)
		return;
	state = task_state_made(tid);
	if (!state)
		return;
	if (state->serving && state->serving_end && pos == state->run_end && pos < state->serving_end) {
		state->run_end = pos + bytes; /* the next segment of the same request */
	} else {
		struct sector_key at = {.sector = (pos - backing->offset) >> 9, .dev = backing->dev};
		u64 *request = bpf_map_lookup_elem(&backed_at, &at);

		if (state->serving && state->serving_end && state->run_end > state->run_begin)
			send_backing(state, tid, SB_BACKING_BY_RANGE); /* left unfinished */
		state->serving = 0;
		if (!request)
			return;
		in_flight = bpf_map_lookup_elem(&requests, request);
		if (!in_flight || !(in_flight->flags & REQUEST_WATCHED))
			return;
		state->serving = *request;
		state->serving_issue_ns = in_flight->issue_ns;
		state->serving_dev = in_flight->dev;
		state->serving_end = pos + in_flight->bytes;
		state->backing = file;
		state->run_begin = pos;
		state->run_end = pos + bytes;
		state->run_sector = in_flight->sector;
	}
	if (state->run_end >= state->serving_end && state->run_end > state->run_begin)
		send_backing(state, tid, SB_BACKING_BY_RANGE);
}

/* Buffered: the worker looks into the page cache of the backing file. */
static __always_inline void worker_looks_up(struct kiocb *iocb, struct iov_iter *iter, const bool typed)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct request_state *in_flight;
	struct address_space *mapping;
	struct sb_file_id id;
	u64 request, pos, bytes;
	struct file *file;

	if (!(task->flags & PF_KTHREAD))
		return;
	file = FIELD(iocb, ki_filp);
	mapping = FIELD(file, f_mapping);
	id = inode_id(FIELD(mapping, host), typed);
	pos = FIELD(iocb, ki_pos);
	bytes = FIELD(iter, count);
	request = request_of_kiocb(iocb);
	in_flight = request ? bpf_map_lookup_elem(&requests, &request) : NULL;
	if (in_flight && (in_flight->flags & REQUEST_BACKED))
		serve_by_address(request, in_flight, id, pos, bytes, 0);
	else
		serve_by_range(id, pos, bytes);
}

SEC("?kprobe/filemap_read")
int BPF_KPROBE(kprobe_backing_lookup, struct kiocb *iocb, struct iov_iter *iter)
{
	worker_looks_up(iocb, iter, false);
	return 0;
}

SEC("?fentry/filemap_read")
int BPF_PROG(fentry_backing_lookup, struct kiocb *iocb, struct iov_iter *iter)
{
	worker_looks_up(iocb, iter, true);
	return 0;
}

/* Direct I/O of a file, a reader's own or a worker's: says which bytes of which file the bio that is submitted next holds, and
 * for a worker which request it serves (the kiocb is always the command's here, on every kernel). */
static __always_inline void direct_bio(struct kiocb *iocb, u64 bio, u64 pos)
{
	u64 request = request_of_kiocb(iocb);
	struct request_state *in_flight = request ? bpf_map_lookup_elem(&requests, &request) : NULL;
	u32 tid = current_tid();
	struct task_state *state;
	struct open_read *call;
	struct inode *inode;

	if (in_flight && !(in_flight->flags & REQUEST_BACKED))
		in_flight = NULL;
	if (!in_flight && !is_target(current_tgid()))
		return;
	state = task_state_made(tid);
	if (!state)
		return;
	inode = BPF_CORE_READ(iocb, ki_filp, f_mapping, host);
	state->direct_bio = bio;
	state->direct_pages = 0;
	if (bio != ANY_BIO) {
		state->direct_pages = (u64)BPF_CORE_READ((struct bio *)bio, bi_io_vec);
		state->direct_left = BPF_CORE_READ((struct bio *)bio, bi_iter.bi_size);
	}
	state->direct_pos = pos;
	state->direct_size = BPF_CORE_READ(inode, i_size);
	state->direct_file = inode_id(inode, false);
	state->direct_serving = 0;
	state->direct_read = 0;
	if (!in_flight) {
		call = state->open ? NULL : read_at_work(state, (u64)iocb);
		if (!call)
			return;
		state->direct_read = call->read;
		state->direct_reader = call->tid;
		return;
	}
	state->direct_serving = request;
	if (state->serving != request || state->serving_issue_ns != in_flight->issue_ns)
		serve_by_address(request, in_flight, state->direct_file, BPF_CORE_READ(iocb, ki_pos), in_flight->bytes,
				 SB_BACKING_DIRECT);
}

SEC("?kprobe/iomap_dio_submit_bio")
int BPF_KPROBE(kprobe_direct_bio, void *iter, struct iomap_dio *dio, struct bio *bio, u64 pos)
{
	direct_bio(BPF_CORE_READ(dio, iocb), (u64)bio, pos);
	return 0;
}

SEC("?fentry/iomap_dio_submit_bio")
int BPF_PROG(fentry_direct_bio, void *iter, struct iomap_dio *dio, struct bio *bio, u64 pos)
{
	direct_bio(BPF_CORE_READ(dio, iocb), (u64)bio, pos);
	return 0;
}

/* Since 7.3 a direct read that fits in one bio takes a shorter way, without iomap_dio_submit_bio. */
SEC("?kprobe/__iomap_dio_read_simple")
int BPF_KPROBE(kprobe_direct_simple, struct kiocb *iocb)
{
	direct_bio(iocb, ANY_BIO, BPF_CORE_READ(iocb, ki_pos));
	return 0;
}

SEC("?fentry/__iomap_dio_read_simple")
int BPF_PROG(fentry_direct_simple, struct kiocb *iocb)
{
	direct_bio(iocb, ANY_BIO, iocb->ki_pos);
	return 0;
}
