#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every way to read a file, in every cache state: the answer is worked out from the state. Runs in a guest as root.

  ways.py SERVEDBY READER [--only cold,direct] [--fs ext4,xfs] [--on drive,loop,device] [--out DIR]
In one session each way reads a file of its own; a cell is a way in a state at a place. Prints a line for each session; the
last line is 'N passed, N failed', in cells."""

import contextlib
import mmap
import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (PAGE, Ground, bytes_in, drive_name, forget, layers, must, of_file, read_through, resident,  # noqa: E402
                    same, sh, stat_read_bytes, whole)
from matrix_plan import BUFFERED  # noqa: E402
from score import Cells, LeftOut, Score, options_of, run_once  # noqa: E402


MIB = 1 << 20
SIZE = 3 * MIB - 4096 * 3 - 1234  # ends inside a page
WARM = (1 * MIB, 2 * MIB)
LEFT_OUT = {("xfs", "copy"): "copy_file_range shares the extents (reflink) and reads nothing",
            ("ext4", "mmap-collapsed"): "these kernels are built without READ_ONLY_THP_FOR_FS"}
DIRECT = {way: BUFFERED[way] for way in ("read", "pread", "preadv", "threads", "aio", "uring", "uring-fixed", "uring-workers")}
DIRECT["unaligned"] = "pread"  # at sectors inside pages
UNALIGNED = (SIZE - 512) // 130560 * 130560
ADVISED = {"readahead": "pread", "willneed": "pread"}
EMPTY = {"pread": "pread", "aio": "aio", "uring": "io_uring", "sendfile": "sendfile"}
MAPPED = ("mmap", "mmap-random", "mmap-populate", "mmap-willneed")


@contextlib.contextmanager
def setting(path, value, after=None):
    """A setting of the kernel's, and back again, or to `after`."""
    def put(text):
        with open(path, "w") as f:
            f.write(str(text))
    with open(path) as f:
        before = f.read()
    put(value)
    try:
        yield
    finally:
        put(before if after is None else after)


def largest_folio(path):
    """Bytes of the largest run of a file's pages that are one, as /proc/kpageflags tells."""
    size = os.stat(path).st_size
    with open(path, "rb") as f, mmap.mmap(f.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        sum(mapping[at] for at in range(0, size, PAGE))
        begin = next(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if line.rstrip().endswith(path))
        with open("/proc/self/pagemap", "rb") as pages, open("/proc/kpageflags", "rb") as flags:
            pages.seek(begin // PAGE * 8)
            largest = run = 0
            for (page,) in struct.iter_unpack("=Q", pages.read((size + PAGE - 1) // PAGE * 8)):
                flags.seek((page & ((1 << 55) - 1)) * 8)
                (flag,) = struct.unpack("=Q", flags.read(8))
                run = run + 1 if flag & 1 << 16 else 1  # a tail follows its head
                largest = max(largest, run)
    return largest * PAGE


class Place:
    """Where files are, the layer that has them when they are cold, and how they become so."""

    def __init__(self, name, folder, cold, below=None, sector=512):
        self.name, self.folder, self.cold, self.below, self.sector = name, folder, cold, below, sector

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
        ways = {way: name for way, name in DIRECT.items() if way != "unaligned" or self.place.sector == 512}
        self.place.evict(ways)
        return self.answers(ways, lambda way: {self.place.cold: UNALIGNED if way == "unaligned" else SIZE}, "--direct")

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

    def uncached(self):
        """RWF_DONTCACHE: what a read filled is gone when it is read again; what was there stays."""
        ways = {"dontcache": "preadv2", "twice": None}
        self.place.evict(ways)
        if subprocess.run([self.reader, "dontcache", self.place.path("dontcache")], stderr=subprocess.DEVNULL).returncode:
            raise LeftOut("this kernel has no RWF_DONTCACHE")
        warm = self.place.half_warm(ways)
        forget(self.place.path("twice"))
        read = f"{self.reader} dontcache {self.place.path('{}')}"
        result = self.g.run("sh", "-c", " && ".join([read.format("dontcache"), read.format("twice"), read.format("twice")]))
        cells = Cells(ways)
        below = self.place.cold.split(" > ")[0] + " > page-cache" if self.place.below else self.place.cold

        def half():
            one = of_file(result, self.place.path("dontcache"))
            same(layers(one), {self.place.cold: SIZE - warm["dontcache"], "page-cache": warm["dontcache"]}, "layers")
            same(list(one["by_method"]), ["preadv2"], "methods")
            same(bytes_in(resident(self.place.path("dontcache"))), warm["dontcache"], "bytes resident afterwards")

        def twice():
            found = {}
            for via in (self.place.cold, below):
                found[via] = found.get(via, 0) + SIZE
            same(layers(of_file(result, self.place.path("twice"))), found, "layers")
            same(resident(self.place.path("twice")), [], "what is resident afterwards")
        cells.check("dontcache", half)
        cells.check("twice", twice)
        whole(result)
        return cells

    def special(self):
        """Each read by itself: dropped after each block (aimdo's mark-cold), deleted while open, with signals in the middle,
        which do not cut a file's read short. A sendfile into a full socket is cut short: it had read a pipe more than it could
        pass on. Huge pages fill what is resident afterwards, however large they are."""
        ways = ("dropping", "unlinked", "signalled", "sendfile-interrupted", "mmap-huge")
        self.place.evict(ways)
        result = self.read(ways, ">>/run/told")
        with open("/run/told") as f:
            passed_on = int(f.read())
        os.unlink("/run/told")
        cells, pipe = Cells(ways), 16 * PAGE

        def layers_are(way, count=SIZE):
            return lambda: same(layers(of_file(result, self.place.path(way))), {self.place.cold: count}, "layers")

        def unlinked():
            gone = [f for f in result["files"]
                    if f["reads"]["bytes_returned"] == SIZE and os.path.basename(f["path"]) not in ("dropping", "signalled")]
            same([layers(f) for f in gone], [{self.place.cold: SIZE}], "layers of files with these bytes")

        def huge():
            path = self.place.path("mmap-huge")
            same(bytes_in(resident(path)), SIZE, "bytes resident afterwards")
            same({" > ".join(f["via"]): f["bytes"] for f in of_file(result, path)["mmap"]["filled_by"]},
                 {self.place.cold: SIZE}, "filled by faults")
            if self.g.kind == "xfs":  # ext4 has large ones on new kernels only
                must(largest_folio(path) >= MIB // 4, f"no page is larger than {largest_folio(path)} bytes")
        cells.check("dropping", layers_are("dropping"))
        cells.check("unlinked", unlinked)
        cells.check("signalled", layers_are("signalled"))
        must(0 < passed_on < SIZE, f"sendfile passed {passed_on} bytes on")
        cells.check("sendfile-interrupted", layers_are("sendfile-interrupted", passed_on // pipe * pipe + pipe))
        cells.check("mmap-huge", huge)
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
                cells.check(way, lambda way=way: same(layers(of_file(result, f"{folder}/{way}")), demanded(way), "layers"))
            whole(result)
            return cells
        finally:
            sh("umount", folder)

    def tmpfs(self):
        return self.reads("tmpfs", lambda way: {"page-cache": SIZE}, lambda folder: None)

    def ramfs(self):
        return self.reads("ramfs", lambda way: {"page-cache": SIZE}, lambda folder: None)

    def swapped(self, area=None, end="swap"):
        """Pages that went out to a swap area on a drive come back from it, each once, whoever's neighbours were read along. Of
        every other file another process brought a part back before."""
        group, area, brought = "/sys/fs/cgroup/swapped", area or f"/dev/{drive_name(3)}", list(self.WAYS)[::2]

        def swap_out(folder):
            sh("mkswap", area, stderr=subprocess.DEVNULL)
            sh("swapon", area)
            os.makedirs(group, exist_ok=True)
            for way in self.WAYS:  # what a group's process wrote is the group's
                sh("sh", "-c", f"echo $$ >{group}/cgroup.procs && cp {folder}/{way} {folder}/new && "
                               f"mv {folder}/new {folder}/{way}")
            for _ in range(100):
                if not any(resident(f"{folder}/{way}") for way in self.WAYS):
                    break
                with contextlib.suppress(OSError), open(f"{group}/memory.reclaim", "w") as f:
                    f.write("64M")
                time.sleep(0.05)
            for way in self.WAYS:
                same(resident(f"{folder}/{way}"), [], f"{way}: what is still in memory")
            with setting("/proc/sys/vm/page-cluster", 0):  # it reads no neighbours along
                for way in brought:
                    read_through(f"{folder}/{way}", *WARM)
                    same(resident(f"{folder}/{way}"), [WARM], f"{way}: what is in memory again")

        def demanded(way):
            back = WARM[1] - WARM[0] if way in brought else 0
            return {end: SIZE - back, **({"page-cache": back} if back else {})}
        try:
            with setting("/sys/fs/cgroup/cgroup.subtree_control", "+memory", "-memory"):
                return self.reads("tmpfs", demanded, swap_out)
        finally:
            sh("swapoff", area)

    def swapped_zram(self):
        """The same where the swap area is compressed memory: such a device has no requests, and where the kernel has a way to
        it without bios (bdev_read_page, in 6.1), nothing is seen."""
        sh("modprobe", "zram", "num_devices=1")
        with open("/sys/block/zram0/disksize", "w") as f:
            f.write("256M")
        try:
            with open("/proc/kallsyms") as f:
                bios = not any(line.split()[2] == "bdev_read_page" for line in f)
            return self.swapped("/dev/zram0", "swap" if bios else "unknown")
        finally:
            with open("/sys/block/zram0/reset", "w") as f:
                f.write("1")

    def sparse(self):
        """A hole has no page: nobody can tell which bytes were one."""
        def grow(folder):
            for way in self.WAYS:
                os.truncate(f"{folder}/{way}", SIZE + 64 * 1024)
        return self.reads("tmpfs", lambda way: {"unknown": SIZE + 64 * 1024}, grow)


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
            "special", "uncached")
ON_LOOP = ("advised", "only_advised", "empty", "uncached")  # the rest is in the matrix


def sessions(ground, reader, places):
    """(name, function) of everything."""
    for place in places:
        session = Session(ground, reader, place)
        for name in ON_LOOP if place.below else ON_DRIVE:
            yield f"{place.name} {name}", getattr(session, name)


def other_sessions(ground, reader):
    memory = InMemory(ground, reader)
    for name in ("tmpfs", "ramfs", "sparse", "swapped", "swapped_zram"):
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
