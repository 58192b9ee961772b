#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around a real capture: signals, full disks, missing privileges, other namespaces. Runs in a guest as root.

Each time there is one line on stderr and the exit code of the contract, or a right answer; nothing stays attached, and no
half-written file passes for a whole one. What needs no BPF is in tests/native/bad_input.sh.
  bad_input.py SERVEDBY [--only 1,2] [--full]
  bad_input.py SERVEDBY --only lockdown    in a guest booted with lockdown=confidentiality
Prints a line for each scenario; the last line is 'N passed, N failed'."""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from ground import (Ground, Incomplete, Wrong, drive_name, extents, forget, layers, ledger_text, must, of_file, read_through, same,
                    sh, unchanging, whole)

SCENARIOS = {}
LOCKDOWN = 7  # needs a boot of its own
# Ubuntu's own bpftool only starts the one that was made for the running kernel.
BPFTOOL = next(iter(glob.glob("/usr/lib/linux-tools/*/bpftool")), "bpftool")
NOBODY = ("setpriv", "--reuid", "65534", "--clear-groups")
SCRATCH = "/run/bad"  # results and recordings; nothing else may turn up there
GO, DONE = "/run/reader/go", "/run/reader/done"

# Waits for the file GO, reads FILE from its begin to its end, says so in DONE, and stays if told to.
READER = """
import os, sys, time
path, go, done, stay = sys.argv[1:5]
fd = os.open(path, os.O_RDONLY)
while not os.path.exists(go): time.sleep(0.02)
while os.read(fd, 1 << 18): pass
os.close(os.open(done, os.O_CREAT))
time.sleep(float(stay))
"""


def scenario(number, title):
    def keep(function):
        SCENARIOS[number] = (title, function)
        return function
    return keep


class Place:
    """A file system on drive 0 with one file in it."""

    def __init__(self, servedby, full):
        self.servedby, self.full = servedby, full
        self.folder = "/mnt/bad"
        self.drive = drive_name(0)
        self.file = f"{self.folder}/data"
        self.size = 8 << 20
        self.result, self.recording = f"{SCRATCH}/result.json", f"{SCRATCH}/recording"
        os.makedirs(self.folder, exist_ok=True)
        Ground.make("ext4", f"/dev/{self.drive}")
        Ground.mount("ext4", f"/dev/{self.drive}", self.folder)
        with open(self.file, "wb") as f:
            f.write(os.urandom(self.size))
        os.sync()
        # Programs come from the host by 9p, which counts as reads of the process though no block device had them.
        sh("sh", "-c", f"cat {self.file} | dd of=/dev/null bs=1M status=none; touch /run/warm; sleep 0.01; true")
        self.loaded = attached()

    def clean(self):
        """An empty scratch folder, and the file not in memory."""
        sh("rm", "-rf", SCRATCH)
        os.makedirs(SCRATCH)
        os.chmod(SCRATCH, 0o777)
        forget(self.file)
        extents(self.file)  # its map of blocks is in memory: only data is left to read

    def close(self):
        sh("umount", self.folder)

    def read_result(self):
        with open(self.result) as f:
            return json.load(f)


def attached():
    """What of BPF is in the kernel: programs, links, and probed functions."""
    ids = [(kind, one["id"]) for kind in ("prog", "link") for one in json.loads(sh(BPFTOOL, "-j", kind, "show") or "[]")]
    with open("/sys/kernel/debug/kprobes/list") as f:
        return ids + f.read().splitlines()


def nothing_attached(g):
    """The kernel lets go of programs a moment after the last reference."""
    deadline = time.monotonic() + 5
    while (now := attached()) != g.loaded:
        must(time.monotonic() < deadline, f"still attached: {[x for x in now if x not in g.loaded]}")
        time.sleep(0.1)


def refused(g, code, text, *arguments, before=()):
    """servedby ARGUMENTS ends with that code, and says one line with that text, and nothing else."""
    done = subprocess.run([*before, g.servedby, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    what = f"{' '.join(arguments)}: {done.stderr.strip()}"
    same(done.returncode, code, f"exit code of {what}")
    must(len(done.stderr.splitlines()) == 1 and text in done.stderr, f"not one line with '{text}': {what}")
    same(done.stdout, "", f"stdout of {what}")


def falls_back(g, text, *arguments, before=(), lines=1):
    """servedby ARGUMENTS answers from the kernel's counters, and says in one line that it does and why; returns the result."""
    if os.path.exists(g.result):
        os.unlink(g.result)
    done = subprocess.run([*before, g.servedby, arguments[0], "--quiet", "-o", g.result, *arguments[1:]],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    what = f"{' '.join(arguments)}: {done.stderr.strip()}"
    same(done.returncode, 0, f"exit code of {what}")
    said = done.stderr.splitlines()
    must(len(said) == lines, f"not {lines} line on stderr: {what}")
    must(not lines or (text in said[0] and "kernel's counters instead" in said[0]), f"no statement with '{text}': {what}")
    result = g.read_result()
    unchanging(result)
    same(result["tier"], "counters", "tier")
    return result


def counted_whole(g, result):
    """The counters tier, of a run that read the file once, cold."""
    lost = {k: v for k, v in result["losses"].items() if v}
    same(lost, {}, "losses")
    found = layers(result)
    must(g.size <= found.get(g.drive, 0) < g.size + (1 << 16), f"{found}, and {g.size} bytes came from {g.drive}")


def start_reader(g, *before, stay=0):
    """A process that opens the file and waits for go(). Its PID is that of the Python process."""
    sh("rm", "-rf", os.path.dirname(GO))
    os.makedirs(os.path.dirname(GO))
    os.chmod(os.path.dirname(GO), 0o777)
    reader = subprocess.Popen([*before, sys.executable, "-c", READER, g.file, GO, DONE, str(stay)], stderr=subprocess.DEVNULL)
    wait_for(lambda: has_open(reader.pid, g.file), "the reader opens the file")
    return reader


def has_open(pid, path):
    """Whether the process, or one below it, has the file open."""
    try:
        if path in (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")):
            return True
    except OSError:
        pass  # it is just starting or ending
    return any(has_open(child, path) for child in children(pid))


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def go():
    open(GO, "w").close()


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        must(time.monotonic() < deadline, f"waited in vain: {what}")
        time.sleep(0.01)


class Session:
    """A servedby that runs beside us, in a process group of its own, as a shell would start it."""

    def __init__(self, g, *arguments, record=False, before=()):
        self.g = g
        words = [*before, g.servedby, arguments[0], "-o", g.result, *(("--record", g.recording) if record else ()), *arguments[1:]]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True)
        self.said = []
        self.listener = threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True)
        self.listener.start()

    def watching(self):
        return any("watching PID" in line or "counters instead" in line for line in self.said)

    def wait_until(self, condition, what):
        wait_for(lambda: condition() or self.process.poll() is not None, what)
        must(condition(), f"it ended before {what}: {self.text()}")

    def signal(self, which, group=True):
        try:
            (os.killpg if group else os.kill)(self.process.pid, which)
        except ProcessLookupError:
            pass

    def end(self):
        """Its exit code, once everything of it has ended and nothing of it is attached any more."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            raise Wrong(f"it does not end: {self.text()}") from None
        self.listener.join()
        wait_for(lambda: subprocess.run(["pgrep", "-g", str(self.process.pid)], stdout=subprocess.DEVNULL).returncode != 0,
                 f"what it started ends with it: {self.text()}", 5)
        nothing_attached(self.g)
        return code

    def text(self):
        return " ".join(line.strip() for line in self.said)[-600:]


def whole_result(g, session, code, wanted):
    """The session came to its end: a result that is one, and a recording that gives the same."""
    if code == 5:
        raise Incomplete(f"events were lost: {session.text()}")
    same(code, wanted, f"exit code ({session.text()})")
    result = g.read_result()
    unchanging(result)
    if not result["complete"]:
        raise Incomplete(f"complete is false: {result['losses']}; {ledger_text(result)}")
    return result


def nothing_written(g):
    """What stands there, after an early end, is no result and no whole recording."""
    left = set(os.listdir(SCRATCH))
    must(left <= {"recording"}, f"left behind: {left}")
    if left:
        refused(g, 4, "recording", "report", g.recording)


@scenario(1, "another PID namespace: its PIDs are refused, the host's PID of its process is traced to the byte")
def other_namespace(g):
    # Numbers inside begin at 30001, where this namespace has none.
    inside = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c",
              'echo 30000 >/proc/sys/kernel/ns_last_pid; "$0" "$@"; exit $?')
    reader = start_reader(g, *inside, stay=100)
    try:
        (shell,) = children(reader.pid)
        (target,) = children(shell)
        with open(f"/proc/{target}/status") as f:
            numbers = next(line for line in f if line.startswith("NSpid:")).split()[1:]
        same(numbers, [str(target), "30001"], "its PIDs")
        refused(g, 4, "no such process", "attach", "--pid", "30001")
        session = Session(g, "attach", "--pid", str(target))
        session.wait_until(session.watching, "it watches")
        go()
        wait_for(lambda: os.path.exists(DONE), "the reader is done")
        session.signal(signal.SIGINT)
        result = whole_result(g, session, session.end(), 0)
    finally:
        subprocess.run(["pkill", "-KILL", "-P", str(reader.pid)], check=False)  # its init; the rest goes with it
        reader.wait()
    same(layers(of_file(result, g.file)), {g.drive: g.size}, "layers")
    whole(result)
    # servedby inside: PIDs of the host are not there, and tracing is refused; counters work.
    own = ("unshare", "--pid", "--fork", "--mount-proc")
    refused(g, 4, "no such process", "attach", "--pid", str(os.getpid()), before=own)
    refused(g, 3, "PID namespace", "attach", "--pid", "1", "--tier", "fentry", before=own)
    g.clean()
    counted_whole(g, falls_back(g, "PID namespace", "run", "--", "cat", g.file, before=own))
    # With the host's /proc, PIDs of one namespace would be looked up in another.
    refused(g, 3, "/proc", "attach", "--pid", "1", "--tier", "counters", before=("unshare", "--pid", "--fork"))
    refused(g, 125, "/proc", "run", "--tier", "counters", "--", "true", before=("unshare", "--pid", "--fork"))


@scenario(2, "a process that ends during attach: the answer for what it did; too early, one line")
def ends_during(g):
    reader = start_reader(g)
    session = Session(g, "attach", "--pid", str(reader.pid), record=True)
    session.wait_until(session.watching, "it watches")
    go()
    reader.wait()
    result = whole_result(g, session, session.end(), 0)
    same(layers(of_file(result, g.file)), {g.drive: g.size}, "layers")
    whole(result)
    again = json.loads(sh(g.servedby, "report", "--json", g.recording))
    same(again["served_by"], result["served_by"], "the recording's answer")
    g.clean()
    brief = subprocess.Popen(["sleep", "1"])
    reaper = threading.Thread(target=brief.wait)
    reaper.start()
    refused(g, 4, "ended while the hooks were being attached", "attach", "--pid", str(brief.pid), "-o", g.result)
    reaper.join()
    nothing_written(g)
    nothing_attached(g)


@scenario(3, "attach to what is no process: one line, exit 4")
def no_process(g):
    refused(g, 4, "no such process", "attach", "--pid", "4194303")
    ended = subprocess.Popen(["true"])
    wait_for(lambda: open(f"/proc/{ended.pid}/stat").read().rpartition(")")[2].split()[0] == "Z", "a zombie")
    refused(g, 4, "already ended", "attach", "--pid", str(ended.pid))
    ended.wait()
    enough = threading.Event()
    thread = threading.Thread(target=enough.wait)
    thread.start()
    try:
        refused(g, 4, f"thread of PID {os.getpid()}", "attach", "--pid", str(thread.native_id))
    finally:
        enough.set()
        thread.join()


def interrupt_attach(g, which, when):
    """`when`: seconds after the start, or None: while it watches, and again while it reports."""
    g.clean()
    idle = subprocess.Popen(["sleep", "100"])
    session = Session(g, "attach", "--pid", str(idle.pid), record=True)
    if when is None:
        session.wait_until(session.watching, "it watches")
    else:
        time.sleep(when)
    session.signal(which)
    if when is None:
        time.sleep(0.1)
        session.signal(which)
    try:
        code = session.end()
    finally:
        idle.kill()
        idle.wait()
    if code == -which and when is not None and when < 1:
        return nothing_written(g)  # it had not come to its own handling of signals
    result = whole_result(g, session, code, 0)
    same(result["reads"]["bytes_returned"], 0, "bytes")
    same(sorted(os.listdir(SCRATCH)), ["recording", "result.json"], "files")


def interrupt_run(g, which, when):
    """`when`: seconds, or one of held (before the command executes), begun, ended (it has ended by itself)."""
    g.clean()
    begun = "/run/begun"
    if os.path.exists(begun):
        os.unlink(begun)
    last = "true" if when == "ended" else "sleep 100"
    session = Session(g, "run", "--", "sh", "-c", f"cat {g.file} >/dev/null; touch {begun}; {last}", record=True)
    if when == "held":
        session.wait_until(lambda: children(session.process.pid), "the command is held")
        time.sleep(0.03)
    elif when in ("begun", "ended"):
        session.wait_until(lambda: os.path.exists(begun), "the command has begun")
        if when == "ended":
            time.sleep(0.1)
    else:
        time.sleep(when)
    executed = os.path.exists(begun)
    # The terminal sends SIGINT to the whole group; SIGTERM comes to servedby alone.
    session.signal(which, group=which == signal.SIGINT)
    code = session.end()
    if code == -which and when not in ("begun", "ended"):
        must(not executed, "the command had begun, and no report came")
        return nothing_written(g)
    result = whole_result(g, session, code, 0 if when == "ended" else 128 + which)
    if executed:
        same(layers(of_file(result, g.file)), {g.drive: g.size}, "layers")
        whole(result)
    same(sorted(os.listdir(SCRATCH)), ["recording", "result.json"], "files")


def at_each(points, interrupt, g, which):
    for when in points:
        try:
            interrupt(g, which, when)
        except Wrong as wrong:
            raise type(wrong)(f"{interrupt.__name__} at {when}: {wrong}") from wrong


@scenario(4, "Ctrl-C at any time: it ends and reports, or nothing was begun; nothing stays")
def interrupts(g):
    moments = (0.05, 0.3, 1, 2, 3, 4, 5, 6) if g.full else (0.05, 1, 3)
    at_each((*moments, None), interrupt_attach, g, signal.SIGINT)
    at_each((*moments, "held", "begun", "ended"), interrupt_run, g, signal.SIGINT)


@scenario(5, "SIGTERM: attach reports; run passes it on to the command, and reports")
def terminations(g):
    at_each((2, None) if g.full else (None,), interrupt_attach, g, signal.SIGTERM)
    at_each((2, "begun"), interrupt_run, g, signal.SIGTERM)


@scenario(6, "a full disk while recording: one line, the result all the same, no recording that passes for whole")
def full_disk(g):
    small = "/mnt/small"
    os.makedirs(small, exist_ok=True)
    sh("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small)
    try:
        recording = f"{small}/recording"
        read_through(g.file)
        done = subprocess.run([g.servedby, "run", "--quiet", "-o", g.result, "--record", recording, "--", "dd", f"if={g.file}",
                               "of=/dev/null", "bs=512", "status=none"], stderr=subprocess.PIPE, text=True)
        same(done.returncode, 125, f"exit code ({done.stderr.strip()})")
        must(len(done.stderr.splitlines()) == 1 and "No space left" in done.stderr, f"not one line: {done.stderr}")
        result = g.read_result()
        same(layers(of_file(result, g.file)), {"page-cache": g.size}, "layers")
        whole(result)
        refused(g, 4, "incomplete", "report", recording)
        again = subprocess.run([g.servedby, "report", "--json", "--incomplete", recording], stdout=subprocess.PIPE, text=True)
        same((again.returncode, json.loads(again.stdout)["complete"]), (5, False), "as far as it goes: exit code, complete")
        # Full from the begin: nothing is started.
        with open(recording, "wb", buffering=0) as f:
            try:
                while f.write(bytes(4096)):
                    pass
            except OSError:
                pass
        refused(g, 125, "No space left", "run", "--record", f"{small}/other", "--", "touch", f"{SCRATCH}/started")
        must(not os.path.exists(f"{SCRATCH}/started"), "the command ran")
        refused(g, 125, "No space left", "run", "--quiet", "--tier", "counters", "-o", f"{small}/result.json", "--", "true")
        must(set(os.listdir(small)) <= {"recording", "other"}, f"left behind: {os.listdir(small)}")
    finally:
        sh("umount", small)
    nothing_attached(g)


def only_counters(g, text, *before):
    """Tracing is impossible for the reason `text`: refused where it was asked for, else the counters answer."""
    me = str(os.getpid())
    refused(g, 3, text, "attach", "--pid", me, "--tier", "fentry", before=before)
    refused(g, 125, text, "run", "--record", g.recording, "--", "true", before=before)  # counters leave no records
    must(not os.path.exists(g.recording), "a recording was begun")
    falls_back(g, text, "attach", "--pid", me, "--duration", "100ms", before=before)
    g.clean()
    counted_whole(g, falls_back(g, text, "run", "--", "cat", g.file, before=before))


def doctor_says_no(g, *before):
    doctor = subprocess.run([*before, g.servedby, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    same(doctor.returncode, 3, f"exit code of doctor ({doctor.stderr.strip()})")


@scenario(LOCKDOWN, "a kernel locked down for confidentiality: one line, and the counters answer")
def locked_down(g):
    state = "/sys/kernel/security/lockdown"
    if not os.path.exists(state):
        # Nobody has mounted what would tell: the kernel's refusal has to do.
        falls_back(g, "", "attach", "--pid", str(os.getpid()), "--duration", "100ms")
        sh("mount", "-t", "securityfs", "securityfs", "/sys/kernel/security")
    with open(state) as f:
        text = f.read()
    must("[confidentiality]" in text, f"boot with lockdown=confidentiality; this kernel has {text.strip()}")
    only_counters(g, "locked down")
    g.clean()
    counted_whole(g, falls_back(g, "", "run", "--tier", "counters", "--", "cat", g.file, lines=0))
    doctor_says_no(g)


@scenario(8, "no type information (BTF): one line, and the counters answer")
def no_btf(g):
    os.makedirs("/run/empty", exist_ok=True)
    only_counters(g, "btf", "unshare", "--mount", "sh", "-c", 'mount --bind /run/empty /sys/kernel/btf && exec "$0" "$@"')


@scenario(9, "an unprivileged user: own processes are counted, others' refused in one line")
def unprivileged(g):
    me = str(os.getpid())
    refused(g, 3, "CAP_BPF", "attach", "--pid", me, "--tier", "fentry", before=NOBODY)
    refused(g, 125, "CAP_BPF", "run", "--tier", "kprobe", "--", "true", before=NOBODY)
    refused(g, 3, "Permission denied", "attach", "--pid", me, before=NOBODY)
    doctor_says_no(g, *NOBODY)
    g.clean()
    counted_whole(g, falls_back(g, "CAP_BPF", "run", "--", "sh", "-c", f"cat {g.file} >/dev/null; true", before=NOBODY))
    g.clean()
    reader = start_reader(g, *NOBODY, stay=100)
    try:
        session = Session(g, "attach", "--pid", str(reader.pid), before=NOBODY)
        session.wait_until(session.watching, "it counts")
        go()
        wait_for(lambda: os.path.exists(DONE), "the reader is done")
        session.signal(signal.SIGINT)
        same(session.end(), 0, f"exit code ({session.text()})")
    finally:
        reader.kill()
        reader.wait()
    counted_whole(g, g.read_result())


@scenario(10, "no tracefs: one line, and the counters answer")
def no_tracefs(g):
    only_counters(g, "tracefs", "unshare", "--mount", "sh", "-c",
                  'umount -R /sys/kernel/tracing && umount -R /sys/kernel/debug && exec "$0" "$@"')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("servedby")
    parser.add_argument("--only", default="", help="numbers, or: lockdown")
    parser.add_argument("--full", action="store_true", help="signals at more moments")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would hand on that it is ignored
    for module in ("nvme", "ext4"):
        sh("modprobe", module)
    words = options.only.replace("lockdown", str(LOCKDOWN)).split(",")
    only = [int(word) for word in words if word] or [number for number in sorted(SCENARIOS) if number != LOCKDOWN]
    kernel = os.uname().release
    g = Place(options.servedby, options.full)
    passed = failed = 0
    for number in only:
        title, check = SCENARIOS[number]
        began = time.monotonic()
        for attempt in (1, 2):
            try:
                g.clean()
                check(g)
                passed += 1
                print(f"pass {kernel} {number:2} {title} ({time.monotonic() - began:.0f} s)", flush=True)
                break
            except Incomplete as said:  # no answer, and it says so; a wrong one never gets a second try
                wrong = said
                if attempt == 1:
                    print(f"again {kernel} {number:2} {said}", flush=True)
                    continue
            except (Wrong, subprocess.CalledProcessError, OSError, KeyError, ValueError) as trouble:
                wrong = trouble
            failed += 1
            print(f"FAIL {kernel} {number:2} {title}\n     {wrong}", flush=True)
            break
    g.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
