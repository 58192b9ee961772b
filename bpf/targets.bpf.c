// SPDX-License-Identifier: GPL-2.0
// Who belongs to the target: children by fork, until they exit. An exiting task leaves its own accounting, final.
#include "bpf/kernel.h"

static __always_inline struct sb_task *task_record(u32 event)
{
	struct sb_task *record = record_reserve(struct sb_task);

	if (!record)
		return NULL;
	record_begin(&record->head, SB_TASK, sizeof(*record), current_tid(), bpf_ktime_get_ns());
	record->event = event;
	record->tgid = current_tgid();
	record->pad = 0;
	bpf_get_current_comm(record->comm, sizeof(record->comm));
	return record;
}

/* A new thread gets an entry under its TID, which only its exit asks for. */
SEC("?tp/sched/sched_process_fork")
int tracepoint_fork(struct trace_event_raw_sched_process_fork *context)
{
	struct sb_task *record;
	u32 child, one = 1;

	child = context->child_pid;
	if (!is_target(current_tgid())) {
		bpf_map_delete_elem(&targets, &child); /* another's now, whoever had this PID */
		return 0;
	}
	if (bpf_map_update_elem(&targets, &child, &one, BPF_ANY))
		count_loss(SB_LOSS_TASK_STATE);
	record = task_record(SB_TASK_FORK);
	if (!record)
		return 0;
	record->task = child;
	record->rchar = 0;
	record->syscr = 0;
	record->read_bytes = 0;
	record->faults_major = 0;
	record->faults_minor = 0;
	record_submit(record);
	return 0;
}

SEC("?tp/sched/sched_process_exit")
int tracepoint_exit(void *context)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 tgid = current_tgid(), tid = current_tid(), *group;
	struct task_state *state;
	struct sb_task *record;

	/* The thread that counts the group's last may come here before one that ended earlier. */
	if (!is_target(tgid) && !is_target(tid))
		return 0;
	state = bpf_map_lookup_elem(&tasks, &tid);
	if (state && state->open) /* its last read returned unseen: a task cannot exit inside one */
		count_loss(SB_LOSS_READ_ENTRY);
	bpf_map_delete_elem(&tasks, &tid);
	record = task_record(SB_TASK_EXIT);
	if (record) {
		record->task = tid;
		record->rchar = BPF_CORE_READ(task, ioac.rchar);
		record->syscr = BPF_CORE_READ(task, ioac.syscr);
		record->read_bytes = BPF_CORE_READ(task, ioac.read_bytes);
		record->faults_major = BPF_CORE_READ(task, maj_flt);
		record->faults_minor = BPF_CORE_READ(task, min_flt);
		record_submit(record);
	}
	/* The group's entry goes with the last of its threads, but not before its first one, whose entry it is, has been here. Nor
	 * where another may come after the last: io_uring's threads leave without having come, since no fork tells of them. */
	if (tid != tgid)
		bpf_map_delete_elem(&targets, &tid);
	group = bpf_map_lookup_elem(&targets, &tgid);
	if (group && tid == tgid)
		*group = TARGET_LEADER_ENDED;
	if (!group || *group != TARGET_LEADER_ENDED || BPF_CORE_READ(task, signal, live.counter) != 0)
		return 0;
	if (BPF_CORE_READ(task, signal, nr_threads) > 1)
		*group = TARGET_ENDED;
	else
		bpf_map_delete_elem(&targets, &tgid);
	return 0;
}
