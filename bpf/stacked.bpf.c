// SPDX-License-Identifier: GPL-2.0
// Stacked devices without requests of their own (dm, md, NVMe multipath): which bytes of which device below are those of a bio's. Two hooks
// that do not lose: the classic tracepoint tells both places, the submission that follows in the same task has the bio.
#include "bpf/account.h"
#include "bpf/parents.h"
#include "bpf/stripes.h"

SEC("?tp/block/block_bio_remap")
int tracepoint_remap(struct trace_event_raw_block_bio_remap *context)
{
	struct remap_state remap = {
		.old_sector = context->old_sector,
		.sector = context->sector,
		.old_dev = context->old_dev,
		.dev = context->dev,
	};
	u32 tid = current_tid(), old_dev = context->old_dev;

	if (!bpf_map_lookup_elem(&devices, &old_dev)) /* a partition, or a device that is not tracked */
		return 0;
	if (bpf_map_update_elem(&remaps, &tid, &remap, BPF_ANY))
		count_loss(SB_LOSS_REQUEST_STATE);
	return 0;
}

static __always_inline void bio_resubmitted(struct bio *bio, const bool typed)
{
	u32 opf = FIELD(bio, bi_opf), tid, dev, bytes;
	struct account account = {};
	struct tracked_device *device;
	struct block_device *bdev;
	struct remap_state *remap;
	struct bio_state *parent = NULL;
	struct sb_remap *record;
	struct gendisk *disk;
	u64 sector, address;
	u32 flags = 0;

	if ((opf & REQ_OP_MASK) != REQ_OP_READ)
		return;
	tid = current_tid();
	remap = bpf_map_lookup_elem(&remaps, &tid);
	if (!remap)
		return;
	bdev = FIELD(bio, bi_bdev);
	sector = FIELD(bio, bi_iter.bi_sector);
	if (remap->dev != FIELD(bdev, bd_dev) || remap->sector != sector)
		return;
	bytes = FIELD(bio, bi_iter.bi_size);
	disk = FIELD(bdev, bd_disk);
	dev = disk_dev(disk, typed);
	device = device_of(disk, dev, typed);
	*(volatile u64 *)&remap->bio = (u64)bio;
	/* md reads a block into its stripe cache, for whoever waits there; else the bio does a part of one that is known. */
	if (!is_striped(remap->old_dev) || !is_of_stripe(bio, *(volatile u64 *)&remap->bio, &flags)) {
		parent = parent_of(bio, &address);
		if (!parent)
			account_of_current(&account);
		flags = (parent ? parent->flags : account.flags) & SB_FOR_TARGET;
	}
	flags |= without_requests(device, disk, bytes, flags, typed);
	if (parent || flags & SB_FOR_TARGET) {
		if (device && !(flags & SB_BIO_SERVED))
			remember_bio((u64)bio, bytes, flags & SB_FOR_TARGET);
		/* A block that is read only to work out another has no place on the array that anybody waits for. */
		record = flags & STRIPE_ELSEWHERE ? NULL : record_reserve(struct sb_remap);
		if (record) {
			record_begin(&record->head, SB_REMAP, sizeof(*record), tid, bpf_ktime_get_ns());
			record->old_sector = remap->old_sector;
			record->sector = sector + FIELD(bdev, bd_start_sect);
			record->old_dev = remap->old_dev;
			record->dev = dev;
			record->bytes = bytes;
			record->flags = flags;
			record_submit(record);
		}
	}
	if (parent && address != (u64)bio)
		part_done(parent, address, bytes);
	bpf_map_delete_elem(&remaps, &tid);
}

SEC("?kprobe/submit_bio_noacct")
int BPF_KPROBE(kprobe_bio_below, struct bio *bio)
{
	bio_resubmitted(bio, false);
	return 0;
}

SEC("?fentry/submit_bio_noacct")
int BPF_PROG(fentry_bio_below, struct bio *bio)
{
	bio_resubmitted(bio, true);
	return 0;
}
