/* SPDX-License-Identifier: GPL-2.0 */
/* Which bio of the target's another one does a part of. */
#ifndef SERVEDBY_PARENTS_H
#define SERVEDBY_PARENTS_H

#include "bpf/kernel.h"

/* What is known of a bio, or of the one that it was split off from, which is in its bi_private. */
static __always_inline struct bio_state *known_bio(struct bio *bio, u64 *address)
{
	struct bio_state *known;

	*address = (u64)bio;
	known = bpf_map_lookup_elem(&bios, address);
	if (known)
		return known;
	*address = (u64)BPF_CORE_READ(bio, bi_private);
	return bpf_map_lookup_elem(&bios, address);
}

/* The original of a bio that is a clone of md's, which lies in a struct that leads to it. */
static __always_inline struct bio_state *md_original(struct bio *bio, u64 *address)
{
	if (bpf_core_type_exists(struct md_io_clone)) {
		struct md_io_clone *clone = (void *)bio - bpf_core_field_offset(struct md_io_clone, bio_clone);

		return known_bio(BPF_CORE_READ(clone, orig_bio), address);
	}
	if (bpf_core_type_exists(struct md_io_acct)) {
		struct md_io_acct *clone = (void *)bio - bpf_core_field_offset(struct md_io_acct, bio_clone);

		return known_bio(BPF_CORE_READ(clone, orig_bio), address);
	}
	return NULL;
}

/* What is known of the bio that this one does a part of. A worker may submit it (dm-crypt), so who is current says nothing. dm
 * and md embed their clones in a struct that leads to the original, raid5 clones that clone once more, and md and NVMe multipath
 * pass on the very bio where they need no other. An address that leads elsewhere is in no map. */
static __always_inline struct bio_state *parent_of(struct bio *bio, u64 *address)
{
	struct bio_state *known = known_bio(bio, address);

	if (!known && bpf_core_type_exists(struct dm_target_io)) {
		struct dm_target_io *target = (void *)bio - bpf_core_field_offset(struct dm_target_io, clone);

		known = known_bio(BPF_CORE_READ(target, io, orig_bio), address);
	}
	if (!known)
		known = md_original(bio, address);
	if (!known)
		known = md_original((void *)BPF_CORE_READ(bio, bi_private), address);
	return known;
}

/* `bytes` of a known bio have been dealt with: forgotten with the last of them. */
static __always_inline void part_done(struct bio_state *known, u64 address, u32 bytes)
{
	if (__sync_fetch_and_add(&known->bytes_left, -(s64)bytes) <= bytes)
		bpf_map_delete_elem(&bios, &address);
}

#endif
