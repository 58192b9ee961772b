#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validates result files against docs/schema, and the promises that a schema cannot express.

usage: validate_results.py FILE...

A file names its schema ("servedby.result/1" → docs/schema/result-1.schema.json). Prints one line for each fault and for
each file that is right; exits 1 when anything is wrong. Needs python3-jsonschema (tools/setup check).
"""
import json
import pathlib
import sys

import jsonschema.validators

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


PROMISES = {"servedby.result/1": broken_promises, "servedby.probe/1": broken_sums}


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


def main(paths):
    if not paths:
        sys.exit(__doc__)
    bad = 0
    for schema in SCHEMAS.glob("*.json"):
        text = json.loads(schema.read_text())
        jsonschema.validators.validator_for(text).check_schema(text)
    for path in paths:
        try:
            found = list(faults(json.loads(pathlib.Path(path).read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            found = [str(error)]
        for fault in found:
            print(f"{path}: {fault}")
        if not found:
            print(f"{path}: valid")
        bad += bool(found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
