#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the recordings of tests/replay again, as is needed when SB_RECORD_VERSION or the layout of a recording changes.

  tests/lab/record_replays.py SERVEDBY [KERNEL...]     by default of all kernels; about two minutes each

Boots a guest (tools/lab) for each kernel, one after the other, and records four scenarios of layers.py there, with a small
model on ext4. tests/replay then holds for each

  NAME.rec       the recording
  NAME.json      the result that the live session gave, which the recording must replay to
  truth.json     what the state demanded: from sizes, mincore and extents, never from a result. A wrong result stops this

SERVEDBY is built from what is committed. Where only the form of results has changed, the recordings are still good:
tests/replay/replay.py --keep makes the results again from them, and holds them against the same truth."""

import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
REPLAYS = HERE.parent / "replay"
KERNELS = ("6.1", "6.12", "7")
MEGABYTES = 9  # so that of a half-resident backing file, the halves differ
# On kernel 7 a session may say that it lost something; that is no recording to keep.
ATTEMPTS = 6


def in_guest(servedby, kernel, out):
    sys.path.insert(0, str(HERE))
    sys.dont_write_bytecode = True
    import layers
    from ground import Ground, Incomplete, say, settle, sh

    for module in ("nvme", "loop", "ext4"):
        sh("modprobe", module)
    # A recording holds the command line and the paths of files: the build folder's is nobody's business.
    shutil.copy(servedby, "/run/servedby")
    ground = Ground("ext4", "/run/servedby", MEGABYTES)
    states = {"cold": 1, "backing-warm": 4, "both-cold": 5, "backing-half": 6}
    truth = {}
    for state, number in states.items():
        title, check = layers.SCENARIOS[number]
        name = f"{kernel}-{state}"
        for attempt in range(ATTEMPTS):
            settle()
            try:
                path, demanded = check(ground, options=("--record", "/run/recording"))
                break
            except Incomplete as said:
                say(f"again {name}: {said}")
        else:
            raise SystemExit(f"{name}: incomplete {ATTEMPTS} times")
        shutil.copyfile("/run/recording", f"{out}/{name}.rec")
        shutil.copyfile("/run/result.json", f"{out}/{name}.json")
        truth[name] = {"state": title, "kernel": os.uname().release, "file": path, "served_by": demanded}
        say(f"recorded {name}: {demanded}")
    ground.close()
    with open(f"{out}/truth.json", "w") as f:
        json.dump(truth, f)


def content(recording):
    """All that a recording holds, unpacked; recording_format.h has the layout."""
    data = recording.read_bytes()
    unpacked, at = b"", 32
    while at < len(data):
        magic, _, _, stored, raw, encoding, _, _ = struct.unpack_from("<8I", data, at)
        block = data[at + 32 : at + 32 + stored]
        if magic != 0x6B626273 or len(block) != stored:
            raise SystemExit(f"{recording}: not the layout that this script knows")
        block = zlib.decompress(block) if encoding else block
        if len(block) != raw:
            raise SystemExit(f"{recording}: a block of {len(block)} bytes says that it has {raw}")
        unpacked += block
        at += 32 + stored
    return unpacked


def private(text):
    """What names this machine or a place on it. The guest has its own /mnt and /run, all else that may be named is the same
    on every machine of the distribution."""
    names = {str(HERE.parent.parent), socket.gethostname(), os.environ.get("USER", "") or "root"}
    found = {name for name in names if len(name) > 4 and name.encode() in text}
    common = {b"mnt", b"run", b"dev", b"sys", b"proc", b"usr", b"lib", b"lib64", b"bin", b"etc", b"tmp"}
    # Slashes that follow a word divide something else: "loop0/stat", "2.5 GT/s".
    for path in re.findall(rb"(?<![\w.*>)\]])/[A-Za-z][\w.+-]*(?:/[\w.+-]+)+", text):
        if path.split(b"/")[1] not in common:
            found.add(path.decode(errors="replace"))
    return found


def main():
    if sys.argv[1:2] == ["--in-guest"]:
        return in_guest(*sys.argv[2:])
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    servedby, kernels = os.path.realpath(sys.argv[1]), sys.argv[2:] or KERNELS
    place = REPLAYS / "truth.json"
    truth = json.loads(place.read_text()) if place.exists() else {}
    for kernel in kernels:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
            made = pathlib.Path(folder)
            command = ["tools/lab", "--kernel", kernel, "--nvme", "2", "--out", folder, "--", "python3",
                       "tests/lab/record_replays.py", "--in-guest", servedby, kernel, "/out"]
            subprocess.run(command, check=True, cwd=HERE.parent.parent)
            for recording in sorted(made.glob("*.rec")):
                result = recording.with_suffix(".json")
                if found := private(content(recording) + result.read_bytes()):
                    raise SystemExit(f"{recording.name} names this machine: {sorted(found)}")
            for file in [*made.glob("*.rec"), *(f for f in made.glob("*.json") if f.name != "truth.json")]:
                shutil.copyfile(file, REPLAYS / file.name)
            truth |= json.loads((made / "truth.json").read_text())
        place.write_text(json.dumps(truth, indent=2, sort_keys=True) + "\n")
    return subprocess.run([REPLAYS / "replay.py", servedby]).returncode


if __name__ == "__main__":
    sys.exit(main())
