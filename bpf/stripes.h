/* SPDX-License-Identifier: GPL-2.0 */
/* Stripes of md raid4, 5, 6: what a degraded array reads goes through them, block by block. A stripe has a block of each member;
 * bios that wait for one hang on its list, until it is up to date and is copied into them. */
#ifndef SERVEDBY_STRIPES_H
#define SERVEDBY_STRIPES_H

#include "bpf/account.h"
#include "bpf/parents.h"

#define MAX_MEMBERS 256
#define MAX_WAITING 8           /* bios on one block's list that are looked at */
#define STRIPE_ELSEWHERE 0x80000000 /* beside SB_FOR_TARGET, of a block that is read: another one of its stripe is wanted */

static __always_inline bool is_striped(u32 dev)
{
	struct tracked_device *device = bpf_map_lookup_elem(&devices, &dev);

	return device && device->bios == BIOS_STRIPED;
}

static __always_inline struct r5dev *block_of(struct stripe_head *stripe, u32 member)
{
	return (void *)stripe + bpf_core_field_offset(struct stripe_head, dev) + member * bpf_core_type_size(struct r5dev);
}

static __always_inline u32 block_bytes(struct stripe_head *stripe)
{
	struct r5conf *conf = BPF_CORE_READ(stripe, raid_conf);

	if (bpf_core_field_exists(conf->stripe_size))
		return BPF_CORE_READ(conf, stripe_size);
	return 1U << page_shift;
}

/* Whether a bio of the target waits on a block's list. One that is longer than is looked at counts as if there were one. */
static __always_inline bool target_waits(struct bio *waiting, u64 sector, u32 bytes)
{
	struct bio_state *known;
	u64 address;
	int i;

	for (i = 0; i < MAX_WAITING && waiting; i++) {
		known = parent_of(waiting, &address);
		if (known && known->flags & SB_FOR_TARGET)
			return true;
		if (BPF_CORE_READ(waiting, bi_iter.bi_sector) + (BPF_CORE_READ(waiting, bi_iter.bi_size) >> 9) >= sector + (bytes >> 9))
			return false; /* it reaches into the next block: the last on this one's list */
		waiting = BPF_CORE_READ(waiting, bi_next);
	}
	return waiting != NULL;
}

struct stripe_search {
	struct stripe_head *stripe;
	u32 disks;
	u32 bytes;
	u32 found;
};

static long member_wanted(u32 i, struct stripe_search *search)
{
	struct r5dev *block = block_of(search->stripe, i);

	if (i >= search->disks)
		return 1;
	if (!target_waits(BPF_CORE_READ(block, toread), BPF_CORE_READ(block, sector), search->bytes))
		return 0;
	search->found = 1;
	return 1;
}

/* Whether a bio is a stripe's, whose bios lie inside it; and then for whom it reads the block: SB_FOR_TARGET if the target waits
 * for any block of the stripe, with STRIPE_ELSEWHERE if not for this one. `address`: of the bio, as a number. */
static __always_inline bool is_of_stripe(struct bio *bio, u64 address, u32 *wanted)
{
	struct stripe_head *stripe = (void *)BPF_CORE_READ(bio, bi_private);
	struct stripe_search search = {.stripe = stripe};
	struct r5dev *block;
	u64 member;

	if (!bpf_core_type_exists(struct stripe_head))
		return false;
	search.disks = BPF_CORE_READ(stripe, disks);
	member = (address - (u64)block_of(stripe, 0)) / bpf_core_type_size(struct r5dev);
	if (member >= search.disks || member >= MAX_MEMBERS)
		return false;
	block = block_of(stripe, member);
	if (address != (u64)block + bpf_core_field_offset(struct r5dev, req) &&
	    address != (u64)block + bpf_core_field_offset(struct r5dev, rreq))
		return false;
	search.bytes = block_bytes(stripe);
	if (target_waits(BPF_CORE_READ(block, toread), BPF_CORE_READ(block, sector), search.bytes)) {
		*wanted = SB_FOR_TARGET;
		return true;
	}
	bpf_loop(MAX_MEMBERS, member_wanted, &search, 0);
	*wanted = search.found ? SB_FOR_TARGET | STRIPE_ELSEWHERE : 0;
	return true;
}

#endif
