# SPDX-License-Identifier: Apache-2.0
"""Where btrfs keeps a file: its extents and chunks, as its own tools read them from the drive."""

import re

from ground import must, sh


def dump(device, tree):
    sh("blockdev", "--flushbufs", f"/dev/{device}")  # the tool reads through the drive's own cache, the file system does not
    return sh("btrfs", "inspect-internal", "dump-tree", "-t", str(tree), f"/dev/{device}")


class Map:
    """What is on `drives`, as mkfs was given them, at this moment."""

    def __init__(self, drives):
        self.drives = drives
        self.files = extents_of(drives[0])
        self.chunks = []  # (begin, length, stripe length, [drive])
        chunk = None
        for line in dump(drives[0], 3).splitlines():
            if found := re.search(r"key \(FIRST_CHUNK_TREE CHUNK_ITEM (\d+)\)", line):
                chunk = [int(found[1]), 0, 0, "", []]
                self.chunks.append(chunk)
            elif "key (" in line:
                chunk = None
            elif chunk and (found := re.search(r"length (\d+) owner \d+ stripe_len (\d+) type (\S+)", line)):
                chunk[1:4] = int(found[1]), int(found[2]), found[3]
            elif chunk and (found := re.search(r"stripe \d+ devid (\d+) offset", line)):
                chunk[4].append(drives[int(found[1]) - 1])

    def extents(self, inode):
        return self.files.get(inode, [])

    def drive(self, logical):
        for begin, length, stripe, kind, drives in self.chunks:
            if begin <= logical < begin + length:
                if "RAID0" in kind:
                    return drives[(logical - begin) // stripe % len(drives)]
                must(len(drives) == 1, f"data in a chunk of {kind}")
                return drives[0]
        raise AssertionError(f"no chunk has {logical}")

    def drives_of(self, logical, length):
        """(bytes, drive), in order."""
        at, stop = logical, logical + length
        while at < stop:
            step = min(stop - at, 4096 - at % 4096)
            yield step, self.drive(at)
            at += step


def extents_of(device, tree=5):
    """Inode → its extents, in order: `at` and `bytes` of the file, `kind`, `disk` and `nr` (logical address and bytes there),
    `offset` in what is there, `compressed`."""
    found, item = {}, None
    for line in dump(device, tree).splitlines():
        if key := re.search(r"item \d+ key \((\d+) (\S+) (\d+)\)", line):
            item = None
            if key[2] == "EXTENT_DATA":
                item = {"at": int(key[3]), "compressed": False}
                found.setdefault(int(key[1]), []).append(item)
        elif item is not None:
            if value := re.search(r"generation \d+ type \d+ \((\w+)\)", line):
                item["kind"] = value[1]
            elif value := re.search(r"data disk byte (\d+) nr (\d+)", line):
                item["disk"], item["nr"] = int(value[1]), int(value[2])
            elif value := re.search(r"data offset (\d+) nr (\d+)", line):
                item["offset"], item["bytes"] = int(value[1]), int(value[2])
            elif value := re.search(r"inline extent data size \d+ ram_bytes (\d+)", line):
                item["kind"], item["bytes"] = "inline", int(value[1])
            elif value := re.search(r"extent compression \d+ \((\w+)\)", line):
                item["compressed"] = value[1] != "none"
    return found
