#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""json_outputs.py SERVEDBY: what the commands print with --json fits its JSON Schema, on this very machine and its files.

Real outputs of residency, evict, layers, probe, run (counters tier) and report over files of many kinds; where this is
root and loop devices can be had, over a file in a loop device too. Each must also say something that is known to be true:
an empty answer fits a schema as well. Exit: 0 all right, 1 something is wrong."""

import json
import os
import subprocess
import sys
import tempfile

VALIDATOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "validate_results.py")
MIB = 1 << 20
NOBODY = 65534


class Outputs:
    def __init__(self, servedby, folder):
        self.servedby, self.folder = servedby, folder
        self.count = self.failed = 0

    def wrong(self, text):
        self.failed += 1
        print(f"FAIL {text}")

    def get(self, *words, codes=(0,), user=None):
        """The JSON of one command, kept for the validator."""
        more = {"user": user, "group": user, "extra_groups": []} if user else {}
        done = subprocess.run([self.servedby, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=self.folder, **more)
        if done.returncode not in codes:
            self.wrong(f"servedby {' '.join(map(repr, words))}: exit code {done.returncode}, {done.stderr.decode()[-300:]}")
        self.count += 1
        with open(f"{self.folder}/out/{self.count:02}-{words[0]}.json", "wb") as f:
            f.write(done.stdout)
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            self.wrong(f"servedby {' '.join(map(repr, words))}: {error}")
            return {}

    def same(self, found, wanted, what):
        if found != wanted:
            self.wrong(f"{what}: found {found}, not {wanted}")


def make_files(o):
    o.same(subprocess.run([o.servedby, "model", "model.safetensors", "--size", "8M", "--seed", "7"], cwd=o.folder,
                          stdout=subprocess.DEVNULL).returncode, 0, "exit code of model")
    open(f"{o.folder}/empty", "w").close()
    with open(f"{o.folder}/sparse", "wb") as f:
        f.truncate(3 * MIB + 1)
    with open(os.fsencode(o.folder) + b"/not-utf8-\xe9", "wb") as f:
        f.write(b"x" * 5000)
    os.symlink("model.safetensors", f"{o.folder}/link")


KINDS = ("model.safetensors", "empty", "sparse", b"not-utf8-\xe9", "link")


def page_cache(o):
    pages = 8 * MIB // os.sysconf("SC_PAGESIZE")
    one = o.get("residency", "--map", "model.safetensors")["files"][0]
    o.same((one["pages"], one["bytes"]), (pages, 8 * MIB), "pages and bytes of the model")
    o.same(len(o.get("residency", "--map", *KINDS)["files"]), len(KINDS), "files of residency")
    # Something else may hold pages for a moment; then the answer is no, and fits the schema too.
    o.get("evict", "--range", "1M:3M", "model.safetensors", codes=(0, 1))
    for through in ((), ("--through",)):
        answer = o.get("evict", *through, *KINDS, codes=(0, 1))
        o.same(len(answer["files"]), len(KINDS), "files of evict")
    o.get("residency", "--map", "model.safetensors")
    # Pages of a file in memory cannot be dropped: the answer is no, with a reason.
    if os.path.isdir("/dev/shm"):
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as f:
            f.write(b"x" * 10000)
            f.flush()
            o.same(o.get("evict", f.name, codes=(1,))["complete"], False, "eviction of a file in memory")
    if os.geteuid() == 0 and reachable(o):
        one = o.get("residency", "model.safetensors", codes=(3,), user=NOBODY)["files"][0]
        o.same((one["how"], "resident_pages" in one), ("unknown", False), "residency for a stranger")
        o.same(o.get("evict", "model.safetensors", codes=(1,), user=NOBODY)["complete"], False, "eviction by a stranger")


def reachable(o):
    return subprocess.run(["test", "-x", o.servedby, "-a", "-r", f"{o.folder}/model.safetensors"], user=NOBODY,
                          group=NOBODY, extra_groups=[]).returncode == 0


def stacks(o):
    answer = o.get("layers", *KINDS, ".", "/proc/self/status", "/dev")
    o.same(len(answer["paths"]), len(KINDS) + 3, "paths of layers")
    o.same(answer["paths"][0]["file"]["size_bytes"], 8 * MIB, "size_bytes of the model")
    o.same(answer["paths"][3]["path"], {"$hex": b"not-utf8-\xe9".hex()}, "a path that is not UTF-8")
    # Each block device of this machine that has a node, as a path.
    nodes = [f"/dev/{name}" for name in sorted(os.listdir("/sys/block")) if os.path.exists(f"/dev/{name}")]
    if nodes:
        o.same(len(o.get("layers", *nodes)["paths"]), len(nodes), "devices of layers")
    # Each mounted file system: whatever this machine has, containers' overlays included.
    with open("/proc/self/mounts") as f:
        points = sorted({line.split()[1] for line in f})
    points = [point for point in points if "\\" not in point and os.access(point, os.R_OK | os.X_OK)]
    o.get("layers", *points)


def probes(o):
    for probe in (("aimdo",), ("aimdo", "--no-checksum", "--mark-cold"), ("sequential",), ("sequential", "--passes", "2")):
        answer = o.get("probe", *probe, "model.safetensors")
        o.same("checksum" in answer, "--no-checksum" not in probe, f"a checksum of probe {' '.join(probe)}")
        # aimdo reads the tensors, not the header before them.
        o.same(0 < answer["bytes"] <= 8 * MIB * (2 if "--passes" in probe else 1), True, f"bytes of probe {' '.join(probe)}")
    o.get("probe", "sequential", "model.safetensors", "sparse")


def results(o):
    out = f"{o.folder}/out/run.json"
    subprocess.run([o.servedby, "run", "--quiet", "--tier", "counters", "-o", out, "--", "cat", "model.safetensors"],
                   cwd=o.folder, stdout=subprocess.DEVNULL)
    with open(out) as f:
        result = json.load(f)
    again = o.get("report", out)
    o.same((again, result["tier"]), (result, "counters"), "the result rendered again")


def loops(o):
    """A file on ext4 in a loop device: levels below, a nested tree."""
    def quietly(*words):
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    image, point = f"{o.folder}/image", f"{o.folder}/mnt"
    with open(image, "wb") as f:
        f.truncate(32 * MIB)
    os.mkdir(point)
    loop = ""
    mounted = False
    try:
        if os.geteuid() == 0 and quietly("mkfs.ext4", "-q", "-F", image).returncode == 0:
            loop = quietly("losetup", "--find", "--show", image).stdout.strip()
        mounted = bool(loop) and quietly("mount", loop, point).returncode == 0
    except FileNotFoundError as missing:
        print(f"no loop device: {missing.filename} is missing")
    if not mounted:
        print("outputs about loop devices were not looked at: none can be had here")
    try:
        if mounted:
            in_loop(o, os.path.basename(loop), f"{point}/file")
    finally:
        if mounted:
            quietly("umount", point)
        if loop:
            quietly("losetup", "--detach", loop)


def in_loop(o, loop, path):
    with open(path, "wb") as f:
        f.write(os.urandom(MIB))
    o.same(o.get("residency", path)["files"][0]["below"][0]["loop"], loop, "loop of residency")
    answer = o.get("evict", "--through", path, codes=(0, 1))
    o.same([level["path"] for level in answer["files"][0]["below"]], [f"{o.folder}/image"], "levels of evict --through")
    device = o.get("layers", path, f"/dev/{loop}")["paths"][0]["file"]["on"][0]
    o.same((device["name"], device["backing_file"]["path"]), (loop, f"{o.folder}/image"), "the tree of layers")


def main():
    servedby = os.path.realpath(sys.argv[1])
    # Not in /tmp, which is in memory on many machines: there nothing can be evicted.
    with tempfile.TemporaryDirectory(prefix="json-outputs-", dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        os.chmod(folder, 0o755)
        folder = os.path.realpath(folder)
        os.mkdir(f"{folder}/out")
        o = Outputs(servedby, folder)
        make_files(o)
        for check in (page_cache, stacks, probes, results, loops):
            try:
                check(o)
            except (KeyError, IndexError, TypeError, OSError) as trouble:
                o.wrong(f"{check.__name__}: {trouble!r}")
        sys.stdout.flush()
        if subprocess.run([sys.executable, VALIDATOR, "--quiet", f"{folder}/out"]).returncode != 0:
            o.failed += 1
    return 1 if o.failed else 0


if __name__ == "__main__":
    sys.exit(main())
