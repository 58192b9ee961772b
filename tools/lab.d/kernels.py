"""Unpacked kernels, kept between runs: a boot image, and the modules that a guest may load.

One folder for each kernel:
    image  config  release             the image, its configuration, its `uname -r`
    packages                           "NAME VERSION SUITE" for each package that it came from
    usr/lib/modules/RELEASE            modules, decompressed, as modprobe -d wants them; lib is a link to usr/lib
"""

import contextlib
import fcntl
import hashlib
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import archive
from problem import Problem

# Counts up when what a folder holds changes, so that older folders are not taken for new ones.
LAYOUT = "2"

# Two thirds of the modules drive hardware that no guest here has.
LEFT_OUT = ("sound",) + tuple(
    f"drivers/{group}" for group in "accel gpu hid iio infiniband input media net platform staging usb".split()
)


@dataclass(frozen=True)
class Kernel:
    root: Path

    @property
    def image(self):
        return self.root / "image"

    @property
    def release(self):
        return (self.root / "release").read_text().strip()

    @property
    def packages(self):
        return (self.root / "packages").read_text().splitlines()


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "servedby" / "lab" / LAYOUT


def kept():
    """Name and Kernel of all that is in the cache."""
    folders = sorted(path.parent for path in cache().glob("*/packages") if not path.parent.name.startswith("."))
    return [(folder.name, Kernel(folder)) for folder in folders]


def by_name(name):
    """The kernel called `name`, downloaded first if need be."""
    archive.where_from(name)

    def download(folder):
        say(f"kernel {name}: downloading its packages (once)")
        return archive.download(name, folder)

    return keep(name, download)


def from_debs(files):
    """The kernel in package files of the user's."""
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise Problem(f"--kernel-deb {file}: {error.strerror}") from None
    return keep(f"deb-{digest.hexdigest()[:16]}", lambda folder: (files, "--kernel-deb"))


def keep(name, fetch):
    """The kernel in the folder `name`; where there is none, unpacked from what fetch(folder) returns."""
    with locked(name):
        target = cache() / name
        if not (target / "packages").exists():
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache()) as work:
                debs, suite = fetch(Path(work))
                fresh = Path(work) / "kernel"
                unpack(debs, suite, fresh)
                # A rename, so that a folder is whole or not there.
                fresh.rename(target)
            say(f"kernel {name}: {'; '.join(Kernel(target).packages)}")
        return Kernel(target)


@contextlib.contextmanager
def locked(name):
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unpack(debs, suite, root):
    root.mkdir()
    for deb in debs:
        contents = subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        left_out = [f"--exclude=*/kernel/{group}" for group in LEFT_OUT]
        taken = subprocess.run(
            ["tar", "-x", "-C", root, "--no-same-owner", *left_out, "--exclude=./usr/share"],
            stdin=contents.stdout,
            stderr=subprocess.DEVNULL,
        )
        contents.stdout.close()
        if contents.wait() or taken.returncode:
            raise Problem(f"{deb}: cannot be unpacked: is it a whole Debian package, and is the disk full?")

    # Older packages keep modules in /lib, newer ones in /usr/lib; so does modprobe look here or there.
    if (root / "lib").is_dir():
        shutil.copytree(root / "lib", root / "usr/lib", dirs_exist_ok=True)
        shutil.rmtree(root / "lib")
    if not list(root.glob("usr/lib/modules/*/kernel")):
        raise Problem(f"{debs[0].name}: no modules inside: give the package that has them with a second --kernel-deb")
    (root / "lib").symlink_to("usr/lib")
    [modules] = (root / "usr/lib/modules").iterdir()
    release = modules.name

    images = list(root.glob("boot/vmlinuz-*")) + list(modules.glob("vmlinuz"))
    if not images:
        raise Problem(f"{debs[0].name}: no vmlinuz inside: give the package that has it with a second --kernel-deb")
    (root / "image").write_bytes(decompressed(images[0].read_bytes()))
    for config in [*root.glob("boot/config-*"), *modules.glob("config")][:1]:
        shutil.copyfile(config, root / "config")
    shutil.rmtree(root / "boot", ignore_errors=True)

    # Plain modules load faster: the guest is emulated, this machine is not.
    for pattern, tool in (("*.ko.xz", ["xz", "-d"]), ("*.ko.zst", [system_tool("zstd"), "-dq", "--rm"])):
        packed = b"\0".join(os.fsencode(path) for path in modules.rglob(pattern))
        subprocess.run(["xargs", "-0", "-r", "-n", "64", "-P", str(os.cpu_count()), *tool], input=packed, check=True)
    subprocess.run([system_tool("depmod"), "-b", root, release], check=True)

    (root / "release").write_text(release + "\n")
    (root / "packages").write_text("".join(f"{name_and_version(deb)} {suite}\n" for deb in debs))


def decompressed(image):
    """The kernel inside a compressed boot image, else the image itself: QEMU boots either.

    Under emulation the image would take seconds to decompress itself, at each boot.
    """
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    # Four bytes behind the payload tell its size.
    payload = image[(setup_sectors + 1) * 512 + offset :][: length - 4]
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run([system_tool("zstd"), "-dcq"], input=payload, stdout=subprocess.PIPE, check=True).stdout
    return image


def name_and_version(deb):
    return archive.run("dpkg-deb", "--show", "--showformat", "${Package} ${Version}", deb)


def system_tool(name):
    """Path of a program that may lie outside an ordinary user's PATH."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise Problem(f"{name}: not on this machine: run 'tools/setup lab'")
    return path


def say(text):
    print(f"lab: {text}", file=sys.stderr, flush=True)
