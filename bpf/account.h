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

#endif
