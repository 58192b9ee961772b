// SPDX-License-Identifier: GPL-2.0
// Reads of the target: a call is entered, its pages are looked at, it returns. One record for each call, at its return.
//
// Entry by kprobe (or fentry). Return by two hooks, the system call's classic tracepoint and fexit, of which the first one
// that runs sends the record: on preemptible kernels either may be skipped (the tracepoint since system calls' tracepoints
// may fault, 6.13), and kretprobes run out of instances when more readers block than they have.
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
	struct name_walk walk = {.record = record};

	if (!record)
		return;
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

static __always_inline void read_enter(struct file *file, u64 count, loff_t *pos, const bool typed)
{
	u32 tgid = current_tgid(), tid = current_tid();
	struct task_state *state;
	struct super_block *super;
	struct sb_file_id id;
	struct inode *inode;
	loff_t at = 0;
	u16 mode;

	if (!is_target(tgid))
		return;
	state = task_state_made(tid);
	if (!state)
		return;
	if (state->open) /* its return was not seen */
		count_loss(SB_LOSS_READ_ENTRY);
	state->seen = 1;
	state->open = 0;
	state->direct_bio = 0;
	inode = FIELD(file, f_inode);
	mode = FIELD(inode, i_mode) & S_IFMT;
	super = FIELD(inode, i_sb);
	state->ignored = (mode != S_IFREG && mode != S_IFBLK) || made_up_by_kernel(FIELD(super, s_magic));
	if (state->ignored)
		return;
	if (pos)
		bpf_probe_read_kernel(&at, sizeof(at), pos);
	id = inode_id(inode, typed);
	if (!same_file(id, state->opened)) /* else its last call has done so */
		track(file, id, id, tid);
	state->opened = id;
	state->file = id;
	state->pos = at;
	state->count = count;
	state->file_size = FIELD(inode, i_size);
	state->flags = (mode == S_IFBLK ? SB_READ_BLKDEV : 0) | (FIELD(file, f_flags) & O_DIRECT_FLAG ? SB_READ_DIRECT : 0);
	state->read++;
	state->open = 1;
	state->begin_ns = bpf_ktime_get_ns();
}

static __always_inline void read_exit(u16 method, s64 returned)
{
	u64 now = bpf_ktime_get_ns();
	u32 tgid = current_tgid(), tid;
	struct task_state *state;
	struct sb_read *record;

	if (!is_target(tgid))
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
	record = record_reserve(struct sb_read);
	if (!record)
		return;
	record_begin(&record->head, SB_READ, sizeof(*record), tid, now);
	record->begin_ns = state->begin_ns;
	record->file = state->file;
	record->opened = state->opened;
	record->pos = state->pos;
	record->count = state->count;
	record->returned = returned;
	record->file_size = state->file_size;
	record->tgid = tgid;
	record->read = state->read;
	record->method = method;
	record->flags = state->flags;
	record->pad = 0;
	record_submit(record);
}

SEC("?kprobe/vfs_read")
int BPF_KPROBE(kprobe_read_entry, struct file *file, char *buffer, size_t count, loff_t *pos)
{
	read_enter(file, count, pos, false);
	return 0;
}

SEC("?fentry/vfs_read")
int BPF_PROG(fentry_read_entry, struct file *file, char *buffer, size_t count, loff_t *pos)
{
	read_enter(file, count, pos, true);
	return 0;
}

/* The length of a vectored read is in the caller's memory; filemap_read knows it. */
SEC("?kprobe/vfs_readv")
int BPF_KPROBE(kprobe_readv_entry, struct file *file, void *vec, unsigned long parts, loff_t *pos)
{
	read_enter(file, 0, pos, false);
	return 0;
}

SEC("?fentry/vfs_readv")
int BPF_PROG(fentry_readv_entry, struct file *file, void *vec, unsigned long parts, loff_t *pos)
{
	read_enter(file, 0, pos, true);
	return 0;
}

#define READ_RETURN(call, method)                                              \
	SEC("?tp/syscalls/sys_exit_" #call)                                    \
	int tracepoint_return_##call(struct trace_event_raw_sys_exit *context) \
	{                                                                      \
		read_exit(method, context->ret);                               \
		return 0;                                                      \
	}
READ_RETURN(read, SB_METHOD_READ)
READ_RETURN(pread64, SB_METHOD_PREAD)
READ_RETURN(readv, SB_METHOD_READV)
READ_RETURN(preadv, SB_METHOD_PREADV)
READ_RETURN(preadv2, SB_METHOD_PREADV2)

/* Which of the calls it was, where the return is seen inside the kernel. */
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
	}
	return SB_METHOD_UNKNOWN;
}

SEC("?fexit/vfs_read")
int BPF_PROG(fexit_read_return, struct file *file, char *buffer, size_t count, loff_t *pos, long returned)
{
	read_exit(current_method(), returned);
	return 0;
}

SEC("?fexit/vfs_readv")
int BPF_PROG(fexit_readv_return, struct file *file, void *vec, unsigned long parts, loff_t *pos, int flags, long returned)
{
	read_exit(current_method(), returned);
	return 0;
}

/* The page cache of a file is about to be looked at for a reader: whose pages really serve the call (below an overlay another
 * file than the one opened; for a block device not its node's inode). */
static __always_inline void reader_looks_up(struct kiocb *iocb, struct iov_iter *iter, const bool typed)
{
	u32 tid = current_tid();
	struct task_state *state;
	struct address_space *mapping;
	struct sb_file_id id;
	struct file *file;

	if (!is_target(current_tgid()))
		return;
	state = task_state(tid);
	if (!state || !state->open)
		return;
	file = FIELD(iocb, ki_filp);
	mapping = FIELD(file, f_mapping);
	id = inode_id(FIELD(mapping, host), typed);
	if (!(state->flags & SB_READ_PAGE_CACHE) && (id.ino != state->file.ino || id.dev != state->file.dev)) {
		state->file = id;
		track(file, id, state->opened, tid);
	}
	if (!state->count)
		state->count = FIELD(iter, count);
	state->flags |= SB_READ_PAGE_CACHE;
}

SEC("?kprobe/filemap_read")
int BPF_KPROBE(kprobe_read_lookup, struct kiocb *iocb, struct iov_iter *iter)
{
	reader_looks_up(iocb, iter, false);
	return 0;
}

SEC("?fentry/filemap_read")
int BPF_PROG(fentry_read_lookup, struct kiocb *iocb, struct iov_iter *iter)
{
	reader_looks_up(iocb, iter, true);
	return 0;
}
