# SPDX-License-Identifier: Apache-2.0
"""The ground the scenarios stand on, inside a guest: drives with file systems, a loop device, a model, cache states that are
made and then verified by something other than the program under test."""

import ctypes
import fcntl
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import time

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


class Wrong(Exception):
    """The answer is not the one that the state demands."""


class Incomplete(Wrong):
    """The profiler lost something and says so: no answer, but no wrong one either."""


def must(condition, text):
    if not condition:
        raise Wrong(text)


def same(found, wanted, what):
    must(found == wanted, f"{what}: found {found}, the state demands {wanted}")


def sh(*words, **more):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def settle():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("2\n")  # dentries and inodes only: what is resident stays


def quiet():
    """Waits until no request is in flight: pages that are being filled can neither be dropped nor seen."""
    for _ in range(100):
        if all(open(f"/sys/block/{name}/inflight").read().split() == ["0", "0"] for name in os.listdir("/sys/block")):
            return
        time.sleep(0.02)


def forget(path, begin=0, end=0):
    """Writes a file back and drops its pages, or those of a range; verified."""
    fd = os.open(path, os.O_RDONLY)
    try:
        if not os.fstatvfs(fd).f_flag & os.ST_RDONLY:  # squashfs refuses
            os.fsync(fd)
        quiet()
        for _ in range(20):
            os.posix_fadvise(fd, begin, end - begin if end else 0, os.POSIX_FADV_DONTNEED)
            left = [r for r in resident(path) if r[0] < (end or 1 << 62) and r[1] > begin]
            if not left:
                return
            os.sync()
            time.sleep(0.1)
        raise Wrong(f"cannot evict {path}: {left[:3]} stay resident")
    finally:
        os.close(fd)


def resident(path):
    """Byte ranges of the file that are in the page cache, by mincore(2)."""
    size = os.stat(path).st_size
    pages = (size + PAGE - 1) // PAGE
    fd = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    try:
        vector = ctypes.create_string_buffer(pages)
        if libc.mincore(address, size, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore", path)
    finally:
        libc.munmap(address, size)
        os.close(fd)
    ranges = []
    begin = None
    for page, byte in enumerate(vector.raw + b"\0"):
        if byte & 1 and page < pages:
            begin = page if begin is None else begin
        elif begin is not None:
            ranges.append((begin * PAGE, min(page * PAGE, size)))
            begin = None
    return ranges


def bytes_in(ranges, begin=0, end=1 << 62):
    return sum(max(0, min(e, end) - max(b, begin)) for b, e in ranges)


def extents(path):
    """(position in the file, position on the device, bytes) by FIEMAP."""
    fd = os.open(path, os.O_RDONLY)
    try:
        room = 2000
        ask = struct.pack("=QQLLLL", 0, (1 << 64) - 1, 0, 0, room, 0)
        answer = bytearray(ask + b"\0" * 56 * room)
        fcntl.ioctl(fd, 0xC020660B, answer)
        count = struct.unpack_from("=L", answer, 20)[0]
        must(count < room, f"{path} has too many extents")
        return [struct.unpack_from("=QQQ", answer, 32 + 56 * i) for i in range(count)]
    finally:
        os.close(fd)


def read_through(path, begin=0, end=None):
    """Somebody reads a range of a file, without reading ahead."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        end = os.fstat(fd).st_size if end is None else end
        while begin < end:
            got = os.pread(fd, min(1 << 20, end - begin), begin)
            must(got, f"{path} is shorter than {end}")
            begin += len(got)
    finally:
        os.close(fd)


def drive_name(number):
    return sh("lab-drive", str(number), "name").strip()


def stat_read_bytes(name):
    with open(f"/sys/block/{name}/stat") as f:
        return int(f.read().split()[2]) * 512


class Ground:
    """One file system kind: a model on it on drive 0, and a model on it in a loop device on ext4 on drive 1."""

    def __init__(self, kind, servedby, megabytes=24):
        self.kind, self.servedby = kind, servedby
        self.keep_in = None  # a folder and the beginning of names: see kept()
        self.kept_here = 0
        self.plain, self.host, self.inner = f"/mnt/{kind}-plain", f"/mnt/{kind}-host", f"/mnt/{kind}-inner"
        self.drive, self.host_drive = drive_name(0), drive_name(1)
        for folder in (self.plain, self.host, self.inner):
            os.makedirs(folder, exist_ok=True)
        self.make(kind, f"/dev/{self.drive}")
        self.mount(kind, f"/dev/{self.drive}", self.plain)
        self.make("ext4", f"/dev/{self.host_drive}")
        self.mount("ext4", f"/dev/{self.host_drive}", self.host)
        self.image = f"{self.host}/image"
        with open(self.image, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, 640 << 20)
        self.loop = None
        self.attach_loop(direct=False, fresh=True)
        self.model = f"{self.plain}/model.safetensors"
        self.inner_model = f"{self.inner}/model.safetensors"
        sh(servedby, "model", self.model, "--like", "krea", "--size", f"{megabytes}M", "--seed", "7")
        sh("cp", self.model, self.inner_model)
        os.sync()
        self.size = os.stat(self.model).st_size
        self.warm_programs()

    @staticmethod
    def make(kind, device):
        if kind == "ext4":
            sh("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        else:
            sh("mkfs.xfs", "-q", "-f", device)

    @staticmethod
    def mount(kind, device, folder):
        quiet = ",noinit_itable,no_prefetch_block_bitmaps,commit=300" if kind == "ext4" else ""  # nothing in the background
        sh("mount", "-t", kind, "-o", "noatime" + quiet, device, folder)

    def attach_loop(self, direct, fresh=False):
        device = sh("losetup", "-f").strip()
        sh("losetup", f"--direct-io={'on' if direct else 'off'}", device, self.image)
        self.loop = os.path.basename(device)
        if fresh:
            self.make(self.kind, device)
        self.mount(self.kind, device, self.inner)
        with open(f"/sys/block/{self.loop}/loop/dio") as f:
            same(f.read().strip(), "1" if direct else "0", "the loop's dio")

    def detach_loop(self):
        sh("umount", self.inner)
        sh("losetup", "-d", f"/dev/{self.loop}")

    def close(self):
        self.detach_loop()
        sh("umount", self.plain)
        sh("umount", self.host)

    def warm_programs(self):
        """Programs and libraries come from the host by 9p, which the kernel counts as the process's reads though no block
        device had them: let them be resident before anything is counted."""
        sh(self.servedby, "probe", "aimdo", self.model)
        sh(self.servedby, "probe", "sequential", self.model)
        sh("sh", "-c", "touch /run/warm; cat /run/warm; seq 1 2; sleep 0.01; (cat /run/warm &); wait; "
                       "dd if=/dev/zero of=/dev/null bs=1 count=1 status=none")

    def run(self, *command, options=(), name=None, exit_code=0, lossless=True):
        """servedby run; returns its result. `lossless`: one that says that it is not complete raises Incomplete."""
        out = f"/run/{name or 'result'}.json"
        words = [self.servedby, "run", "--quiet", "--force", "-o", out, *options, "--", *command]
        forget_result(out)
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.kept(out)
        same(done.returncode, exit_code, f"exit code of {' '.join(words)[:200]}: {done.stderr[-600:]}")
        with open(out) as f:
            result = json.load(f)
        if lossless and not result["complete"]:
            unchanging(result)
            lost = {k: v for k, v in result["losses"].items() if v}
            raise Incomplete(f"complete is false: {lost}; {ledger_text(result)}")
        return result

    def kept(self, path):
        """Keeps what servedby wrote, for the host to hold against docs/schema: Python starts slowly here."""
        if self.keep_in and os.path.exists(path):
            self.kept_here += 1
            shutil.copyfile(path, f"{self.keep_in}-{self.kept_here}.json")

    def probe(self, path, **more):
        return self.run(self.servedby, "probe", "aimdo", "--no-checksum", path, **more)


def forget_result(path):
    """An answer of an earlier session must not pass for this one's."""
    if os.path.exists(path):
        os.unlink(path)


def of_file(result, path):
    for one in result["files"]:
        if one["path"] == path:
            return one
    raise Wrong(f"no file {path} in the result: {[f['path'] for f in result['files']]}")


def layers(thing):
    """{via: bytes} of a file, or of the whole result."""
    return {" > ".join(s["via"]): s["bytes"] for s in thing["served_by"]}


def unchanging(result):
    """What holds for every result."""
    same(sum(s["bytes"] for s in result["served_by"]), result["reads"]["bytes_returned"], "sum of served_by")
    for one in result["files"]:
        same(sum(s["bytes"] for s in one["served_by"]), one["reads"]["bytes_returned"], f"sum of served_by of {one['path']}")
    for line in result["ledger"]:
        if "traced_target_bytes" in line and line["boundary"] == "process":
            same(sum(line["parts"].values()), line["traced_target_bytes"], "sum of the process's parts")


def whole(result, uncounted=()):
    """Complete, and every boundary agrees to the byte. `uncounted`: devices that the kernel does not count."""
    unchanging(result)
    lost = {k: v for k, v in result["losses"].items() if v}
    must(result["complete"], f"complete is false: {lost}, {ledger_text(result)}")
    for line in result["ledger"]:
        if line.get("device") in uncounted:
            must("residual_bytes" not in line and "kernel_bytes" not in line, f"checked against nothing: {ledger_text(result)}")
            continue
        must("residual_bytes" in line, f"{line['boundary']} was not checked: {line.get('kernel_source')}")
        if line["boundary"] != "process" and 0 < abs(line["residual_bytes"]) <= line["bracket_bytes"]:
            raise Incomplete(f"somebody read {line['device']} while the counters were being read; {ledger_text(result)}")
        same(line["residual_bytes"], 0, f"residual at {line['boundary']} {line.get('device', '')} {ledger_text(result)}")


def ledger_text(result):
    return "; ".join(
        f"{l['boundary']} {l.get('device', '')} target {l.get('traced_target_bytes')} others {l.get('traced_other_bytes')} "
        f"kernel {l.get('kernel_bytes')} residual {l.get('residual_bytes')} bracket {l.get('bracket_bytes')}"
        for l in result["ledger"])


def line_of(result, device):
    for line in result["ledger"]:
        if line.get("device") == device:
            return line
    return None


def say(text):
    print(text, file=sys.stderr, flush=True)
