#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Devices without requests of their own that are no array and no mapping: a drive with two controllers (native NVMe
multipath), and disks in memory. Runs in a guest of `tools/lab --nvme 0 --nvme-multipath`, as root.

Which path served what is known from the paths' own counters, and what a disk in memory served from what was read of it.
  bios.py SERVEDBY READER [--only multipath,zram] [--fs ext4,xfs] [--out DIR]
Prints a line for each case; the last line is 'N passed, N failed'."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import layers, line_of, must, of_file, same, sh, stat_read_bytes, whole  # noqa: E402
from score import LeftOut, Score, options_of  # noqa: E402
from stacks import MIB, Bare, Made, Stacked, check, mapper, on_file  # noqa: E402


CASES = {}


def case(function):
    CASES[function.__name__.replace("_", "-")] = function
    return function


def read_attribute(path):
    with open(path) as f:
        return f.read().strip()


def write_attribute(path, value):
    with open(path, "w") as f:
        f.write(value)


class Shared:
    """The drive that two controllers share: its visible device, the hidden ones of its paths."""

    def __init__(self):
        disks = os.listdir("/sys/block")
        hidden = [name for name in disks if os.path.exists(f"/sys/block/{name}/hidden")
                  and read_attribute(f"/sys/block/{name}/hidden") == "1"]
        if not hidden:
            raise LeftOut("no NVMe multipath here: boot the guest with --nvme-multipath, and not with nvme_core.multipath=N")
        self.paths = sorted(hidden)
        self.name = next(name for name in disks if name.startswith(self.paths[0].split("c")[0] + "n"))
        self.device = f"/dev/{self.name}"
        # Whether the kernel counts at the visible device is seen from whether its counter moves.
        before = stat_read_bytes(self.name)
        sh("dd", f"if={self.device}", "of=/dev/null", "bs=64k", "count=1", "iflag=direct", "status=none")
        self.counted = stat_read_bytes(self.name) != before

    def policy(self, name):
        write_attribute(f"/sys/block/{self.name}/device/iopolicy", name)

    def read_bytes(self):
        return {path: stat_read_bytes(path) for path in self.paths}

    def made(self):
        """For the scenarios of stacks: any path may have the bytes."""
        return Made(self.device, lambda at: None, lambda: None, uncounted=() if self.counted else (self.name,))


def expect_shares(result, shared, found, before):
    """Each path had what its own counter says, and nothing is counted twice."""
    after = shared.read_bytes()
    moved = {f"{shared.name} > {path}": after[path] - before[path] for path in shared.paths if after[path] != before[path]}
    same(found, moved, "bytes of the paths")
    total = sum(found.values())
    same({line["device"]: line["traced_target_bytes"] for line in result["ledger"] if line["boundary"] == "drive"},
         {path: after[path] - before[path] for path in shared.paths if after[path] != before[path]}, "drives of the ledger")
    head = line_of(result, shared.name)
    same((head["boundary"], head["traced_target_bytes"]), ("multipath", total), "the visible device in the ledger")
    same(head.get("kernel_bytes"), total if shared.counted else None, "what the kernel counted there")
    whole(result, shared.made().uncounted)


@case
def multipath(options, score):
    """A file system on the visible device; all by one path."""
    shared = Shared()
    shared.policy("numa")
    for kind in options.fs:
        def on_file_system():
            made = shared.made()
            ground = Stacked(kind, options.servedby, made, score.keep_in(f"{kind}-multipath"))
            try:
                check(ground, made)
            finally:
                ground.close()
        score.run(f"multipath {kind}", on_file_system)


@case
def multipath_shares(options, score):
    """Direct reads that take both paths by turns: 512 KiB at once is what a path takes, so bios are split too."""
    shared = Shared()
    ground = Bare(options.servedby, score.keep_in("multipath"))

    def run(count, *how):
        sh(options.reader, how[0], shared.device, "--direct", "--to", str(MIB))  # the program is resident
        before = shared.read_bytes()
        result = ground.run(options.reader, how[0], shared.device, "--direct", *how[1:], "--to", str(count))
        found = layers(of_file(result, shared.device))
        same(sum(found.values()), count, "all bytes by some path")
        expect_shares(result, shared, found, before)
        return found

    def by_turns():
        shared.policy("round-robin")
        try:
            same(len(run(16 * MIB, "aio", "--depth", "16", "--block", str(2 * MIB))), 2, "paths that served")
            same(len(run(4 * MIB, "pread", "--block", str(64 * 1024))), 2, "paths that served")
        finally:
            shared.policy("numa")
    score.run("multipath by turns", by_turns)
    score.run("multipath by one path", lambda: same(len(run(8 * MIB, "aio", "--block", str(MIB))), 1, "paths that served"))


@case
def multipath_without(options, score):
    """The hook that says which path is off: the bytes are unknown, and so is what the paths read for the target."""
    shared = Shared()
    ground = Bare(options.servedby, score.keep_in("multipath-without"))

    def without():
        result = ground.run(options.reader, "pread", shared.device, "--direct", "--to", str(MIB),
                            options=("--without", "bio-remap"))
        same(layers(of_file(result, shared.device)), {f"{shared.name} > unknown": MIB}, "layers without bio-remap")
        counts = {layer["name"]: layer.get("target", {}).get("bytes") for layer in result["layers"]}
        same({name: counts[name] for name in (shared.name, *shared.paths)},
             {shared.name: MIB, **{path: None for path in shared.paths}}, "counts without bio-remap")
    score.run("multipath without its hook", without)


def set_up_zram(megabytes):
    write_attribute("/sys/block/zram0/reset", "1")
    write_attribute("/sys/block/zram0/disksize", f"{megabytes}M")


def memory_disk(name):
    """A disk in memory that is made anew; brd does not count its reads."""
    if name == "zram0":
        set_up_zram(640)
        return Made("/dev/zram0", lambda at: [], lambda: write_attribute("/sys/block/zram0/reset", "1"))
    sh("dd", "if=/dev/zero", "of=/dev/ram0", "bs=1M", "count=4", "oflag=direct", "status=none")
    return Made("/dev/ram0", lambda at: [], lambda: None, uncounted=("ram0",))


def on_memory(below, kind, options, keep_in):
    ground = Stacked(kind, options.servedby, below, keep_in)
    try:
        check(ground, below)
    finally:
        ground.close()


def read_directly(options, made, keep_in):
    """The device itself, through the page cache and past it. Pages of it are filled without a bio on 6.1."""
    name, count = made.name, 4 * MIB
    ground = Bare(options.servedby, keep_in)
    sh("dd", "if=/dev/urandom", f"of={made.device}", "bs=1M", "count=8", "oflag=direct", "status=none")
    held = os.open(made.device, os.O_RDONLY)  # the pages of a device go with its last user
    try:
        os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)  # none is dirty: all that wrote did so past the page cache
        before = stat_read_bytes(name)
        once = f"dd if={made.device} of=/dev/null bs=1M count={count // MIB} status=none"
        result = ground.run("sh", "-c", f"{once} && {once} && {once} iflag=direct")
    finally:
        os.close(held)
    same(layers(of_file(result, made.device)), {name: 2 * count, "page-cache": count}, "cold, warm, direct: layers")
    whole(result, made.uncounted)
    line = line_of(result, name)
    same(line["boundary"], "ram" if name == "ram0" else "zram", "boundary")
    must(2 * count <= line["traced_target_bytes"] <= 2 * count + MIB, f"traced, with readahead: {line}")
    same(sum(result["recovered"].values()), 0, f"completions that had to be recovered, {result['recovered']}")
    if made.uncounted:
        same(stat_read_bytes(name), before, f"reads that the kernel counts at {name}")


@case
def zram(options, score):
    for kind in options.fs:
        made = memory_disk("zram0")
        try:
            score.run(f"zram {kind}", lambda: on_memory(made, kind, options, score.keep_in(f"{kind}-zram")))
        finally:
            made.undo()
    made = memory_disk("zram0")
    try:
        score.run("zram itself", lambda: read_directly(options, made, score.keep_in("zram")))
    finally:
        made.undo()


@case
def brd(options, score):
    made = memory_disk("ram0")
    score.run("brd itself", lambda: read_directly(options, made, score.keep_in("brd")))


@case
def above_memory(options, score):
    """A mapping over both kinds of disk, and a loop device on a file on zram."""
    kind = options.fs[0]

    def mapping():
        first, second = memory_disk("zram0"), memory_disk("ram0")
        piece = 4 * MIB // 512
        table = "".join(f"{n * piece} {piece} linear /dev/{('zram0', 'ram0')[n % 2]} {n * piece}\n" for n in range(128))
        device, undo = mapper("memory", table)
        made = Made(device, lambda at: [("zram0", "ram0")[at // 512 // piece % 2]], undo, uncounted=("ram0",))
        try:
            on_memory(made, kind, options, score.keep_in(f"{kind}-mapped-memory"))
        finally:
            undo()
            first.undo()
            second.undo()

    def loop():
        made = on_file(memory_disk("zram0"), "/mnt/below")
        try:
            on_memory(made, kind, options, score.keep_in(f"{kind}-loop-on-zram"))
        finally:
            made.undo()
    score.run(f"mapping on zram and brd, {kind}", mapping)
    score.run(f"loop on zram, {kind}", loop)


@case
def not_followed(options, score):
    """A device that takes bios as they come, and does with them what no hook says: unknown, with a line of doctor's."""
    sh("modprobe", "null_blk", "queue_mode=0", "nr_devices=1", "gb=1")
    if os.path.exists("/sys/block/nullb0/mq"):
        raise LeftOut("this kernel's null_blk has requests in every mode, and nothing else here is such a device")
    ground = Bare(options.servedby, score.keep_in("not-followed"))

    def unknown():
        result = ground.run("dd", "if=/dev/nullb0", "of=/dev/null", "bs=1M", "count=1", "iflag=direct", "status=none")
        same(layers(of_file(result, "/dev/nullb0")), {"nullb0 > unknown": MIB}, "layers")
        doctor = sh(options.servedby, "doctor")
        must("  nullb0: it takes bios as they come" in doctor, f"no line for nullb0: {doctor[-600:]}")
    score.run("not followed", unknown)


def options_wanted(parser):
    parser.add_argument("reader")
    parser.add_argument("--only", default=",".join(CASES))


def main():
    options = options_of(("nvme", "ext4", "xfs", "dm-mod", "loop", "zram"), options_wanted)
    sh("modprobe", "brd", "rd_nr=1", f"rd_size={640 * 1024}")
    score = Score(options.out)
    sh("sh", "-c", "dd if=/dev/zero of=/dev/null count=1 status=none && true")  # resident from now on
    sh(options.servedby, "--version")
    for name in options.only.split(","):
        try:
            CASES[name](options, score)
        except LeftOut as reason:
            print(f"left out {name}: {reason}", flush=True)
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
