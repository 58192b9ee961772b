#!/usr/bin/env bash
# The lab checks itself from inside a guest:
#   tools/lab --nvme 2 --out DIR -- tests/lab/lab_itself.sh
set -u

passed=0 failed=0
check() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what: $*" >&2
    fi
}
refused() { ! "$@" 2>/dev/null; }
between() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }
# Random 4 KiB reads a second that bypass the page cache, as fio counts them in three seconds.
iops_of() {
    fio --name=iops --filename="$1" --readonly --rw=randread --bs=4k --direct=1 --time_based --runtime=3 --minimal |
        cut -d';' -f8
}

check "runs as root" [ "$(id -u)" = 0 ]
check "in the folder that it was called from" [ -e "$0" ]
check "root's own PATH" [ "$(command -v lab-drive)" = /run/lab/bin/lab-drive ]
check "the host is read-only" refused touch "$0" /usr/lab /etc/lab
for folder in "$SCRATCH" "$HOME" /tmp /var/tmp /run /mnt /out; do
    check "writable" touch "$folder/lab_itself"
done
for mounted in /proc /sys /dev /dev/pts /sys/kernel/debug /sys/kernel/tracing /sys/fs/bpf /sys/fs/cgroup; do
    check "mounted" mountpoint -q "$mounted"
done
check "kernel has BTF" [ -s /sys/kernel/btf/vmlinux ]
check "loopback is up" grep -q 00000000000000000000000000000001 /proc/net/if_inet6
check "two CPUs" [ "$(nproc)" = 2 ]
check "a standard output that can be opened again" [ "$(echo again >/dev/stderr 2>&1; echo $?)" = 0 ]

# Drives.
drive=$(lab-drive 0)
name=$(lab-drive 0 name)
check "path and name agree" [ "$drive" = "/dev/$name" ]
check "drive 0 is the one with that serial" grep -qw nv0 "/sys/block/$name/device/serial"
check "drive 1 is another" [ "$(lab-drive 1)" != "$drive" ]
check "no drive 9" refused lab-drive 9
check "no such limit" refused lab-drive 0 speed=5
check "no such number" refused lab-drive 0 iops=fast
check "a PCIe link" grep -q GT/s "/sys/block/$name/device/device/current_link_speed"

# A file system, by modules that load themselves; and the same in a loop device on it.
check "mkfs" mkfs.xfs -q "$drive"
mkdir -p /mnt/drive /mnt/loop
check "mount loads xfs" mount "$drive" /mnt/drive
head -c 16M /dev/urandom >/mnt/drive/file
sync
truncate -s 64M /mnt/drive/backing
loop=$(losetup --find --show /mnt/drive/backing)
check "losetup loads loop" [ -b "$loop" ]
check "mkfs on the loop" mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
check "mount loads ext4" mount -o noinit_itable "$loop" /mnt/loop
check "copy" cp /mnt/drive/file /mnt/loop/file
check "same bytes" cmp /mnt/drive/file /mnt/loop/file
for module in null_blk brd dm-mod dm-crypt dm-thin-pool raid0 btrfs overlay; do
    check "module" modprobe "$module"
done
check "null_blk works" [ -b /dev/nullb0 ]
check "device mapper" dmsetup --noudevsync --noudevrules create part --table "0 2048 linear $(lab-drive 1) 0"

# Limits change while a drive runs.
free=$(iops_of /mnt/drive/file)
lab-drive 0 iops=5
limited=$(iops_of /mnt/drive/file)
lab-drive 0 iops=0
freed=$(iops_of /mnt/drive/file)
echo "requests a second, under emulation: $free free, $limited limited to 5, $freed free again"
# This machine may be busy, so that a guest falls short of a limit; it may never pass it.
check "5 a second" between "$limited" 1 10
check "more before" [ "$free" -gt $((2 * limited)) ]
check "more after" [ "$freed" -gt $((2 * limited)) ]
lab-drive 0 bps=$((64 * 4096))
limited=$(iops_of /mnt/drive/file)
lab-drive 0 bps=0
check "64 blocks a second" between "$limited" 1 128

# Left running on purpose: it must not keep the guest alive.
sleep 1000 &

echo "written in the guest" >/out/from-guest.txt
echo "$(uname -r): $passed passed, $failed failed"
[ "$failed" = 0 ]
