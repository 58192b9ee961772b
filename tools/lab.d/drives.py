"""The guest's drives: a sparse file each, with limits that can change while the guest runs."""

import tempfile
from dataclasses import dataclass, field

from problem import Problem
from qmp import QemuGone

LIMITS = ("iops", "bps")
# Devices of QEMU's that a drive can be, and the guest's driver.
DRIVERS = {"nvme": "nvme", "virtio-blk-pci": "virtio_blk"}


@dataclass
class Drive:
    number: int
    size: int
    limits: dict
    device: str = "nvme"  # one of DRIVERS, and properties of it: "nvme,logical_block_size=4096"
    # A file without a name: it goes when this process and QEMU have gone, however they end.
    file: object = field(default_factory=tempfile.TemporaryFile)

    def __post_init__(self):
        self.file.truncate(self.size)

    @property
    def name(self):
        return f"nv{self.number}"

    @property
    def driver(self):
        return DRIVERS[self.device.partition(",")[0]]

    def arguments(self):
        throttle = "".join(f",throttling.{key}-total={value}" for key, value in self.limits.items() if value)
        path = f"/proc/self/fd/{self.file.fileno()}"
        return [
            "-drive", f"file={path},if=none,id={self.name},format=raw,cache=unsafe{throttle}",
            # Behind a root port, as real drives are: only there has the drive a PCIe link to show.
            "-device", f"pcie-root-port,id=port{self.number},chassis={self.number + 1},slot={self.number + 1}",
            "-device", f"{self.device},bus=port{self.number},drive={self.name},serial={self.name}",
        ]  # fmt: skip


@dataclass
class TwoWays:
    """One namespace behind two controllers of one subsystem, which is what native NVMe multipath is for."""

    number: int  # of its first root port
    size: int
    file: object = field(default_factory=tempfile.TemporaryFile)
    disks = 3  # what the guest sees of it: the namespace, and its two paths; without multipath two disks

    def __post_init__(self):
        self.file.truncate(self.size)

    def arguments(self):
        path = f"/proc/self/fd/{self.file.fileno()}"
        result = ["-drive", f"file={path},if=none,id=shared,format=raw,cache=unsafe", "-device", "nvme-subsys,id=subsystem"]
        for number in (self.number, self.number + 1):
            result += [
                "-device", f"pcie-root-port,id=port{number},chassis={number + 1},slot={number + 1}",
                # Controllers of one subsystem have one serial.
                "-device", f"nvme,bus=port{number},subsys=subsystem,serial=shared",
            ]  # fmt: skip
        return [*result, "-device", "nvme-ns,drive=shared,nsid=1,shared=on"]


def change(drives, request, monitor):
    """Does what lab-drive asks, "0 iops=20 bps=0"; returns the answer for it."""
    try:
        number, *settings = request.split()
        drive = drives[int(number)]
        wanted = {key: int(value) for key, value in (setting.split("=") for setting in settings)}
        if not settings or set(wanted) - set(LIMITS) or min(wanted.values()) < 0:
            raise ValueError
    except (ValueError, IndexError):
        return "cannot set that: lab-drive N iops=I bps=B, with numbers from 0"
    drive.limits.update(wanted)
    limits = {"iops": 0, "iops_rd": 0, "iops_wr": 0, "bps": 0, "bps_rd": 0, "bps_wr": 0} | drive.limits
    try:
        monitor.ask("block_set_io_throttle", device=drive.name, **limits)
    except Problem as problem:
        return str(problem)
    except QemuGone:
        return "QEMU does not answer"
    return "ok"
