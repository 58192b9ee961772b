/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Keys and values of the kernel side's maps that the loader fills or reads too. Not part of any recording. */
#ifndef SERVEDBY_STATE_LAYOUT_H
#define SERVEDBY_STATE_LAYOUT_H

#include "bpf/record.h"

struct file_key {
	__u64 ino;
	__u32 dev;
	__u32 generation;
};

/* What becomes of a device's bios, where it has no requests of its own. */
enum bios {
	BIOS_BECOME_REQUESTS = 0,
	BIOS_PASSED_ON = 1, /* to devices below (dm, md, NVMe multipath), or nobody knows where */
	BIOS_SERVED = 2,    /* by the device itself, out of memory, as they come (zram, brd) */
	BIOS_STRIPED = 3,   /* passed on, or read by the device itself into its stripe cache (md raid4, 5, 6) */
};

struct tracked_device {
	__u32 slot;          /* into device_counts */
	__u16 serves_backing; /* 1: its requests are served by reading a file (a loop device) */
	__u16 bios;           /* enum bios */
	__u64 diskseq;        /* which device has this number; 0: not known */
};

struct tracked_file {
	__u32 named; /* its path has been sent */
};

/* A loop device by its backing file: for drivers that read with a kiocb of their own, where only the position joins. */
struct backing_of {
	__u32 dev;
	__u32 pad;
	__u64 offset; /* of the device's first byte in the file */
};

struct request_state {
	__u64 issue_ns;
	__u64 start_ns; /* request.start_time_ns: another allocation of the same request has another one */
	__u64 sector;
	__u32 bytes;
	__u32 dev;
	__u32 slot;
	__u32 target_bytes;
	__u32 flags; /* REQUEST_* */
	__u32 pad;
};
#define REQUEST_DONE    1 /* its completion was seen by the driver's hook; the block layer's is still to come */
#define REQUEST_WATCHED 2 /* holds bytes of a tracked file or of the target: its completion is recorded */
#define REQUEST_BACKED  4 /* on a device that serves from a backing file */

struct bio_state {
	__s64 bytes_left; /* not yet issued in a request */
	__u32 flags;      /* SB_BY_*, SB_FOR_TARGET */
	__u32 pad;
};

struct sector_key {
	__u64 sector;
	__u32 dev;
	__u32 pad;
};

#define MAX_DEVICES 4096 /* slots of device_counts */

#define ANY_BIO 1

/* Values of a target: 1, or */
#define TARGET_LEADER_ENDED 2 /* its first thread has ended */
#define TARGET_ENDED	    3 /* all its threads are ending, and one may still be seen to; kept until the PID is used again */

/* What a task has just said it will submit below a stacked device. */
struct remap_state {
	__u64 old_sector, sector; /* as the tracepoint tells them: of `dev`, which may be a partition */
	__u32 old_dev, dev;
	__u64 bio; /* its address, as a number that can be reckoned with */
};

/* A task gives btrfs a compressed extent to read. */
struct unpack_state {
	__u64 bio;    /* of the file's pages; those that are submitted hold the compressed bytes */
	__u64 number; /* of this extent, unlike any other's */
	__u32 said;   /* SB_UNPACK has been sent */
	__u32 pad;
};

/* A read that has begun and not ended. */
struct open_read {
	__u64 begin_ns;
	struct sb_file_id file, opened;
	__u64 pos, count, file_size;
	__u32 tid, tgid; /* who began it */
	__u32 read;      /* its number */
	__u16 flags;     /* SB_READ_* */
	__u16 pad;
};

/* One that ends elsewhere than where it began: aio, io_uring. */
struct async_read {
	struct open_read call;
	__u64 token;   /* tells a request that is tried again from another one at the same address */
	__u32 started; /* its pages were looked at, or a bio submitted */
	__u32 ended;
};

/* What a task is in the middle of. */
struct task_state {
	struct open_read call; /* its open read call */
	__u32 reads;             /* numbers given so far */
	__u8 open;    /* inside a read call of a file */
	__u8 seen;    /* an entry has been seen: a return without one is a loss, not an edge */
	__u8 pad[2];
	struct sb_file_id known; /* the file that it tracked last */
	/* the asynchronous read that it works at, as long as it stays in system call `kiocb_in` */
	__u64 kiocb;
	__u32 kiocb_read, kiocb_reader;
	__s32 kiocb_in;
	__u32 direct_read, direct_reader; /* as direct_bio: of an asynchronous read */
	__u32 pad2;
	/* between iomap_dio_submit_bio and the submit_bio inside it; or ANY_BIO: the next bio of data is the direct one.
	 * direct_pages: what its pages stand in, shared by the pieces that btrfs submits instead; direct_left: bytes to come */
	__u64 direct_bio, direct_serving, direct_pos, direct_size, direct_pages, direct_left;
	struct sb_file_id direct_file;
	/* loop worker: the request it serves, and how far it has read the backing file for it */
	__u64 serving, serving_issue_ns;
	__u64 run_begin, run_end; /* contiguous part of the backing file read so far, not yet recorded */
	__u64 serving_end;        /* where the request ends in the backing file */
	__u64 run_sector;
	struct sb_file_id backing;
	__u32 serving_dev;
	__u32 pad3;
};

#endif
