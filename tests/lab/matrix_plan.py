#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cells of the matrix, kernel × file system × stack × way to read × cache state × tier, and which of them are run: all, or
a pairwise cover, in which any two values of two dimensions meet wherever they can. matrix_plan.py [--full] prints the plan."""

import collections
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from pairwise import cover  # noqa: E402

KERNELS = ("6.1", "6.12", "7")
FILE_SYSTEMS = ("ext4", "xfs")
LOOPS = ("loop", "loop-offset", "loop-on-loop", "loop-on-crypt")  # buffered ones
STACKS = ("drive", "partition", "split", "linear", "stripe", "linear-on-stripe", "crypt", "thin", "snapshot", "raid0", "raid1",
          "raid5", "raid5-degraded", *LOOPS, "loop-direct")
# A way of the reader, and what the result calls it.
BUFFERED = {"read": "read", "pread": "pread", "readv": "readv", "preadv": "preadv", "nowait": None, "threads": "pread",
            "child": "pread", "aio": "aio", "uring": "io_uring", "uring-fixed": "io_uring", "uring-polled": "io_uring",
            "uring-workers": "io_uring", "sendfile": "sendfile", "splice": "splice", "copy": "copy_file_range"}
DIRECT = {f"{way} direct": BUFFERED[way]
          for way in ("read", "preadv", "threads", "aio", "uring", "uring-fixed", "uring-workers")}
MAPPED = {"mmap": None, "mmap-random": None, "mmap-populate": None}
WAYS = BUFFERED | DIRECT | MAPPED
STATES = ("cold", "half warm", "warm", "lower warm")
TIERS = ("fentry", "kprobe")
Cell = collections.namedtuple("Cell", "kernel fs stack way state tier")
Session = collections.namedtuple("Session", "kernel fs stack tier")


def left_out(cell):
    """Why a cell makes no sense, or None."""
    if cell.state == "lower warm" and cell.stack not in LOOPS:
        return "lower warm: only a buffered loop has a page cache below it"
    if cell.fs == "xfs" and cell.way == "copy":
        return "copy on xfs: copy_file_range shares the extents (reflink) and reads nothing"
    if cell.kernel == "7" and cell.tier == "fentry":
        return "fentry on 7: preempted programs are skipped, and the result says so; scenario 13 of layers.py shows it"
    return None


def session_of(cell):
    """What one run of servedby can show: its ways and states read a file each."""
    return Session(cell.kernel, cell.fs, cell.stack, cell.tier)


def every_cell(stacks):
    return (Cell(kernel, fs, stack, way, state, tier) for kernel in KERNELS for fs in FILE_SYSTEMS for stack in stacks
            for way in WAYS for state in STATES for tier in TIERS)


def chosen(stacks=STACKS, full=False):
    """(cells that are run, {reason: number of cells that make no sense})."""
    cells, without = [], collections.Counter()
    for cell in every_cell(stacks):
        reason = left_out(cell)
        if reason:
            without[reason] += 1
        else:
            cells.append(cell)
    if not full:
        # A session costs more than a cell in it: first as few sessions as will do, then the cells in these.
        sessions = set(cover(sorted({session_of(cell) for cell in cells})))
        cells = cover([cell for cell in cells if session_of(cell) in sessions])
    return cells, without


def by_session(cells):
    """{Session: [Cell]} in an order that is the same each time."""
    sessions = collections.defaultdict(list)
    for cell in sorted(cells):
        sessions[session_of(cell)].append(cell)
    return dict(sessions)


def main():
    cells, without = chosen(full="--full" in sys.argv[1:])
    for session, inside in by_session(cells).items():
        print(f"{' '.join(session)}: " + ", ".join(f"{cell.way} {cell.state}" for cell in inside))
    print(f"{len(cells)} cells in {len(by_session(cells))} sessions")
    for reason, count in without.items():
        print(f"left out: {count} cells: {reason}")


if __name__ == "__main__":
    main()
