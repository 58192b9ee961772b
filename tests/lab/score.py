# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of a script in a guest, prints a line for each, counts, and keeps what servedby wrote."""

import argparse
import os
import subprocess
import time

from ground import Incomplete, Wrong, settle, sh

PROGRAM_FAILED = (Wrong, subprocess.CalledProcessError, OSError, KeyError)


class LeftOut(Exception):
    """This guest cannot make the state; the reason is printed."""


class Cells:
    """What one check shows, by name; each is right or wrong by itself."""

    def __init__(self, names):
        self.count, self.wrong = len(list(names)), []

    def check(self, name, function):
        try:
            function()
        except (Wrong, KeyError) as wrong:
            self.wrong.append(f"{name}: {wrong}")


class Score:
    def __init__(self, out):
        self.passed = self.failed = 0
        self.release, self.out = os.uname().release, out
        if out:
            os.makedirs(f"{out}/results", exist_ok=True)

    def keep_in(self, name):
        """Where a Ground keeps results, see Ground.kept()."""
        return f"{self.out}/results/{self.release}-{name}" if self.out else None

    def run(self, name, check):
        """check() gives its Cells, or nothing where it is one; raises Wrong where it has no answer. A result that says itself
        that it is incomplete gets two more tries; a wrong one never does."""
        began, name = time.monotonic(), f"{self.release} {name}"
        for _ in range(3):
            try:
                settle()
                cells = check()
                wrong, right = (cells.wrong, cells.count - len(cells.wrong)) if cells else ([], 1)
                break
            except LeftOut as reason:
                print(f"left out {name}: {reason}", flush=True)
                return
            except Incomplete as said:
                print(f"again {name} {said}", flush=True)
                wrong, right = [str(said)], 0
            except PROGRAM_FAILED as said:
                wrong, right = [str(said)], 0
                break
        self.passed += right
        self.failed += len(wrong)
        count = f", {right} cells" if right > 1 else ""
        print(f"{'FAIL' if wrong else 'pass'} {name}{count} ({time.monotonic() - began:.0f} s)", flush=True)
        for text in wrong:
            print(f"     {text}", flush=True)

    def finish(self):
        """The exit code."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def options_of(modules, more):
    """--fs and --out, and what more(parser) adds; the modules are loaded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("servedby")
    parser.add_argument("--fs", default="ext4,xfs")
    parser.add_argument("--out")
    more(parser)
    options = parser.parse_args()
    options.fs = options.fs.split(",")
    for module in modules:
        sh("modprobe", module)
    return options


def run_once(program):
    """A program that is resident from now on, with its libraries and the shell: the host has them, and the kernel counts their
    first reads."""
    subprocess.run(["sh", "-c", f"{program}; true"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
