#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""File systems that are not simply extents on one drive. Runs in a guest with four drives, as root.

  filesystems.py SERVEDBY READER [--only btrfs,squashfs] [--out DIR]
Which drive must have each byte is read from the file system's own trees by its own tools. Prints a line for each session;
the last line is 'N passed, N failed', in cells."""

import collections
import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from btrfs_map import Map  # noqa: E402
from ground import (Ground, bytes_in, drive_name, extents, forget, layers, line_of, must, of_file, read_through,  # noqa: E402
                    resident, same, sh, whole)
from nfs_server import ADDRESS, Server  # noqa: E402
from score import Cells, LeftOut, Score, options_of, run_once  # noqa: E402


MIB = 1 << 20
SIZE = 3 * MIB + 12345  # ends inside a page
WARM = (MIB, 2 * MIB)
SYSTEMS = {}


def file_system(name):
    def keep(function):
        SYSTEMS[name] = function
        return function
    return keep


def needs(module):
    """Loads a module of the guest's kernel, or leaves the scenario out."""
    if subprocess.run(["modprobe", module], stderr=subprocess.DEVNULL).returncode != 0:
        raise LeftOut(f"this kernel has no {module}")


def packable(size, distinct):
    """Bytes that compress: each KiB begins with `distinct` random bytes."""
    return b"".join(os.urandom(distinct) + b"\0" * (1024 - distinct) for _ in range(size // 1024 + 1))[:size]


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


class Bare(Ground):
    """Only what runs servedby."""

    def __init__(self, servedby, reader, keep_in):
        self.servedby, self.reader, self.keep_in, self.kept_here = servedby, reader, keep_in, 0

    def script(self, *steps, **more):
        return self.run("sh", "-c", " && ".join(steps), **more)


def checked(result, wanted):
    """The cells of a session: `wanted` is file → {layers: bytes}."""
    cells = Cells(wanted)
    for path, demanded in wanted.items():
        cells.check(path, lambda: same(layers(of_file(result, path)), {k: v for k, v in demanded.items() if v}, "layers"))
    return cells


class Btrfs:
    def __init__(self, g, drives, folder, *options):
        self.g, self.drives, self.folder = g, drives, folder
        os.makedirs(folder, exist_ok=True)
        sh("mkfs.btrfs", "-q", "-f", *options, *[f"/dev/{d}" for d in drives])
        for drive in drives:
            sh("btrfs", "device", "scan", f"/dev/{drive}")
        sh("mount", "-t", "btrfs", "-o", "noatime,nodiscard", f"/dev/{drives[0]}", folder)

    def path(self, name):
        return f"{self.folder}/{name}"

    def make(self, name, data, compression=None):
        write(self.path(name), b"")
        if compression:
            sh("btrfs", "property", "set", self.path(name), "compression", compression)
        write(self.path(name), data)

    def look(self):
        os.sync()
        self.map = Map(self.drives)

    def expected(self, name, *ranges):
        """{layers: bytes} of ranges of a file (none: all of it) when nothing of it is resident."""
        path, found = self.path(name), collections.Counter()
        size = os.stat(path).st_size
        for begin, end in ranges or [(0, size)]:
            end, at = min(end, size), begin
            for extent in self.map.extents(os.stat(path).st_ino):
                first, last = max(at, extent["at"]), min(end, extent["at"] + extent["bytes"])
                if first >= last:
                    continue
                found["hole"] += first - at
                at = last
                if extent["kind"] != "regular":
                    found[{"inline": "inline", "prealloc": "unwritten"}[extent["kind"]]] += last - first
                elif extent["disk"] == 0:
                    found["hole"] += last - first
                elif extent["compressed"]:
                    drives = {drive for _, drive in self.map.drives_of(extent["disk"], extent["nr"])}
                    found[drives.pop() if len(drives) == 1 else "unknown"] += last - first
                else:
                    logical = extent["disk"] + extent["offset"] + first - extent["at"]
                    for step, drive in self.map.drives_of(logical, last - first):
                        found[drive] += step
            found["hole"] += end - at
        return {via: count for via, count in found.items() if count}

    def compressed_bytes(self, name, warm=(0, 0)):
        """Bytes that the compressed extents of a file take on the drives, but for those inside a range."""
        return sum(e["nr"] for e in self.map.extents(os.stat(self.path(name)).st_ino)
                   if e["compressed"] and e["kind"] == "regular" and not warm[0] <= e["at"] < warm[1])

    def with_resident(self, name):
        """expected() of a file that is partly resident."""
        ranges, at = [], 0
        for begin, end in resident(self.path(name)):
            ranges.append((at, begin))
            at = end
        ranges.append((at, SIZE))
        return {**self.expected(name, *ranges), "page-cache": bytes_in(resident(self.path(name)))}

    def close(self):
        sh("umount", self.folder)


@file_system("btrfs")
def btrfs(g, score, drives):
    needs("btrfs")
    fs = Btrfs(g, drives[:2], "/mnt/btrfs", "-d", "raid0", "-m", "single")
    try:
        score.run("btrfs on two drives", lambda: btrfs_plain(g, fs))
        score.run("btrfs compressed", lambda: btrfs_compressed(g, fs))
        score.run("loops on btrfs", lambda: btrfs_loops(g, fs))
    finally:
        fs.close()


def ways_of(g, fs, names):
    """One step of a script for each file: the way of the reader is the first word of its name."""
    for name in names:
        way = name.split("-")[0]
        yield f"{g.reader} {way} {fs.path(name)}" + (" --direct" if "direct" in name else "")


def filled(result, path):
    return {" > ".join(f["via"]): f["bytes"] for f in of_file(result, path)["mmap"].get("filled_by", [])}


PLAIN = ("pread", "pread-half", "pread-warm", "pread-direct", "aio", "aio-direct", "uring", "sendfile")
EMPTY = ("pread-inline", "pread-sparse", "pread-unwritten")


def btrfs_plain(g, fs):
    """A byte is on the drive that the chunk tree says; what has none says so."""
    for name in (*PLAIN, "mmap", "twin"):
        fs.make(name, os.urandom(SIZE))
    fs.make("pread-inline", os.urandom(1500))
    with open(fs.path("pread-sparse"), "wb") as f:
        f.truncate(MIB)
        f.seek(MIB // 2)
        f.write(os.urandom(65536))
    with open(fs.path("pread-unwritten"), "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 256 * 1024)
    if not os.path.exists(fs.path("snapshot")):
        sh("btrfs", "-q", "subvolume", "snapshot", fs.folder, fs.path("snapshot"))
    fs.look()
    for name in (*PLAIN, *EMPTY, "mmap", "twin"):
        forget(fs.path(name))
    read_through(fs.path("pread-half"), *WARM)
    read_through(fs.path("pread-warm"))
    # The same inode number in another subvolume: what is read ahead of one is not the other's.
    read_through(fs.path("snapshot/twin"))
    same(os.stat(fs.path("twin")).st_ino, os.stat(fs.path("snapshot/twin")).st_ino, "inode numbers of the twins")
    wanted = {fs.path(name): fs.with_resident(name) if name in ("pread-half", "pread-warm") else fs.expected(name)
              for name in (*PLAIN, *EMPTY)}
    wanted[fs.path("twin")] = fs.expected("twin", (0, 65536))
    wanted[fs.path("snapshot/twin")] = {"page-cache": SIZE}
    must(all(wanted[fs.path(name)].get(drive) for name in ("pread", "pread-direct", "pread-half") for drive in fs.drives),
         f"the files lie on both drives: {wanted}")
    result = g.script(*ways_of(g, fs, (*PLAIN, *EMPTY, "mmap")),
                      f"{g.reader} pread {fs.path('twin')} --to 65536", f"{g.reader} pread {fs.path('snapshot/twin')}")
    cells = checked(result, wanted)
    cells.check("mmap", lambda: same(filled(result, fs.path("mmap")), fs.expected("mmap"), "filled by faults"))
    cells.check("twin", lambda: must(of_file(result, fs.path("twin"))["wasted_bytes"] > 0, "the twin was read ahead"))
    cells.count += 2
    whole(result)
    return cells


PACKED = ("pread-zstd", "pread-zlib", "pread-direct-zstd", "aio-zstd", "uring-zstd")


def btrfs_compressed(g, fs):
    """An extent's bytes came from the drive that has all of it; where two drives have a part, that is not known. Less is read
    than returned: exactly what the extents take."""
    names = (*PACKED, "pread-half-zstd", "pread-warm-zstd", "first-zstd", "mmap-zstd")
    for name in names:
        fs.make(name, packable(SIZE, 100), name.split("-")[-1])
    fs.look()
    for name in names:
        forget(fs.path(name))
    read_through(fs.path("pread-half-zstd"), *WARM)
    read_through(fs.path("pread-warm-zstd"))
    wanted = {fs.path(name): fs.with_resident(name) if name in ("pread-half-zstd", "pread-warm-zstd") else fs.expected(name)
              for name in (*PACKED, "pread-half-zstd", "pread-warm-zstd")}
    # A page of the first extent brings the rest of it; nobody asked for that, and it is no page-cache hit later.
    wanted[fs.path("first-zstd")] = {**fs.expected("first-zstd"), "page-cache": 4096}
    unknown = sum(demanded.get("unknown", 0) for demanded in wanted.values())
    must(0 < unknown < SIZE * len(wanted) // 2, f"some extents lie on two drives: {unknown} bytes")
    result = g.script(*ways_of(g, fs, (*PACKED, "pread-half-zstd", "pread-warm-zstd", "mmap-zstd")),
                      f"{g.reader} mmap-random {fs.path('first-zstd')} --to 4096",
                      f"{g.reader} pread {fs.path('first-zstd')} --to 4096 --block 4096",
                      f"{g.reader} pread {fs.path('first-zstd')}")
    cells = checked(result, wanted)
    cells.check("mmap", lambda: same(filled(result, fs.path("mmap-zstd")), fs.expected("mmap-zstd"), "filled by faults"))
    taken = sum(fs.compressed_bytes(name, WARM if "half" in name else (0, 0)) for name in names if "warm" not in name)
    cells.check("ledger", lambda: same(result["ledger"][0]["parts"]["compressed"], taken, "compressed bytes, each extent once"))
    must(taken < SIZE, f"{taken} bytes are fewer than were returned")
    cells.count += 2
    whole(result)
    return cells


def commands(g, path, image, devices):
    """What the other commands say of a file on a loop device whose backing file is on btrfs."""
    told = json.loads(sh(g.servedby, "layers", "--json", path))
    names = {device["name"] for device in told["paths"][0]["stack"]["devices"]}
    same(names, devices, "devices of servedby layers")
    levels = json.loads(sh(g.servedby, "residency", "--json", path))["files"][0]
    pages = [sum((end - begin + 4095) // 4096 for begin, end in resident(one)) for one in (path, image)]
    same([levels["resident_pages"], levels["below"][0]["resident_pages"]], pages, "pages of servedby residency")
    sh(g.servedby, "evict", "--through", path)
    same((resident(path), resident(image)), ([], []), "resident after servedby evict --through")


LOOPS = {"buffered": (None, False), "packed": ("zstd", False), "direct": (None, True)}


def btrfs_loops(g, fs):
    """Loops whose backing files lie on btrfs: `via` goes through to the drives, and so do layers, residency and evict."""
    loops = {}
    for name, (compression, direct) in LOOPS.items():
        image = fs.path(f"image-{name}")
        fs.make(f"image-{name}", b"", compression)
        with open(image, "ab") as f:
            f.truncate(64 * MIB)
        loop = sh("losetup", "-f").strip()
        sh("losetup", f"--direct-io={'on' if direct else 'off'}", loop, image)
        # Blocks of a page: else files share pages of the image, and direct reads of it fall back to its page cache.
        sh("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", loop)
        with open(f"/sys/block/{os.path.basename(loop)}/loop/dio") as f:
            same(f.read().strip(), "1" if direct else "0", "the loop's dio")
        os.makedirs(f"/mnt/on-{name}", exist_ok=True)
        Ground.mount("ext4", loop, f"/mnt/on-{name}")
        loops[name] = os.path.basename(loop)
    try:
        for name in loops:
            for file in ("cold", "below-warm"):
                write(f"/mnt/on-{name}/{file}", packable(SIZE, 100))
        os.sync()
        fs.look()
        wanted = {}
        for name, loop in loops.items():
            for file in ("cold", "below-warm"):
                path = f"/mnt/on-{name}/{file}"
                ranges = [(on, on + min(size, SIZE - pos)) for pos, on, size in extents(path)]
                forget(path)
                below = fs.expected(f"image-{name}", *ranges)
                if file == "below-warm" and name != "direct":
                    below = {"page-cache": SIZE}
                wanted[path] = {f"{loop} > {via}": count for via, count in below.items()}
            forget(fs.path(f"image-{name}"))
            for pos, on, size in extents(f"/mnt/on-{name}/below-warm"):
                read_through(fs.path(f"image-{name}"), on, on + size)
        result = g.script(*[f"{g.reader} pread {path}" for path in wanted])
        cells = checked(result, wanted)
        whole(result)
        for name, loop in loops.items():
            cells.check(f"commands {name}",
                        lambda: commands(g, f"/mnt/on-{name}/cold", fs.path(f"image-{name}"), {loop, *fs.drives}))
        cells.count += len(loops)
        return cells
    finally:
        for name, loop in loops.items():
            sh("umount", f"/mnt/on-{name}")
            sh("losetup", "-d", f"/dev/{loop}")
            os.unlink(fs.path(f"image-{name}"))


@file_system("squashfs")
def squashfs(g, score, drives):
    needs("squashfs")
    host = f"/dev/{drives[3]}"
    Ground.make("ext4", host)
    os.makedirs("/mnt/host", exist_ok=True)
    Ground.mount("ext4", host, "/mnt/host")
    try:
        for kind, options in {"compressed": (), "plain": ("-noD", "-noF")}.items():
            score.run(f"squashfs {kind}", lambda: squashfs_on_loop(g, kind, options))
    finally:
        sh("umount", "/mnt/host")


def squashfs_on_loop(g, kind, options):
    """Warm pages are the page cache's, whoever asked for them. What is unpacked is not known: its own caches had it, or the
    device; no layer is blamed, and the pages that came along with a block are no page-cache hits."""
    source, image, folder = "/var/tmp/squashed", f"/mnt/host/{kind}.squashfs", f"/mnt/squashfs-{kind}"
    os.makedirs(source, exist_ok=True)
    os.makedirs(folder, exist_ok=True)
    for name in ("cold", "half", "warm", "first", "aio"):
        write(f"{source}/{name}", packable(SIZE, 400))
    write(f"{source}/small", os.urandom(700))
    sh("mksquashfs", source, image, "-noappend", "-quiet", "-no-progress", *options)
    loop = sh("losetup", "-f").strip()
    sh("losetup", "-r", loop, image)
    sh("mount", "-t", "squashfs", "-o", "ro", loop, folder)
    try:
        path = {name: f"{folder}/{name}" for name in os.listdir(source)}
        for one in path.values():
            forget(one)
        read_through(path["half"], *WARM)
        read_through(path["warm"])
        half = bytes_in(resident(path["half"]))
        must(0 < half < SIZE, f"{half} bytes of the half-warm file are resident")
        forget(image)
        wanted = {path["cold"]: {"unknown": SIZE}, path["aio"]: {"unknown": SIZE}, path["small"]: {"unknown": 700},
                  path["half"]: {"page-cache": half, "unknown": SIZE - half}, path["warm"]: {"page-cache": SIZE},
                  path["first"]: {"unknown": SIZE, "page-cache": 4096}}
        result = g.script(f"{g.reader} aio {path['aio']}",
                          *[f"{g.reader} pread {path[name]}" for name in ("cold", "half", "warm", "small")],
                          f"{g.reader} pread {path['first']} --to 4096 --block 4096", f"{g.reader} pread {path['first']}")
        cells = checked(result, wanted)
        why = {s["why"] for s in result["served_by"] if s["via"] == ["unknown"]}
        cells.check("why", lambda: same(why, {"unpacked by its file system, from blocks that it kept or read"}, "why"))
        cells.count += 1
        whole(result)
        return cells
    finally:
        sh("umount", folder)
        sh("losetup", "-d", loop)


NTFS = ("pread", "pread-half", "pread-warm", "pread-direct", "aio", "uring", "sendfile", "mmap")


@file_system("ntfs")
def ntfs(g, score, drives):
    """The driver of the kernel: ntfs3, or since 7.1 ntfs."""
    kinds = [kind for kind in ("ntfs3", "ntfs")
             if subprocess.run(["modprobe", kind], stderr=subprocess.DEVNULL).returncode == 0]
    if not kinds:
        raise LeftOut("this kernel has neither ntfs3 nor ntfs")
    sh("mkntfs", "-Q", "-F", "-q", f"/dev/{drives[3]}")
    os.makedirs("/mnt/ntfs", exist_ok=True)
    # Only this driver makes a file compressed: where its folder is.
    needs("fuse")
    sh("mount", "-t", "ntfs-3g", "-o", "compression", f"/dev/{drives[3]}", "/mnt/ntfs")
    os.mkdir("/mnt/ntfs/packed")
    os.setxattr("/mnt/ntfs/packed", "system.ntfs_attrib", struct.pack("<L", 0x810))  # a directory; compressed
    write("/mnt/ntfs/packed/file", packable(SIZE, 64))
    packed = os.stat("/mnt/ntfs/packed/file").st_blocks * 512
    must(packed < SIZE, f"the file is not compressed: {packed} bytes on the drive")
    sh("umount", "/mnt/ntfs")
    sh("mount", "-i", "-t", kinds[0], "-o", "noatime", f"/dev/{drives[3]}", "/mnt/ntfs")
    try:
        score.run(kinds[0], lambda: ntfs_on_drive(g, drives[3], direct=kinds[0] == "ntfs"))
    finally:
        sh("umount", "/mnt/ntfs")


class Folder:
    def __init__(self, folder):
        self.folder = folder

    def path(self, name):
        return f"{self.folder}/{name}"


def ntfs_on_drive(g, drive, direct):
    """`direct`: direct reads go the way that is followed (iomap); ntfs3's do not, and are unknown."""
    fs = Folder("/mnt/ntfs")
    # In turns, so that each file is in many runs.
    files = [open(fs.path(name), "wb") for name in NTFS]
    for at in range(0, SIZE, 256 * 1024):
        for f in files:
            f.write(os.urandom(min(256 * 1024, SIZE - at)))
            f.flush()
            os.fsync(f.fileno())
    for f in files:
        f.close()
    for name in NTFS:
        forget(fs.path(name))
    read_through(fs.path("pread-half"), *WARM)
    read_through(fs.path("pread-warm"))
    half = bytes_in(resident(fs.path("pread-half")))
    wanted = {fs.path(name): {drive: SIZE} for name in NTFS}
    wanted[fs.path("pread-half")] = {drive: SIZE - half, "page-cache": half}
    wanted[fs.path("pread-warm")] = {"page-cache": SIZE}
    if not direct:
        wanted[fs.path("pread-direct")] = {"unknown": SIZE}
    # Compressed, and cold since the file system was mounted: the driver unpacks into pages that nobody asked for, so that what is resident proves nothing.
    wanted[fs.path("packed/file")] = {"unknown": 2 * SIZE}
    mapped = wanted.pop(fs.path("mmap"))
    again = f"{g.reader} pread {fs.path('packed/file')}"
    result = g.script(*ways_of(g, fs, NTFS), again, again)
    cells = checked(result, wanted)
    cells.check("mmap", lambda: same(filled(result, fs.path("mmap")), mapped, "filled by faults"))
    cells.count += 1
    whole(result)
    return cells


@file_system("nfs")
def nfs(g, score, drives):
    needs("nfsd")
    needs("nfsv4")
    host = f"/dev/{drives[3]}"
    Ground.make("ext4", host)
    os.makedirs("/mnt/exported", exist_ok=True)
    os.makedirs("/mnt/nfs", exist_ok=True)
    Ground.mount("ext4", host, "/mnt/exported")
    for name in NFS:
        write(f"/mnt/exported/{name}", os.urandom(SIZE))
    os.sync()
    server = Server("/mnt/exported")
    try:
        sh("mount", "-i", "-t", "nfs4", "-o", f"vers=4.2,proto=tcp,sec=sys,addr={ADDRESS},clientaddr={ADDRESS}", f"{ADDRESS}:/",
           "/mnt/nfs")
        try:
            score.run("nfs", lambda: nfs_over_loopback(g, drives[3]))
        finally:
            sh("umount", "/mnt/nfs")
    finally:
        server.close()
        sh("umount", "/mnt/exported")


NFS = ("pread", "pread-warm", "pread-direct", "aio", "uring", "mmap")


def nfs_over_loopback(g, drive):
    """The server has the bytes. That it is this machine, and reads them from a drive, is another process's business."""
    fs = Folder("/mnt/nfs")
    for name in NFS:
        forget(fs.path(name))
    read_through(fs.path("pread-warm"))
    for name in NFS:  # the server's threads may hold the pages of their last answer
        fd = os.open(f"/mnt/exported/{name}", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    wanted = {fs.path(name): {f"nfs:{ADDRESS}": SIZE} for name in NFS}
    wanted[fs.path("pread-warm")] = {"page-cache": SIZE}
    mapped = wanted.pop(fs.path("mmap"))
    result = g.script(*ways_of(g, fs, NFS))
    cells = checked(result, wanted)
    cells.check("mmap", lambda: same(filled(result, fs.path("mmap")), mapped, "filled by faults"))

    def drive_is_not_blamed():
        line = line_of(result, drive)
        same(line["traced_target_bytes"], 0, "the drive's bytes for the target")
        must(line["traced_other_bytes"] >= SIZE * 3, f"the server read {line['traced_other_bytes']} bytes")
        same(line["residual_bytes"], 0, "residual of the drive")
    cells.check("drive", drive_is_not_blamed)
    cells.count += 2
    return cells


def options_wanted(parser):
    parser.add_argument("reader")
    parser.add_argument("--only", default=",".join(SYSTEMS))


def main():
    options = options_of(("nvme", "ext4", "loop"), options_wanted)
    score = Score(options.out)
    run_once(options.reader)
    drives = [drive_name(n) for n in range(4)]
    for name in options.only.split(","):
        g = Bare(options.servedby, options.reader, score.keep_in(name))
        try:
            SYSTEMS[name](g, score, drives)
        except LeftOut as reason:
            print(f"left out {score.release} {name}: {reason}", flush=True)
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
