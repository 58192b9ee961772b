// SPDX-License-Identifier: GPL-2.0
// Page-cache fills: every generic way to fill a page of a file goes through one of two functions, whatever the file system.
// A page of which no fill was seen was there before: that is the proof of a page-cache hit, so this observer loses nothing
// silently.
#include "bpf/account.h"
#include "bpf/open_read.h"

static __always_inline void fill(struct file *file, struct inode *inode, u64 pos, u64 bytes, u32 how, const bool typed)
{
	struct account account = {};
	struct sb_file_id id;

	if (!bytes)
		return;
	id = inode_id(inode, typed);
	if (!id.ino) /* no file of a user's: NTFS keeps its table of files in it */
		return;
	account_of_current(&account);
	if (!account.flags) {
		struct file_key key = file_key(id);

		if (!bpf_map_lookup_elem(&files, &key))
			return;
	}
	if (account.flags & SB_BY_TARGET && !account.read && file) /* a mapping's file has never been read */
		track(file, id, id, account.tid);
	send_fill(&account, id, pos, bytes, FIELD(inode, i_size), how);
}

static __always_inline void fill_readahead(struct readahead_control *ahead, const bool typed)
{
	struct address_space *mapping = FIELD(ahead, mapping);

	fill(FIELD(ahead, file), FIELD(mapping, host), (u64)FIELD(ahead, _index) << page_shift, (u64)FIELD(ahead, _nr_pages) << page_shift,
	     SB_FILL_READAHEAD, typed);
}

static __always_inline void fill_folio(struct file *file, struct folio *folio, const bool typed)
{
	struct address_space *mapping = FIELD(folio, mapping);

	fill(file, FIELD(mapping, host), (u64)FIELD(folio, index) << page_shift, folio_bytes(folio), SB_FILL_FOLIO, typed);
}

SEC("?kprobe/read_pages")
int BPF_KPROBE(kprobe_fill_readahead, struct readahead_control *ahead)
{
	fill_readahead(ahead, false);
	return 0;
}

SEC("?fentry/read_pages")
int BPF_PROG(fentry_fill_readahead, struct readahead_control *ahead)
{
	fill_readahead(ahead, true);
	return 0;
}

SEC("?kprobe/filemap_read_folio")
int BPF_KPROBE(kprobe_fill_folio, struct file *file, void *filler, struct folio *folio)
{
	fill_folio(file, folio, false);
	return 0;
}

SEC("?fentry/filemap_read_folio")
int BPF_PROG(fentry_fill_folio, struct file *file, void *filler, struct folio *folio)
{
	fill_folio(file, folio, true);
	return 0;
}
