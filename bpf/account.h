/* SPDX-License-Identifier: GPL-2.0 */
/* On whose account the current task does I/O. */
#ifndef SERVEDBY_ACCOUNT_H
#define SERVEDBY_ACCOUNT_H

#include "bpf/kernel.h"

struct account {
	struct task_state *state; /* of the current task; NULL: none */
	u64 serving; /* the request a worker serves; 0: none */
	u32 tid, tgid;
	u32 read;    /* open read call of a target; 0: none */
	u32 flags;   /* SB_BY_TARGET, SB_BY_WORKER, SB_FOR_TARGET; 0: somebody else */
};

/* Whether the request is still in flight as the worker met it, and for whom: SB_BY_WORKER, SB_FOR_TARGET, or 0. */
static __always_inline u32 account_of_request(u64 request, u64 issue_ns)
{
	struct request_state *state = bpf_map_lookup_elem(&requests, &request);

	if (!state || (issue_ns && state->issue_ns != issue_ns))
		return 0;
	return SB_BY_WORKER | (state->target_bytes ? SB_FOR_TARGET : 0);
}

static __always_inline void account_of_current(struct account *account)
{
	struct task_state *state;

	account->tid = current_tid();
	account->tgid = current_tgid();
	account->state = state = task_state(account->tid);
	if (is_target(account->tgid)) {
		account->flags = SB_BY_TARGET | SB_FOR_TARGET;
		if (state && state->open)
			account->read = state->read;
		return;
	}
	if (state && state->serving) {
		account->flags = account_of_request(state->serving, state->serving_issue_ns);
		if (account->flags)
			account->serving = state->serving;
	}
}

static __always_inline struct sb_device_count *counts_of(u32 slot)
{
	return bpf_map_lookup_elem(&device_counts, &slot);
}

/* A read bio for a device without requests: what the device counts. */
static __always_inline void count_passed_on(struct tracked_device *device, u32 bytes, u32 flags)
{
	struct sb_device_count *counts = counts_of(device->slot);

	if (!counts)
		return;
	if (flags & SB_FOR_TARGET) {
		counts->target_read_bytes += bytes;
		counts->target_read_requests++;
	} else {
		counts->other_read_bytes += bytes;
		counts->other_read_requests++;
	}
}

/* So that the request, or the device below, that it comes to is known to be the target's, or worth watching. */
static __always_inline void remember_bio(u64 address, u32 bytes, u32 flags)
{
	struct bio_state state = {.bytes_left = bytes, .flags = flags};

	if (bpf_map_update_elem(&bios, &address, &state, BPF_ANY))
		count_loss(SB_LOSS_REQUEST_STATE);
}

#endif
