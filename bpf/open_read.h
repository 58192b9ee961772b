/* SPDX-License-Identifier: GPL-2.0 */
/* A read of the target from its begin to its record: what it reads, how that file is called, what it returned. */
#ifndef SERVEDBY_OPEN_READ_H
#define SERVEDBY_OPEN_READ_H

#include "bpf/kernel.h"

struct name_walk {
	struct sb_file_name *record;
	struct dentry *dentry, *root_dentry;
	struct vfsmount *mnt, *root_mnt;
	u64 length;
};

/* One component up, or one mount. A function of its own, so that the verifier follows it once and not 48 times. */
static long name_step(u32 i, struct name_walk *walk)
{
	struct dentry *dentry = walk->dentry, *parent;
	struct vfsmount *mnt = walk->mnt;
	const unsigned char *name;
	u64 length = walk->length;
	long n;

	if (dentry == walk->root_dentry && mnt == walk->root_mnt) {
		walk->record->cut = 0;
		return 1;
	}
	parent = BPF_CORE_READ(dentry, d_parent);
	if (dentry == BPF_CORE_READ(mnt, mnt_root)) {
		struct mount *mount = (void *)mnt - bpf_core_field_offset(struct mount, mnt);
		struct mount *above = BPF_CORE_READ(mount, mnt_parent);

		if (above == mount) { /* the root of the namespace */
			walk->record->cut = 0;
			return 1;
		}
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		walk->mnt = (void *)above + bpf_core_field_offset(struct mount, mnt);
		return 0;
	}
	if (dentry == parent) { /* unlinked from every mount */
		walk->record->cut = 0;
		return 1;
	}
	name = BPF_CORE_READ(dentry, d_name.name);
	if (length > SB_PATH_MAX - 257)
		return 1;
	barrier_var(length); /* else the compiler knows that the mask changes nothing */
	n = bpf_probe_read_kernel_str(walk->record->path + (length & (SB_PATH_MAX - 1)), 256, name);
	if (n < 0)
		return 1;
	walk->length = length + (n & 0x1ff);
	walk->dentry = parent;
	return 0;
}

/* The path of a file, once. Components are sent from the leaf up; user space turns them round. */
static __always_inline void send_name(struct file *file, struct sb_file_id id, struct sb_file_id opened, u32 tid)
{
	/* Room behind the record for the longest component: then a mask alone proves every write to be inside. A compare does
	 * not: 6.1 forgets it where the compiler keeps the length on the stack. */
	struct sb_file_name *record = record_reserve_bytes(sizeof(struct sb_file_name) + 256);
	struct task_struct *task = (void *)bpf_get_current_task();
	struct name_walk walk = {};

	if (!record)
		return;
	walk.record = record;
	walk.length = zero_at_first();
	record_begin(&record->head, SB_FILE, sizeof(*record), tid, bpf_ktime_get_ns());
	record->file = id;
	record->opened = opened;
	record->cut = 1;
	walk.dentry = BPF_CORE_READ(file, f_path.dentry);
	walk.mnt = BPF_CORE_READ(file, f_path.mnt);
	walk.root_dentry = BPF_CORE_READ(task, fs, root.dentry);
	walk.root_mnt = BPF_CORE_READ(task, fs, root.mnt);
	bpf_loop(48, name_step, &walk, 0);
	record->length = walk.length;
	record_submit(record);
}

/* From now on everybody's fills of this file are of interest. */
static __always_inline void track(struct file *file, struct sb_file_id id, struct sb_file_id opened, u32 tid)
{
	struct file_key key = file_key(id);
	struct tracked_file *known = bpf_map_lookup_elem(&files, &key);
	struct tracked_file fresh = {.named = 1};

	if (known && known->named)
		return;
	if (bpf_map_update_elem(&files, &key, &fresh, BPF_ANY)) {
		count_loss(SB_LOSS_FILE_STATE);
		return;
	}
	send_name(file, id, opened, tid);
}

/* Fills `call` with a read of `file` that begins now. False where no layer has its bytes: a pipe, a terminal, /proc. */
static __always_inline bool read_begins(struct open_read *call, struct task_state *state, struct file *file, u64 pos, u64 count,
					const bool typed)
{
	struct inode *inode = FIELD(file, f_inode);
	struct super_block *super = FIELD(inode, i_sb);
	u16 mode = FIELD(inode, i_mode) & S_IFMT;
	unsigned long magic = FIELD(super, s_magic);
	u32 tid = current_tid();
	struct sb_file_id id;

	if ((mode != S_IFREG && mode != S_IFBLK) || made_up_by_kernel(magic))
		return false;
	id = inode_id(inode, typed);
	if (!same_file(id, state->known)) { /* else its last read has done so */
		track(file, id, id, tid);
		state->known = id;
	}
	call->opened = id;
	call->file = id;
	call->pos = pos;
	call->count = count;
	call->file_size = FIELD(inode, i_size);
	call->flags = (mode == S_IFBLK ? SB_READ_BLKDEV : 0) | (FIELD(file, f_flags) & O_DIRECT_FLAG ? SB_READ_DIRECT : 0);
	if (fills_more(inode, magic))
		call->flags |= SB_READ_FILLS_MORE;
	call->tid = tid;
	call->tgid = current_tgid();
	call->read = ++state->reads;
	call->begin_ns = bpf_ktime_get_ns();
	return true;
}

static __always_inline void read_ends(struct open_read *call, u16 method, s64 returned, u64 now)
{
	struct sb_read *record = record_reserve(struct sb_read);

	if (!record)
		return;
	record_begin(&record->head, SB_READ, sizeof(*record), call->tid, now);
	record->begin_ns = call->begin_ns;
	record->file = call->file;
	record->opened = call->opened;
	record->pos = call->pos;
	record->count = call->count;
	record->returned = returned;
	record->file_size = call->file_size;
	record->tgid = call->tgid;
	record->read = call->read;
	record->method = method;
	record->flags = call->flags;
	record->pad = 0;
	record_submit(record);
}

/* A read call is entered: it returns to where it was entered. */
static __always_inline void read_enter(struct file *file, u64 count, loff_t *pos, const bool typed)
{
	u32 tid = current_tid();
	struct task_state *state;
	loff_t at = 0;

	if (!is_target(current_tgid()))
		return;
	state = task_state_made(tid);
	if (!state)
		return;
	if (state->open) /* its return was not seen */
		count_loss(SB_LOSS_READ_ENTRY);
	state->seen = 1;
	state->direct_bio = 0;
	if (pos)
		bpf_probe_read_kernel(&at, sizeof(at), pos);
	state->open = read_begins(&state->call, state, file, at, count, typed);
}

static __always_inline void read_exit(u16 method, s64 returned)
{
	u64 now = bpf_ktime_get_ns();
	struct task_state *state;
	u32 tid;

	if (!is_target(current_tgid()))
		return;
	tid = current_tid();
	state = task_state(tid);
	if (!state || !state->seen) {
		/* 0 and less: refused before it came to a file, perhaps */
		if (returned > 0 && (state = task_state_made(tid)) != NULL) {
			state->seen = 1;
			count_note(SB_NOTE_READ_BEFORE_START, 1);
		}
		return;
	}
	if (!state->open)
		return; /* not a file's, or the other hook has seen the return already */
	state->open = 0;
	read_ends(&state->call, method, returned, now);
}

/* The page cache of a file is about to be looked at for a reader: whose pages really serve the call (below an overlay another
 * file than the one opened; for a block device not its node's inode). */
static __always_inline void read_looks_up(struct open_read *call, struct file *file, u64 count, const bool typed)
{
	struct address_space *mapping = FIELD(file, f_mapping);
	struct inode *inode = FIELD(mapping, host);
	struct sb_file_id id = inode_id(inode, typed);

	if (!(call->flags & SB_READ_PAGE_CACHE) && (id.ino != call->file.ino || id.dev != call->file.dev)) {
		call->file = id;
		if (fills_more(inode, BPF_CORE_READ(inode, i_sb, s_magic)))
			call->flags |= SB_READ_FILLS_MORE;
		track(file, id, call->opened, current_tid());
	}
	if (!call->count)
		call->count = count;
	call->flags |= SB_READ_PAGE_CACHE;
}

#endif
