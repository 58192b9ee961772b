# SPDX-License-Identifier: Apache-2.0
"""The kernel's own NFSv4 server on the loopback, without its daemons: what they would answer is written beforehand."""

import fcntl
import os
import socket
import struct

from ground import sh

ADDRESS = "127.0.0.1"
CLIENT = "local"  # as the server calls whoever may mount
FOREVER = 2147483647
# include/uapi/linux/nfsd/export.h: read only, any port, async, no subtree check, with a number of its own
FLAGS = 0x1 | 0x2 | 0x10 | 0x400 | 0x2000


def set_up_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8916, struct.pack("16sH2s4s8x", b"lo", socket.AF_INET, b"", socket.inet_aton(ADDRESS)))  # SIOCSIFADDR
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running


def tell(path, text):
    with open(path, "w") as f:
        f.write(text)


class Server:
    """Exports `folder` as the root."""

    def __init__(self, folder):
        set_up_loopback()
        if not os.path.ismount("/proc/fs/nfsd"):
            sh("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        tell("/proc/fs/nfsd/versions", "-3 +4 +4.1 +4.2\n")
        tell("/proc/fs/nfsd/nfsv4leasetime", "10\n")
        tell("/proc/fs/nfsd/nfsv4gracetime", "10\n")  # until then nobody may open; it is the least
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((ADDRESS, 2049))
        self.socket.listen(8)
        tell("/proc/fs/nfsd/portlist", f"{self.socket.fileno()}\n")
        tell("/proc/fs/nfsd/threads", "2\n")
        tell("/proc/net/rpc/auth.unix.ip/channel", f"nfsd {ADDRESS} {FOREVER} {CLIENT}\n")
        tell("/proc/net/rpc/nfsd.export/channel", f"{CLIENT} {folder} {FOREVER} {FLAGS} 65534 65534 0\n")
        tell("/proc/net/rpc/nfsd.fh/channel", f"{CLIENT} 1 \\x00000000 {FOREVER} {folder}\n")

    def close(self):
        tell("/proc/fs/nfsd/threads", "0\n")
        self.socket.close()
        for cache in ("auth.unix.ip", "nfsd.export", "nfsd.fh"):
            tell(f"/proc/net/rpc/{cache}/flush", f"{FOREVER}\n")
