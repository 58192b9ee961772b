#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validates result files against docs/schema, and the promises that a schema cannot express.

usage: validate_results.py [--quiet] FILE|FOLDER...

A file names its schema ("servedby.result/1" → docs/schema/result-1.schema.json); of a folder, every *.json below it is
validated, and one without any is wrong. Prints one line for each fault and for each file that is right, with --quiet
only a last line that counts them; exits 1 when anything is wrong. Needs python3-jsonschema (tools/setup check).
"""
import collections
import json
import os
import pathlib
import sys

try:
    import jsonschema.validators
except ImportError:
    # Debian's package is for Debian's Python, and another one may come first in PATH.
    system = "/usr/bin/python3"
    if os.path.realpath(sys.executable) == os.path.realpath(system) or not os.path.exists(system):
        sys.exit("validate_results.py: python3-jsonschema is missing: run tools/setup check")
    os.execv(system, [system, *sys.argv])

SCHEMAS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "schema"


def schema_of(document):
    """The schema that the document names, or None."""
    name = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(name, str) or not name.startswith("servedby."):
        return None
    path = SCHEMAS / (name.removeprefix("servedby.").replace("/", "-") + ".schema.json")
    return json.loads(path.read_text()) if path.is_file() else None


def broken_promises(result):
    """Sums that interface.md promises of a servedby.result/1."""
    def served(part):
        return sum(entry["bytes"] for entry in part["served_by"])

    total = result["reads"]["bytes_returned"]
    if served(result) != total:
        yield f"served_by sums to {served(result)}, reads.bytes_returned is {total}"
    for file in result["files"]:
        if served(file) != file["reads"]["bytes_returned"]:
            yield f"served_by of {file['path']!r} sums to {served(file)}, not {file['reads']['bytes_returned']}"
    for entry in result["served_by"]:
        if entry.get("prefetched_bytes", 0) > entry["bytes"]:
            yield f"{entry['via']}: more bytes prefetched than served"
    for line in result["ledger"]:
        if {"kernel_bytes", "residual_bytes", "traced_target_bytes"} <= line.keys():
            traced = line["traced_target_bytes"] + line.get("traced_other_bytes", 0)
            if line["kernel_bytes"] - traced != line["residual_bytes"]:
                yield f"ledger {line.get('device', line['boundary'])}: residual is not kernel - traced"
    if result["complete"] and any(result["losses"].values()):
        yield "complete, though something was lost"


def broken_sums(probe):
    """The same for a servedby.probe/1."""
    total = sum(file["bytes"] for file in probe["files"])
    if total != probe["bytes"]:
        yield f"files sum to {total} bytes, not {probe['bytes']}"


def levels_of(document):
    """Each file of a servedby.residency/1 or servedby.evict/1, and each backing file below it."""
    for file in document["files"]:
        yield file
        yield from file.get("below", [])


def broken_pages(document):
    for level in levels_of(document):
        name = level.get("path", "what is below")
        if level.get("resident_pages", 0) > level.get("pages", 0):
            yield f"{name}: more pages resident than there are"
        if level.get("dirty_pages", 0) > level.get("resident_pages", 0):
            yield f"{name}: more pages dirty than resident"
        ends = [place for one in level.get("ranges", []) for place in (one["begin"], one["end"])]
        if ends != sorted(set(ends)) or (ends and ends[-1] > level["bytes"]):
            yield f"{name}: ranges are empty, touch, or are out of order or of the file"


def broken_eviction(document):
    yield from broken_pages(document)
    if document["complete"] != all(level["complete"] for level in levels_of(document)):
        yield "complete is not that of every level"


def broken_tree(document):
    """The tree and the flat stack of a servedby.layers/1 are the same devices."""
    for path in document["paths"]:
        flat = {device["dev"]: device for device in path["stack"]["devices"]}
        open_ends = [path[kind] for kind in ("file", "device") if kind in path]
        reached = set()
        while open_ends:
            part = open_ends.pop()
            below = part.get("on", [])
            open_ends += below + [part[kind] for kind in ("layer", "backing_file") if kind in part]
            if "reached" in part:
                continue  # a file
            dev = part["dev"]
            if dev in flat:
                reached.add(dev)
            elif part.keys() != {"dev", "name"}:
                yield f"{part['name']} is in the tree, and not in the stack"
            if below and [device["dev"] for device in below] != flat.get(dev, {}).get("below"):
                yield f"{part['name']} stands on other devices in the tree than in the stack"
        for dev in flat.keys() - reached:
            yield f"{flat[dev]['name']} is in the stack, and not in the tree"


PROMISES = {
    "servedby.result/1": broken_promises,
    "servedby.probe/1": broken_sums,
    "servedby.residency/1": broken_pages,
    "servedby.evict/1": broken_eviction,
    "servedby.layers/1": broken_tree,
}


def faults(document):
    schema = schema_of(document)
    if schema is None:
        yield "names no schema that docs/schema has"
        return
    validator = jsonschema.validators.validator_for(schema)(schema)
    wrong = False
    for error in validator.iter_errors(document):
        wrong = True
        yield f"{'/'.join(map(str, error.absolute_path)) or 'document'}: {error.message[:300]}"
    if not wrong and document["schema"] in PROMISES:
        yield from PROMISES[document["schema"]](document)


def files_in(paths):
    for path in map(pathlib.Path, paths):
        yield from sorted(path.rglob("*.json")) or [path] if path.is_dir() else [path]


def main(arguments):
    paths = [argument for argument in arguments if argument != "--quiet"]
    if not paths:
        sys.exit(__doc__)
    for schema in SCHEMAS.glob("*.json"):
        text = json.loads(schema.read_text())
        jsonschema.validators.validator_for(text).check_schema(text)
    bad = 0
    valid = collections.Counter()
    for path in files_in(paths):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            found = list(faults(document))
        except (OSError, ValueError) as error:
            found = [str(error)]
        for fault in found:
            print(f"{path}: {fault}")
        if found:
            bad += 1
        else:
            valid[document["schema"]] += 1
            if "--quiet" not in arguments:
                print(f"{path}: valid")
    if "--quiet" in arguments:
        print(", ".join(f"{n} valid {name}" for name, n in sorted(valid.items())) or "none valid", f"{bad} invalid", sep=", ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
