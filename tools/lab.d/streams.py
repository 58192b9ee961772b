"""What comes from the guest's ports: the command's output, and lines meant for tools/lab."""

import contextlib
import os


def received(port):
    """What a port has for us now; nothing once QEMU has gone."""
    try:
        return port.recv(1 << 16)
    except ConnectionError:
        return b""


class Stream:
    """The command's output, passed on as it comes, up to the mark that the guest puts behind it.

    Copies to `descriptor`. The guest sends `end` last: whatever is on its way, before it nothing is missing.
    """

    def __init__(self, descriptor, end):
        self.descriptor = descriptor
        self.end = end.encode()
        self.held = b""  # may be the beginning of the mark
        self.ended = False

    def take(self, data, _port):
        data = self.held + data
        self.ended = data.endswith(self.end)
        if self.ended:
            self.held = self.end
        else:
            longest = min(len(data), len(self.end))
            size = next(size for size in range(longest, -1, -1) if data.endswith(self.end[:size]))
            self.held = self.end[:size]
        self._write(data[: len(data) - len(self.held)])

    def give_up(self):
        """There will be no mark: pass on what was held for one."""
        if not self.ended:
            self._write(self.held)

    def _write(self, data):
        while data:
            data = data[os.write(self.descriptor, data) :]


class Lines:
    """Calls `hear` with each line, and sends back what it returns, if anything."""

    def __init__(self, hear):
        self.hear = hear
        self.begun = b""

    def take(self, data, port):
        *whole, self.begun = (self.begun + data).split(b"\n")
        for line in whole:
            if answer := self.hear(line.decode(errors="replace")):
                with contextlib.suppress(OSError):  # QEMU has gone: the end of the port tells
                    port.sendall(answer.encode() + b"\n")
