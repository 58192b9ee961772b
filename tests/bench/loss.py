#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From which rate of records on the ring overflows: threads read what is resident, each read makes one record, and their rate
is doubled until records are lost or the readers cannot read faster.

  loss.py SERVEDBY [--here DIR] [--ring BYTES]"""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
sys.dont_write_bytecode = True
from ground import read_through, sh  # noqa: E402

SECONDS = 3
FIRST_RATE = 4000  # reads a second, of all threads


def flood(servedby, file, rate, threads, options):
    """(records made, of these lost, seconds) of one run; the readers' own time, not servedby's."""
    out = "/run/servedby-loss.json"
    report = sh(servedby, "run", "--quiet", "--force", "-o", out, *options, "--",
                "fio", "--name=warm", f"--filename={file}", "--rw=randread", "--bs=512", "--ioengine=psync", "--thread",
                f"--numjobs={threads}", f"--rate_iops={rate // threads}", "--time_based", f"--runtime={SECONDS}",
                "--group_reporting", "--output-format=json")
    seconds = json.loads(report[report.index("{"):])["jobs"][0]["read"]["runtime"] / 1000
    with open(out) as f:
        records = json.load(f)["records"]
    os.unlink(out)
    return records["taken"] + records["lost"], records["lost"], seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("servedby")
    parser.add_argument("--here", default="/mnt", help="a folder with room for 16 MiB")
    parser.add_argument("--ring", help="bytes, a power of two")
    options = parser.parse_args()
    more = ("--ring", options.ring) if options.ring else ()
    file = os.path.join(options.here, "servedby-bench.warm")
    threads = max(1, (os.cpu_count() or 2) - 1)
    print(f"kernel {os.uname().release}, {os.cpu_count()} processors, {threads} readers, ring {options.ring or 'as it is'}")
    try:
        with open(file, "wb") as f:
            f.write(os.urandom(16 << 20))
        os.sync()
        read_through(file)
        best, rate = 0, FIRST_RATE
        while True:
            made, lost, seconds = flood(options.servedby, file, rate, threads, more)
            print(f"  {made / seconds:12.0f} records a second: {lost} of {made} lost", flush=True)
            if lost:
                print(f"lost from {made / seconds:.0f} a second on; nothing at {best:.0f}")
                return 0
            before, best, rate = best, max(best, made / seconds), rate * 2
            if best < before * 1.2:
                print(f"nothing was lost at {best:.0f} a second, and the readers read no faster")
                return 0
    finally:
        os.unlink(file)


if __name__ == "__main__":
    sys.exit(main())
