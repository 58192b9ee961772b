/* SPDX-License-Identifier: GPL-2.0 */
/* Every difference between kernels, one named accessor each, with the commit that made it. */
#ifndef SERVEDBY_KERNEL_H
#define SERVEDBY_KERNEL_H

#include "bpf/state.h"

#define REQ_OP_MASK 0xff /* include/linux/blk_types.h: REQ_OP_BITS is 8 */
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define PF_KTHREAD 0x00200000
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#ifdef __TARGET_ARCH_arm64
#define O_DIRECT_FLAG 0200000
#else
#define O_DIRECT_FLAG 040000
#endif
#define BDEVFS_MAGIC 0x62646576
#define LOOP_MAJOR 7
#define SWAP_TYPE_SHIFT 58 /* of a swp_entry_t: BITS_PER_XA_VALUE - MAX_SWAPFILES_SHIFT, 64 bits */
#define BTRFS_MAGIC 0x9123683e
#define SQUASHFS_MAGIC 0x73717368
#define EROFS_MAGIC 0xe0f5e1e2
#define NTFS3_MAGIC 0x7366746e
#define NTFS_MAGIC 0x5346544e

/* One step to a field of the kernel's. A program whose arguments carry types (fentry, fexit, tp_btf) reads memory itself; a
 * kprobe has bare addresses and asks a helper for every step, which costs a hundred instructions. `typed` is a constant in
 * every program, so one of the two is compiled away. */
#define FIELD(pointer, field) (typed ? (pointer)->field : BPF_CORE_READ(pointer, field))

/* Numbers of the system calls that read. */
#ifdef __TARGET_ARCH_arm64
enum {
	SYSTEM_CALL_READ = 63,
	SYSTEM_CALL_READV = 65,
	SYSTEM_CALL_PREAD = 67,
	SYSTEM_CALL_PREADV = 69,
	SYSTEM_CALL_SENDFILE = 71,
	SYSTEM_CALL_SPLICE = 76,
	SYSTEM_CALL_READAHEAD = 213,
	SYSTEM_CALL_FADVISE = 223,
	SYSTEM_CALL_COPY_FILE_RANGE = 285,
	SYSTEM_CALL_PREADV2 = 286,
};
#else
enum {
	SYSTEM_CALL_READ = 0,
	SYSTEM_CALL_PREAD = 17,
	SYSTEM_CALL_READV = 19,
	SYSTEM_CALL_SENDFILE = 40,
	SYSTEM_CALL_READAHEAD = 187,
	SYSTEM_CALL_FADVISE = 221,
	SYSTEM_CALL_SPLICE = 275,
	SYSTEM_CALL_PREADV = 295,
	SYSTEM_CALL_COPY_FILE_RANGE = 326,
	SYSTEM_CALL_PREADV2 = 327,
};
#endif

/* The system call the current task is in. */
static __always_inline int current_system_call(void)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

#ifdef __TARGET_ARCH_arm64
	return regs->syscallno;
#else
	return regs->orig_ax;
#endif
}

/* Which of the calls it is, where a return is seen inside the kernel. */
static __always_inline u16 current_method(void)
{
	switch (current_system_call()) {
	case SYSTEM_CALL_READ:
		return SB_METHOD_READ;
	case SYSTEM_CALL_PREAD:
		return SB_METHOD_PREAD;
	case SYSTEM_CALL_READV:
		return SB_METHOD_READV;
	case SYSTEM_CALL_PREADV:
		return SB_METHOD_PREADV;
	case SYSTEM_CALL_PREADV2:
		return SB_METHOD_PREADV2;
	case SYSTEM_CALL_SENDFILE:
		return SB_METHOD_SENDFILE;
	case SYSTEM_CALL_SPLICE:
		return SB_METHOD_SPLICE;
	case SYSTEM_CALL_COPY_FILE_RANGE:
		return SB_METHOD_COPY_FILE_RANGE;
	}
	return SB_METHOD_UNKNOWN;
}

/* The subvolume of an inode of btrfs. */
static __always_inline u64 subvolume(struct inode *inode)
{
	struct btrfs_inode *of_btrfs;

	if (!bpf_core_type_exists(struct btrfs_inode))
		return 0;
	of_btrfs = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
	return BPF_CORE_READ(of_btrfs, root, root_key.objectid);
}

static __always_inline struct sb_file_id inode_id(struct inode *inode, const bool typed)
{
	struct super_block *super = FIELD(inode, i_sb);
	struct sb_file_id id = {};

	id.ino = FIELD(inode, i_ino);
	id.dev = FIELD(super, s_dev);
	id.generation = FIELD(inode, i_generation);
	if (!(id.dev >> 20) && FIELD(super, s_magic) == BTRFS_MAGIC) /* an anonymous number: few have one */
		id.generation ^= (u32)subvolume(inode) * 0x9e3779b1;
	return id;
}

/* Whether a file of NTFS is compressed, or may be: what its driver keeps of the attributes. Two drivers have the name: ntfs3, and
 * since 7.1 ntfs, whose inodes lie in a struct big_ntfs_inode. */
static __always_inline bool ntfs_compressed(struct inode *inode, unsigned long magic)
{
	if (magic == NTFS3_MAGIC && bpf_core_field_exists(struct ntfs_inode___3, std_fa)) {
		struct ntfs_inode___3 *file = (void *)inode - bpf_core_field_offset(struct ntfs_inode___3, vfs_inode);

		return BPF_CORE_READ(file, std_fa) & FILE_ATTRIBUTE_COMPRESSED;
	}
	if (magic == NTFS_MAGIC && bpf_core_type_exists(struct big_ntfs_inode) &&
	    bpf_core_field_exists(struct ntfs_inode___7, flags)) {
		struct big_ntfs_inode *file = (void *)inode - bpf_core_field_offset(struct big_ntfs_inode, vfs_inode);

		return BPF_CORE_READ(file, ntfs_inode.flags) & FILE_ATTRIBUTE_COMPRESSED;
	}
	return true;
}

/* Whether a file system may fill pages of a file besides those that it is asked for: the rest of a compressed extent or block. */
static __always_inline bool fills_more(struct inode *inode, unsigned long magic)
{
	if (magic == NTFS3_MAGIC || magic == NTFS_MAGIC)
		return ntfs_compressed(inode, magic);
	return magic == BTRFS_MAGIC || magic == SQUASHFS_MAGIC || magic == EROFS_MAGIC;
}

static __always_inline bool same_file(struct sb_file_id a, struct sb_file_id b)
{
	return a.ino == b.ino && a.dev == b.dev && a.generation == b.generation;
}

static __always_inline struct file_key file_key(struct sb_file_id id)
{
	struct file_key key = {.ino = id.ino, .dev = id.dev, .generation = id.generation};
	return key;
}

/* Files whose bytes the kernel makes up as they are read: no layer serves them, so their reads are not reads of files. */
static __always_inline bool made_up_by_kernel(unsigned long magic)
{
	switch (magic) {
	case 0x00009fa0: /* proc */
	case 0x62656572: /* sysfs */
	case 0x64626720: /* debugfs */
	case 0x74726163: /* tracefs */
	case 0x63677270: /* cgroup2 */
	case 0x0027e0eb: /* cgroup */
	case 0x73636673: /* securityfs */
	case 0xcafe4a11: /* bpf */
	case 0x6165676c: /* pstore */
	case 0xde5e81e4: /* efivarfs */
	case 0x00001cd1: /* devpts */
	case 0x0bad1dea: /* futexfs, anonymous */
	case 0x09041934: /* anon_inode */
		return true;
	}
	return false;
}

/* The folio of a page. Tail pages point at their head: page.compound_head with bit 0 set; 7.x renamed it compound_info,
 * which holds a mask instead of the address where the upper half is all ones ("mm: rework compound_head() for power-of-2
 * sizeof(struct page)"). */
static __always_inline struct folio *page_folio(struct page *page)
{
	u64 info = 0;

	if (bpf_core_field_exists(page->compound_head)) {
		info = BPF_CORE_READ(page, compound_head);
	} else {
		struct page___info *newer = (void *)page;

		info = BPF_CORE_READ(newer, compound_info);
		if ((info & 1) && (info >> 32) == 0xffffffff)
			return (struct folio *)((u64)page & info & ~1ULL);
	}
	if (info & 1)
		return (struct folio *)(info - 1);
	return (struct folio *)page;
}

/* The flags became a struct of one member in 6.18 (53fbef56e07d, "mm: introduce memdesc_flags_t"). */
static __always_inline u64 folio_flags(struct folio *folio)
{
	struct folio___memdesc *newer = (void *)folio;

	if (bpf_core_field_exists(newer->flags.f))
		return BPF_CORE_READ(newer, flags.f);
	return BPF_CORE_READ(folio, flags);
}

/* Whether a flag is set; `bit` as CO-RE found it, 0 where the kernel has no such flag (bit 0 is PG_locked). */
static __always_inline bool folio_has(u64 flags, u64 bit)
{
	return bit && flags & (1ULL << bit);
}
#define PAGE_FLAG(flag) (bpf_core_enum_value_exists(enum pageflags, flag) ? bpf_core_enum_value(enum pageflags, flag) : 0)

/* Bytes of a folio. The order of a large one moved from _folio_order to the low byte of _flags_1 in 6.6 (ebc1baf5c9b4,
 * "mm: free up a word in the first tail page"). */
static __always_inline u64 folio_bytes(struct folio *folio)
{
	u32 order = 0;

	if (folio_has(folio_flags(folio), PAGE_FLAG(PG_head___any))) {
		struct folio___order *older = (void *)folio;
		struct folio___flags_1 *newer = (void *)folio;

		if (bpf_core_field_exists(older->_folio_order))
			order = BPF_CORE_READ(older, _folio_order);
		else
			order = BPF_CORE_READ(newer, _flags_1) & 0xff;
	}
	return 1ULL << (page_shift + (order & 31));
}

/* The swap area of a swp_entry_t, as a file, and the place in it. */
static __always_inline struct sb_file_id swap_area(u64 entry, u64 *pos)
{
	struct sb_file_id id = {.ino = SB_SWAP_INO, .generation = entry >> SWAP_TYPE_SHIFT};

	*pos = (entry & ((1ULL << SWAP_TYPE_SHIFT) - 1)) << page_shift;
	return id;
}

/* Bytes of a bio's first segment that another bio has, which it was split off from. 7.3 calls it bi_offset. */
static __always_inline u32 bio_first_done(struct bio *bio)
{
	struct bio___offset *newer = (void *)bio;

	if (bpf_core_field_exists(newer->bi_iter.bi_offset))
		return BPF_CORE_READ(newer, bi_iter.bi_offset);
	return BPF_CORE_READ(bio, bi_iter.bi_bvec_done);
}

/* The whole disk of a bio or request. A partition's bio carries the partition until it is remapped. */
static __always_inline u32 disk_dev(struct gendisk *disk, const bool typed)
{
	struct block_device *whole = FIELD(disk, part0);

	return FIELD(whole, bd_dev);
}

/* The bio of a file's pages that btrfs_submit_compressed_read is given: its second argument, and since 6.4 in the struct that
 * is its first ("btrfs: pass a btrfs_bio to btrfs_submit_compressed_read"). */
static __always_inline struct bio *read_to_unpack(u64 first, u64 second)
{
	struct compressed_bio___orig_bbio *newer = NULL;

	if (!bpf_core_type_exists(struct btrfs_bio))
		return NULL;
	if (bpf_core_field_exists(newer->orig_bbio))
		return (struct bio *)(first + bpf_core_field_offset(struct btrfs_bio, bio));
	return (struct bio *)second;
}

/* A loop request's driver data lies right behind struct request (blk_mq_rq_to_pdu), and the kiocb inside it. Since 6.12 the
 * driver reads a buffered backing file with that kiocb too; before, with one on its stack. Whether an address leads to a
 * request in flight is the run-time test. */
static __always_inline u64 request_of_kiocb(struct kiocb *iocb)
{
	struct loop_cmd *cmd = NULL;

	if (!bpf_core_type_exists(struct loop_cmd))
		return 0;
	return (u64)iocb - bpf_core_field_offset(cmd->iocb) - bpf_core_type_size(struct request);
}

#endif
