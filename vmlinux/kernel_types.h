/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Our own small CO-RE view of the kernel: only the types and fields that the observers touch, written by hand. The loader
 * relocates every access against the running kernel's BTF, so order and size mean nothing here, only names. A field that
 * some kernels lack has its old or new shape behind a flavour (name___suffix), read only through an accessor of
 * bpf/kernel.h. Serves x86-64 and arm64.
 */
#ifndef SERVEDBY_KERNEL_TYPES_H
#define SERVEDBY_KERNEL_TYPES_H

/* bpf_tracing.h takes the kernel's names of the registers when this guard is set. */
#define __VMLINUX_H__

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
enum { false = 0, true = 1 };
#define NULL ((void *)0)

typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef u32 dev_t;
typedef u64 sector_t;
typedef s64 loff_t;
typedef unsigned long size_t;

/* include/uapi/linux/bpf.h: only the map types and flags in use. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_F_NO_PREALLOC = 1 };

#ifndef __TARGET_ARCH_arm64
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#else
struct user_pt_regs {
	u64 regs[31];
	u64 sp, pc, pstate;
};
#endif

struct bpf_raw_tracepoint_args {
	u64 args[0];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#ifdef __TARGET_ARCH_arm64
struct pt_regs {
	struct user_pt_regs user_regs;
	s32 syscallno;
};
#endif

struct qstr {
	const unsigned char *name;
};
struct super_block {
	dev_t s_dev;
	unsigned long s_magic;
};
struct inode {
	u16 i_mode;
	unsigned long i_ino;
	loff_t i_size;
	u64 i_blocks;
	u32 i_generation;
	struct super_block *i_sb;
};
struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};
struct vfsmount {
	struct dentry *mnt_root;
};
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};
struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};
struct address_space {
	struct inode *host;
};
struct file {
	struct path f_path;
	struct inode *f_inode;
	struct address_space *f_mapping;
	unsigned int f_flags;
	loff_t f_pos;
};
struct kiocb {
	struct file *ki_filp;
	loff_t ki_pos;
	int ki_flags;
};
struct iov_iter {
	size_t count;
};
struct iocb { /* uapi/linux/aio_abi.h */
	u64 aio_nbytes;
	s64 aio_offset;
};
struct io_cqe {
	u64 user_data;
};
struct io_kiocb { /* its first member, struct io_rw while it reads, begins with the kiocb */
	u8 opcode;
	struct io_cqe cqe;
};
struct io_rw {
	u32 len;
};
struct readahead_control {
	struct file *file;
	struct address_space *mapping;
	unsigned long _index;
	unsigned int _nr_pages;
};

enum pageflags { PG_head___any, PG_swapbacked___any, PG_swapcache___any };
struct page {
	unsigned long flags;
	unsigned long compound_head;
};
struct page___info {
	unsigned long compound_info;
};
struct folio {
	unsigned long flags;
	struct address_space *mapping;
	unsigned long index;
	void *private;
};
struct folio___memdesc { /* since 6.18 */
	struct {
		unsigned long f;
	} flags;
};
struct folio___order { /* until 6.5 */
	unsigned char _folio_order;
};
struct folio___flags_1 { /* since 6.6 */
	unsigned long _flags_1;
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};
struct bvec_iter {
	sector_t bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
};
struct bvec_iter___offset {
	unsigned int bi_offset;
};
struct block_device {
	sector_t bd_start_sect;
	struct gendisk *bd_disk;
	dev_t bd_dev;
};
struct block_device_operations {
	void *rw_page; /* 6.1; gone by 6.12 */
};
struct gendisk {
	int major;
	char disk_name[32];
	struct block_device *part0;
	void *private_data;
	u64 diskseq;
	struct block_device_operations *fops;
	struct request_queue *queue;
};
struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	u32 bi_opf;
	struct bvec_iter bi_iter;
	void *bi_private;
	unsigned short bi_vcnt;
	struct bio_vec *bi_io_vec;
};
struct bio___offset { /* 7.3 */
	struct bvec_iter___offset bi_iter;
};
enum req_flag_bits { __REQ_META___any, __REQ_RAHEAD___any };
struct request_queue {
	struct gendisk *disk;
	void *mq_ops;
};
struct request {
	struct request_queue *q;
	u32 cmd_flags;
	unsigned int __data_len;
	sector_t __sector;
	struct bio *bio;
	u64 start_time_ns;
};
struct nvme_request {
	u16 status;
};

struct iomap_dio {
	struct kiocb *iocb;
};
struct loop_device {
	loff_t lo_offset;
	struct file *lo_backing_file;
};
struct loop_cmd {
	long ret;
	struct kiocb iocb;
};

struct dm_io {
	struct bio *orig_bio;
};
struct dm_target_io {
	struct dm_io *io;
	struct bio clone;
};
struct md_io_clone {
	struct bio *orig_bio;
	struct bio bio_clone;
};
struct md_io_acct { /* its name on 6.1 */
	struct bio *orig_bio;
	struct bio bio_clone;
};
struct r5conf {
	unsigned long stripe_size; /* where it may be other than a page */
};
struct r5dev {
	struct bio req, rreq;
	struct bio *toread, *read;
	sector_t sector;
};
struct stripe_operations {
	int target, target2;
};
struct stripe_head {
	struct r5conf *raid_conf;
	int disks;
	struct stripe_operations ops;
	struct r5dev dev[0];
};

struct btrfs_key {
	u64 objectid;
};
struct btrfs_root {
	struct btrfs_key root_key;
};
struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};
enum FILE_ATTRIBUTE {
	FILE_ATTRIBUTE_COMPRESSED = 0x800,
};
struct ntfs_inode___3 { /* of ntfs3 */
	enum FILE_ATTRIBUTE std_fa;
	struct inode vfs_inode;
};
struct ntfs_inode___7 { /* of ntfs, since 7.1 */
	u32 flags;
};
struct big_ntfs_inode {
	struct ntfs_inode___7 ntfs_inode;
	struct inode vfs_inode;
};
struct btrfs_bio {
	struct bio bio;
};
struct compressed_bio___orig_bbio { /* since 6.4 */
	struct btrfs_bio *orig_bbio;
};

struct task_io_accounting {
	u64 rchar;
	u64 syscr;
	u64 read_bytes;
};
typedef struct {
	int counter;
} atomic_t;
struct signal_struct {
	atomic_t live;
	int nr_threads;
};
struct fs_struct {
	struct path root;
};
struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct fs_struct *fs;
	struct signal_struct *signal;
	struct task_io_accounting ioac;
	unsigned long min_flt;
	unsigned long maj_flt;
	char comm[16];
};

struct trace_entry {
	unsigned short type;
};
struct trace_event_raw_sys_exit {
	struct trace_entry ent;
	long id;
	long ret;
};
struct trace_event_raw_io_uring_complete {
	struct trace_entry ent;
	void *req;
	int res;
};
struct trace_event_raw_block_bio_remap {
	struct trace_entry ent;
	dev_t dev;
	sector_t sector;
	unsigned int nr_sector;
	dev_t old_dev;
	sector_t old_sector;
};
struct trace_event_raw_mm_filemap_op_page_cache {
	struct trace_entry ent;
	unsigned long i_ino;
	unsigned long index;
	dev_t s_dev;
	unsigned char order;
};
struct trace_event_raw_sched_process_fork {
	struct trace_entry ent;
	int child_pid;
};

#pragma clang attribute pop

#endif
