#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# counters_loop.sh WATCH [DIR]: the counters tier on this very machine. Makes an ext4 file system in a loop device in DIR (default:
# beside WATCH), brings a file in it into known cache states, reads it under WATCH (build/<preset>/counters_watch) and checks
# what was inferred. Needs root for the loop device and python3. Exit: 0 all right, 1 a wrong answer, 77 cannot be done here.
set -euo pipefail

watch=$(realpath "$1")
scratch=$(mktemp -d "${2:-$(dirname "$watch")}/counters-loop-XXXXXX")
loop=
cannot() { echo "SKIPPED: $*" >&2; exit 77; }
cleanup() {
  status=$?
  trap '' INT TERM
  if mountpoint -q "$scratch/mnt"; then umount "$scratch/mnt"; fi
  if [[ -n $loop ]]; then losetup --detach "$loop"; fi
  rm -rf "$scratch"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

[[ $EUID -eq 0 ]] || cannot "not root, so no loop device can be made"
[[ -e /proc/self/io ]] || cannot "this kernel has no /proc/PID/io"
command -v python3 losetup mkfs.ext4 >/dev/null || cannot "python3, losetup or mkfs.ext4 is missing"

mib=192
mkdir "$scratch/mnt"
truncate -s $((mib + 64))M "$scratch/image"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$scratch/image"
loop=$(losetup --find --show "$scratch/image") || cannot "losetup refused"
mount -o noatime "$loop" "$scratch/mnt"
head -c ${mib}M /dev/urandom >"$scratch/mnt/file"
cp "$scratch/mnt/file" "$scratch/plain"
sync -f "$scratch/mnt/file" && sync -f "$scratch/plain"
drive=$(lsblk -no PKNAME,KNAME "$(findmnt -no SOURCE -T "$scratch/plain")" | awk 'NR == 1 { print $1 == "" || NF == 1 ? $NF : $1 }')

evict() {
  python3 - "$@" <<'PYTHON'
import os, sys
for path in sys.argv[1:]:
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
PYTHON
}
warm() { cat "$@" >/dev/null; }

failed=0
# check NAME FILE VIA: at least 90 % of the bytes must be inferred as VIA; the rest is what others read of a shared drive meanwhile.
check() {
  "$watch" dd if="$2" of=/dev/null bs=1M status=none >"$scratch/answer"
  if python3 - "$scratch/answer" "$1" "$3" $((mib << 20)) <<'PYTHON'
import json, sys
answer = json.load(open(sys.argv[1]))
size, wanted = int(sys.argv[4]), sys.argv[3].split()
parts = {tuple(part["via"]): part["bytes"] for part in answer["served_by"]}
right = parts.get(tuple(wanted), 0)
whole = sum(parts.values()) == answer["rchar"] >= size
fine = answer["known"] and whole and right >= size * 9 // 10 and answer["ended_unseen"] == 0
told = ", ".join(f"{'/'.join(via)} {bytes}" for via, bytes in parts.items())
print(f"{'ok    ' if fine else 'WRONG '} {sys.argv[2]}: {told}\n        {answer['doubt']}")
sys.exit(not fine)
PYTHON
  then :; else failed=1; cat "$scratch/answer"; fi
}

name=$(basename "$loop")
evict "$scratch/plain"
check "file on the drive, cold" "$scratch/plain" "$drive"
check "file on the drive, warm" "$scratch/plain" "page-cache"
evict "$scratch/mnt/file"; warm "$scratch/image"; evict "$scratch/mnt/file"
check "file in the loop device, backing file warm" "$scratch/mnt/file" "$name page-cache"
check "file in the loop device, warm" "$scratch/mnt/file" "page-cache"
evict "$scratch/mnt/file" "$scratch/image"
check "file in the loop device, both cold" "$scratch/mnt/file" "$name $drive"
exit $failed
