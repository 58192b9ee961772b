/* SPDX-License-Identifier: GPL-2.0 */
/* On whose account the current task does I/O. */
#ifndef SERVEDBY_ACCOUNT_H
#define SERVEDBY_ACCOUNT_H

#include "bpf/kernel.h"

struct account {
	struct task_state *state; /* of the current task; NULL: none */
	u64 serving; /* the request a worker serves; 0: none */
	u32 tid, tgid;
	u32 read;    /* the target's read that it works at; 0: none */
	u32 reader;  /* whose number `read` is */
	u32 flags;   /* SB_BY_TARGET, SB_BY_WORKER, SB_FOR_TARGET, SB_BY_ADVICE, SB_BIO_ASYNC; 0: somebody else */
};

/* Whether the task still works at its last asynchronous read. What it does after that system call is something else; a
 * worker of io_uring has no system call, and does nothing else. */
static __always_inline bool works_async(struct task_state *state)
{
	return state->kiocb && state->kiocb_in == current_system_call();
}

/* The asynchronous read whose kiocb this is; below an overlay, whose own kiocb is another one, the one that the task works
 * at. NULL: none that is known. */
static __always_inline struct async_read *async_read_of(struct task_state *state, u64 kiocb)
{
	struct async_read *known = bpf_map_lookup_elem(&async_reads, &kiocb);

	if (known || !works_async(state))
		return known;
	kiocb = state->kiocb;
	return bpf_map_lookup_elem(&async_reads, &kiocb);
}

/* The read that the task works at: its open call, else the asynchronous one with this kiocb (0: whichever it is). */
static __always_inline struct open_read *read_at_work(struct task_state *state, u64 kiocb)
{
	struct async_read *async;

	if (state->open)
		return &state->call;
	async = async_read_of(state, kiocb);
	if (!async)
		return NULL;
	async->started = 1;
	return &async->call;
}

/* Whether the request is still in flight as the worker met it, and for whom: SB_BY_WORKER, SB_FOR_TARGET, or 0. */
static __always_inline u32 account_of_request(u64 request, u64 issue_ns)
{
	struct request_state *state = bpf_map_lookup_elem(&requests, &request);

	if (!state || (issue_ns && state->issue_ns != issue_ns))
		return 0;
	return SB_BY_WORKER | (state->target_bytes ? SB_FOR_TARGET : 0);
}

static __always_inline void account_of_current(struct account *account)
{
	struct task_state *state;

	account->tid = current_tid();
	account->tgid = current_tgid();
	account->state = state = task_state(account->tid);
	if (is_target(account->tgid)) {
		account->flags = SB_BY_TARGET | SB_FOR_TARGET;
		if (state && state->open) {
			account->read = state->call.read;
			account->reader = account->tid;
		} else if (state && works_async(state)) {
			account->read = state->kiocb_read;
			account->reader = state->kiocb_reader;
			account->flags |= SB_BIO_ASYNC;
		} else {
			int call = current_system_call();

			if (call == SYSTEM_CALL_READAHEAD || call == SYSTEM_CALL_FADVISE)
				account->flags |= SB_BY_ADVICE;
		}
		return;
	}
	if (state && state->serving) {
		account->flags = account_of_request(state->serving, state->serving_issue_ns);
		if (account->flags)
			account->serving = state->serving;
	}
}

/* Pages of a file are about to be filled, for whom the account says. */
static __always_inline void send_fill(const struct account *account, struct sb_file_id id, u64 pos, u64 bytes, u64 file_size,
				      u32 how)
{
	struct sb_fill *record = record_reserve(struct sb_fill);

	if (!record)
		return;
	record_begin(&record->head, SB_FILL, sizeof(*record), account->tid, bpf_ktime_get_ns());
	record->pos = pos;
	record->bytes = bytes;
	record->file_size = file_size;
	record->serving = account->serving;
	record->file = id;
	record->tgid = account->tgid;
	record->read = account->read;
	record->flags = (account->flags & ~SB_BIO_ASYNC) | how;
	record->reader = account->reader;
	record_submit(record);
}

static __always_inline struct sb_device_count *counts_of(u32 slot)
{
	return bpf_map_lookup_elem(&device_counts, &slot);
}

/* The position in a backing file is what joins where a driver reads with a kiocb of its own. */
static __always_inline void note_backing(struct gendisk *disk, u32 dev)
{
	struct loop_device *loop = BPF_CORE_READ(disk, private_data);
	struct backing_of backing = {.dev = dev};
	struct sb_file_id id;
	struct file_key key;
	struct file *file;

	if (!bpf_core_type_exists(struct loop_device))
		return;
	file = BPF_CORE_READ(loop, lo_backing_file);
	if (!file)
		return;
	id = inode_id(BPF_CORE_READ(file, f_mapping, host), false);
	key = file_key(id);
	key.generation = 0;
	backing.offset = BPF_CORE_READ(loop, lo_offset);
	bpf_map_update_elem(&backing_files, &key, &backing, BPF_ANY);
}

static __always_inline void send_device(struct gendisk *disk, u32 dev, u64 diskseq)
{
	struct sb_device *record = record_reserve(struct sb_device);

	if (!record)
		return;
	record_begin(&record->head, SB_DEVICE, sizeof(*record), 0, bpf_ktime_get_ns());
	record->diskseq = diskseq;
	record->dev = dev;
	record->pad = 0;
	BPF_CORE_READ_INTO(&record->name, disk, disk_name);
	record_submit(record);
}

/* The disk's number is not known, or stood for another device before. A function of its own: it is rarely wanted. */
static __noinline struct tracked_device *device_made(struct gendisk *disk, u32 dev)
{
	struct tracked_device *known = bpf_map_lookup_elem(&devices, &dev), fresh = {};
	u64 diskseq = BPF_CORE_READ(disk, diskseq), before, *slot;
	u32 zero = 0;

	if (known) {
		before = known->diskseq;
		if (__sync_val_compare_and_swap(&known->diskseq, before, diskseq) != before || !before)
			return known; /* another processor has said so, or there is nothing to compare with */
	} else {
		slot = bpf_map_lookup_elem(&slots, &zero);
		if (!slot)
			return NULL;
		fresh.slot = __sync_fetch_and_add(slot, 1);
		fresh.diskseq = diskseq;
		fresh.serves_backing = BPF_CORE_READ(disk, major) == LOOP_MAJOR;
		fresh.bios = BPF_CORE_READ(disk, queue, mq_ops) ? BIOS_BECOME_REQUESTS : BIOS_PASSED_ON;
		if (fresh.slot >= MAX_DEVICES || bpf_map_update_elem(&devices, &dev, &fresh, BPF_NOEXIST)) {
			known = bpf_map_lookup_elem(&devices, &dev); /* another processor was faster, or there is no room */
			if (!known)
				count_loss(SB_LOSS_REQUEST_STATE);
			return known;
		}
	}
	if (BPF_CORE_READ(disk, major) == LOOP_MAJOR)
		note_backing(disk, dev);
	send_device(disk, dev, diskseq);
	return bpf_map_lookup_elem(&devices, &dev);
}

/* What is known of a disk; one that was made since the session began becomes known. NULL: one without a number (a path of
 * NVMe multipath), or one too many. */
static __always_inline struct tracked_device *device_of(struct gendisk *disk, u32 dev, const bool typed)
{
	struct tracked_device *known = bpf_map_lookup_elem(&devices, &dev);

	if (!dev || (known && known->diskseq == FIELD(disk, diskseq)))
		return known;
	return device_made(disk, dev);
}

/* A read bio for a device without requests: what the device counts. */
static __always_inline void count_bio(struct tracked_device *device, u32 bytes, u32 flags)
{
	struct sb_device_count *counts = counts_of(device->slot);

	if (!counts)
		return;
	if (flags & SB_FOR_TARGET) {
		counts->target_read_bytes += bytes;
		counts->target_read_requests++;
	} else {
		counts->other_read_bytes += bytes;
		counts->other_read_requests++;
	}
}

/* What becomes of a bio for this device: SB_BIO_STACKED, SB_BIO_SERVED, or 0 where it comes to a request. Counts the others. */
static __always_inline u32 without_requests(struct tracked_device *device, struct gendisk *disk, u32 bytes, u32 flags,
					    const bool typed)
{
	struct request_queue *queue;

	if (!device || !device->bios)
		return 0;
	queue = FIELD(disk, queue);
	if (FIELD(queue, mq_ops))
		return 0;
	count_bio(device, bytes, flags);
	return device->bios == BIOS_SERVED ? SB_BIO_SERVED : SB_BIO_STACKED;
}

/* So that the request, or the device below, that it comes to is known to be the target's, or worth watching. */
static __always_inline void remember_bio(u64 address, u32 bytes, u32 flags)
{
	struct bio_state state = {.bytes_left = bytes, .flags = flags};

	if (bpf_map_update_elem(&bios, &address, &state, BPF_ANY))
		count_loss(SB_LOSS_REQUEST_STATE);
}

#endif
