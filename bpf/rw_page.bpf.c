// SPDX-License-Identifier: GPL-2.0
// Pages that a disk in memory fills without a bio: on 6.1 zram and brd have an operation for that (rw_page), which the block
// devices' own page cache and a few file systems use. 6.12 has only bios.
#include "bpf/account.h"
#include "bpf/pages.h"

static __always_inline void page_read(struct block_device *bdev, sector_t sector, struct page *page, const bool typed)
{
	struct gendisk *disk = FIELD(bdev, bd_disk);
	struct block_device_operations *operations;
	struct bio_vec segment = {.bv_page = page};
	u32 dev = disk_dev(disk, typed), bytes = 1U << page_shift;
	struct account account = {};
	struct tracked_device *device;
	struct inode *inode = NULL;
	struct sb_file_id id = {};
	struct sb_bio *record;
	u64 pos = 0;

	device = bpf_map_lookup_elem(&devices, &dev);
	if (!device || device->bios != BIOS_SERVED)
		return;
	operations = FIELD(disk, fops);
	if (!FIELD(operations, rw_page)) /* a bio will come */
		return;
	account_of_current(&account);
	count_bio(device, bytes, account.flags);
	/* Swap has no file. Its page stays unknown, since what is written over its place (bdev_write_page) is not seen. */
	if (segment_place(&segment, &inode, &pos))
		id = inode_id(inode, false);
	if (!account.flags) {
		struct file_key key = file_key(id);

		if (!bpf_map_lookup_elem(&files, &key))
			return;
	}
	record = record_reserve(struct sb_bio);
	if (!record)
		return;
	record_begin(&record->head, SB_BIO, sizeof(*record), account.tid, bpf_ktime_get_ns());
	record->bio = (u64)page;
	record->sector = sector + FIELD(bdev, bd_start_sect);
	record->file_pos = pos;
	record->file_size = inode ? BPF_CORE_READ(inode, i_size) : 0;
	record->serving = account.serving;
	record->file = id;
	record->bytes = bytes;
	record->dev = dev;
	record->tgid = account.tgid;
	record->read = account.read;
	record->flags = account.flags | SB_BIO_FIRST | SB_BIO_SERVED | SB_BIO_NO_ACCOUNT;
	if (inode)
		record->flags |= BPF_CORE_READ(inode, i_sb, s_magic) == BDEVFS_MAGIC ? SB_BIO_META : SB_BIO_FILE;
	record->reader = account.reader;
	record_submit(record);
}

SEC("?kprobe/bdev_read_page")
int BPF_KPROBE(kprobe_page_read, struct block_device *bdev, sector_t sector, struct page *page)
{
	page_read(bdev, sector, page, false);
	return 0;
}

SEC("?fentry/bdev_read_page")
int BPF_PROG(fentry_page_read, struct block_device *bdev, sector_t sector, struct page *page)
{
	page_read(bdev, sector, page, true);
	return 0;
}
