#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo's four passes, in a guest: the same model read four times, each time from another layer."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import Ground, forget, layers, line_of, of_file, read_through, say, settle, sh, whole


def mib(number):
    if number < 1 << 20:
        return f"{number / 1024:.1f} KiB" if number else "0"
    return f"{number / (1 << 20):.1f} MiB"


def passes(g):
    """(what was done before, file, function that does it)"""

    def backing_resident():
        read_through(g.image)
        forget(g.inner_model)

    def both_evicted():
        forget(g.inner_model)
        forget(g.image)

    return [
        ("model in a loop device: evicted; the loop's backing file left in memory", g.inner_model, backing_resident),
        ("model in a loop device: evicted, and its backing file too", g.inner_model, both_evicted),
        ("the same again, nothing evicted", g.inner_model, lambda: None),
        ("model on a plain file system on the drive: evicted", g.model, lambda: forget(g.model)),
    ]


def main():
    for module in ("nvme", "loop", "ext4", "xfs"):
        sh("modprobe", module)
    say("Making two NVMe drives: a model on XFS, and the same model on XFS in a loop device on ext4 ...")
    g = Ground("xfs", sys.argv[1])
    rows = []
    for number, (title, path, prepare) in enumerate(passes(g), 1):
        say(f"Pass {number}: {title} ...")
        prepare()
        settle()
        result = g.probe(path)
        whole(result)
        found = layers(of_file(result, path))
        drive = g.drive if path == g.model else g.host_drive
        line = line_of(result, drive)
        rows.append((number, title, result["ledger"][0]["kernel_bytes"], found.get("page-cache", 0),
                     found.get(f"{g.loop} > page-cache", 0),
                     sum(v for k, v in found.items() if k.split(" > ")[-1] == drive), line["kernel_bytes"] if line else 0))
    print(f"""
One model of {mib(g.size)}, read four times as ComfyUI's loader does (8 threads, 2 MiB at a time).
Who had the bytes? Kernel {os.uname().release}, each number exact, checked against the kernel's own counters.

      the process      |        servedby says the bytes came from        | the drive's
      "read" by        |  page cache     backing file,    the drive      | own counter
pass  /proc/PID/io     |  of the file    in page cache                   |""")
    print("-" * 90)
    for number, _, process, page_cache, backing, drive, counted in rows:
        print(f"{number:3}   {mib(process):>12}     | {mib(page_cache):>12}   {mib(backing):>12}   {mib(drive):>12}     |"
              f" {mib(counted):>10}")
    print()
    for number, title, *_ in rows:
        print(f"  pass {number}: {title}")
    print("""
Pass 1 is the trap: by /proc/PID/io the process read the whole model from "disk", and the drive read nothing.
Try it on a real host: servedby run -- COMMAND, or servedby attach --pid PID (README.md).""")
    g.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
