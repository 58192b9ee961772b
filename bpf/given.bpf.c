// SPDX-License-Identifier: GPL-2.0
// Bytes that a stacked device gives itself: md raid4, 5, 6 out of its stripe cache, dm-thin where nothing was ever written.
#include "bpf/stripes.h"

static __always_inline void give(u32 dev, u64 sector, u32 bytes, u32 how)
{
	struct sb_given *record = record_reserve(struct sb_given);

	if (!record)
		return;
	record_begin(&record->head, SB_GIVEN, sizeof(*record), current_tid(), bpf_ktime_get_ns());
	record->sector = sector;
	record->dev = dev;
	record->bytes = bytes;
	record->how = how;
	record->pad = 0;
	record_submit(record);
}

/* The disk that a bio was submitted to. */
static __always_inline u32 disk_of(struct bio *bio)
{
	return disk_dev(BPF_CORE_READ(bio, bi_bdev, bd_disk), false);
}

static __always_inline void block_computed(struct stripe_head *stripe, int member)
{
	u32 bytes = block_bytes(stripe);
	struct r5dev *block;
	struct bio *waiting;
	u64 sector;

	if (member < 0)
		return;
	block = block_of(stripe, member);
	waiting = BPF_CORE_READ(block, toread);
	sector = BPF_CORE_READ(block, sector);
	if (waiting && target_waits(waiting, sector, bytes))
		give(disk_of(waiting), sector, bytes, SB_GIVEN_REBUILT);
}

static __always_inline void stripe_computed(struct stripe_head *stripe)
{
	if (!bpf_core_type_exists(struct stripe_head))
		return;
	block_computed(stripe, BPF_CORE_READ(stripe, ops.target));
	block_computed(stripe, BPF_CORE_READ(stripe, ops.target2));
}

/* A block has been copied into the bios that waited for it: each is done with it. */
static long block_given(u32 i, struct stripe_search *search)
{
	struct r5dev *block = block_of(search->stripe, i);
	struct bio *waiting;
	u64 sector, end;
	int n;

	if (i >= search->disks)
		return 1;
	waiting = BPF_CORE_READ(block, read);
	if (!waiting)
		return 0;
	sector = BPF_CORE_READ(block, sector);
	if (target_waits(waiting, sector, search->bytes))
		give(disk_of(waiting), sector, search->bytes, SB_GIVEN_CACHED);
	end = sector + (search->bytes >> 9);
	for (n = 0; n < MAX_WAITING && waiting; n++) {
		u64 address, from = BPF_CORE_READ(waiting, bi_iter.bi_sector);
		u64 to = from + (BPF_CORE_READ(waiting, bi_iter.bi_size) >> 9);
		struct bio_state *known = parent_of(waiting, &address);

		if (known)
			part_done(known, address, ((to < end ? to : end) - (from > sector ? from : sector)) << 9);
		if (to >= end)
			break;
		waiting = BPF_CORE_READ(waiting, bi_next);
	}
	return 0;
}

static __always_inline void stripe_given(struct stripe_head *stripe)
{
	struct stripe_search search = {.stripe = stripe};

	if (!bpf_core_type_exists(struct stripe_head))
		return;
	search.disks = BPF_CORE_READ(stripe, disks);
	search.bytes = block_bytes(stripe);
	bpf_loop(MAX_MEMBERS, block_given, &search, 0);
}

static __always_inline void zero_filled(struct bio *bio)
{
	u32 bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	struct bio_state *parent;
	u64 address;

	parent = parent_of(bio, &address);
	if (!parent)
		return;
	give(disk_of(bio), BPF_CORE_READ(bio, bi_iter.bi_sector) + BPF_CORE_READ(bio, bi_bdev, bd_start_sect), bytes,
	     SB_GIVEN_ZERO);
	part_done(parent, address, bytes);
}

#define BY_KPROBE(function, type, does)               \
	SEC("?kprobe/" #function)                     \
	int BPF_KPROBE(kprobe_##function, type *what) \
	{                                             \
		does(what);                           \
		return 0;                             \
	}
#define BY_FENTRY(function, type, does)              \
	SEC("?fentry/" #function)                    \
	int BPF_PROG(fentry_##function, type *what)  \
	{                                            \
		does(what);                          \
		return 0;                            \
	}

BY_KPROBE(ops_complete_compute, struct stripe_head, stripe_computed)
BY_FENTRY(ops_complete_compute, struct stripe_head, stripe_computed)
BY_KPROBE(ops_complete_biofill, struct stripe_head, stripe_given)
BY_FENTRY(ops_complete_biofill, struct stripe_head, stripe_given)
BY_KPROBE(zero_fill_bio, struct bio, zero_filled)
BY_FENTRY(zero_fill_bio, struct bio, zero_filled)
/* On 6.12 the other is a wrapper of this one, which takes a struct by value: no fentry can be attached. */
BY_KPROBE(zero_fill_bio_iter, struct bio, zero_filled)
