/* SPDX-License-Identifier: GPL-2.0 */
/* Which byte of which file, or of swap, a page holds. */
#ifndef SERVEDBY_PAGES_H
#define SERVEDBY_PAGES_H

#include "bpf/kernel.h"

/* Where the first byte of a segment lies: true if it is in a page-cache page of a file. */
static __always_inline bool segment_place(const struct bio_vec *segment, struct inode **inode, u64 *pos)
{
	struct page *page = segment->bv_page;
	struct folio *folio = page_folio(page);
	u64 mapping = (u64)BPF_CORE_READ(folio, mapping);

	if (!mapping || (mapping & 3)) /* PAGE_MAPPING_FLAGS: anonymous or movable */
		return false;
	*inode = BPF_CORE_READ((struct address_space *)mapping, host);
	*pos = (BPF_CORE_READ(folio, index) << page_shift) + segment->bv_offset +
	       ((((u64)page - (u64)folio) / bpf_core_type_size(struct page)) << page_shift);
	return true;
}

/* Whether a segment is a page of swap: one of no file, that carries its place in swap. So is one on its way out. */
static __always_inline bool segment_swap(const struct bio_vec *segment, bool out, u64 *entry)
{
	struct folio *folio = page_folio(segment->bv_page);
	u64 flags = folio_flags(folio);

	if (!folio_has(flags, PAGE_FLAG(PG_swapbacked___any)))
		return false;
	if (out ? !folio_has(flags, PAGE_FLAG(PG_swapcache___any)) : BPF_CORE_READ(folio, mapping) != NULL)
		return false;
	*entry = (u64)BPF_CORE_READ(folio, private);
	return *entry != 0;
}

#endif
