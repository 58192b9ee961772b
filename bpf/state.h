/* SPDX-License-Identifier: GPL-2.0 */
/* The state that the observers share, as small as it can be: who is a target, which devices and files are tracked, what is
 * in flight. maps.bpf.c defines it; every other observer only declares it. */
#ifndef SERVEDBY_STATE_H
#define SERVEDBY_STATE_H

#include "vmlinux/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/record.h"
#include "bpf/state_layout.h"

#ifndef SB_STATE
#define SB_STATE extern
#endif

/* Settings, fixed at load time. */
SB_STATE const volatile __u32 page_shift;
SB_STATE const volatile __u32 drop_every; /* a test's sabotage: every so many completions of a drive are lost; 0: none */

SB_STATE struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024); /* set at load time */
} records SEC(".maps");

SB_STATE struct { /* tgid, and the tids of its threads → 1, or TARGET_… */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u32);
} targets SEC(".maps");

SB_STATE struct { /* tid → */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct task_state);
} tasks SEC(".maps");

SB_STATE struct { /* kiocb address → */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct async_read);
} async_reads SEC(".maps");

SB_STATE struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_DEVICES);
	__type(key, u32);
	__type(value, struct tracked_device);
} devices SEC(".maps");

SB_STATE struct { /* the next slot that no device has */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} slots SEC(".maps");

SB_STATE struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct file_key);
	__type(value, struct tracked_file);
} files SEC(".maps");

SB_STATE struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct file_key); /* generation 0: the driver does not tell it */
	__type(value, struct backing_of);
} backing_files SEC(".maps");

SB_STATE struct { /* request address → */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct request_state);
} requests SEC(".maps");

SB_STATE struct { /* first sector of a request on a backed device → request address */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sector_key);
	__type(value, u64);
} backed_at SEC(".maps");

SB_STATE struct { /* bio address → */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct bio_state);
} bios SEC(".maps");

SB_STATE struct { /* tid → */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct remap_state);
} remaps SEC(".maps");

SB_STATE struct { /* tid → */
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct unpack_state);
} unpacks SEC(".maps");

SB_STATE struct { /* s_dev of a file system that fills more pages than it is asked for → 1 */
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} spilling SEC(".maps");

SB_STATE struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, u32);
	__type(value, struct sb_device_count);
} device_counts SEC(".maps");

SB_STATE struct { /* enum sb_loss, then enum sb_note */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SB_LOSSES + SB_NOTES);
	__type(key, u32);
	__type(value, u64);
} tallies SEC(".maps");

SB_STATE struct { /* bytes of bios that the target submitted: brackets the process counters */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} process_bytes SEC(".maps");

SB_STATE struct { /* completions of drives so far, for drop_every */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} completions SEC(".maps");

static __always_inline void tally(u32 which, u64 by)
{
	u64 *count = bpf_map_lookup_elem(&tallies, &which);

	if (count)
		*count += by;
}

static __always_inline void count_loss(enum sb_loss loss)
{
	tally(loss, 1);
}

static __always_inline void count_note(enum sb_note note, u64 by)
{
	tally(SB_LOSSES + note, by);
}

static __always_inline u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline u32 current_tid(void)
{
	return (u32)bpf_get_current_pid_tgid();
}

/* 0, without the verifier's knowledge: no PID has 32 bits. 6.1 looks at the body of a bpf_loop once, with what stands in its
 * context before the first turn, and takes out every branch that is not taken then. */
static __always_inline u64 zero_at_first(void)
{
	return bpf_get_current_pid_tgid() >> 63 << 20;
}

static __always_inline bool is_target(u32 tgid)
{
	return bpf_map_lookup_elem(&targets, &tgid) != NULL;
}

static __always_inline struct task_state *task_state(u32 tid)
{
	return bpf_map_lookup_elem(&tasks, &tid);
}

/* The task's state, made if there is none; NULL is counted as a loss. */
static __always_inline struct task_state *task_state_made(u32 tid)
{
	static const struct task_state empty = {};
	struct task_state *state = task_state(tid);

	if (state)
		return state;
	bpf_map_update_elem(&tasks, &tid, &empty, BPF_NOEXIST);
	state = task_state(tid);
	if (!state)
		count_loss(SB_LOSS_TASK_STATE);
	return state;
}

/* The ring is polled by the reader, never woken by a record: a wake-up for each would cost more than all the rest. */
#define record_reserve(type) ((type *)record_reserve_bytes(sizeof(type)))
static __always_inline void *record_reserve_bytes(u64 size)
{
	void *record = bpf_ringbuf_reserve(&records, size, 0);

	if (!record)
		count_loss(SB_LOSS_RING);
	return record;
}

static __always_inline void record_begin(struct sb_head *head, u16 kind, u16 size, u32 tid, u64 now)
{
	head->kind = kind;
	head->size = size;
	head->tid = tid;
	head->time_ns = now;
}

static __always_inline void record_submit(void *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

#endif
