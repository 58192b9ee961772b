#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every way to read a file, in every cache state: the answer is worked out from the state. Runs in a guest as root.

  ways.py SERVEDBY READER [--only cold,direct] [--fs ext4,xfs] [--on drive,loop,device] [--out DIR]
In one session each way reads a file of its own; a cell is a way in a state at a place. Prints a line for each session; the
last line is 'N passed, N failed', in cells."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (Ground, bytes_in, forget, layers, must, of_file, read_through, resident, same, sh,  # noqa: E402
                    stat_read_bytes, whole)
from matrix_plan import BUFFERED  # noqa: E402
from score import Cells, Score, options_of, run_once  # noqa: E402


MIB = 1 << 20
SIZE = 3 * MIB - 4096 * 3 - 1234  # ends inside a page
WARM = (1 * MIB, 2 * MIB)
LEFT_OUT = {("xfs", "copy"): "copy_file_range shares the extents (reflink) and reads nothing"}
DIRECT = {way: BUFFERED[way] for way in ("read", "pread", "preadv", "threads", "aio", "uring", "uring-fixed", "uring-workers")}
ADVISED = {"readahead": "pread", "willneed": "pread"}
EMPTY = {"pread": "pread", "aio": "aio", "uring": "io_uring", "sendfile": "sendfile"}
MAPPED = ("mmap", "mmap-random", "mmap-populate", "mmap-willneed")


class Place:
    """Where files are, the layer that has them when they are cold, and how they become so."""

    def __init__(self, name, folder, cold, below=None):
        self.name, self.folder, self.cold, self.below = name, folder, cold, below

    def path(self, way):
        return f"{self.folder}/{way}"

    def evict(self, ways):
        for way in ways:
            if not os.path.exists(self.path(way)):
                with open(self.path(way), "wb") as f:
                    f.write(os.urandom(SIZE))
        os.sync()
        for way in ways:
            forget(self.path(way))
        if self.below:
            forget(self.below)

    def half_warm(self, ways):
        """Bytes resident of each file."""
        self.evict(ways)
        for way in ways:
            read_through(self.path(way), *WARM)
        if self.below:
            forget(self.below)
        return {way: bytes_in(resident(self.path(way))) for way in ways}


class Session:
    """What a place is asked in one session; every test returns the Cells that it checked."""

    def __init__(self, ground, reader, place):
        self.g, self.reader, self.place = ground, reader, place
        self.buffered = {way: name for way, name in BUFFERED.items() if (ground.kind, way) not in LEFT_OUT}

    def read(self, ways, *options):
        steps = [f"{self.reader} {way} {self.place.path(way)} {' '.join(options)}" for way in ways]
        return self.g.run("sh", "-c", " && ".join(steps))

    def answers(self, ways, demanded, *options, more=None):
        """`demanded`: way → {layers: bytes}."""
        result = self.read(ways, *options)
        cells = Cells(ways)
        for way in ways:
            def check(way=way):
                one = of_file(result, self.place.path(way))
                same(layers(one), {k: v for k, v in demanded(way).items() if v}, "layers")
                if ways[way]:
                    same(list(one["by_method"]), [ways[way]], "methods")
                if more:
                    more(one)
            cells.check(way, check)
        whole(result)
        return cells

    def cold(self):
        self.place.evict(self.buffered)
        return self.answers(self.buffered, lambda way: {self.place.cold: SIZE})

    def half_warm(self):
        warm = self.place.half_warm(self.buffered)
        return self.answers(self.buffered, lambda way: {self.place.cold: SIZE - warm[way], "page-cache": warm[way]})

    def warm(self):
        self.place.evict(self.buffered)
        for way in self.buffered:
            read_through(self.place.path(way))
        return self.answers(self.buffered, lambda way: {"page-cache": SIZE})

    def direct(self):
        """From below the page cache, though the backing file of a loop may be resident the second time."""
        self.place.evict(DIRECT)
        return self.answers(DIRECT, lambda way: {self.place.cold: SIZE}, "--direct")

    def advised(self):
        """What was advised is filled before it is read: by the layer that filled it, ahead of its read."""
        self.place.evict(ADVISED)

        def ahead(one):
            same(one["served_by"][0]["prefetched_bytes"], SIZE, "bytes filled ahead of their read")
            same(one["mmap"].get("filled_by", []), [], "filled by mappings")
        return self.answers(ADVISED, lambda way: {self.place.cold: SIZE}, more=ahead)

    def only_advised(self):
        self.place.evict(["advice-only"])
        path = self.place.path("advice-only")
        drive = self.place.cold.split(" > ")[-1]
        before = stat_read_bytes(drive)
        result = self.read({"advice-only": None})
        cells = Cells(["advice-only"])

        def check():
            same(bytes_in(resident(path)), SIZE, "bytes resident afterwards")
            one = of_file(result, path)
            same(one["reads"]["calls"], 0, "calls")
            same(one["wasted_bytes"], SIZE, "bytes filled and never returned")
            must(stat_read_bytes(drive) - before >= SIZE, "the drive counted fewer bytes than were filled")
        cells.check("advice-only", check)
        whole(result)
        return cells

    def mapped(self):
        """No call returns bytes: what faults filled, by layer, and nothing else is claimed."""
        warm = self.place.half_warm(MAPPED)
        result = self.read(MAPPED)
        cells = Cells(MAPPED)
        for way in MAPPED:
            def check(way=way):
                one = of_file(result, self.place.path(way))
                same(bytes_in(resident(self.place.path(way))), SIZE, "bytes resident afterwards")
                same({" > ".join(f["via"]): f["bytes"] for f in one["mmap"]["filled_by"]},
                     {self.place.cold: SIZE - warm[way]}, "filled by faults")
                same(one["reads"]["calls"], 0, "read calls")
            cells.check(way, check)
        whole(result)
        must(result["mmap"]["faults_major"] > 0, "no major faults were counted")
        return cells

    def mapped_warm(self):
        """A mapping of what is resident fills nothing: nothing is said of it."""
        self.place.evict(MAPPED)
        for way in MAPPED:
            read_through(self.place.path(way))
        result = self.read(MAPPED)
        cells = Cells(MAPPED)
        for way in MAPPED:
            cells.check(way, lambda way=way: must(all(f["path"] != self.place.path(way) for f in result["files"]), "named"))
        whole(result)
        return cells

    def empty(self, *options):
        """Data, a hole, an allocated and never written part, data: nothing is read for the two in the middle."""
        for way in EMPTY:
            path = self.place.path(f"empty-{way}")
            if not os.path.exists(path):
                with open(path, "wb") as f:
                    f.write(os.urandom(MIB))
                    f.truncate(3 * MIB)
                    f.seek(3 * MIB)
                    f.write(os.urandom(MIB // 2))
                    f.flush()
                    os.posix_fallocate(f.fileno(), 2 * MIB, MIB)
                os.sync()
            forget(path)
        if self.place.below:
            forget(self.place.below)
        ways = {way: name for way, name in EMPTY.items() if "--direct" not in options or way != "sendfile"}
        steps = [f"{self.reader} {way} {self.place.path('empty-' + way)} {' '.join(options)}" for way in ways]
        result = self.g.run("sh", "-c", " && ".join(steps))
        cells = Cells(ways)
        for way in ways:
            cells.check(way, lambda way=way: same(
                layers(of_file(result, self.place.path(f"empty-{way}"))),
                {self.place.cold: MIB + MIB // 2, "hole": MIB, "unwritten": MIB}, "layers"))
        whole(result)
        return cells

    def empty_direct(self):
        return self.empty("--direct")

    def special(self):
        """aimdo's mark-cold: dropped after each read; and a file that is deleted while it is open."""
        ways = {"dropping": "pread", "unlinked": "pread"}
        self.place.evict(ways)
        result = self.read(ways)
        cells = Cells(ways)
        cells.check("dropping", lambda: same(
            layers(of_file(result, self.place.path("dropping"))), {self.place.cold: SIZE}, "layers"))

        def unlinked():
            gone = [f for f in result["files"] if f["reads"]["bytes_returned"] == SIZE and "dropping" not in f["path"]]
            same([layers(f) for f in gone], [{self.place.cold: SIZE}], "layers of files with these bytes")
        cells.check("unlinked", unlinked)
        whole(result)
        return cells


class InMemory:
    """tmpfs and ramfs: the page cache has everything, but for holes and what is in swap."""
    WAYS = {way: BUFFERED[way] for way in ("read", "pread", "preadv", "aio", "uring", "uring-workers", "sendfile", "splice")}

    def __init__(self, ground, reader):
        self.g, self.reader = ground, reader

    def reads(self, kind, demanded, prepare):
        folder = f"/mnt/{kind}"
        os.makedirs(folder, exist_ok=True)
        sh("mount", "-t", kind, "none", folder)
        try:
            for way in self.WAYS:
                with open(f"{folder}/{way}", "wb") as f:
                    f.write(os.urandom(SIZE))
            prepare(folder)
            result = self.g.run("sh", "-c", " && ".join(f"{self.reader} {way} {folder}/{way}" for way in self.WAYS))
            cells = Cells(self.WAYS)
            for way in self.WAYS:
                cells.check(way, lambda way=way: same(layers(of_file(result, f"{folder}/{way}")), demanded, "layers"))
            whole(result)
            return cells
        finally:
            sh("umount", folder)

    def tmpfs(self):
        return self.reads("tmpfs", {"page-cache": SIZE}, lambda folder: None)

    def ramfs(self):
        return self.reads("ramfs", {"page-cache": SIZE}, lambda folder: None)

    def sparse(self):
        """A hole has no page: nobody can tell which bytes were one."""
        def grow(folder):
            for way in self.WAYS:
                os.truncate(f"{folder}/{way}", SIZE + 64 * 1024)
        return self.reads("tmpfs", {"unknown": SIZE + 64 * 1024}, grow)


class WholeDevice:
    """The block device itself, opened as a file."""

    def __init__(self, ground, reader):
        self.g, self.reader = ground, reader

    def reads(self, way, direct):
        path, count = f"/dev/{self.g.drive}", 4 * MIB
        sh("blockdev", "--flushbufs", path)
        options = ["--direct"] if direct else []
        result = self.g.run(self.reader, way, path, "--from", str(64 * MIB), "--to", str(64 * MIB + count), *options)
        cells = Cells([way])
        cells.check(way, lambda: same(layers(of_file(result, path)), {self.g.drive: count}, "layers"))
        whole(result)
        return cells


ON_DRIVE = ("cold", "half_warm", "warm", "direct", "advised", "only_advised", "mapped", "mapped_warm", "empty", "empty_direct",
            "special")
ON_LOOP = ("advised", "only_advised", "empty")  # the rest is in the matrix


def sessions(ground, reader, places):
    """(name, function) of everything."""
    for place in places:
        session = Session(ground, reader, place)
        for name in ON_LOOP if place.below else ON_DRIVE:
            yield f"{place.name} {name}", getattr(session, name)


def other_sessions(ground, reader):
    memory = InMemory(ground, reader)
    for name in ("tmpfs", "ramfs", "sparse"):
        yield f"memory {name}", getattr(memory, name)
    device = WholeDevice(ground, reader)
    for way in ("pread", "aio", "uring"):
        for direct in (False, True):
            yield f"device {way}{' direct' if direct else ''}", lambda way=way, direct=direct: device.reads(way, direct)


def options_wanted(parser):
    parser.add_argument("reader")
    parser.add_argument("--only", default="")
    parser.add_argument("--on", default="drive,loop,device")


def main():
    options = options_of(("nvme", "ext4", "xfs", "loop"), options_wanted)
    score = Score(options.out)
    run_once(options.reader)
    on, only = options.on.split(","), options.only.split(",") if options.only else None
    for kind in options.fs:
        g = Ground(kind, options.servedby, megabytes=8)
        g.keep_in = score.keep_in(f"{kind}-ways")
        places = [Place("drive", g.plain, g.drive), Place("loop", g.inner, f"{g.loop} > {g.host_drive}", g.image)]
        every = list(sessions(g, options.reader, [p for p in places if p.name in on]))
        if "device" in on:
            every += other_sessions(g, options.reader)
        for name, function in every:
            if not only or name.split()[1] in only:
                score.run(f"{kind} {name}", function)
        g.close()
        for (left_kind, way), reason in LEFT_OUT.items():
            if left_kind == kind:
                print(f"left out: {kind} {way}: {reason}")
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
