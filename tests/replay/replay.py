#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replay.py SERVEDBY [NAME...]: recordings of lab scenarios, replayed on this machine without any privilege.

Each must give the result that the live session gave (all but "tool"), and that result must be the known truth: the layers
and bytes that the scenario's state demanded, every ledger line to the byte, nothing lost. Made by
tests/lab/record_replays.py. With --keep the results are made again from the recordings, if they are true: for when their form
has changed on purpose. Exit: 0 all right, 1 something is wrong."""

import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True
import validate_results

MODEL = 9 << 20  # record_replays.py
# Each state's layers without their numbers, so that truth.json too is held against something.
LAYERS = {
    "cold": {"nvme"},
    "backing-warm": {"loop > page-cache"},
    "both-cold": {"loop > nvme"},
    "backing-half": {"loop > nvme", "loop > page-cache"},
}
NOBODY = 65534


def replay(servedby, recording):
    """The result, or a line that says why there is none."""
    more = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    # Opened here, for nobody may not be let through the folders above.
    program, file = os.open(servedby, os.O_RDONLY), os.open(recording, os.O_RDONLY)
    words = [f"/proc/self/fd/{program}", "report", "--json", f"/proc/self/fd/{file}"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(program, file), **more)
    os.close(program)
    os.close(file)
    if done.returncode != 0:
        return None, f"exit code {done.returncode}, {done.stderr.decode()[-400:]} (made for another version? record_replays.py)"
    return json.loads(done.stdout), None


def differences(found, kept, at=""):
    if isinstance(found, dict) and isinstance(kept, dict):
        for key in sorted(found.keys() | kept.keys()):
            if not at and key == "tool":
                continue
            if key not in found or key not in kept:
                yield f"{at}{key} is only in the {'replay' if key in found else 'kept result'}"
            else:
                yield from differences(found[key], kept[key], f"{at}{key}.")
    elif isinstance(found, list) and isinstance(kept, list) and len(found) == len(kept):
        for i, (one, other) in enumerate(zip(found, kept)):
            yield from differences(one, other, f"{at}{i}.")
    elif type(found) is not type(kept) or found != kept:
        yield f"{at.rstrip('.')}: replayed {str(found)[:200]}, kept {str(kept)[:200]}"


def layers(thing):
    return {" > ".join(one["via"]): one["bytes"] for one in thing["served_by"]}


def untruths(name, truth, result):
    state = name.split("-", 1)[1]
    demanded = truth["served_by"]
    if {re.sub(r"\d+(n\d+)?", "", via) for via in demanded} != LAYERS[state] or sum(demanded.values()) != MODEL:
        yield f"truth.json: {demanded} is not what '{state}' means"
    if 0 in demanded.values() or len(set(demanded.values())) != len(demanded):
        yield f"truth.json: in {demanded} layers that were taken for each other would not be noticed"
    if truth["kernel"] not in result["kernel"] or not truth["kernel"].startswith(name.split("-")[0]):
        yield f"kernel {result['kernel']}, not {truth['kernel']}"
    files = [file for file in result["files"] if file["path"] == truth["file"]]
    if len(files) != 1 or layers(files[0]) != demanded:
        yield f"{truth['file']} was served by {[layers(file) for file in files]}, the state demanded {demanded}"
    for via, bytes in demanded.items():
        if layers(result).get(via, 0) < bytes:
            yield f"in all {layers(result)}, less than the file's {demanded}"
    if not result["complete"] or any(result["losses"].values()):
        yield f"not complete: {result['losses']}"
    if len(result["ledger"]) < 2:
        yield "the ledger has no line of a device"
    for line in result["ledger"]:
        if line.get("residual_bytes") != 0:
            yield f"ledger of {line.get('device', line['boundary'])}: residual {line.get('residual_bytes')}"


def main(arguments):
    keep = "--keep" in arguments
    words = [word for word in arguments if word != "--keep"]
    if not words:
        sys.exit(__doc__)
    truths = json.loads((HERE / "truth.json").read_text())
    wrong = 0
    for name in words[1:] or sorted(truths):
        kept = HERE / f"{name}.json"
        result, trouble = replay(words[0], HERE / f"{name}.rec")
        if result is None:
            found = [trouble]
        else:
            found = [*untruths(name, truths[name], result), *validate_results.faults(result)]
            if keep and not found:
                kept.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
            found += differences(result, json.loads(kept.read_text()))
        for fault in found[:20]:
            print(f"{name}: {fault}")
        if found:
            wrong += 1
        else:
            print(f"{name}: replays to the kept result, which is true")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
