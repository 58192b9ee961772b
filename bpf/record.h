/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the kernel side says: one struct for each kind of record, fixed width, little-endian, versioned. Included by both
 * sides; includes nothing itself (each side defines the __u8 … __s64 types first).
 *
 * Records of one session arrive in one ring, so a record that was caused by another comes after it. Times are
 * CLOCK_MONOTONIC nanoseconds. Byte ranges are [pos, pos + bytes). A change of layout or meaning is a new SB_RECORD_VERSION.
 */
#ifndef SERVEDBY_RECORD_H
#define SERVEDBY_RECORD_H

#define SB_RECORD_VERSION 1

enum sb_kind {
	SB_READ = 1,    /* struct sb_read: a read call of the target has returned */
	SB_BIO = 2,     /* struct sb_bio: a bio (or a linear part of one) was submitted */
	SB_FILL = 3,    /* struct sb_fill: pages of a file are about to be filled */
	SB_REQUEST = 4, /* struct sb_request: a request, or a part of one, has completed */
	SB_BACKING = 5, /* struct sb_backing: a loop worker reads the backing file for a request */
	SB_TASK = 6,    /* struct sb_task: a task of the target began or ended */
	SB_FILE = 7,    /* struct sb_file_name: how a file of the target is called */
	SB_REMAP = 8,   /* struct sb_remap: a stacked device (dm, md) passes a part of a bio on to a device below */
	SB_LAYOUT = 9,  /* struct sb_layout: said by user space: where a file has no bytes on a device */
	SB_DEVICE = 10, /* struct sb_device: a device that was made, or set up anew, during the session */
	SB_SWAPPED = 11, /* struct sb_swapped: a page of a file in memory (tmpfs) comes back from swap */
	SB_UNPACK = 12, /* struct sb_bio, of no device: bytes of a file that a compressed extent will be unpacked to; before or
			 * right after the first SB_BIO of the extent */
	SB_GIVEN = 13,  /* struct sb_given: a stacked device gives bytes that it asked no device below for */
};

struct sb_head {
	__u16 kind;    /* enum sb_kind */
	__u16 size;    /* of the whole record, bytes, a multiple of 8 */
	__u32 tid;     /* the task that was current; 0 where the context means nothing (completions) */
	__u64 time_ns; /* CLOCK_MONOTONIC */
};

/* A file by what the kernel calls it: the superblock's device (i_sb->s_dev, not stat's st_dev: they differ on btrfs and
 * overlayfs), inode number and generation (tells a reused inode number apart; on btrfs, whose subvolumes number their files
 * alike, mixed with the subvolume's number). ino == 0: no file. */
struct sb_file_id {
	__u64 ino;
	__u32 dev;        /* kernel encoding: major << 20 | minor */
	__u32 generation;
};

enum sb_method {
	SB_METHOD_READ = 1,
	SB_METHOD_PREAD = 2,
	SB_METHOD_READV = 3,
	SB_METHOD_PREADV = 4,
	SB_METHOD_PREADV2 = 5,
	SB_METHOD_AIO = 6,
	SB_METHOD_IO_URING = 7,
	SB_METHOD_SENDFILE = 8,
	SB_METHOD_SPLICE = 9,
	SB_METHOD_COPY_FILE_RANGE = 10,
	SB_METHOD_UNKNOWN = 255,
};

/* sb_read.flags */
#define SB_READ_PAGE_CACHE 0x01 /* filemap_read ran for this call: it returned bytes of `file`'s page cache */
#define SB_READ_DIRECT     0x02 /* the file was open for direct I/O */
#define SB_READ_BLKDEV     0x04 /* a block device was read, not a regular file */
#define SB_READ_IN_MEMORY  0x20 /* NO_PAGES, and the file has no hole: what was in swap has an sb_swapped, the rest was in memory */
#define SB_READ_SPLICE     0x10 /* a step of sendfile, splice or copy_file_range */
#define SB_READ_FILLS_MORE 0x40 /* its file system may fill more pages than it is asked for (btrfs, squashfs, erofs) */
#define SB_READ_NO_PAGES   0x08 /* the file system keeps no page cache that filemap_read serves (tmpfs and the like) */

struct sb_read {
	struct sb_head head;       /* time_ns: when the call returned, or an asynchronous read ended; tid: who began it */
	__u64 begin_ns;            /* when it was entered */
	struct sb_file_id file;    /* whose pages were read: the real file, below an overlay */
	struct sb_file_id opened;  /* what was opened; the same as `file` where nothing re-enters */
	__u64 pos;                 /* file position of the first byte */
	__u64 count;               /* bytes asked */
	__s64 returned;            /* bytes returned, or a negative errno */
	__u64 file_size;           /* i_size at entry */
	__u32 tgid;
	__u32 read;                /* this task's number for the read, from 1; sb_bio.read and sb_fill.read point here */
	__u16 method;              /* enum sb_method */
	__u16 flags;
	__u32 pad;
};

/* sb_bio.flags and sb_fill.flags: on whose account */
#define SB_BY_TARGET  0x0001 /* a task of the target was current */
#define SB_BY_WORKER  0x0002 /* a loop worker was current, serving the request `serving` */
#define SB_FOR_TARGET 0x0004 /* BY_TARGET, or BY_WORKER and the request holds bytes of the target */
#define SB_BY_ADVICE  0x0008 /* BY_TARGET, in readahead(2) or posix_fadvise(2): bytes for reads to come, not for a mapping */
/* sb_bio.flags: what its pages are */
#define SB_BIO_FILE   0x0010 /* page-cache pages of `file`, from `file_pos` */
#define SB_BIO_DIRECT 0x0020 /* direct I/O of `file`, from `file_pos` */
#define SB_BIO_META   0x0040 /* file-system metadata (REQ_META, or pages of the block device's own cache) */
#define SB_BIO_AHEAD  0x0080 /* REQ_RAHEAD */
#define SB_BIO_FIRST  0x0100 /* the first, or only, record of this bio; the others follow at once */
#define SB_BIO_CUT    0x0200 /* the bio has more parts than could be said: the rest of its bytes has no file range */
#define SB_BIO_ASYNC  0x0400 /* the read it belongs to may outlive the task that began it */
#define SB_BIO_SWAP   0x1000 /* pages of swap: `file` is the swap area (SB_SWAP_INO), `file_pos` the place in it */
#define SB_BIO_WRITE  0x2000 /* SWAP only: written, so what the place held before is gone */
#define SB_BIO_STACKED 0x0800 /* the device has no requests of its own: it passes the bio on to those below (dm, md) */
#define SB_BIO_PACKED  0x4000 /* a compressed extent, into pages of nobody's; `file_pos` is the `bio` of its SB_UNPACKs, a number */
#define SB_BIO_SERVED  0x8000 /* the device has no requests of its own, and serves the bio itself, at once (zram, brd) */
#define SB_BIO_NO_ACCOUNT 0x10000 /* no bio was made for it: the kernel does not account it to the process */
/* sb_fill.flags: how */
#define SB_FILL_READAHEAD 0x0010 /* read_pages: a run of new folios */
#define SB_FILL_FOLIO     0x0020 /* filemap_read_folio: one folio that was not up to date */
#define SB_FILL_ADDED     0x0040 /* a new folio, of a file system that fills more than it is asked for; file_size is not told */

/* A linear part of a read bio at submission: bytes [sector * 512, + bytes) of the disk hold [file_pos, + bytes) of `file`.
 * The sector is absolute on the whole disk. Recorded for the target, for loop workers that serve a tracked request, and for
 * anybody's bios that fill a tracked file. */
struct sb_bio {
	struct sb_head head;
	__u64 bio;               /* address */
	__u64 sector;
	__u64 file_pos;
	__u64 file_size;         /* i_size; 0 where there is no file */
	__u64 serving;           /* BY_WORKER: the loop request being served; else 0 */
	struct sb_file_id file;
	__u32 bytes;
	__u32 dev;               /* the whole disk */
	__u32 tgid;
	__u32 read;              /* the read it is for; 0: none (a fault, exec, readahead(2), a worker) */
	__u32 flags;
	__u32 reader;            /* the task whose number `read` is; 0: head.tid */
};

/* A swap area as a file: no file system has device number 0. The area's number is the generation. */
#define SB_SWAP_INO 1

/* Bytes [old_sector * 512, + bytes) of a stacked device are bytes [sector * 512, + bytes) of a device below. */
struct sb_remap {
	struct sb_head head;
	__u64 old_sector; /* absolute on the stacked device */
	__u64 sector;     /* absolute on the whole disk below */
	__u32 old_dev;    /* the stacked device */
	__u32 dev;        /* the whole disk below */
	__u32 bytes;
	__u32 flags;      /* SB_FOR_TARGET, SB_BIO_STACKED, SB_BIO_SERVED (of the device below) */
};

/* sb_given.how */
enum sb_giving {
	SB_GIVEN_REBUILT = 1, /* md raid4, 5, 6: worked out from the other members of the stripe */
	SB_GIVEN_CACHED = 2,  /* the same: was in its stripe cache, or on the way there for something else */
	SB_GIVEN_ZERO = 3,    /* filled with zeros: nothing is stored there (dm-thin). A part that is passed on after all follows */
};

/* What is in flight of bytes [sector * 512, + bytes) of a stacked device, that device gives itself. */
struct sb_given {
	struct sb_head head;
	__u64 sector; /* absolute */
	__u32 dev;
	__u32 bytes;
	__u32 how; /* enum sb_giving */
	__u32 pad;
};

/* Pages of a file are about to be filled by its file system: [pos, + bytes), whole pages. Evidence that these pages were
 * not up to date. */
struct sb_fill {
	struct sb_head head;
	__u64 pos;
	__u64 bytes;
	__u64 file_size;
	__u64 serving;           /* as in sb_bio */
	struct sb_file_id file;
	__u32 tgid;
	__u32 read;              /* as in sb_bio */
	__u32 flags;
	__u32 reader;            /* as in sb_bio */
};

/* sb_request.flags */
#define SB_REQUEST_WRITE        0x01 /* never attributed, only counted */
#define SB_REQUEST_ISSUE_UNSEEN 0x02 /* issued before the session began, or the issue was lost: owner not known */
#define SB_REQUEST_PARTIAL      0x04 /* more of the same request is still outstanding */
#define SB_REQUEST_BY_DRIVER    0x08 /* seen through the driver's own completion (nvme_complete_rq, lo_complete_rq) */
#define SB_REQUEST_FOUND_DONE   0x10 /* completion was missed; its number was issued again, so it must have completed */

/* A completed read request of a tracked device that holds bytes of the target, or one of a loop device that is watched. */
struct sb_request {
	struct sb_head head;     /* time_ns: completion */
	__u64 request;           /* address; reused by later requests */
	__u64 issue_ns;          /* 0: not seen */
	__u64 sector;            /* absolute */
	__u32 bytes;
	__u32 dev;
	__u32 target_bytes;      /* of `bytes`: in bios FOR_TARGET */
	__s32 status;            /* 0: success, else a blk_status_t */
	__u32 flags;
	__u32 pad;
};

/* sb_backing.flags */
#define SB_BACKING_DIRECT     0x01 /* the worker read with direct I/O (by what it did, not by the flag of the device) */
#define SB_BACKING_BY_ADDRESS 0x02 /* the kiocb lies in the driver's command: exact */
#define SB_BACKING_BY_RANGE   0x04 /* joined by worker, backing file and position */

/* A loop worker reads [pos, + bytes) of the backing file for the loop request that covers `sector`. */
struct sb_backing {
	struct sb_head head;     /* tid: the worker */
	__u64 request;           /* the loop request */
	__u64 sector;            /* where this part begins on the loop device, absolute */
	__u64 pos;               /* in the backing file */
	__u64 bytes;
	struct sb_file_id file;  /* the backing file */
	__u32 dev;               /* the loop device */
	__u32 flags;
};

enum sb_extent {
	SB_EXTENT_LOOKED = 0,    /* the file was looked at: every range that is not named has its bytes somewhere */
	SB_EXTENT_HOLE = 1,
	SB_EXTENT_UNWRITTEN = 2, /* allocated, and never written */
	SB_EXTENT_INLINE = 3,    /* in the inode or the file system's own tree */
};

/* Bytes [begin, end) of a file, as FIEMAP told when a read had returned bytes for which no I/O was seen. It comes before the
 * record that needs it. A file's LOOKED comes first. */
struct sb_layout {
	struct sb_head head;
	__u64 begin, end;
	struct sb_file_id file;
	__u32 extent; /* enum sb_extent */
	__u32 pad;
};

/* A device number stands for this device from now on. Sent before any other record of it. */
struct sb_device {
	struct sb_head head;
	__u64 diskseq; /* no two devices of a boot have the same */
	__u32 dev;
	__u32 pad;
	char name[32];
};

/* The page at [pos, + bytes) of a file in memory is at [swap_pos, + bytes) of a swap area, and about to come back from there. */
struct sb_swapped {
	struct sb_head head;
	__u64 pos;
	__u64 swap_pos;
	__u64 bytes;
	struct sb_file_id file;
	struct sb_file_id swap;
	__u32 tgid;
	__u32 read;   /* as in sb_bio */
	__u32 flags;  /* SB_BY_* */
	__u32 reader; /* as in sb_bio */
};

enum sb_task_event { SB_TASK_FORK = 1, SB_TASK_EXIT = 2 };

/* A task of the target. FORK: head.tid is the parent, `task` the child. EXIT: the task's own accounting, final. */
struct sb_task {
	struct sb_head head;
	__u64 rchar;             /* task_struct.ioac */
	__u64 syscr;
	__u64 read_bytes;
	__u64 faults_major;
	__u64 faults_minor;
	__u32 task;
	__u32 tgid;
	__u32 event;             /* enum sb_task_event */
	__u32 pad;
	char comm[16];
};

#define SB_PATH_MAX 1024

/* The path of a file when the target first read it: components from the leaf up to the root of the mount namespace, each
 * NUL-terminated ("model.safetensors\0models\0"). Ends early where it is too long: then `cut` is 1. */
struct sb_file_name {
	struct sb_head head;
	struct sb_file_id file;    /* as in sb_read.file */
	struct sb_file_id opened;  /* as in sb_read.opened */
	__u32 length;              /* bytes used of `path` */
	__u32 cut;
	char path[SB_PATH_MAX];
};

/* Why something was lost. Each is counted; none is silent. */
enum sb_loss {
	SB_LOSS_RING = 0,          /* no room in the ring */
	SB_LOSS_TASK_STATE = 1,    /* no room for a task's state */
	SB_LOSS_REQUEST_STATE = 2, /* no room for a request's or a bio's state */
	SB_LOSS_FILE_STATE = 3,    /* no room to track another file */
	SB_LOSS_READ_ENTRY = 4,    /* a read whose entry or whose return was not seen, though the task had been seen before */
	SB_LOSS_BIO_PARTS = 5,     /* a bio with more parts than could be walked */
	SB_LOSS_DROPPED = 6,       /* completions dropped on purpose, by a test */
	SB_LOSS_PATH_FAILED = 7,   /* requests whose bios NVMe multipath took back, to send them by another path */
	SB_LOSSES = 8,
};

/* Edges and recoveries: not loss. */
enum sb_note {
	SB_NOTE_READ_BEFORE_START = 0,  /* a read returned that was entered before the session began */
	SB_NOTE_REQUEST_BEFORE_START = 1,
	SB_NOTE_COMPLETION_RECOVERED = 2, /* seen by the second of two completion hooks, or by the reuse of its number */
	SB_NOTE_DROPPED_BYTES = 3,      /* bytes of SB_LOSS_DROPPED */
	SB_NOTES = 4,
};

/* Bytes of finished requests of one device, counted in the kernel: nothing here is computed as a difference. */
struct sb_device_count {
	__u64 target_read_bytes;
	__u64 other_read_bytes;
	__u64 unseen_read_bytes;   /* requests whose issue was not seen */
	__u64 target_read_requests;
	__u64 other_read_requests;
	__u64 write_bytes;
	__u64 write_requests;
};

#endif
