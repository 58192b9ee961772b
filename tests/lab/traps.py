#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traps: what has fooled tools like this one. Each makes a state, works out the answer, and compares, to the byte. Runs in a
guest as root.

  traps.py SERVEDBY READER [--only same-sectors,killed] [--fs ext4,xfs] [--out DIR]
Prints a line for each trap; the last line is 'N passed, N failed'."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (Ground, bytes_in, drive_name, forget, layers, line_of, must, of_file, read_through, resident,  # noqa: E402
                    same, sh, whole)
from score import LeftOut, Score, options_of, run_once  # noqa: E402


MIB = 1 << 20
SIZE = 8 * MIB
TRAPS = {}


def trap(name):
    def keep(function):
        TRAPS[name] = function
        return function
    return keep


class Trapped:
    """The ground, a reader, and a file of random bytes on the drive."""

    def __init__(self, ground, reader):
        self.g, self.reader = ground, reader
        self.file = f"{ground.plain}/trap"
        with open(self.file, "wb") as f:
            f.write(os.urandom(SIZE))
        os.sync()

    def run(self, script, **more):
        return self.g.run("sh", "-c", script, **more)

    def filled(self, result, path):
        return {" > ".join(f["via"]): f["bytes"] for f in of_file(result, path)["mmap"].get("filled_by", [])}


@trap("same-sectors")
def same_sectors(t):
    """Two threads read the same sectors directly at once: the drive gives them twice."""
    forget(t.file)
    result = t.run(f"{t.reader} pread {t.file} --direct & {t.reader} pread {t.file} --direct & wait")
    same(layers(of_file(result, t.file)), {t.g.drive: 2 * SIZE}, "layers")
    same(line_of(result, t.g.drive)["traced_target_bytes"], 2 * SIZE, "bytes of requests")
    whole(result)


@trap("deep")
def deep(t):
    """Queue depth 32: several completions an interrupt."""
    for way in ("aio", "uring"):
        forget(t.file)
        result = t.run(f"{t.reader} {way} {t.file} --direct --depth 32 --block 16384")
        one = of_file(result, t.file)
        same(layers(one), {t.g.drive: SIZE}, f"{way}: layers")
        same(one["reads"]["calls"], SIZE // 16384, f"{way}: reads")
        whole(result)


@trap("ahead")
def ahead(t):
    """Readahead far past what is read: what nobody returned is wasted, and said so."""
    setting = f"/sys/block/{t.g.drive}/queue/read_ahead_kb"
    with open(setting) as f:
        before = f.read()
    try:
        with open(setting, "w") as f:
            f.write("2048")
        forget(t.file)
        result = t.run(f"dd if={t.file} of=/dev/null bs=64K count=2 status=none")
    finally:
        with open(setting, "w") as f:
            f.write(before)
    filled = bytes_in(resident(t.file))
    must(filled >= MIB // 2, f"only {filled} bytes were filled")
    one = of_file(result, t.file)
    same(layers(one), {t.g.drive: 128 * 1024}, "layers")
    same(one["wasted_bytes"], filled - 128 * 1024, "wasted")
    same(result["ledger"][0]["parts"]["never_returned"], filled - 128 * 1024, "never returned")
    whole(result)


@trap("abandoned")
def abandoned(t):
    """A process that exits with reads outstanding: they end, and are counted."""
    forget(t.file)
    result = t.run(f"{t.reader} aio-abandon {t.file} --direct --depth 32 --block 65536 --to {2 * MIB}; true")
    same(layers(of_file(result, t.file)), {t.g.drive: 2 * MIB}, "layers")
    whole(result)


@trap("killed")
def killed(t):
    """A reader that is killed inside a read: what it got is its own, what was filled is all accounted for."""
    forget(t.file)
    sh("lab-drive", "0", "bps=2000000")
    try:
        result = t.run(f"timeout -s KILL 1.5 {t.reader} pread {t.file} --block 262144; true")
    finally:
        sh("lab-drive", "0", "bps=0")
    one = of_file(result, t.file)
    same(set(layers(one)), {t.g.drive}, "layers")
    must(0 < one["reads"]["bytes_returned"] < SIZE, f"{one['reads']['bytes_returned']} bytes were returned")
    filled = bytes_in(resident(t.file))
    same(one["reads"]["bytes_returned"] + one["wasted_bytes"], filled, "returned and wasted, against what is resident")
    whole(result)


def whoever_reads(t, script):
    forget(t.file)
    result = t.run(script)
    same(layers(of_file(result, t.file)), {t.g.drive: SIZE}, "layers")
    whole(result)


@trap("other-namespaces")
def other_namespaces(t):
    """A reader in a PID and mount namespace of its own."""
    whoever_reads(t, f"unshare --pid --mount --fork {t.reader} pread {t.file}")


@trap("passed-fd")
def passed_fd(t):
    """The shell opens, its child reads."""
    whoever_reads(t, f"exec 7<{t.file}; dd bs=1M of=/dev/null status=none <&7")


@trap("exec")
def exec_large(t):
    """A large program is no read call's: its faults fill, page by page, what is resident afterwards."""
    program = f"{t.g.plain}/program"
    shutil.copyfile(t.g.servedby, program)
    os.chmod(program, 0o755)
    os.sync()
    forget(program)
    result = t.run(f"{program} --version")
    filled = bytes_in(resident(program))
    must(filled > MIB, f"only {filled} bytes of the program are resident")
    same(t.filled(result, program), {t.g.drive: filled}, "filled by faults")
    whole(result)


@trap("fuse")
def fuse(t):
    """A FUSE daemon has the bytes; the drive that it reads is not the target's."""
    os.makedirs("/mnt/fuse", exist_ok=True)
    for options, ways in (("ro", ("pread", "aio", "uring")), ("ro,direct_io", ("pread",))):
        daemon = subprocess.Popen(["bindfs", "-f", "-o", options, t.g.plain, "/mnt/fuse"])
        try:
            while not os.path.ismount("/mnt/fuse"):
                time.sleep(0.05)
                must(daemon.poll() is None, "bindfs ended")
            for way in ways:
                forget(t.file)
                result = t.run(f"{t.reader} {way} /mnt/fuse/trap")
                same(layers(of_file(result, "/mnt/fuse/trap")), {f"fuse:{daemon.pid}": SIZE}, f"{options} {way}: layers")
                drive = line_of(result, t.g.drive)
                same(drive["traced_target_bytes"], 0, "the drive's bytes for the target")
                must(drive["traced_other_bytes"] >= SIZE, f"others read {drive['traced_other_bytes']} bytes")
                must(result["complete"], "complete")
        finally:
            sh("umount", "/mnt/fuse")
            daemon.wait()


def overlay(t, upper):
    folder = f"{t.g.plain}/overlay"
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("lower", "upper", "work", "merged"):
        os.makedirs(f"{folder}/{part}")
    ways = {"pread": (), "aio": (), "uring": (), "sendfile": (), "pread-direct": ("--direct",), "aio-direct": ("--direct",)}
    for way in (*ways, "mmap"):
        with open(f"{folder}/{'upper' if upper else 'lower'}/{way}", "wb") as f:
            f.write(os.urandom(MIB + 4096))
    os.sync()
    for way in (*ways, "mmap"):
        forget(f"{folder}/{'upper' if upper else 'lower'}/{way}")
    sh("mount", "-t", "overlay", "-o", f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work", "none",
       f"{folder}/merged")
    try:
        steps = [f"{t.reader} {way.split('-')[0]} {folder}/merged/{way} {' '.join(options)}" for way, options in ways.items()]
        result = t.run(" && ".join([*steps, f"{t.reader} mmap {folder}/merged/mmap"]))
        for way in ways:
            same(layers(of_file(result, f"{folder}/merged/{way}")), {t.g.drive: MIB + 4096}, f"{way}: layers")
        mapped = [f for f in result["files"] if f["path"].endswith("/mmap")]
        same([{" > ".join(x["via"]): x["bytes"] for x in f["mmap"]["filled_by"]} for f in mapped], [{t.g.drive: MIB + 4096}],
             "filled by faults")
        whole(result)
    finally:
        sh("umount", f"{folder}/merged")


@trap("overlay-lower")
def overlay_lower(t):
    overlay(t, upper=False)


@trap("overlay-upper")
def overlay_upper(t):
    overlay(t, upper=True)


@trap("warmed-below")
def warmed_below(t):
    """A loop's backing file whose pages another process filled before: its cache, though nobody of the target read it."""
    inner = t.g.inner_model
    forget(inner)
    forget(t.g.image)
    read_through(t.g.image)
    result = t.run(f"{t.reader} uring {inner}")
    same(layers(of_file(result, inner)), {f"{t.g.loop} > page-cache": t.g.size}, "layers")
    whole(result)


@trap("cpu-unplug")
def cpu_unplug(t):
    """A processor goes away and comes back in the middle: what it had counted stays counted."""
    switch = "/sys/devices/system/cpu/cpu1/online"
    if not os.path.exists(switch):
        raise LeftOut("this guest has one processor")
    forget(t.file)
    result = t.run(f"{t.reader} threads {t.file} --direct --block 16384 & {t.reader} pread {t.file} --block 16384 & "
                   f"echo 0 >{switch}; sleep 0.2; echo 1 >{switch}; wait")
    same(layers(of_file(result, t.file)), {t.g.drive: 2 * SIZE}, "layers")
    whole(result)


def small_image(t, name, warm):
    """A file system with one file in an image of the host's; returns the image. `warm`: the host's cache has it."""
    image, folder = f"{t.g.host}/{name}", "/mnt/small"
    os.makedirs(folder, exist_ok=True)
    with open(image, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, (64 if t.g.kind == "ext4" else 320) * MIB)
    device = sh("losetup", "-f", "--show", image).strip()
    t.g.make(t.g.kind, device)
    t.g.mount(t.g.kind, device, folder)
    with open(f"{folder}/{name}", "wb") as f:
        f.write(os.urandom(SIZE))
    sh("umount", folder)
    sh("losetup", "-d", device)
    forget(image)
    if warm:
        read_through(image)
    return image


def is_loop(device, name):
    """The same loop device in a session's own script."""
    return f"test $(losetup -f) = {device} && losetup {device} {name}"


@trap("reused")
def reused(t):
    """One loop number for two files, one after the other: two layers. The first file's bytes were in the host's cache, the
    second's on its drive."""
    first, second = small_image(t, "first", warm=True), small_image(t, "second", warm=False)
    device, mount = sh("losetup", "-f", "--show", first).strip(), f"mount -t {t.g.kind} -o noatime"
    sh("losetup", "-d", device)
    # The programs are resident.
    sh("sh", "-c", f"{is_loop(device, first)} && {mount} {device} /mnt/small && umount /mnt/small && losetup -d {device}")
    read_through(first)
    sh("losetup", device, first)
    name = os.path.basename(device)
    result = t.run(f"{mount} {device} /mnt/small && {t.reader} pread /mnt/small/first && umount /mnt/small && "
                   f"losetup -d {device} && {is_loop(device, second)} && {mount} {device} /mnt/small && "
                   f"{t.reader} pread /mnt/small/second && umount /mnt/small", options=("--record", "/run/reused.rec"))
    sh("losetup", "-d", device)
    same(layers(of_file(result, "/mnt/small/first")), {f"{name} > page-cache": SIZE}, "layers of the first")
    same(layers(of_file(result, "/mnt/small/second")), {f"{name}#2 > {t.g.host_drive}": SIZE}, "layers of the second")
    same([layer["kind"] for layer in result["layers"] if layer["name"] == f"{name}#2"], ["loop"], "the new layer")
    whole(result)
    again = json.loads(sh(t.g.servedby, "report", "--json", "/run/reused.rec"))
    must(result | {"tool": ""} == again | {"tool": ""}, "its recording replays to another result")


@trap("made-loop")
def made_loop(t):
    """A loop device that is set up during the session."""
    image = small_image(t, "made", warm=False)
    for new in (False, True):
        if new:  # the device is not to be there at all
            for name in set(os.listdir("/sys/block")):
                if name.startswith("loop") and not os.path.exists(f"/sys/block/{name}/loop/backing_file"):
                    with open("/dev/loop-control") as f:
                        fcntl.ioctl(f, 0x4C81, int(name.removeprefix("loop")))  # LOOP_CTL_REMOVE
        forget(image)
        before = os.listdir("/sys/block")
        result = t.run(f"losetup -f --show {image} >/run/made && mount -t {t.g.kind} -o noatime $(cat /run/made) /mnt/small && "
                       f"{t.reader} pread /mnt/small/made && umount /mnt/small")
        with open("/run/made") as f:
            device = f.read().strip()
        sh("losetup", "-d", device)
        name = os.path.basename(device)
        same(name not in before, new, f"{name} is new")
        same(layers(of_file(result, "/mnt/small/made")), {f"{name} > {t.g.host_drive}": SIZE}, f"new {new}: layers")
        whole(result)


@trap("made-mapping")
def made_mapping(t):
    """A dm device that is made during the session: followed where another one was there before; else unknown, and no drive
    is blamed."""
    path = "/mnt/small/mapped"
    os.makedirs("/mnt/small", exist_ok=True)
    sh("modprobe", "dm-mod")
    drive = drive_name(2)
    t.g.make(t.g.kind, f"/dev/{drive}")
    t.g.mount(t.g.kind, f"/dev/{drive}", "/mnt/small")
    with open(path, "wb") as f:
        f.write(os.urandom(SIZE))
    sh("umount", "/mnt/small")
    table = f"0 {int(open(f'/sys/block/{drive}/size').read())} linear /dev/{drive} 0"
    made = f"dmsetup create made --noudevsync --noudevrules --table '{table}'"
    for before in (False, True):
        if before:
            sh("sh", "-c", "dmsetup create before --noudevsync --noudevrules --table '0 2048 zero'")
        name = f"dm-{1 if before else 0}"
        sh("sh", "-c", f"{made} && dmsetup remove --noudevsync made")  # the program is resident
        result = t.run(f"{made} && mount -t {t.g.kind} -o noatime /dev/{name} /mnt/small && {t.reader} pread {path} && "
                       f"umount /mnt/small")
        sh("dmsetup", "remove", "--noudevsync", "made")
        if before:
            sh("dmsetup", "remove", "--noudevsync", "before")
        same(layers(of_file(result, path)), {f"{name} > {drive if before else 'unknown'}": SIZE},
             f"one before {before}: layers")
        must(result["complete"], "complete")


@trap("direct-fallback")
def direct_fallback(t):
    """A file opened for direct I/O that its file system can only read through the page cache."""
    if t.g.kind != "ext4":
        raise LeftOut("only ext4, where it journals data, takes such an open and does not keep to it")
    drive, path = drive_name(2), "/mnt/small/file"
    os.makedirs("/mnt/small", exist_ok=True)
    t.g.make("ext4", f"/dev/{drive}")
    sh("mount", "-t", "ext4", "-o", "noatime,data=journal,noinit_itable,no_prefetch_block_bitmaps", f"/dev/{drive}",
       "/mnt/small")
    try:
        with open(path, "wb") as f:
            f.write(os.urandom(SIZE))
        for way in ("pread", "aio", "uring"):
            forget(path)
            result = t.run(f"{t.reader} {way} {path} --direct")
            same(layers(of_file(result, path)), {drive: SIZE}, f"{way}: layers")
            same(bytes_in(resident(path)), SIZE, "bytes resident afterwards")
            whole(result)
    finally:
        sh("umount", "/mnt/small")


@trap("removed")
def removed(t):
    """The drive is gone when the session ends: its bytes stay its own; there is no counter left to check them by."""
    try:
        drive = drive_name(3)
    except subprocess.CalledProcessError:
        raise LeftOut("this guest has no fourth drive") from None
    os.makedirs("/mnt/removed", exist_ok=True)
    t.g.make(t.g.kind, f"/dev/{drive}")
    t.g.mount(t.g.kind, f"/dev/{drive}", "/mnt/removed")
    with open("/mnt/removed/file", "wb") as f:
        f.write(os.urandom(SIZE))
    forget("/mnt/removed/file")
    slot = os.path.realpath(f"/sys/block/{drive}/device/device")
    result = t.run(f"{t.reader} pread /mnt/removed/file; umount /mnt/removed; echo 1 >{slot}/remove", lossless=False)
    must(not os.path.exists(f"/sys/block/{drive}"), "the drive is still there")
    same(layers(of_file(result, "/mnt/removed/file")), {drive: SIZE}, "layers")
    line = line_of(result, drive)
    must("kernel_bytes" not in line and "not checked" in line["kernel_source"], f"the drive's line: {line}")
    must(line["traced_target_bytes"] >= SIZE, f"bytes of requests: {line['traced_target_bytes']}")


def options_wanted(parser):
    parser.add_argument("reader")
    parser.add_argument("--only", default=",".join(TRAPS))


def main():
    options = options_of(("nvme", "ext4", "xfs", "loop", "overlay", "fuse"), options_wanted)
    score = Score(options.out)
    run_once(options.reader)
    for kind in options.fs:
        g = Ground(kind, options.servedby, megabytes=8)
        g.keep_in = score.keep_in(f"{kind}-traps")
        t = Trapped(g, options.reader)
        sh("sh", "-c", "timeout 9 true; unshare true; dd if=/dev/null of=/dev/null status=none; exec 7</dev/null")
        for name in options.only.split(","):
            score.run(f"{kind} {name}", lambda: TRAPS[name](t))
        g.close()
    return score.finish()


if __name__ == "__main__":
    sys.exit(main())
