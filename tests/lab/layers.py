#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which layer served each read: the scenarios of the first true answer. Runs in a guest as root.

Each scenario makes a state, works out from that state what the answer must be, to the byte, and compares.
  layers.py SERVEDBY [--only 1,4,5] [--fs ext4,xfs] [--repeat N] [--out DIR]
With --out, DIR/results gets every result that servedby wrote, named KERNEL-FS-SCENARIO-TURN-N.json, right or wrong: the
host validates them (tests/validate_results.py). Prints a line for each scenario; the last line is 'N passed, N failed'."""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (Ground, Incomplete, Wrong, bytes_in, extents, forget, forget_result, layers, ledger_text, line_of, must, of_file,
                    read_through, resident, same, say, settle, sh, unchanging, whole)

SCENARIOS = {}
TIMED = []


def scenario(number, title):
    def keep(function):
        SCENARIOS[number] = (title, function)
        return function
    return keep


def evict_inner(g):
    forget(g.inner_model)


def answers(result, path, demanded):
    """The file's bytes came from the layers that the state demands, and nothing is open."""
    same(layers(of_file(result, path)), demanded, "layers")
    whole(result)


# Scenarios 1, 4, 5 and 6 return the file and what its state demands: record_replays.py keeps it as the truth.
@scenario(1, "model on NVMe, evicted: all from the drive")
def cold(g, **more):
    forget(g.model)
    demanded = {g.drive: g.size}
    answers(g.probe(g.model, **more), g.model, demanded)
    return g.model, demanded


@scenario(2, "the same again, warm: all from the page cache")
def warm(g):
    read_through(g.model)
    before = line_bytes(g.drive)
    result = g.probe(g.model)
    same(layers(of_file(result, g.model)), {"page-cache": g.size}, "layers")
    same(line_bytes(g.drive), before, "bytes the drive counted")
    whole(result)


def line_bytes(name):
    with open(f"/sys/block/{name}/stat") as f:
        return int(f.read().split()[2]) * 512


@scenario(3, "first part resident: split to the page")
def part(g):
    forget(g.model)
    read_through(g.model, 0, g.size * 3 // 8)
    there = resident(g.model)
    warm_bytes = bytes_in(there)
    must(0 < warm_bytes < g.size, f"{warm_bytes} bytes are resident")
    result = g.probe(g.model)
    same(layers(of_file(result, g.model)), {g.drive: g.size - warm_bytes, "page-cache": warm_bytes}, "layers")
    whole(result)


@scenario(4, "loop: upper evicted, backing file resident: all from the backing file's cache")
def backing_warm(g, **more):
    read_through(g.image)
    evict_inner(g)
    same(bytes_in(resident(g.image)), os.stat(g.image).st_size, "resident bytes of the backing file")
    before = line_bytes(g.host_drive)
    result = g.probe(g.inner_model, **more)
    same(line_bytes(g.host_drive), before, "bytes the drive counted")
    process = result["ledger"][0]
    must(process["kernel_bytes"] >= g.size, f"the kernel counted {process['kernel_bytes']} process block reads")
    demanded = {f"{g.loop} > page-cache": g.size}
    answers(result, g.inner_model, demanded)
    return g.inner_model, demanded


@scenario(5, "loop: both evicted: all from the drive, through the loop")
def both_cold(g, **more):
    evict_inner(g)
    forget(g.image)
    demanded = {f"{g.loop} > {g.host_drive}": g.size}
    answers(g.probe(g.inner_model, **more), g.inner_model, demanded)
    return g.inner_model, demanded


@scenario(6, "loop: backing file half resident: split to the page")
def backing_half(g, **more):
    evict_inner(g)
    forget(g.image)
    places = extents(g.inner_model)
    # Every second MiB of the image that the model lies on.
    for at in range(0, os.stat(g.image).st_size, 2 << 20):
        read_through(g.image, at, at + (1 << 20))
    there = resident(g.image)
    warm_bytes = sum(bytes_in(there, on, min(on + n, on + g.size - pos)) for pos, on, n in places)
    must(0 < warm_bytes < g.size, f"{warm_bytes} bytes of the model are resident below")
    demanded = {f"{g.loop} > {g.host_drive}": g.size - warm_bytes, f"{g.loop} > page-cache": warm_bytes}
    answers(g.probe(g.inner_model, **more), g.inner_model, demanded)
    return g.inner_model, demanded


@scenario(7, "loop with direct I/O, upper evicted, twice: the drive both times")
def direct_loop(g):
    g.detach_loop()
    forget(g.image)
    g.attach_loop(direct=True)
    try:
        for turn in (1, 2):
            evict_inner(g)
            result = g.probe(g.inner_model)
            same(layers(of_file(result, g.inner_model)), {f"{g.loop} > {g.host_drive}": g.size}, f"layers, time {turn}")
            whole(result)
    finally:
        g.detach_loop()
        g.attach_loop(direct=False)


@scenario(8, "another process reads other files of the drive: the answer stays, its bytes are others'")
def beside(g):
    other = f"{g.plain}/other"
    sh("dd", "if=/dev/urandom", f"of={other}", "bs=1M", "count=16", "status=none")
    forget(other)
    extents(other)  # its map of blocks is in memory: only data is left to read
    forget(g.model)
    flag, done = "/run/other-begins", "/run/other-done"
    for name in (flag, done):
        if os.path.exists(name):
            os.unlink(name)

    def read_other():
        while not os.path.exists(flag):
            time.sleep(0.01)
        sh("dd", f"if={other}", "of=/dev/null", "bs=256K", "status=none")
        open(done, "w").close()

    reader = threading.Thread(target=read_other)
    reader.start()
    result = g.run("sh", "-c", f"touch {flag}; {g.servedby} probe aimdo --no-checksum {g.model}; "
                               f"while [ ! -e {done} ]; do sleep 0.1; done")
    reader.join()
    same(layers(of_file(result, g.model)), {g.drive: g.size}, "layers")
    same(line_of(result, g.drive)["traced_other_bytes"], 16 << 20, "bytes of others on the drive")
    whole(result)


@scenario(9, "two traced processes read the same cold file at once: the drive once, nothing twice")
def twice(g):
    forget(g.model)
    result = g.run("sh", "-c", f"{g.servedby} probe aimdo --no-checksum {g.model} & "
                               f"{g.servedby} probe aimdo --no-checksum {g.model} & wait")
    same(layers(of_file(result, g.model)), {g.drive: g.size, "page-cache": g.size}, "layers")
    whole(result)


READER = """
import os, sys, time
path, log = sys.argv[1:3]
fd = os.open(path, os.O_RDONLY)
out = open(log, "w", buffering=1)
at = 0
while True:
    begin = time.monotonic_ns()
    got = len(os.pread(fd, 1 << 20, at))
    end = time.monotonic_ns()
    if not got: break
    out.write(f"{begin} {end} {at} {got}\\n")
    at += got
    time.sleep(float(sys.argv[3]))
"""


def start_reader(g, pause):
    log = "/run/reader.log"
    open(log, "w").close()
    reader = subprocess.Popen([sys.executable, "-c", READER, g.model, log, str(pause)])
    while sum(1 for _ in open(log)) < 3:
        time.sleep(0.05)
    return reader, log


def attach(g, pid, *options, exit_code):
    out = "/run/attach.json"
    forget_result(out)
    done = subprocess.run([g.servedby, "attach", "--pid", str(pid), "--quiet", "--force", "-o", out, *options],
                          stderr=subprocess.PIPE, text=True)
    must(os.path.exists(out), f"attach left no result: {done.stderr[-400:]}")
    g.kept(out)
    with open(out) as f:
        result = json.load(f)
    lost = {k: v for k, v in result["losses"].items() if v}
    if exit_code == 0 and not result["complete"]:
        raise Incomplete(f"complete is false: {lost}; {ledger_text(result)}")
    same(done.returncode, exit_code, f"exit code of attach ({done.stderr[-400:]}; {lost}; {ledger_text(result)})")
    return result


@scenario(10, "attach to a reader half way: the answer for what was seen, within the bracket")
def half_way(g):
    forget(g.model)
    reader, log = start_reader(g, 1)  # slow enough to be still reading when the hooks are attached, on any machine
    try:
        result = attach(g, reader.pid, "--duration", "8s", exit_code=0)
    finally:
        reader.kill()
        reader.wait()
    unchanging(result)
    lines = [tuple(map(int, l.split())) for l in open(log)]
    seen = of_file(result, g.model)
    must(seen["reads"]["calls"] >= 3, f"only {seen['reads']['calls']} reads were seen")
    # The reads that were seen are a run of those that were made: the same positions, MiB by MiB.
    must(any(sum(x[3] for x in lines[i:i + seen["reads"]["calls"]]) == seen["reads"]["bytes_returned"]
             for i in range(len(lines))), "the bytes seen are no run of the reader's own log")
    must("unknown" not in " ".join(layers(seen)), f"layers {layers(seen)}")
    for line in result["ledger"]:
        must(abs(line["residual_bytes"]) <= line["bracket_bytes"], f"residual beyond the bracket: {ledger_text(result)}")
    must(result["complete"], f"losses {result['losses']}")


@scenario(11, "run of a shell script with short-lived children and threads: all their reads")
def children(g):
    folder = f"{g.plain}/many"
    if not os.path.isdir(folder):
        os.mkdir(folder)
        for i in range(20):
            with open(f"{folder}/{i}", "wb") as f:
                f.write(os.urandom(100_000 + 7919 * i))
    names = [f"{folder}/{i}" for i in range(20)]
    for name in names:
        forget(name)
    forget(g.model)
    script = f"for i in $(seq 0 19); do (cat {folder}/$i >/dev/null &) ; done; cat {folder}/3 > /dev/null; " \
             f"{g.servedby} probe aimdo --no-checksum {g.model}; wait; sleep 0.5"
    result = g.run("sh", "-c", script)
    same(layers(of_file(result, g.model)), {g.drive: g.size}, "layers of the model")
    for i, name in enumerate(names):
        size = os.stat(name).st_size
        found = layers(of_file(result, name))
        same(found, {g.drive: size, "page-cache": size} if i == 3 else {g.drive: size}, f"layers of {name}")
    whole(result)


@scenario(12, "a tiny ring under attach: incomplete, losses counted, exit 5")
def tiny_ring(g):
    # Small reads of what is resident: more of them than the ring has room for between two looks.
    read_through(g.model)
    busy = subprocess.Popen(["sh", "-c", f"for i in 1 2 3; do (while :; do dd if={g.model} of=/dev/null bs=256 status=none; done) & "
                             f"done; wait"], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(1)
        result = attach(g, busy.pid, "--ring", "4096", "--duration", "4s", exit_code=5)
    finally:
        os.killpg(busy.pid, signal.SIGKILL)  # the shell and what it is running
        busy.wait()
        while subprocess.run(["pgrep", "-g", str(busy.pid)], stdout=subprocess.DEVNULL).returncode == 0:
            time.sleep(0.05)
    unchanging(result)
    must(not result["complete"], "complete is true")
    must(result["losses"]["ring"] > 0, f"no loss was counted: {result['losses']}")
    must(not any(s["via"][-1] == "page-cache" and s["bytes"] for s in result["served_by"]),
         f"page-cache is not proven when records were lost: {layers(result)}")


def small_reads(g, *options, **more):
    return g.run("dd", f"if={g.model}", "of=/dev/null", "bs=512", "status=none", options=options, **more)


@scenario(21, "more records than anybody takes in: those taken and those lost are all that were made")
def overload(g):
    """Warm reads make a record each, and nothing else does: what a whole run takes in is what any run makes."""
    read_through(g.model)
    every = small_reads(g)
    unchanging(every)
    must(every["records"]["taken"] > g.size // 512, f"fewer records than reads: {every['records']}")
    flooded = small_reads(g, "--ring", "4096", lossless=False)
    unchanging(flooded)
    must(flooded["records"]["lost"] > 0 and not flooded["complete"], f"nothing was lost: {flooded['records']}")
    same(sum(flooded["records"].values()), every["records"]["taken"], "records taken and lost")
    same({k: v for k, v in flooded["losses"].items() if v}, {"ring": flooded["records"]["lost"]}, "losses")
    must(flooded["reads"]["calls"] + flooded["records"]["lost"] >= every["reads"]["calls"], "reads that nobody counts")


@scenario(13, "the kprobe and the fentry tier give the same answers, or say that they lost")
def tiers(g):
    for tier in ("kprobe", "fentry"):
        for check in (cold, backing_warm, both_cold):
            try:
                check(g, options=("--tier", tier))
            except Incomplete as said:
                say(f"    {tier} {check.__name__}: {said}")
            except Wrong as wrong:
                raise Wrong(f"{tier} {check.__name__}: {wrong}") from wrong


@scenario(14, "completions lost on purpose: the residual is exactly those bytes")
def sabotage(g):
    limit = f"/sys/block/{g.drive}/queue/max_sectors_kb"
    before = open(limit).read()
    with open(limit, "w") as f:
        f.write("64")
    try:
        forget(g.model)
        result = g.probe(g.model, options=("--lose-completions", "100"), lossless=False)
    finally:
        with open(limit, "w") as f:
            f.write(before)
    unchanging(result)
    line = line_of(result, g.drive)
    lost = result["losses"]["dropped_bytes"]
    must(result["losses"]["dropped"] >= 3, f"{result['losses']['dropped']} completions were dropped")
    must(lost > 0, "no bytes were dropped")
    same(line["residual_bytes"], lost, "residual at the drive")
    must(not result["complete"], "complete is true")
    same(sum(v for k, v in layers(of_file(result, g.model)).items() if k not in (g.drive, "unknown")), 0, "bytes elsewhere")


@scenario(15, "ranges evicted and warmed again during the read: the answer follows")
def moving(g):
    forget(g.model)
    step = 1 << 20
    steps = 12
    script = "i=0; while [ $i -lt %d ]; do touch /run/ask$i; while [ ! -e /run/go$i ]; do sleep 0.02; done; " \
             "dd if=%s of=/dev/null bs=%d skip=$((i %% 6)) count=1 status=none; i=$((i+1)); done" % (steps, g.model, step)
    for i in range(steps):
        for kind in ("ask", "go"):
            if os.path.exists(f"/run/{kind}{i}"):
                os.unlink(f"/run/{kind}{i}")
    wanted = {g.drive: 0, "page-cache": 0}
    failed = []

    def helper():
        try:
            for i in range(steps):
                while not os.path.exists(f"/run/ask{i}"):
                    time.sleep(0.01)
                at = i % 6
                forget(g.model)
                if i % 3 == 1:
                    read_through(g.model, at * step, (at + 1) * step)
                if i % 3 == 2:  # its second half
                    read_through(g.model, at * step + step // 2, (at + 1) * step)
                there = bytes_in(resident(g.model), at * step, (at + 1) * step)
                wanted["page-cache"] += there
                wanted[g.drive] += step - there
                open(f"/run/go{i}", "w").close()
        except Exception as trouble:  # noqa: BLE001: told to the main thread
            failed.append(trouble)

    thread = threading.Thread(target=helper)
    thread.start()
    result = g.run("sh", "-c", script)
    thread.join()
    must(not failed, f"the helper failed: {failed}")
    same(layers(of_file(result, g.model)), wanted, "layers")
    whole(result)


@scenario(16, "the fill hook forced off: unknown, never page-cache")
def blind(g):
    read_through(g.model)
    result = g.probe(g.model, options=("--without", "fill"), lossless=False)
    unchanging(result)
    same(layers(of_file(result, g.model)), {"unknown": g.size}, "layers")
    must(not any(s["via"][-1] == "page-cache" for s in result["served_by"]), "page-cache without proof")


@scenario(17, "the counters tier: 1, 2, 4 and 5 inferred rightly")
def counters(g):
    def inferred(path, via, what):
        result = g.run(g.servedby, "probe", "sequential", "--no-checksum", path, options=("--tier", "counters"),
                       lossless=False)
        unchanging(result)
        same(result["tier"], "counters", "tier")
        must(all(s["evidence"] == "inferred" for s in result["served_by"]), "something is not marked inferred")
        found = layers(result)
        same(found.get(via), g.size, f"{what}: bytes of {via} in {found}")
    forget(g.model)
    inferred(g.model, g.drive, "cold")
    read_through(g.model)
    result = g.run(g.servedby, "probe", "sequential", "--no-checksum", g.model, options=("--tier", "counters"),
                   lossless=False)
    must(set(layers(result)) == {"page-cache"} and layers(result)["page-cache"] >= g.size, f"warm: {layers(result)}")
    read_through(g.image)
    evict_inner(g)
    inferred(g.inner_model, f"{g.loop} > page-cache", "backing file resident")
    evict_inner(g)
    forget(g.image)
    inferred(g.inner_model, f"{g.loop} > {g.host_drive}", "both cold")


@scenario(18, "a recording replays to the identical result, without root")
def replay(g):
    forget(g.model)
    recording = "/run/recording"
    result = g.probe(g.model, options=("--record", recording))
    os.chmod(recording, 0o644)
    again = json.loads(sh("setpriv", "--reuid", "65534", "--clear-groups", g.servedby, "report", "--json", recording))
    del result["tool"], again["tool"]
    same(again, result, "the replayed result")


@scenario(19, "selfcheck proves its five states on this kernel and drive")
def proves(g):
    done = subprocess.run([g.servedby, "selfcheck", g.plain, "--size", "16M", "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    must(done.stdout, f"selfcheck said nothing but {done.stderr}")
    with open("/run/selfcheck.json", "w") as f:
        f.write(done.stdout)
    g.kept("/run/selfcheck.json")
    check = json.loads(done.stdout)
    wrong = [p for p in check["proofs"] if not p["exact"]]
    if wrong and not any(p.get("complete", True) for p in wrong):
        raise Incomplete(f"not exact, since events were lost: {wrong}")
    must(not wrong, f"not exact: {wrong}")
    same((len(check["proofs"]), check["exact"], done.returncode), (5, True, 0), "proofs, exact, exit code")
    same([n for n in os.listdir(g.plain) if "selfcheck" in n], [], "files left behind")


@scenario(20, "a file that a server has: the server, then the page cache; no drive is blamed")
def served(g):
    big, asked = "/usr/bin/qemu-system-x86_64", 4 << 20  # this guest's host has it
    for via in ("9p:host", "page-cache"):
        if via != "page-cache":
            forget(big)
        result = g.run("dd", f"if={big}", "of=/dev/null", "bs=1M", "count=4", "status=none")
        unchanging(result)
        same(layers(of_file(result, big)), {via: asked}, "layers")
        process = result["ledger"][0]
        must(0 <= process["residual_bytes"] <= process.get("server_bytes", 0), f"the process: {ledger_text(result)}")
        same(sum(line["traced_target_bytes"] for line in result["ledger"][1:]), 0, "bytes of the target on any device")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("servedby")
    parser.add_argument("--only", default="")
    parser.add_argument("--fs", default="ext4,xfs")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--repeat-only", default="1,4,5", help="the scenarios that --repeat repeats")
    parser.add_argument("--out", help="keeps every result in its folder 'results'")
    options = parser.parse_args()
    for module in ("nvme", "loop", "ext4", "xfs"):
        sh("modprobe", module)
    only = [int(n) for n in options.only.split(",") if n] or sorted(SCENARIOS)
    repeated = {int(n) for n in options.repeat_only.split(",") if n}
    passed = failed = 0
    incomplete = collections.Counter()  # by scenario, on every file system: results that say that they are not complete
    kernel = os.uname().release
    if options.out:
        os.makedirs(f"{options.out}/results", exist_ok=True)
    kinds = options.fs.split(",")
    for kind in kinds:
        ground = Ground(kind, options.servedby)
        for number in only:
            title, check = SCENARIOS[number]
            turns = options.repeat if number in repeated else 1
            allowed = turns * len(kinds) // 20 or 2  # incomplete ones; a wrong one never is
            shown = turn = 0
            while shown < turns:
                turn += 1
                began = time.monotonic()
                if options.out:
                    ground.keep_in, ground.kept_here = f"{options.out}/results/{kernel}-{kind}-{number}-{turn}", 0
                try:
                    settle()
                    time.sleep(0.3)
                    check(ground)
                    passed += 1
                    shown += 1
                    print(f"pass {kernel} {kind} {number:2} {title} ({time.monotonic() - began:.0f} s)", flush=True)
                    continue
                except Incomplete as said:
                    incomplete[number] += 1
                    print(f"again {kernel} {kind} {number:2} {said}", flush=True)
                    if incomplete[number] <= allowed:
                        continue
                    wrong = said
                except (Wrong, subprocess.CalledProcessError, OSError, KeyError) as trouble:
                    wrong = trouble
                failed += 1
                shown += 1
                print(f"FAIL {kernel} {kind} {number:2} {title}\n     {wrong}", flush=True)
        ground.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
