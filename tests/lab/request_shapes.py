#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How bios become requests: drives of several shapes, bios that are split, requests that serve several processes, that come
back, that are done in parts. How many
requests there must be is worked out from the queue's limits, and held against /sys/block. Runs in a guest as root.

  request_shapes.py SERVEDBY READER [--only split,merged] [--fs ext4,xfs] [--out DIR]
Wants drives 4 (NVMe with 4 KiB sectors and transfers of 16 KiB) and 5 (virtio-blk); says what it leaves out where they are
missing. Prints a line for each case; the last line is 'N passed, N failed'."""

import contextlib
import glob
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (Ground, drive_name, extents, forget, layers, must, of_file, quiet, same, sh, whole)  # noqa: E402
from score import LeftOut, Score, options_of, run_once  # noqa: E402
from ways import Place, Session  # noqa: E402


KIB, MIB = 1 << 10, 1 << 20
SECTORS_4K, VIRTIO = 4, 5  # the drives' numbers
CASES = {}


def case(name):
    def keep(function):
        CASES[name] = function
        return function
    return keep


class Drive(Ground):
    """A drive, with a file system of a kind where that is asked for."""

    def __init__(self, number, servedby, reader, kind, keep_in):
        self.number, self.servedby, self.reader, self.kind, self.keep_in, self.kept_here = \
            number, servedby, reader, kind, keep_in, 0
        try:
            self.name = drive_name(number)
        except subprocess.CalledProcessError:
            raise LeftOut(f"this guest has no drive {number}") from None
        self.device, self.folder = f"/dev/{self.name}", f"/mnt/drive-{number}"

    @contextlib.contextmanager
    def mounted(self):
        os.makedirs(self.folder, exist_ok=True)
        self.make(self.kind, self.device)
        self.mount(self.kind, self.device, self.folder)
        try:
            yield self.folder
        finally:
            sh("umount", self.folder)

    def setting(self, name):
        with open(f"/sys/block/{self.name}/queue/{name}") as f:
            return f.read().strip()

    @contextlib.contextmanager
    def set_to(self, **settings):
        """Settings of the queue, and back again."""
        before = {name: self.setting(name) for name in settings}
        try:
            for name, value in settings.items():
                self.write(name, value)
            yield
        finally:
            for name, value in before.items():
                self.write(name, value.split("[")[-1].split("]")[0])  # a scheduler is marked among the others

    def write(self, name, value):
        with open(f"/sys/block/{self.name}/queue/{name}", "w") as f:
            f.write(str(value))

    def counted(self):
        """What the kernel has counted of reads: requests, merged ones, bytes."""
        with open(f"/sys/block/{self.name}/stat") as f:
            fields = [int(word) for word in f.read().split()]
        return fields[0], fields[1], fields[2] * 512

    def measured(self, script):
        """A session, and what the kernel counted meanwhile."""
        quiet()
        before = self.counted()
        result = self.run("sh", "-c", script)
        return result, tuple(b - a for a, b in zip(before, self.counted()))


def requests_are(drive, result, moved, requests, count):
    """As many requests and bytes as the state demands, as seen and as counted by the kernel."""
    seen = next(layer for layer in result["layers"] if layer["name"] == drive.name)
    same((seen["target"]["requests"], seen["target"]["bytes"]), (requests, count), f"requests and bytes of {drive.name}")
    same((moved[0], moved[2]), (requests, count), f"requests and bytes that the kernel counted at {drive.name}")
    same((seen["other"]["requests"], seen["other"]["bytes"]), (0, 0), f"others' requests and bytes at {drive.name}")


def split_bios(drive, limit):
    """Bios of 1 MiB; each becomes as many requests as the limit demands, whoever submits them."""
    each, ways = 8 * MIB, ("pread", "aio", "uring")
    count = each * len(ways)
    result, moved = drive.measured(" && ".join(f"{drive.reader} {way} {drive.device} --direct --block {MIB} --to {each}"
                                               for way in ways))
    same(layers(of_file(result, drive.device)), {drive.name: count}, "layers")
    requests_are(drive, result, moved, count // limit, count)
    whole(result)


def every_way(drive, cold):
    """Ways to read on a drive of this shape, through the page cache and past it."""
    sector = int(drive.setting("logical_block_size"))
    session = Session(drive, drive.reader, Place(drive.name, drive.folder, cold, sector=sector))
    with drive.mounted():
        for name in ("half_warm", "direct"):
            cells = getattr(session, name)()
            must(not cells.wrong, f"{name}: {cells.wrong}")


@case("split")
def split(new):
    """One bio of 1 MiB is 16 requests where the drive takes 64 KiB at most."""
    drive = new(3)
    with drive.set_to(max_sectors_kb=64):
        split_bios(drive, 64 * KIB)


@case("sectors")
def sectors(new):
    """A drive with sectors of 4 KiB that takes 16 KiB at a time."""
    drive = new(SECTORS_4K)
    same((drive.setting("logical_block_size"), drive.setting("max_hw_sectors_kb")), ("4096", "16"), "the drive's shape")
    split_bios(drive, 16 * KIB)
    every_way(drive, drive.name)


@case("virtio")
def virtio(new):
    """A drive whose driver has no second sight of a completion."""
    drive = new(VIRTIO)
    with drive.set_to(max_sectors_kb=256):
        split_bios(drive, 256 * KIB)
    every_way(drive, drive.name)


def neighbours(folder, count, size):
    """Files of one size that lie one behind the other on the drive."""
    files = [f"{folder}/small-{i:02}" for i in range(32)]
    for path in files:
        with open(path, "wb") as f:
            f.write(os.urandom(size))
            os.fsync(f.fileno())
    placed = sorted((extents(path)[0][1], path) for path in files if len(extents(path)) == 1)
    for first in range(len(placed) - count + 1):
        row = placed[first:first + count]
        if all(b[0] - a[0] == size for a, b in zip(row, row[1:])):
            return [path for _, path in row]
    raise LeftOut("no files lie beside each other")


def set_queue_depth(drive, depth):
    """The drive is probed anew, with so many entries in its queues; returns the depth before."""
    parameter = "/sys/module/nvme/parameters/io_queue_depth"
    slot = os.path.realpath(f"/sys/block/{drive.name}/device/device")
    with open(parameter) as f:
        before = f.read().strip()
    driver = os.path.realpath(f"{slot}/driver")
    function = os.path.basename(slot)

    def write(path, text):
        with open(path, "w") as f:
            f.write(str(text))
    for path, text in ((f"{driver}/unbind", function), (parameter, depth), (f"{driver}/bind", function)):
        write(path, text)
    for _ in range(200):  # the driver looks at the parameter when it comes to that
        with contextlib.suppress(subprocess.CalledProcessError):
            drive.name = sh("lab-drive", str(drive.number), "name", stderr=subprocess.DEVNULL).strip()
            drive.device = f"/dev/{drive.name}"
            if os.path.exists(drive.device):
                write(parameter, before)
                return before
        time.sleep(0.05)
    must(False, f"drive {drive.number} did not come back")


@case("merged")
def merged(new):
    """Three processes read neighbouring sectors while the drive is busy: the scheduler makes one request of their three, and
    each gets its own bytes from it."""
    drive, size = new(3), 16 * KIB
    before = set_queue_depth(drive, 2)  # one request at a time
    try:
        with drive.set_to(scheduler="mq-deadline"), drive.set_to(nr_requests=32), drive.mounted() as folder:
            row = neighbours(folder, 3, size)
            busy = {f"{folder}/first": 64 * KIB, f"{folder}/second": 4 * KIB, f"{folder}/third": 4 * KIB}
            for path, count in busy.items():
                with open(path, "wb") as f:
                    f.write(os.urandom(count))
            for path in (*row, *busy):
                forget(path)
            def reads(path):
                return f"taskset -c 0 {drive.reader} pread {path} --direct --block {64 * KIB}"
            # The first uses up what the drive may do for seconds; the second is in the drive so long, the third waits for it
            # outside the scheduler; the others meet inside.
            first, *others = [reads(path) for path in (*busy, row[0], row[2], row[1])]
            script = f"{first}; {' & sleep 0.4; '.join(others)} & wait"
            sh("sh", "-c", script)  # the programs are resident
            for _ in range(3):
                sh("lab-drive", str(drive.number), "bps=16384")
                try:
                    result, moved = drive.measured(script)
                finally:
                    sh("lab-drive", str(drive.number), "bps=0")
                if moved[1] == 2:
                    break
            same(moved[1], 2, "merges: the state was not made")
            for path in row:
                same(layers(of_file(result, path)), {drive.name: size}, "layers")
            requests_are(drive, result, moved, len(busy) + 1, sum(busy.values()) + 3 * size)
            whole(result)
    finally:
        set_queue_depth(drive, before)


class Traced:
    """Events of the block layer at one disk, by the kernel's own tracer."""

    def __init__(self, name, *events):
        with open(f"/sys/block/{name}/dev") as f:
            self.device = f.read().strip().replace(":", ",")
        self.folder, self.events = "/sys/kernel/tracing/instances/requests", events

    def __enter__(self):
        os.makedirs(self.folder, exist_ok=True)
        for event in self.events:
            with open(f"{self.folder}/events/block/{event}/enable", "w") as f:
                f.write("1")
        return self

    def __exit__(self, *_):
        os.rmdir(self.folder)

    def count(self, event):
        with open(f"{self.folder}/trace") as f:
            return sum(f" {event}: {self.device} R" in line for line in f)


class Pretended(Drive):
    """A SCSI disk in memory, whose driver does wrong on demand."""

    def __init__(self, *given):
        super().__init__(*given)
        try:
            sh("modprobe", "-a", "sd_mod", "scsi_debug", stderr=subprocess.DEVNULL)
        except subprocess.CalledProcessError:
            raise LeftOut("this kernel has no scsi_debug") from None
        for _ in range(200):
            found = glob.glob("/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/sd*")
            if found:
                break
            time.sleep(0.05)
        must(found, "scsi_debug made no disk")
        self.name = os.path.basename(found[0])
        self.device = f"/dev/{self.name}"

    def wrong(self, what, every):
        for name, value in (("every_nth", every), ("opts", what)):
            with open(f"/sys/bus/pseudo/drivers/scsi_debug/{name}", "w") as f:
                f.write(str(value))


def goes_wrong(new, what, event, more):
    """Reads of 4 MiB in requests of 64 KiB, of which every fifth goes wrong once; `more(requests, events)` judges the number of
    the tracer's events."""
    disk, each, ways = new(0, Pretended), 4 * MIB, ("pread", "aio")
    count = each * len(ways)
    with disk.set_to(max_sectors_kb=64), Traced(disk.name, event) as traced:
        script = " && ".join(f"{disk.reader} {way} {disk.device} --direct --block {MIB} --to {each}" for way in ways)
        disk.wrong(what, 5)
        try:
            result, moved = disk.measured(script)
        finally:
            disk.wrong(0, 0)
        more(count // (64 * KIB), traced.count(event))
        same(layers(of_file(result, disk.device)), {disk.name: count}, "layers")
        requests_are(disk, result, moved, count // (64 * KIB), count)
        whole(result)


@case("requeued")
def requeued(new):
    """The driver is busy now and then, and gets the same request again."""
    goes_wrong(new, 0x8000, "block_rq_requeue",
               lambda requests, events: must(events >= requests // 6, f"{events} were requeued"))


@case("partial")
def partial(new):
    """A half of a request is done, and the rest is issued again: one request for the kernel."""
    goes_wrong(new, 0x100, "block_rq_complete", lambda requests, events: must(
        events >= requests + requests // 6, f"{events} completions of {requests} requests"))


def options_wanted(parser):
    parser.add_argument("reader")
    parser.add_argument("--only", default=",".join(CASES))


def main():
    options = options_of(("nvme", "ext4", "xfs", "virtio_blk"), options_wanted)
    score = Score(options.out)
    for program in (options.reader, "taskset", "sleep"):
        run_once(program)
    for kind in options.fs:
        for name in options.only.split(","):
            def new(number, of=Drive, name=name):
                return of(number, options.servedby, options.reader, kind, score.keep_in(f"{kind}-{name}"))
            score.run(f"{kind} {name}", lambda: CASES[name](new))
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
