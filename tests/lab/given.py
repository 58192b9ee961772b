#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that a stacked device gives itself: md's stripe cache and what it rebuilds, thin volumes where nothing was written.
Runs in a guest with four drives, as root.

The order of the reads is such that each block's source is known: by where it lies, and by what was read before it.
  given.py SERVEDBY [--only stripes,zeros] [--out DIR]
Prints a line for each case; the last line is 'N passed, N failed'."""

import collections
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import drive_name, layers, line_of, of_file, same, sh, stat_read_bytes, whole  # noqa: E402
from score import Score, options_of  # noqa: E402
from stacks import CHUNK, MIB, STACKS, Bare, empty_stripe_cache, raid5, thin  # noqa: E402

ROWS = 8  # of stripes: few enough for md to keep them all


def stripes(g, drives):
    """A degraded raid5: first what healthy members have, then what the failed one had, then that once more."""
    members, failed = drives[:3], drives[1]
    made = raid5(drives, failed=failed)
    try:
        sh("dd", "if=/dev/urandom", f"of={made.device}", "bs=1M", "count=8", "oflag=direct", "status=none")
        healthy = [n for n in range(2 * ROWS) if made.member(n * CHUNK)[0] != "md-rebuilt"]
        lost = [n for n in range(2 * ROWS) if made.member(n * CHUNK)[0] == "md-rebuilt"]
        steps = [f"dd if={made.device} of=/dev/null bs={CHUNK} skip={n} count=1 iflag=direct status=none"
                 for n in [*healthy, *lost, *lost]]
        empty_stripe_cache(made.device)
        before = {name: stat_read_bytes(name) for name in members}
        result = g.run("sh", "-c", " && ".join(steps))
        moved = {name: stat_read_bytes(name) - before[name] for name in members}
        wanted = collections.Counter({f"{made.name} > md-rebuilt": len(lost) * CHUNK,
                                      f"{made.name} > md-stripe-cache": len(lost) * CHUNK})
        asked = collections.Counter()
        for n in healthy:
            wanted[made.via(n * CHUNK)] += CHUNK
            asked[made.member(n * CHUNK)[0]] += CHUNK
        for n in lost:  # the row's data is in the cache by now, its parity is not
            asked[members[2 - n // 2 % 3]] += CHUNK
        same(layers(of_file(result, made.device)), dict(wanted), "layers")
        same(moved, {name: asked[name] for name in members}, "bytes that the kernel counted at the members")
        same({name: line_of(result, name)["traced_target_bytes"] for name in members if moved[name]},
             {name: bytes for name, bytes in moved.items() if bytes}, "members' bytes for the target, rebuilding included")
        whole(result)
    finally:
        made.undo()


def zeros(g, drives):
    """A thin volume of which the first half was written: through the page cache, and past it."""
    made = thin(drives)
    try:
        sh("dd", "if=/dev/urandom", f"of={made.device}", "bs=1M", "count=4", "oflag=direct", "status=none")
        once = f"dd if={made.device} of=/dev/null bs=1M count=8 status=none"
        result = g.run("sh", "-c", f"{once} iflag=direct && {once}")
        same(layers(of_file(result, made.device)), {made.via(0): 8 * MIB, f"{made.name} > zero": 8 * MIB}, "layers")
        whole(result)
        same(sum(result["recovered"].values()), 0, f"completions that had to be recovered, {result['recovered']}")
    finally:
        made.undo()


CASES = {"stripes": (stripes, "raid5-degraded"), "zeros": (zeros, "thin")}


def main():
    options = options_of(("nvme", "dm-mod"), lambda parser: parser.add_argument("--only", default=",".join(CASES)))
    score = Score(options.out)
    drives = [drive_name(n) for n in range(4)]
    sh("sh", "-c", "dd if=/dev/zero of=/dev/null count=1 status=none && true")  # resident from now on
    for name in options.only.split(","):
        check, stack = CASES[name]
        for module in STACKS[stack][0]:
            sh("modprobe", module)
        score.run(name, lambda: check(Bare(options.servedby, score.keep_in(name)), drives))
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
