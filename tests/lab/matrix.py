#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""This kernel's cells of the matrix (matrix_plan.py). Each cell's answer is worked out from the state that was made: which
pages are resident (mincore), where the extents are (FIEMAP), how the stack was put together; what was read of the drives is
held against /sys/block. Runs in a guest with four drives, as root.

  matrix.py SERVEDBY READER [--full] [--only raid0,loop] [--out DIR]
Prints a line for each session and what was left out; the last line is 'N passed, N failed', in cells."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (Ground, Incomplete, extents, forget, layers, must, of_file, read_through, resident, same, sh,  # noqa: E402
                    stat_read_bytes, drive_name, whole)
from matrix_plan import DIRECT, KERNELS, MAPPED, STACKS, WAYS, by_session, chosen  # noqa: E402
from score import Cells, Score, options_of, run_once  # noqa: E402
from stacks import STACKS as MADE_BY, Bare, compare, expected, without  # noqa: E402

SIZE = (1 << 20) + 5 * 4096 + 1234  # ends inside a page; longer than all chunks of a stripe and each piece of a linear device
WARM = (48 * 4096, 176 * 4096)
FOLDER = "/mnt/matrix"


def path_of(cell):
    return f"{FOLDER}/{cell.way}-{cell.state}".replace(" ", "-")


def make_files(kind, device, cells):
    Ground.make(kind, device)
    Ground.mount(kind, device, FOLDER)
    for cell in cells:
        with open(path_of(cell), "wb") as f:
            f.write(os.urandom(SIZE))
    os.sync()


def make_states(made, cells):
    """Returns {cell: byte ranges of its file that are resident}, and those of the device that are resident below it."""
    for cell in cells:
        forget(path_of(cell))
    for cell in cells:
        if cell.state == "warm":
            read_through(path_of(cell))
        if cell.state == "half warm":
            read_through(path_of(cell), *WARM)
    made.forget_below()
    for cell in cells:
        if cell.state == "lower warm":
            made.cache.warm([(at, at + size) for _, at, size in extents(path_of(cell))])
    return {cell: resident(path_of(cell)) for cell in cells}, made.cache.resident() if made.cache else []


def check(made, result, cell, warm, lower):
    path = path_of(cell)
    if cell.way in MAPPED:
        if cell.state == "warm":  # nothing was filled, and that pages were looked at cannot be seen
            must(all(one["path"] != path for one in result["files"]), "named, though nothing was filled")
            return
        one = of_file(result, path)
        same(one["reads"]["calls"], 0, "read calls")
        found, cached = {" > ".join(filled["via"]): filled["bytes"] for filled in one["mmap"]["filled_by"]}, 0
    else:
        one = of_file(result, path)
        found = layers(one)
        if WAYS[cell.way]:
            same(list(one["by_method"]), [WAYS[cell.way]], "methods")
        warm = [] if cell.way in DIRECT else warm
        cached = sum(end - begin for begin, end in warm)
    if cell.state == "lower warm":
        same(expected(made, path, [(0, SIZE)], lower), {f"{made.name} > page-cache": SIZE}, "bytes resident below")
    compare(made, found, without(warm, 0, SIZE), path, "layers", warm=cached, lower=lower)


class Matrix:
    def __init__(self, servedby, reader, score):
        self.servedby, self.reader, self.score = servedby, reader, score
        self.drives = [drive_name(n) for n in range(4)]

    def command(self, cells):
        return " && ".join(f"{self.reader} {cell.way.split()[0]} {path_of(cell)} {'--direct' if cell.way in DIRECT else ''}"
                           for cell in cells)

    def on_stack(self, session, cells):
        modules, make = MADE_BY[session.stack]
        for module in modules:
            sh("modprobe", module)
        made = make(self.drives)
        try:
            make_files(session.fs, made.device, cells)
            try:
                return self.session(session, made, cells)
            finally:
                sh("umount", FOLDER)
        finally:
            made.undo()

    def session(self, session, made, cells):
        warm, lower = make_states(made, cells)
        ground = Bare(self.servedby, self.score.keep_in("-".join(session)))
        before = {drive: stat_read_bytes(drive) for drive in self.drives}
        # On 7 the automatic plan is the kprobe one, with second sights of what may be skipped.
        tier = () if session.kernel == "7" else ("--tier", session.tier)
        result = ground.run("sh", "-c", self.command(cells), options=tier)
        read = {drive: stat_read_bytes(drive) - before[drive] for drive in self.drives}
        same(result["tier"], session.tier, "tier")
        answers = Cells(cells)
        for cell in cells:
            answers.check(f"{cell.way} {cell.state}", lambda cell=cell: check(made, result, cell, warm[cell], lower))
        whole(result)
        by_ledger = {line["device"]: line["kernel_bytes"] for line in result["ledger"] if line.get("device") in read}
        for drive, count in read.items():
            missing = count - by_ledger.get(drive, 0)
            must(missing >= 0, f"{drive} has counted {count} bytes, the ledger {by_ledger.get(drive)}")
            if missing:  # a file system's own reads, before the session or after it
                raise Incomplete(f"somebody read {missing} bytes of {drive} around the session")
        return answers


def options_wanted(parser):
    parser.add_argument("reader")
    parser.add_argument("--only", default=",".join(STACKS))
    parser.add_argument("--full", action="store_true")


def main():
    options = options_of(("nvme", "loop", "dm-mod", "ext4", "xfs"), options_wanted)
    release = os.uname().release
    kernel = next(name for name in KERNELS if release.startswith(name + "."))
    cells, left_out = chosen(full=options.full)
    os.makedirs(FOLDER, exist_ok=True)
    run_once(options.reader)
    score = Score(options.out)
    matrix = Matrix(options.servedby, options.reader, score)
    for session, inside in by_session(cells).items():
        if session.kernel == kernel and session.stack in options.only.split(","):
            score.run(f"{session.stack} {session.fs} {session.tier}", lambda: matrix.on_stack(session, inside))
    for reason, count in left_out.items():
        print(f"left out of the matrix: {count} cells: {reason}")
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
