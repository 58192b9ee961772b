#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What can lie under a file: stacked devices. Runs in a guest with four drives, as root.

Each stack gets a file system and a file of random bytes; which member must have each byte is worked out from the file's
extents (FIEMAP) and from the geometry that the stack was made with.
  stacks.py SERVEDBY [--only linear,raid0] [--fs ext4,xfs] [--reader READER] [--out DIR]
Prints a line for each case; the last line is 'N passed, N failed'."""

import collections
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (Ground, bytes_in, drive_name, extents, forget, layers, must, of_file, read_through, resident,  # noqa: E402
                    same, sh, whole)
from score import Score, options_of, run_once  # noqa: E402


MIB = 1 << 20
SIZE = 9 * MIB
WARM = (3 * MIB, 5 * MIB)
CHUNK = 64 * 1024
STACKS = {}


def stack(name, modules):
    def keep(function):
        STACKS[name] = (modules, function)
        return function
    return keep


class Made:
    """A device, who has byte `at` of it ([via below the device]; None: any member may), how it is taken apart again, and how
    what lies below it is made cold. `name`: as `via` says it; "" where it does not appear (a partition). `cache`: the page
    cache below a buffered loop. `uncounted`: names of devices that the kernel does not count. `stripes`: md's stripe cache may
    have had what a member should have, or what is rebuilt."""

    def __init__(self, device, member, undo, name=None, forget_below=lambda: None, cache=None, uncounted=(), stripes=False):
        self.device, self.member, self.undo = device, member, undo
        self.forget_below, self.cache, self.uncounted, self.stripes = forget_below, cache, uncounted, stripes
        self.piece = CHUNK  # aligned pieces of this size have one place each
        self.name = os.path.basename(device) if name is None else name

    def via(self, at):
        return " > ".join([name for name in [self.name] if name] + self.member(at))


class LowerCache:
    """The pages of a loop's backing file, by their bytes' places on the loop device; `forget_below`: what lies below them."""

    def __init__(self, image, offset, forget_below):
        self.image, self.offset, self.forget_below = image, offset, forget_below

    def warm(self, ranges):
        for begin, end in ranges:
            read_through(self.image, begin + self.offset, end + self.offset)
        self.forget_below()

    def resident(self):
        return [(begin - self.offset, end - self.offset) for begin, end in resident(self.image) if end > self.offset]


def mapper(name, table):
    subprocess.run(["dmsetup", "create", name, "--noudevsync", "--noudevrules"], input=table, text=True, check=True)
    number = sh("dmsetup", "info", "-c", "--noheadings", "-o", "minor", name).strip()
    return f"/dev/dm-{number}", lambda: sh("dmsetup", "remove", "--noudevsync", name)


def array(level, drives, *more):
    device = "/dev/md77"
    sh("mdadm", "--create", device, "--run", "--assume-clean", "--metadata=1.2", f"--level={level}",
       f"--raid-devices={len(drives)}", *more, *[f"/dev/{d}" for d in drives], stderr=subprocess.DEVNULL)

    def undo():
        sh("mdadm", "--stop", device, stderr=subprocess.DEVNULL)
        for drive in drives:
            sh("mdadm", "--zero-superblock", f"/dev/{drive}")
    return device, undo


@stack("linear", ["dm-mod"])
def linear(drives):
    # Pieces smaller than a file, by turns on two drives: a file crosses a border wherever it lies.
    piece = MIB // 512
    table = "".join(f"{n * piece} {piece} linear /dev/{drives[n % 2]} {2048 + n * piece}\n" for n in range(512))
    device, undo = mapper("linear", table)
    return Made(device, lambda at: [drives[at // 512 // piece % 2]], undo)


@stack("stripe", ["dm-mod"])
def stripe(drives):
    where = " ".join(f"/dev/{d} 2048" for d in drives[:4])
    device, undo = mapper("stripe", f"0 {512 * MIB // 512} striped 4 {CHUNK // 512} {where}\n")
    return Made(device, lambda at: [drives[at // CHUNK % 4]], undo)


@stack("raid0", ["md-mod", "raid0"])
def raid0(drives):
    device, undo = array(0, drives[:2], "--chunk=64")
    return Made(device, lambda at: [drives[at // CHUNK % 2]], undo)


@stack("raid1", ["md-mod", "raid1"])
def raid1(drives):
    device, undo = array(1, drives[:2])
    return Made(device, lambda at: None, undo)


@stack("raid5", ["md-mod", "raid456"])
def raid5(drives, failed=None):
    members = drives[:3]
    device, undo = array(5, members, "--chunk=64", "--layout=left-symmetric")
    if failed:
        sh("mdadm", device, "--fail", f"/dev/{failed}", stderr=subprocess.DEVNULL)

    def member(at):
        """Left-symmetric: the parity goes down a member each stripe, the data begins behind it."""
        chunk = at // CHUNK
        data = len(members) - 1
        parity = data - chunk // data % len(members)
        name = members[(parity + 1 + chunk % data) % len(members)]
        return ["md-rebuilt" if name == failed else name]
    return Made(device, member, undo, forget_below=lambda: empty_stripe_cache(device), stripes=bool(failed))


def empty_stripe_cache(device):
    """Takes away the stripes that md keeps, and with them what they hold."""
    size = f"/sys/block/{os.path.basename(device)}/md/stripe_cache_size"
    with open(size) as f:
        before = f.read()
    for value in ("17", before):
        with open(size, "w") as f:
            f.write(value)


@stack("raid5-degraded", ["md-mod", "raid456"])
def raid5_degraded(drives):
    """A degraded array reads everything through its stripe cache, and rebuilds what the failed member had. A block that it read
    for rebuilding another is in the cache when its own turn comes."""
    return raid5(drives, failed=drives[1])


@stack("thin", ["dm-mod", "dm-thin-pool"])
def thin(drives):
    sh("dd", "if=/dev/zero", f"of=/dev/{drives[0]}", "bs=1M", "count=16", "oflag=direct", "status=none")
    meta, undo_meta = mapper("meta", f"0 {16 * MIB // 512} linear /dev/{drives[0]} 0\n")
    pool, undo_pool = mapper("pool", f"0 {1024 * MIB // 512} thin-pool {meta} /dev/{drives[1]} 128 0\n")
    sh("dmsetup", "message", "pool", "0", "create_thin 0")
    device, undo_thin = mapper("thin", f"0 {512 * MIB // 512} thin {pool} 0\n")

    def undo():
        undo_thin()
        undo_pool()
        undo_meta()
    return Made(device, lambda at: [os.path.basename(pool), drives[1]], undo)


@stack("snapshot", ["dm-mod", "dm-snapshot"])
def snapshot(drives):
    """All that was written to a snapshot is in its copy-on-write store."""
    origin, undo_origin = mapper("origin", f"0 {512 * MIB // 512} linear /dev/{drives[0]} 0\n")
    device, undo_snapshot = mapper("snapshot", f"0 {512 * MIB // 512} snapshot {origin} /dev/{drives[2]} N 128\n")

    def undo():
        undo_snapshot()
        undo_origin()
    return Made(device, lambda at: [drives[2]], undo)


@stack("linear-on-stripe", ["dm-mod"])
def linear_on_stripe(drives):
    below = stripe(drives)
    skip = 3 * MIB
    device, undo = mapper("upper", f"0 {448 * MIB // 512} linear {below.device} {skip // 512}\n")

    def both():
        undo()
        below.undo()
    return Made(device, lambda at: [below.name, *below.member(at + skip)], both)


@stack("crypt", ["dm-mod", "dm-crypt", "xts"])
def crypt(drives):
    key = "00112233445566778899aabbccddeeff" * 2
    device, undo = mapper("crypt", f"0 {512 * MIB // 512} crypt aes-xts-plain64 {key} 0 /dev/{drives[2]} 4096\n")
    return Made(device, lambda at: [drives[2]], undo)


@stack("partition", [])
def partition(drives):
    drive = f"/dev/{drives[3]}"
    subprocess.run(["sfdisk", "-q", drive], input="3MiB,64MiB\n,600MiB\n", text=True, check=True)
    sh("partx", "-u", drive)
    return Made(f"{drive}p2", lambda at: [drives[3]], lambda: sh("sfdisk", "-q", "--delete", drive), name="")


@stack("split", [])
def split(drives):
    """A drive that takes 64 KiB a request at most: one bio becomes many."""
    limit = f"/sys/block/{drives[3]}/queue/max_sectors_kb"
    with open(limit) as f:
        before = f.read()

    def set_limit(value):
        with open(limit, "w") as f:
            f.write(value)
    set_limit("64")
    return Made(f"/dev/{drives[3]}", lambda at: [], lambda: set_limit(before))


def on_file(below, folder, offset=0, limit=0, size=400 * MIB, direct=False):
    """A loop device on a file on ext4 on the device of `below`."""
    os.makedirs(folder, exist_ok=True)
    Ground.make("ext4", below.device)
    Ground.mount("ext4", below.device, folder)
    image = f"{folder}/image"
    with open(image, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, size)
    device = sh("losetup", "-f").strip()
    sh("losetup", "-o", str(offset), *(["--sizelimit", str(limit)] if limit else []),
       f"--direct-io={'on' if direct else 'off'}", device, image)

    def undo():
        sh("losetup", "-d", device)
        sh("umount", folder)
        below.undo()

    def forget_below():
        forget(image)
        below.forget_below()

    return Made(device, lambda at: below.via(0).split(" > "), undo, forget_below=forget_below,
                cache=None if direct else LowerCache(image, offset, below.forget_below))


def whole_drive(drive):
    return Made(f"/dev/{drive}", lambda at: [], lambda: None)


@stack("drive", [])
def drive_alone(drives):
    return whole_drive(drives[0])


@stack("loop", ["loop"])
def loop_on_drive(drives):
    return on_file(whole_drive(drives[1]), "/mnt/below")


@stack("loop-offset", ["loop"])
def loop_offset(drives):
    return on_file(whole_drive(drives[1]), "/mnt/below", offset=5 * MIB + 4096, limit=384 * MIB)


@stack("loop-direct", ["loop"])
def loop_direct(drives):
    return on_file(whole_drive(drives[1]), "/mnt/below", direct=True)


@stack("loop-on-loop", ["loop"])
def loop_on_loop(drives):
    return on_file(on_file(whole_drive(drives[1]), "/mnt/below"), "/mnt/middle", size=320 * MIB)


@stack("loop-on-raid0", ["loop", "md-mod", "raid0"])
def loop_on_raid0(drives):
    """The file has its place on the loop, and the image has its own on the array."""
    below = raid0(drives)
    made = on_file(below, "/mnt/below")
    places = []

    def member(at):
        places[:] = places or extents("/mnt/below/image")  # once all is written and has its place
        pos, on = next((pos, on) for pos, on, size in places if pos <= at < pos + size)
        return below.via(on + at - pos).split(" > ")
    made.member, made.piece = member, 512
    return made


@stack("loop-on-crypt", ["loop", "dm-mod", "dm-crypt", "xts"])
def loop_on_crypt(drives):
    return on_file(crypt(drives), "/mnt/below")


def expected(made, file, ranges, lower=()):
    """{via: bytes} of byte ranges of a file, from its extents, the geometry, and the ranges of the device that are resident
    in the page cache below it."""
    found = collections.Counter()
    places = extents(file)
    for begin, end in ranges:
        for pos, on, size in places:
            first, last = on + max(begin, pos) - pos, on + min(end, pos + size) - pos
            if first >= last:
                continue
            cached = bytes_in(lower, first, last)
            if cached:
                found[f"{made.name} > page-cache"] += cached
            for at, stop in without(lower, first, last):
                while at < stop:
                    step = min(stop - at, made.piece - at % made.piece)
                    found[made.via(at)] += step
                    at += step
    return dict(found)


def without(ranges, begin, end):
    """What begin to end has beside these ranges, which are in order."""
    left = []
    for first, last in ranges:
        if last <= begin or first >= end:
            continue
        if first > begin:
            left.append((begin, first))
        begin = last
    return left + ([(begin, end)] if begin < end else [])


def compare(made, found, ranges, file, what, warm=0, lower=()):
    warm_bytes = found.pop("page-cache", 0)
    same(warm_bytes, warm, f"{what}: bytes of the page cache")
    if made.member(0) is None:  # the array chooses
        same(sum(found.values()), sum(e - b for b, e in ranges), f"{what}: bytes of all members in {found}")
        must(all(via.startswith(made.name + " > nvme") for via in found), f"{what}: layers {found}")
        return
    wanted = expected(made, file, ranges, lower)
    cached = found.pop(f"{made.name} > md-stripe-cache", 0) if made.stripes else 0
    if cached:
        # A block that was read to rebuild another, and what was read for a readahead that md failed for want of stripes.
        missing = {via: bytes - found.get(via, 0) for via, bytes in wanted.items() if bytes != found.get(via, 0)}
        must(all(bytes > 0 for bytes in missing.values()) and set(found) <= set(wanted),
             f"{what}: {found} and {cached} bytes of the stripe cache, the state demands {wanted}")
        same(cached, sum(missing.values()), f"{what}: bytes of the stripe cache in place of others")
        return
    same(found, wanted, f"{what}: layers")


PARTS = ("cold", "part", "warm", "direct")  # a file each; all of them are read in one session


def check(g, made):
    """Cold, partly warm, warm, and past the page cache."""
    file = {part: f"{g.folder}/{part}" for part in PARTS}
    for path in file.values():
        forget(path)
    made.forget_below()
    read_through(file["part"], WARM[0], WARM[1])
    read_through(file["warm"])
    made.forget_below()
    steps = [f"dd if={file[part]} of=/dev/null bs=1M status=none" for part in PARTS]
    result = g.run("sh", "-c", " && ".join(steps) + " iflag=direct")
    compare(made, layers(of_file(result, file["cold"])), [(0, SIZE)], file["cold"], "cold")
    compare(made, layers(of_file(result, file["part"])), [(0, WARM[0]), (WARM[1], SIZE)], file["part"], "partly warm",
            warm=WARM[1] - WARM[0])
    same(layers(of_file(result, file["warm"])), {"page-cache": SIZE}, "warm: layers")
    compare(made, layers(of_file(result, file["direct"])), [(0, SIZE)], file["direct"], "direct")
    whole(result, made.uncounted)


class Stacked(Ground):
    """Files on one stack."""

    def __init__(self, kind, servedby, made, keep_in):
        self.kind, self.servedby = kind, servedby
        self.keep_in, self.kept_here = keep_in, 0
        self.folder = "/mnt/stack"
        os.makedirs(self.folder, exist_ok=True)
        self.make(kind, made.device)
        self.mount(kind, made.device, self.folder)
        for part in PARTS:
            with open(f"{self.folder}/{part}", "wb") as f:
                f.write(os.urandom(SIZE))
        os.sync()
        sh("dd", f"if={self.folder}/warm", "of=/dev/null", "bs=1M", "status=none")  # the program is resident

    def close(self):
        sh("umount", self.folder)


def reads_counted(device):
    """(requests, bytes) that the kernel has counted as read from a device."""
    with open(f"/sys/block/{device}/stat") as f:
        fields = f.read().split()
    return int(fields[0]), int(fields[2]) * 512


class Bare(Ground):
    """No file system."""

    def __init__(self, servedby, keep_in):
        self.servedby, self.keep_in, self.kept_here = servedby, keep_in, 0


def four_way(g, reader, drives):
    """1 MiB libaio reads at depth 32 of a stripe over four drives: each member's share, and as many requests at each level as
    the kernel counts."""
    made, count = stripe(drives), 32 * MIB
    try:
        sh(reader, "aio", made.device, "--direct", "--block", str(MIB), "--to", str(MIB))  # the program is resident
        before = {name: reads_counted(name) for name in (made.name, *drives)}
        result = g.run(reader, "aio", made.device, "--direct", "--depth", "32", "--block", str(MIB), "--to", str(count))
        after = {name: reads_counted(name) for name in (made.name, *drives)}
        same(layers(of_file(result, made.device)), {f"{made.name} > {drive}": count // 4 for drive in drives}, "layers")
        moved = {name: tuple(a - b for a, b in zip(after[name], before[name])) for name in before}
        seen = {layer["name"]: (layer["target"]["requests"], layer["target"]["bytes"]) for layer in result["layers"]}
        seen = {name: counts for name, counts in seen.items() if counts != (0, 0)}  # the devices of other stacks were idle
        parts = count // CHUNK
        same({drive: seen.pop(drive) for drive in drives}, {drive: moved[drive] for drive in drives}, "requests and bytes of members")
        same(sum(moved[drive][0] for drive in drives), parts, "requests below: each part is one, none was merged")
        same(seen, {made.name: (count // MIB, count)}, "bios and bytes of the stripe")
        must(moved[made.name] in ((count // MIB, count), (parts, count)),  # dm counts bios, or the parts it made of them
             f"the kernel counted {moved[made.name]} at the stripe")
        whole(result)
    finally:
        made.undo()


def on_stack(kind, name, servedby, keep_in, drives):
    modules, make = STACKS[name]
    for module in modules:
        sh("modprobe", module)
    made = make(drives)
    try:
        ground = Stacked(kind, servedby, made, keep_in)
        try:
            check(ground, made)
        finally:
            ground.close()
    finally:
        made.undo()


def options_wanted(parser):
    parser.add_argument("--only", default=",".join(STACKS))
    parser.add_argument("--reader", help="also: four-way, which reads a stripe without a file system")


def main():
    options = options_of(("nvme", "ext4", "xfs", "dm-mod"), options_wanted)
    score = Score(options.out)
    run_once("dd count=0")
    drives = [drive_name(n) for n in range(4)]
    for name in options.only.split(",") if options.only else []:
        for kind in options.fs:
            score.run(f"{kind} {name}",
                      lambda: on_stack(kind, name, options.servedby, score.keep_in(f"{kind}-{name}"), drives))
    if options.reader:
        score.run("four-way", lambda: four_way(Bare(options.servedby, score.keep_in("bare")), options.reader, drives))
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
