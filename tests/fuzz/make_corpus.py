#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpus of fuzz_safetensors into the folder given: small files, valid and not, each followed by two bytes
that say how much longer the file is than what the fuzzer sees."""
import json
import os
import struct
import sys


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def seed(header, data_bytes):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + struct.pack("<H", data_bytes)


SEEDS = {
    "empty_model": seed({}, 0),
    "metadata_only": seed({"__metadata__": {"format": "pt"}}, 0),
    "one": seed({"a": tensor("F32", [2, 3], 0, 24)}, 24),
    "many": seed({"__metadata__": {"k": "v"}, "b": tensor("BF16", [4], 8, 16), "a": tensor("F64", [], 0, 8),
                  "c": tensor("U8", [0], 16, 16), "d": tensor("F4", [6], 16, 19)}, 19),
    "unknown_dtype": seed({"a": tensor("NEW", [7], 0, 5)}, 5),
    "unknown_field": seed({"a": {**tensor("U8", [1], 0, 1), "x": [1, {"y": None}], "z": 1.5}}, 1),
    "utf8": seed('{"ä中":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}'.encode(), 1),
    "escaped": seed(rb'{"\u00e4\n":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}', 1),
    "truncated": seed({"a": tensor("U8", [9], 0, 9)}, 8),
    "overlap": seed({"a": tensor("U8", [8], 0, 8), "b": tensor("U8", [8], 4, 12)}, 12),
    "hole": seed({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 8, 12)}, 12),
    "overflow": seed({"a": tensor("F64", [2**32, 2**32], 0, 8)}, 8),
    "huge_offset": seed({"a": tensor("X", [], 0, 2**64 - 1)}, 8),
    "duplicate": seed(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0),
    "deep": seed(b'{"a":{"x":' + b"[" * 40, 0),
    "not_utf8": seed(b'{"\xff\xfe":{}}', 0),
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n\0\0",
    "zip": b"PK\x03\x04\x14\0\0\0\0\0\0\0",
    "pickle": b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\0\0",
    "long_header": struct.pack("<Q", 132095296) + b"{\0\0",
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_corpus.py FOLDER")
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, content in SEEDS.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(content)


main()
