#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traced against untraced, alternating ABBA in one machine. The rates are the workloads' own, so loading and attaching do not
count; beside each row stands what was seen, which must be what the workload read.

  overhead.py SERVEDBY [--here DIR] [--rounds N]"""

import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
sys.dont_write_bytecode = True
from ground import Ground, drive_name, forget, say, sh  # noqa: E402

RESULT = "/run/overhead.json"


def traced(servedby, command):
    out = sh(servedby, "run", "--quiet", "--force", "-o", RESULT, "--", *command)
    with open(RESULT) as f:
        return out, json.load(f)


def aimdo(servedby, model):
    """GiB/s of an aimdo-shaped read of an evicted model."""
    command = [servedby, "probe", "aimdo", "--no-checksum", "--json", model]

    def run(with_tracing):
        forget(model)
        out, result = traced(servedby, command) if with_tracing else (sh(*command), None)
        probe = json.loads(out)
        nanoseconds = next(v for k, v in probe.items() if k.endswith("_ns"))
        return probe["bytes"] / nanoseconds, result

    return run


def random_reads(servedby):
    """IOPS of 4 KiB O_DIRECT reads of a null_blk device, the worst case."""
    sh("modprobe", "null_blk", "nr_devices=1", "queue_mode=2", "irqmode=0", "gb=1")
    command = ["fio", "--name=r", "--filename=/dev/nullb0", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync",
               "--number_ios=20000", "--size=1G", "--randseed=7", "--output-format=json"]

    def run(with_tracing):
        out, result = traced(servedby, command) if with_tracing else (sh(*command), None)
        return json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"], result

    return run


def compare(name, unit, run, rounds):
    run(False)
    run(True)
    ratios, seen = [], None
    for _ in range(rounds):
        a1, _ = run(False)
        b1, result = run(True)
        b2, _ = run(True)
        a2, _ = run(False)
        ratios.append((b1 + b2) / (a1 + a2))
        seen = result
    lost = sum(seen["losses"].values())
    print(f"{name:34} traced/untraced {statistics.median(ratios):.3f}  (from {min(ratios):.3f} to {max(ratios):.3f}, {rounds} rounds"
          f" ABBA)  {unit}; seen: {seen['reads']['calls']} reads, {seen['reads']['bytes_returned']} bytes, complete"
          f" {str(seen['complete']).lower()}, lost {lost}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("servedby")
    parser.add_argument("--here")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    if options.here:
        model = os.path.join(options.here, "servedby-bench.safetensors")
        sh(options.servedby, "model", model, "--like", "krea", "--size", "1G")
    else:
        for module in ("nvme", "ext4"):
            sh("modprobe", module)
        device = f"/dev/{drive_name(0)}"
        Ground.make("ext4", device)
        os.makedirs("/mnt/bench", exist_ok=True)
        Ground.mount("ext4", device, "/mnt/bench")
        model = "/mnt/bench/model.safetensors"
        say("Making the model ...")
        sh(options.servedby, "model", model, "--like", "krea", "--size", "128M")
        print(f"Under emulation, kernel {os.uname().release}: ratios within one guest, nothing about real drives.")
    try:
        compare("aimdo-shaped, 2 MiB reads, cold", "GiB/s", aimdo(options.servedby, model), options.rounds)
        compare("4 KiB O_DIRECT on null_blk", "reads/s", random_reads(options.servedby), options.rounds)
    finally:
        if options.here:
            os.unlink(model)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"overhead: {' '.join(failed.cmd)} ended with {failed.returncode}")
