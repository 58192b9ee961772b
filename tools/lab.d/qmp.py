"""QEMU's monitor: one command at a time, over a socket."""

import json

from problem import Problem


class QemuGone(Exception):
    """QEMU ended, or no longer answers."""


class Monitor:
    def __init__(self, connection):
        connection.settimeout(30)
        self._stream = connection.makefile("rw", encoding="utf-8")

    def greet(self):
        """Waits until QEMU runs: the monitor answers only then."""
        self._answer()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        try:
            self._stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            self._stream.flush()
        except OSError:
            raise QemuGone from None
        return self._answer()

    def _answer(self):
        try:
            for line in self._stream:
                message = json.loads(line)
                if "error" in message:
                    raise Problem(f"QEMU refused: {message['error']['desc']}")
                if "event" not in message:
                    return message
        except OSError:
            pass
        raise QemuGone
