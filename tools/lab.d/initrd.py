"""The guest's first file system: busybox, the modules that reach the host's files, and this run's job.

It is made for each run, which takes a few milliseconds, so that nothing about it can be stale.
"""

import secrets
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path

import archive
from kernels import system_tool
from problem import Problem

HERE = Path(__file__).resolve().parent

# What the guest loads before it can see the host's files; meanwhile it loads its drives' drivers.
FIRST_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "virtio_console")

# The busybox applets that the guest's own scripts call.
APPLETS = (
    "cat cp dirname echo grep hostname insmod ip ln mkdir mkfifo mknod mount printf readlink sh sleep switch_root sync uname".split()
)


@dataclass(frozen=True)
class Job:
    """What the guest is to do."""

    command: list
    folder: Path  # where the command starts
    visible: list  # host folders to be seen at their own path, even below a tmpfs of the guest
    disks: int  # of these drivers
    drivers: list
    has_out: bool
    modules_root: Path
    end: str = field(default_factory=lambda: f"<end of output {secrets.token_hex(16)}>")

    def script(self):
        """As shell text, which sets variables and the positional parameters."""
        values = {
            "LAB_FOLDER": str(self.folder),
            "LAB_VISIBLE": "\n".join(map(str, self.visible)),
            "LAB_DISKS": str(self.disks),
            "LAB_OUT": "1" if self.has_out else "",
            "LAB_MODULES": str(self.modules_root),
            "LAB_END": self.end,
        }
        lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
        return "\n".join([*lines, f"set -- {shlex.join(self.command)}", ""])


def write(path, kernel, job):
    image = Cpio()
    for folder in "bin dev proc sys root lab lab/bin modules modules/first modules/drive".split():
        image.folder(folder)
    image.file("bin/busybox", busybox().read_bytes(), executable=True)
    for applet in APPLETS:
        image.link(f"bin/{applet}", "busybox")
    image.file("init", (HERE / "guest-init").read_bytes(), executable=True)

    first = closure(kernel, FIRST_MODULES)
    drive = [module for module in closure(kernel, job.drivers) if module not in first] if job.disks else []
    for group, modules in (("first", first), ("drive", drive)):
        for number, module in enumerate(modules):
            image.file(f"modules/{group}/{number:02}-{module.name}", module.read_bytes())

    # /lab, and /bin beside it, become /run/lab of the guest's final file system.
    image.file("lab/guest-run", (HERE / "guest-run").read_bytes(), executable=True)
    for command in ("lab-drive", "modprobe"):
        image.file(f"lab/bin/{command}", (HERE / "guest-bin" / command).read_bytes(), executable=True)
    image.file("lab/job", job.script().encode())
    path.write_bytes(image.finish())


def closure(kernel, names):
    """Files of these modules and of all that they need, in the order to load them."""
    listed = archive.run(
        system_tool("modprobe"), "-C", "/dev/null", "-d", kernel.root, "-S", kernel.release, "-a", "--show-depends", *names
    )
    # Those built into the kernel are listed as "builtin NAME".
    files = [Path(line.split()[1]) for line in listed.splitlines() if line.startswith("insmod ")]
    return list(dict.fromkeys(files))


def busybox():
    path = Path("/bin/busybox")
    if not path.exists():
        raise Problem("busybox: not on this machine: run 'tools/setup lab'")
    return path


@dataclass
class Cpio:
    """A cpio archive in the "newc" format, the one that the kernel unpacks."""

    parts: list = field(default_factory=list)

    def folder(self, name):
        self._entry(name, stat.S_IFDIR | 0o755)

    def link(self, name, target):
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def file(self, name, content, executable=False):
        self._entry(name, stat.S_IFREG | (0o755 if executable else 0o644), content)

    def finish(self):
        self._entry("TRAILER!!!", 0)
        return b"".join(self.parts)

    def _entry(self, name, mode, content=b""):
        encoded = name.encode() + b"\0"
        inode = len(self.parts) + 1
        #         inode  mode user group links time size         device  node   name          checksum
        numbers = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08x" % number for number in numbers)
        self.parts += [padded(header + encoded), padded(content)]


def padded(data):
    return data + b"\0" * (-len(data) % 4)
