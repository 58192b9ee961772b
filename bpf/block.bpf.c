// SPDX-License-Identifier: GPL-2.0
// Bios and requests of the tracked devices: submission, issue, completion.
//
// Submission and issue run in process context: kprobes, which preemption cannot skip. Completion runs in interrupt context:
// BTF tracepoints, which do not share the kprobes' guard. A completion is seen twice, by the driver's hook and by the block
// layer's: whichever comes first is recorded, so one may be missed.
#include "bpf/account.h"
#include "bpf/bio_pages.h"

#define MAX_BIOS_A_REQUEST 128 /* walked for their owner; nr_requests' merges stay far below */

/* Whether the task is in a direct read of a block device. */
static __always_inline bool reads_device_directly(struct task_state *state)
{
	const u32 both = SB_READ_BLKDEV | SB_READ_DIRECT;
	struct open_read *call = state && (state->open || state->kiocb) ? read_at_work(state, 0) : NULL;

	return call && (call->flags & (both | SB_READ_PAGE_CACHE)) == both;
}

/* A page goes out to swap: whatever was read from its place there is of no more use. */
static __always_inline void swap_written(struct bio *bio, const bool typed)
{
	const struct file_key any_swap = {.ino = SB_SWAP_INO};
	struct bio_vec first;
	struct walk walk = {.kind = SB_BIO};
	u64 entry;

	if (!bpf_map_lookup_elem(&files, &any_swap)) /* nobody of the target has read from memory that can be swapped */
		return;
	first = segment_of(FIELD(bio, bi_io_vec), 0, 0);
	if (!first.bv_page || !segment_swap(&first, true, &entry))
		return;
	walk.id = swap_area(entry, &walk.part.file_pos);
	walk.part.bytes = FIELD(bio, bi_iter.bi_size);
	walk.flags = SB_BIO_SWAP | SB_BIO_WRITE | SB_BIO_FIRST;
	walk.bio = (u64)bio;
	walk.tid = current_tid();
	walk.tgid = current_tgid();
	send_part(&walk);
}

static __always_inline void bio_submitted(struct bio *bio, const bool typed)
{
	u32 opf = FIELD(bio, bi_opf), dev, bytes, tid;
	struct account account = {};
	struct tracked_device *device;
	struct task_state *state;
	struct block_device *bdev;
	struct gendisk *disk;
	struct unpack_state *unpack = NULL;
	struct inode *inode = NULL;
	struct bio_vec first;
	bool meta;
	struct walk walk = {.kind = SB_BIO};
	u64 pos = 0, entry;

	if ((opf & REQ_OP_MASK) != REQ_OP_READ) {
		if ((opf & REQ_OP_MASK) == REQ_OP_WRITE)
			swap_written(bio, typed);
		return;
	}
	bytes = FIELD(bio, bi_iter.bi_size);
	if (!bytes)
		return;
	account_of_current(&account);
	state = account.state;
	/* What was split off before it came here begins somewhere in the pages of the whole. */
	walk.segments = FIELD(bio, bi_io_vec) + FIELD(bio, bi_iter.bi_idx);
	walk.done = bio_first_done(bio);
	walk.flags = account.flags | SB_BIO_FIRST;
	walk.serving = account.serving;
	walk.read = account.read;
	walk.reader = account.reader;
	meta = opf & (1U << bpf_core_enum_value(enum req_flag_bits, __REQ_META___any));
	first = segment_of(walk.segments, 0, walk.done);
	if (segment_place(&first, &inode, &pos) && BPF_CORE_READ(inode, i_sb, s_magic) == BDEVFS_MAGIC)
		meta = true;
	if (!inode && !meta && segment_swap(&first, false, &entry)) {
		walk.id = swap_area(entry, &pos);
		walk.flags |= SB_BIO_SWAP;
	} else if (state && state->direct_bio && !meta &&
		   (state->direct_bio == (u64)bio || state->direct_bio == ANY_BIO ||
		    state->direct_pages == (u64)FIELD(bio, bi_io_vec))) {
		walk.id = state->direct_file;
		walk.file_size = state->direct_size;
		pos = state->direct_pos;
		/* The pieces of a bio are submitted in their order. */
		if (state->direct_bio == ANY_BIO || state->direct_left <= bytes)
			state->direct_bio = 0;
		state->direct_left -= bytes;
		state->direct_pos += bytes;
		walk.flags |= SB_BIO_DIRECT;
		if (state->direct_read) {
			walk.read = state->direct_read;
			walk.reader = state->direct_reader;
			walk.flags |= SB_BIO_ASYNC;
		}
		if (state->direct_serving) {
			walk.serving = state->direct_serving;
			walk.flags |= account_of_request(walk.serving, 0);
		}
	} else if (!inode && !meta && reads_device_directly(state)) {
		/* Bytes of a device are its own: the bio, not yet remapped, says where. */
		pos = FIELD(bio, bi_iter.bi_sector) << 9;
		walk.file_size = pos + bytes;
		walk.flags |= SB_BIO_DIRECT;
	} else {
		tid = account.tid;
		if (!inode && !meta && (unpack = bpf_map_lookup_elem(&unpacks, &tid)) != NULL)
			walk.flags |= SB_BIO_PACKED;
		if (inode) {
			walk.part.inode = inode;
			walk.id = inode_id(inode, false);
			walk.file_size = BPF_CORE_READ(inode, i_size);
		}
		walk.flags |= meta ? SB_BIO_META : inode ? SB_BIO_FILE : 0;
	}
	bdev = FIELD(bio, bi_bdev);
	disk = FIELD(bdev, bd_disk);
	walk.dev = disk_dev(disk, typed);
	dev = walk.dev;
	device = device_of(disk, dev, typed);
	walk.flags |= without_requests(device, disk, bytes, walk.flags, typed);
	if (!(walk.flags & (SB_BY_TARGET | SB_BY_WORKER)) && !unpack) { /* one that unpacks is known to be of interest */
		struct file_key key = file_key(walk.id);

		if (walk.flags & SB_BIO_SWAP)
			key.generation = 0; /* any area */
		if (!(walk.flags & (SB_BIO_FILE | SB_BIO_SWAP)) || !bpf_map_lookup_elem(&files, &key))
			return;
	}
	if (opf & (1U << bpf_core_enum_value(enum req_flag_bits, __REQ_RAHEAD___any)))
		walk.flags |= SB_BIO_AHEAD;

	walk.sector = FIELD(bio, bi_iter.bi_sector) + FIELD(bdev, bd_start_sect);
	walk.bio = (u64)bio;
	walk.tid = account.tid;
	walk.tgid = account.tgid;
	if (device && !(walk.flags & SB_BIO_SERVED))
		remember_bio((u64)bio, bytes, walk.flags & (SB_BY_TARGET | SB_BY_WORKER | SB_FOR_TARGET));
	if (walk.flags & SB_BY_TARGET) {
		u32 zero = 0;
		u64 *total = bpf_map_lookup_elem(&process_bytes, &zero);

		if (total)
			*total += bytes;
	}

	if (unpack)
		pos = unpack->number;
	walk.part.file_pos = pos;
	walk.part.bytes = bytes;
	if (walk.flags & SB_BIO_FILE) {
		/* A bio's pages go up in its file; so if the last is as far from the first as the bytes between them, none is
		 * missing, and the bio is one run. Else every segment is looked at, and where the last cannot be told: a bio that
		 * was split off has no count. */
		u32 count = FIELD(bio, bi_vcnt);
		bool split_off = !count || walk.done || walk.segments != FIELD(bio, bi_io_vec);
		struct inode *last_inode = NULL;
		struct bio_vec last = {};
		u64 last_pos = 0;

		if (count > 1 || split_off) {
			if (!split_off)
				last = segment_of(walk.segments, count - 1, 0);
			if (split_off || !segment_place(&last, &last_inode, &last_pos) || last_inode != walk.part.inode ||
			    last_pos + last.bv_len != pos + bytes) {
				send_runs(&walk, bytes);
				if (walk.left) { /* the rest has no place in a file that could be said */
					count_loss(SB_LOSS_BIO_PARTS);
					walk.flags = (walk.flags & ~SB_BIO_FILE) | SB_BIO_CUT;
					walk.part.offset = walk.at;
					walk.part.bytes = walk.left;
					send_part(&walk);
				}
				return;
			}
		}
	}
	send_part(&walk);
}

SEC("?kprobe/submit_bio")
int BPF_KPROBE(kprobe_bio_submit, struct bio *bio)
{
	bio_submitted(bio, false);
	return 0;
}

SEC("?fentry/submit_bio")
int BPF_PROG(fentry_bio_submit, struct bio *bio)
{
	bio_submitted(bio, true);
	return 0;
}

static __always_inline void send_request(u64 address, struct request_state *state, u32 bytes, s32 status, u32 flags, u64 now)
{
	struct sb_request *record = record_reserve(struct sb_request);

	if (!record)
		return;
	record_begin(&record->head, SB_REQUEST, sizeof(*record), 0, now);
	record->request = address;
	record->issue_ns = state->issue_ns;
	record->sector = state->sector;
	record->bytes = bytes;
	record->dev = state->dev;
	record->target_bytes = state->target_bytes < bytes ? state->target_bytes : bytes;
	record->status = status;
	record->flags = flags;
	record->pad = 0;
	record_submit(record);
}

/* A read request, or `bytes` of it, has completed: counted once, recorded if somebody waits for it. */
static __always_inline void account_completion(u64 address, struct request_state *state, u32 bytes, s32 status, u32 flags,
					       u64 now)
{
	struct sb_device_count *counts = counts_of(state->slot);
	u32 target = state->target_bytes < bytes ? state->target_bytes : bytes;

	if (drop_every && !(state->flags & REQUEST_BACKED) && target) {
		u32 zero = 0;
		u64 *number = bpf_map_lookup_elem(&completions, &zero);

		if (number && (__sync_fetch_and_add(number, 1) + 1) % drop_every == 0) {
			count_loss(SB_LOSS_DROPPED);
			count_note(SB_NOTE_DROPPED_BYTES, bytes);
			return;
		}
	}
	if (counts) {
		counts->target_read_bytes += target;
		counts->other_read_bytes += bytes - target;
		if (!(flags & SB_REQUEST_PARTIAL)) { /* as the kernel counts: when the last part is done */
			if (state->target_bytes)
				counts->target_read_requests++;
			else
				counts->other_read_requests++;
		}
	}
	if (state->flags & REQUEST_WATCHED)
		send_request(address, state, bytes, status, flags, now);
}

struct owners {
	struct bio *bio;
	u32 target_bytes;
	u32 watched;
};

static long owner_step(u32 i, struct owners *owners)
{
	struct bio *bio = owners->bio;
	u64 address = (u64)bio;
	struct bio_state *state;
	u32 bytes;

	if (!bio)
		return 1;
	bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	state = bpf_map_lookup_elem(&bios, &address);
	if (!state) { /* the front part of a split bio is a new bio; its bi_private names the bio it was cut from */
		address = (u64)BPF_CORE_READ(bio, bi_private);
		state = bpf_map_lookup_elem(&bios, &address);
	}
	if (state) {
		owners->watched = 1;
		if (state->flags & SB_FOR_TARGET)
			owners->target_bytes += bytes;
		if (__sync_fetch_and_add(&state->bytes_left, -(s64)bytes) <= bytes)
			bpf_map_delete_elem(&bios, &address);
	}
	owners->bio = BPF_CORE_READ(bio, bi_next);
	return 0;
}

static __always_inline void request_issued(struct request *request, const bool typed)
{
	u32 op = FIELD(request, cmd_flags) & REQ_OP_MASK;
	struct request_queue *queue = FIELD(request, q);
	struct gendisk *disk = FIELD(queue, disk);
	struct request_state fresh = {}, *known;
	struct tracked_device *device;
	struct owners owners = {};
	u64 address = (u64)request;
	u64 now;

	if (op != REQ_OP_READ || !disk)
		return;
	fresh.dev = disk_dev(disk, typed);
	device = device_of(disk, fresh.dev, typed);
	if (!device)
		return;
	now = bpf_ktime_get_ns();
	fresh.slot = device->slot;
	fresh.issue_ns = now;
	fresh.start_ns = FIELD(request, start_time_ns);
	fresh.sector = FIELD(request, __sector);
	fresh.bytes = FIELD(request, __data_len);
	known = bpf_map_lookup_elem(&requests, &address);
	if (known) {
		if (known->start_ns == fresh.start_ns && known->sector == fresh.sector && known->bytes == fresh.bytes &&
		    !(known->flags & REQUEST_DONE))
			return; /* issued again after a requeue: the same bytes, still outstanding */
		if (!(known->flags & REQUEST_DONE)) { /* its number is in use again, so it must have completed */
			count_note(SB_NOTE_COMPLETION_RECOVERED, 1);
			account_completion(address, known, known->bytes, 0, SB_REQUEST_FOUND_DONE, now);
		}
	}
	owners.bio = FIELD(request, bio);
	if (owner_step(0, &owners) == 0 && owners.bio) /* most requests hold one bio */
		bpf_loop(MAX_BIOS_A_REQUEST, owner_step, &owners, 0);
	if (owners.bio)
		count_loss(SB_LOSS_BIO_PARTS);
	fresh.target_bytes = owners.target_bytes;
	if (owners.watched)
		fresh.flags |= REQUEST_WATCHED;
	if (device->serves_backing) {
		struct sector_key at = {.sector = fresh.sector, .dev = fresh.dev};

		fresh.flags |= REQUEST_BACKED;
		bpf_map_update_elem(&backed_at, &at, &address, BPF_ANY);
	}
	if (bpf_map_update_elem(&requests, &address, &fresh, BPF_ANY))
		count_loss(SB_LOSS_REQUEST_STATE);
}

SEC("?kprobe/blk_mq_start_request")
int BPF_KPROBE(kprobe_request_issue, struct request *request)
{
	request_issued(request, false);
	return 0;
}

SEC("?fentry/blk_mq_start_request")
int BPF_PROG(fentry_request_issue, struct request *request)
{
	request_issued(request, true);
	return 0;
}

static __always_inline void forget_request(u64 address, struct request_state *state)
{
	if (state->flags & REQUEST_BACKED) {
		struct sector_key at = {.sector = state->sector, .dev = state->dev};

		bpf_map_delete_elem(&backed_at, &at);
	}
	bpf_map_delete_elem(&requests, &address);
}

/* The driver says that it has the data, before the block layer ends the request. */
static __always_inline void driver_done(struct request *request, s32 status)
{
	u64 address = (u64)request;
	struct request_state *state = bpf_map_lookup_elem(&requests, &address);

	if (!state || (state->flags & REQUEST_DONE))
		return;
	state->flags |= REQUEST_DONE;
	account_completion(address, state, state->bytes, status, SB_REQUEST_BY_DRIVER, bpf_ktime_get_ns());
}

/* The block layer ends a request, or `bytes` of it. */
static __always_inline void block_done(struct request *request, s32 status, u32 bytes, const bool typed)
{
	u32 op = FIELD(request, cmd_flags) & REQ_OP_MASK, dev;
	struct request_queue *queue = FIELD(request, q);
	struct gendisk *disk = FIELD(queue, disk);
	u64 address = (u64)request, now;
	struct tracked_device *device;
	struct sb_device_count *counts;
	struct request_state *state;

	if ((op != REQ_OP_READ && op != REQ_OP_WRITE) || !disk)
		return;
	dev = disk_dev(disk, typed);
	device = bpf_map_lookup_elem(&devices, &dev);
	if (!device)
		return;
	counts = counts_of(device->slot);
	if (op == REQ_OP_WRITE) {
		if (counts) {
			counts->write_bytes += bytes;
			counts->write_requests++;
		}
		return;
	}
	state = bpf_map_lookup_elem(&requests, &address);
	if (!state) {
		count_note(SB_NOTE_REQUEST_BEFORE_START, 1);
		if (counts)
			counts->unseen_read_bytes += bytes;
		return;
	}
	if (state->flags & REQUEST_DONE) {
		forget_request(address, state);
		return;
	}
	if (!bytes) { /* NVMe multipath took its bios back, for another path: which one serves them is not followed */
		if (state->flags & REQUEST_WATCHED)
			count_loss(SB_LOSS_PATH_FAILED);
		forget_request(address, state);
		return;
	}
	now = bpf_ktime_get_ns();
	if (bytes < state->bytes) {
		account_completion(address, state, bytes, status, SB_REQUEST_PARTIAL, now);
		state->sector += bytes >> 9;
		state->bytes -= bytes;
		state->target_bytes -= state->target_bytes < bytes ? state->target_bytes : bytes;
		return;
	}
	account_completion(address, state, state->bytes, status, 0, now);
	forget_request(address, state);
}

SEC("?tp_btf/block_rq_complete")
int BPF_PROG(btf_request_done, struct request *request, int status, unsigned int bytes)
{
	block_done(request, status, bytes, true);
	return 0;
}

/* A drive's command has ended. With an error it may be tried again, or its bios given to another path: what comes of that the
 * block layer says. */
static __always_inline void nvme_done(struct request *request)
{
	struct nvme_request *command = (void *)request + bpf_core_type_size(struct request);

	if (bpf_core_type_exists(struct nvme_request) && BPF_CORE_READ(command, status))
		return;
	driver_done(request, 0);
}

/* Since 6.12 the verifier takes arguments of modules' tracepoints for possibly NULL. */
SEC("?tp_btf/nvme_complete_rq")
int BPF_PROG(btf_nvme_done, struct request *request)
{
	if (request)
		nvme_done(request);
	return 0;
}

/* The same without BTF's types of the arguments, for the kprobe tier. */
SEC("?raw_tp/block_rq_complete")
int raw_request_done(struct bpf_raw_tracepoint_args *context)
{
	block_done((struct request *)context->args[0], (s32)context->args[1], (u32)context->args[2], false);
	return 0;
}

SEC("?raw_tp/nvme_complete_rq")
int raw_nvme_done(struct bpf_raw_tracepoint_args *context)
{
	nvme_done((struct request *)context->args[0]);
	return 0;
}

SEC("?kprobe/lo_complete_rq")
int BPF_KPROBE(kprobe_loop_done, struct request *request)
{
	struct loop_cmd *cmd = (void *)request + bpf_core_type_size(struct request);

	if (!bpf_core_type_exists(struct loop_cmd))
		return 0;
	if (BPF_CORE_READ(cmd, ret) == BPF_CORE_READ(request, __data_len))
		driver_done(request, 0);
	return 0;
}
