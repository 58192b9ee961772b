"""QEMU's monitor: one command at a time, over a socket."""

import json

from problem import Problem


class Monitor:
    def __init__(self, connection):
        connection.settimeout(30)
        self._stream = connection.makefile("rw", encoding="utf-8")

    def greet(self):
        """Waits until QEMU runs: the monitor answers only then."""
        self._answer()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self._stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._stream.flush()
        return self._answer()

    def _answer(self):
        while line := self._stream.readline():
            message = json.loads(line)
            if "error" in message:
                raise Problem(f"QEMU refused: {message['error']['desc']}")
            if "event" not in message:
                return message
        raise EOFError("QEMU's monitor closed")
