/* SPDX-License-Identifier: GPL-2.0 */
/* Which bytes of which file the pages of a bio are. */
#ifndef SERVEDBY_BIO_PAGES_H
#define SERVEDBY_BIO_PAGES_H

#include "bpf/pages.h"

#define MAX_PARTS 256 /* BIO_MAX_VECS */

/* `done`: bytes of the first segment that another bio has, which this one was split off from. */
static __always_inline struct bio_vec segment_of(struct bio_vec *segments, u32 i, u32 done)
{
	struct bio_vec segment = {};

	bpf_core_read(&segment, sizeof(segment), &segments[i]);
	if (!i) {
		segment.bv_offset += done;
		segment.bv_len -= done;
	}
	return segment;
}

struct part {
	struct inode *inode;
	u64 file_pos;
	u32 offset; /* bytes from the start of the bio */
	u32 bytes;
};

struct walk {
	struct bio_vec *segments;
	u64 sector;
	u64 bio, serving;
	struct sb_file_id id;
	u64 file_size;
	struct part part;
	u32 left, at, done;
	u32 dev, tgid, tid, read, reader, flags;
	u32 broken;
	u16 kind;
};

static __always_inline void send_part(struct walk *walk)
{
	struct sb_bio *record = record_reserve(struct sb_bio);

	if (!record)
		return;
	record_begin(&record->head, walk->kind, sizeof(*record), walk->tid, bpf_ktime_get_ns());
	record->bio = walk->bio;
	record->sector = walk->sector + (walk->part.offset >> 9);
	record->file_pos = walk->part.file_pos;
	record->file_size = walk->file_size;
	record->serving = walk->serving;
	record->file = walk->id;
	record->bytes = walk->part.bytes;
	record->dev = walk->dev;
	record->tgid = walk->tgid;
	record->read = walk->read;
	record->flags = walk->flags;
	record->reader = walk->reader;
	record_submit(record);
	walk->flags &= ~SB_BIO_FIRST;
}

/* One step over the segments of a bio whose pages are not one run of the file: sends each run. */
static long walk_step(u32 i, struct walk *walk)
{
	struct bio_vec segment = segment_of(walk->segments, i, walk->done);
	struct inode *inode = NULL;
	u64 pos = 0;
	u32 bytes = segment.bv_len;

	if (!walk->left)
		return 1;
	if (bytes > walk->left)
		bytes = walk->left;
	if (!segment_place(&segment, &inode, &pos) || !bytes) {
		walk->broken = 1;
		return 1;
	}
	if (walk->part.bytes && inode == walk->part.inode && pos == walk->part.file_pos + walk->part.bytes) {
		walk->part.bytes += bytes;
	} else {
		if (walk->part.bytes)
			send_part(walk);
		if (inode != walk->part.inode) {
			walk->id = inode_id(inode, false);
			walk->file_size = BPF_CORE_READ(inode, i_size);
		}
		walk->part.inode = inode;
		walk->part.file_pos = pos;
		walk->part.offset = walk->at;
		walk->part.bytes = bytes;
	}
	walk->at += bytes;
	walk->left -= bytes;
	return 0;
}

/* Sends every run of a file's pages that the walk's segments are. */
static __always_inline void send_runs(struct walk *walk, u32 bytes)
{
	walk->part.bytes = zero_at_first();
	walk->left = bytes;
	bpf_loop(MAX_PARTS, walk_step, walk, 0);
	if (walk->part.bytes)
		send_part(walk);
}

#endif
