// SPDX-License-Identifier: Apache-2.0
// The kernel side's records, with the integer types that bpf/record.h expects.
#pragma once

#include <linux/types.h>

#include "bpf/record.h"
