// SPDX-License-Identifier: GPL-2.0
// The one place where the shared state is defined.
#define SB_STATE
#include "bpf/state.h"

char LICENSE[] SEC("license") = "GPL";
