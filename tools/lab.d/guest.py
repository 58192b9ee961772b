"""One run of a guest: QEMU started, its output passed on, its end understood."""

import contextlib
import ctypes
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import drives as drive_limits
import initrd
from problem import Problem
from qmp import Monitor, QemuGone
from streams import Lines, Stream, received

LIBC = ctypes.CDLL(None)

TIMED_OUT = 124
GUEST_DIED = 70

# What a guest and tools/lab say to each other goes over these virtio ports.
PORTS = ("lab.stdout", "lab.stderr", "lab.control", "lab.drive")

APPEND = (
    "console=ttyS0 quiet "
    # Attaching and detaching waits for every processor, many times a session: let it not wait for the timer too.
    "rcupdate.rcu_expedited=1 "
    # A crash ends the guest at once (QEMU is told not to reboot), and an oops is a crash: what follows one is no result.
    "panic=-1 oops=panic "
    # Emulated CPUs share one clock that never stops, and have no side channels worth the detours.
    "tsc=reliable mitigations=off no_timer_check "
    # No such hardware: do not wait for it.
    "i8042.nokbd i8042.noaux cryptomgr.notests random.trust_cpu=on "
)


@dataclass
class Guest:
    kernel: object
    job: initrd.Job
    drives: list
    two_ways: object = None
    memory: str = "3G"
    append: str = ""
    qemu: list = field(default_factory=list)
    out: Path = None
    timeout: float = 600
    say: object = None  # called with what is worth telling only when asked

    def run(self):
        """Runs the job; returns the exit code of its command, TIMED_OUT or GUEST_DIED."""
        program = shutil.which("qemu-system-x86_64")
        if program is None:
            raise Problem("qemu-system-x86_64: not on this machine: run 'tools/setup lab'")
        with tempfile.TemporaryDirectory(prefix="servedby-lab-") as work:
            self.work = Path(work)
            self.console = self.work / "console.log"
            self.qemu_log = self.work / "qemu.log"
            image = self.work / "initrd"
            initrd.write(image, self.kernel, self.job)
            ports = {name: socket.socketpair() for name in ("monitor", *PORTS)}
            far_ends = [far.fileno() for _, far in ports.values()]
            arguments = [program, *self.accelerator(program), *self.machine(image), *self.channels(ports)]
            for drive in self.drives:
                arguments += drive.arguments()
            files = [drive.file.fileno() for drive in self.drives]
            if self.two_ways:
                arguments += self.two_ways.arguments()
                files.append(self.two_ways.file.fileno())
            with open(self.qemu_log, "wb") as log:
                process = subprocess.Popen(
                    [*arguments, *self.qemu],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=far_ends + files,
                    # Ctrl-C is for us alone, and we end QEMU; should we be killed, the kernel does.
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            try:
                for _, far in ports.values():
                    far.close()
                return self.attend(process, {name: near for name, (near, _) in ports.items()})
            finally:
                process.kill()
                process.wait()

    def accelerator(self, program):
        if "-accel" in self.qemu:
            return []  # the first one wins, so the user's must be the only one
        # Before 8.1 a CPU may keep running a translation of code that the other one has just patched. The kernel
        # patches itself whenever something is traced, and then dies of "Oops: int3". With both CPUs in one thread
        # of QEMU's it does not; newer versions give each CPU its own.
        safe = version(program) >= (8, 1)
        return ["-accel", f"tcg,thread={'multi' if safe else 'single'}"]

    def machine(self, image):
        return [
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-machine", "q35,usb=off", "-cpu", "max", "-smp", "2", "-m", self.memory,
            "-kernel", str(self.kernel.image), "-initrd", str(image), "-append", APPEND + self.append,
        ]  # fmt: skip

    def channels(self, ports):
        arguments = [
            "-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console",
            "-chardev", f"socket,id=monitor,fd={ports['monitor'][1].fileno()}", "-mon", "chardev=monitor,mode=control",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-device", "virtio-serial-pci",
        ]  # fmt: skip
        for name in PORTS:
            arguments += [
                "-chardev", f"socket,id={name},fd={ports[name][1].fileno()}",
                "-device", f"virtserialport,chardev={name},name={name}",
            ]  # fmt: skip
        if self.out:
            arguments += [
                "-fsdev", f"local,id=out,path={str(self.out).replace(',', ',,')},security_model=none,multidevs=remap",
                "-device", "virtio-9p-pci,fsdev=out,mount_tag=out",
            ]  # fmt: skip
        return arguments

    def attend(self, process, ports):
        """Passes on what the guest says until it has told its exit code, or can no longer."""
        self.started = time.monotonic()
        self.monitor = Monitor(ports.pop("monitor"))
        try:
            self.monitor.greet()
        except QemuGone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            raise Problem(f"QEMU did not start: {self.last_word()}") from None

        self.code = None
        streams = {"lab.stdout": Stream(1, self.job.end), "lab.stderr": Stream(2, self.job.end)}
        talks = {"lab.control": Lines(self.hear), "lab.drive": Lines(self.change_drive)}
        try:
            with selectors.DefaultSelector() as ready:
                for name, port in ports.items():
                    ready.register(port, selectors.EVENT_READ, name)
                while self.code is None or not all(stream.ended for stream in streams.values()):
                    left = self.started + self.timeout - time.monotonic()
                    if left <= 0:
                        return self.abandon(TIMED_OUT, f"timed out after {self.timeout:g} s: the guest was killed")
                    if not ready.get_map():
                        return self.died(process.wait())
                    for key, _ in ready.select(left):
                        if data := received(key.fileobj):
                            (streams | talks)[key.data].take(data, key.fileobj)
                        else:
                            ready.unregister(key.fileobj)
            return self.code
        finally:
            for stream in streams.values():
                stream.give_up()

    def hear(self, line):
        """What guest-run tells about the command."""
        event, *code = line.split()
        self.say(f"command {event} after {time.monotonic() - self.started:.1f} s")
        if event == "ended":
            self.code = int(code[0])

    def change_drive(self, line):
        """What lab-drive asks; returns the answer for it."""
        return drive_limits.change(self.drives, line, self.monitor)

    def died(self, status):
        panic = re.search(r"Kernel panic - .*", self.console.read_text(errors="replace"))
        if panic:
            why = panic[0].strip()
        elif status < 0:
            why = f"QEMU was ended by {signal.Signals(-status).name}"
        else:
            why = self.last_word() or "it powered off or rebooted before the command ended"
        return self.abandon(GUEST_DIED, f"the guest died: {why}")

    def last_word(self):
        """The last line that QEMU itself said."""
        lines = self.qemu_log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def abandon(self, code, why):
        """Keeps the console, says why in one line, returns the code."""
        if self.out:
            kept = self.out / "console.log"
        else:
            handle, kept = tempfile.mkstemp(prefix="servedby-lab-", suffix=".console.log")
            os.close(handle)
        shutil.copyfile(self.console, kept)
        print(f"lab: {why} (kernel {self.kernel.release}): its console is in {kept}", file=sys.stderr, flush=True)
        return code


def version(program):
    told = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.search(r"version (\d+)\.(\d+)", told).groups())


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
