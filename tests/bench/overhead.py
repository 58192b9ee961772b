#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traced against untraced, alternating within one machine: each round runs untraced, servedby, the peers, and all of them
again the other way round. The rates are the workloads' own, so loading and attaching do not count; beside each row stands
what was seen, against what the workload read.

  overhead.py SERVEDBY [--here DIR] [--rounds N]

The peers are biosnoop (of libbpf-tools) and a bpftrace script that prints what biosnoop prints. Both only time requests: they
know neither files nor calls nor layers. A peer that does not attach on this kernel says so and is left out."""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
sys.dont_write_bytecode = True
from ground import Ground, drive_name, forget, say, sh  # noqa: E402

SCRATCH = "/run"
BPFTRACE = """
tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete /@start[args->dev, args->sector]/ {
  printf("%s %d %d %s %d %d\\n", comm, pid, args->dev, args->rwbs, args->sector,
         (nsecs - @start[args->dev, args->sector]) / 1000);
  delete(@start[args->dev, args->sector]);
}
"""


class Untraced:
    name = "untraced"

    def around(self, command):
        return sh(*command), ""


class ServedBy:
    name = "servedby"

    def __init__(self, program):
        self.program = program

    def around(self, command):
        file = f"{SCRATCH}/overhead.json"
        out = sh(self.program, "run", "--quiet", "--force", "-o", file, "--", *command)
        with open(file) as f:
            result = json.load(f)
        requests = sum(line["traced_target_bytes"] for line in result["ledger"][1:])
        return out, (f"{result['reads']['calls']} reads, {result['reads']['bytes_returned']} bytes returned, "
                     f"{requests} bytes of requests, complete {str(result['complete']).lower()}")


class Peer:
    """A tool that runs beside the workload and prints a line for each request."""

    def __init__(self, name, command, ready):
        self.name, self.command, self.ready = name, command, ready

    def around(self, command):
        with open(f"{SCRATCH}/peer.out", "wb") as out, open(f"{SCRATCH}/peer.err", "wb") as err:
            peer = subprocess.Popen(self.command, stdout=out, stderr=err)
        try:
            for _ in range(600):
                if self.ready in self.said():
                    break
                if peer.poll() is not None:
                    raise OSError(f"{self.name} does not attach: {self.said().strip().splitlines()[-1:]}")
                time.sleep(0.1)
            else:
                raise OSError(f"{self.name} was not ready within a minute")
            time.sleep(1)
            done = sh(*command)
            time.sleep(0.5)
        finally:
            if peer.poll() is None:
                peer.send_signal(signal.SIGINT)
            peer.wait()
        with open(f"{SCRATCH}/peer.out", "rb") as f:
            lines = sum(1 for _ in f) - 1
        return done, f"{lines} requests"

    @staticmethod
    def said():
        text = ""
        for name in ("peer.out", "peer.err"):
            with open(f"{SCRATCH}/{name}", errors="replace") as f:
                text += f.read(4096)
        return text


def peers():
    found = []
    if biosnoop := shutil.which("biosnoop", path="/usr/sbin:/usr/bin:/sbin:/bin"):
        found.append(Peer("biosnoop", [biosnoop], "TIME"))
    if bpftrace := shutil.which("bpftrace"):
        found.append(Peer("bpftrace", [bpftrace, "-e", BPFTRACE], "Attaching"))
    for name in {"biosnoop", "bpftrace"} - {peer.name for peer in found}:
        print(f"{name} is not installed: left out (tools/setup bench)")
    return found


def aimdo(servedby, model):
    """GiB/s of an aimdo-shaped read of an evicted model."""
    command = [servedby, "probe", "aimdo", "--no-checksum", "--json", model]

    def run(tracer):
        forget(model)
        out, seen = tracer.around(command)
        probe = json.loads(out)
        nanoseconds = next(v for k, v in probe.items() if k.endswith("_ns"))
        return probe["bytes"] / nanoseconds, seen

    return f"2 MiB reads of an evicted model ({os.stat(model).st_size >> 20} MiB)", run


def random_reads():
    """Reads a second of 4 KiB O_DIRECT reads of a null_blk device, the worst case."""
    sh("modprobe", "null_blk", "nr_devices=1", "queue_mode=2", "irqmode=0", "gb=1")
    reads = 20000
    command = ["fio", "--name=r", "--filename=/dev/nullb0", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync",
               f"--number_ios={reads}", "--size=1G", "--randseed=7", "--output-format=json"]

    def run(tracer):
        out, seen = tracer.around(command)
        return json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"], seen

    return f"4 KiB O_DIRECT reads of null_blk ({reads} reads, {reads * 4096} bytes)", run


def compare(workload, tracers, rounds):
    title, run = workload
    print(f"\n{title}", flush=True)
    there, seen = [], {}
    for tracer in tracers:  # once to warm up; who does not attach is left out
        try:
            run(tracer)
            there.append(tracer)
        except (OSError, subprocess.CalledProcessError, ValueError) as trouble:
            if tracer is tracers[0] or isinstance(tracer, ServedBy):
                raise
            print(f"  {tracer.name:10} left out: {trouble}")
    rates = {tracer.name: [] for tracer in there}
    for _ in range(rounds):
        once = {tracer.name: 0.0 for tracer in there}
        for tracer in there + there[::-1]:
            rate, seen[tracer.name] = run(tracer)
            once[tracer.name] += rate
        for name, rate in once.items():
            rates[name].append(rate / once["untraced"])
    for tracer in there[1:]:
        ratios = rates[tracer.name]
        print(f"  {tracer.name:10} {statistics.median(ratios):.3f} of untraced (from {min(ratios):.3f} to {max(ratios):.3f}, "
              f"{rounds} rounds); saw {seen[tracer.name]}", flush=True)


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
        print(f"Under emulation, kernel {os.uname().release}: ratios of instructions within one guest, nothing about real drives.")
    tracers = [Untraced(), ServedBy(options.servedby), *peers()]
    try:
        compare(aimdo(options.servedby, model), tracers, options.rounds)
        compare(random_reads(), tracers, options.rounds)
    finally:
        if options.here:
            os.unlink(model)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"overhead: {' '.join(failed.cmd)} ended with {failed.returncode}")
