#!/usr/bin/env bash
# The lab checked from outside: exit codes, output, results, crashes, hangs, leftovers.
#   tests/lab/lab_host.sh [KERNEL]
set -u
cd "$(dirname "$0")/../.." || exit 1

kernel=${1:-6.12}
work=$(mktemp -d /var/tmp/lab_host.XXXXXX)
export TMPDIR=$work # so that what the lab leaves behind is seen

passed=0 failed=0
check() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what: $*" >&2
        tail -n 5 "$work/stdout" "$work/stderr" >&2
    fi
}
# Runs the lab with these arguments; leaves its exit code in $code, its output in two files.
lab() {
    tools/lab --kernel "$kernel" "$@" >"$work/stdout" 2>"$work/stderr"
    code=$?
}
refused() { ! "$@"; }
# Zombies do not count: whoever should wait for them is not ours to mend.
is_running() { grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null; }
own_lines() { grep -c '^lab: ' "$work/stderr"; }

lab --verbose -- sh -c 'pwd; echo to stderr >&2'
check "exit code 0" [ $code = 0 ]
check "the same folder" [ "$(cat "$work/stdout")" = "$PWD" ]
check "standard error is apart" grep -qx 'to stderr' "$work/stderr"
boot=$(sed -n 's/.*command started after \([0-9.]*\) s/\1/p' "$work/stderr")
echo "kernel $kernel: boot to command in $boot s"
# Others at work on this machine say nothing about the lab.
read -r load _ </proc/loadavg
if [ "${load%.*}" -lt 2 ]; then
    check "within 15 s" [ "${boot%.*}" -lt 15 ]
else
    echo "not checked that this is within 15 s: the machine is busy (load $load)"
fi

lab --nvme 2 --out "$work/out" -- tests/lab/lab_itself.sh
tail -n 1 "$work/stdout"
check "from inside" [ $code = 0 ]
check "/out comes back" grep -qx 'written in the guest' "$work/out/from-guest.txt"

echo 'exit 137' >"$work/script"
lab --nvme 0 -- sh "$work/script"
check "exit code 137, and a script in a folder that the guest hides" [ $code = 137 ]

lab --nvme 0 -- sh -c 'head -c 20000000 /dev/zero; printf end; exit 3'
check "exit code 3" [ $code = 3 ]
check "all output, to the last byte" [ "$(wc -c <"$work/stdout")" = 20000003 ]

lab --nvme 1 --drive nvme,logical_block_size=4096,mdts=2 --drive virtio-blk-pci -- sh -c 'lab-drive 2 name
  cat /sys/block/$(lab-drive 1 name)/queue/logical_block_size /sys/block/$(lab-drive 1 name)/queue/max_hw_sectors_kb'
check "drives of other shapes" [ "$(echo $(cat "$work/stdout"))" = "vda 4096 16" ]
lab --drive floppy -- true
check "no such drive: exit code 2" [ $code = 2 ]

lab --nvme 0 -- /no/such/program
check "no such program" [ $code = 127 ]

lab --out "$work/crash" -- sh -c 'echo before; sleep 0.5; echo c >/proc/sysrq-trigger; sleep 60'
check "a panic is exit code 70" [ $code = 70 ]
check "output before it is kept" grep -qx before "$work/stdout"
check "said in one line" [ "$(own_lines)" = 1 ]
check "console kept" grep -q 'Kernel panic' "$work/crash/console.log"

lab --timeout 45 -- sh -c 'echo before; sleep 1000'
check "a hang is exit code 124" [ $code = 124 ]
check "said in one line" [ "$(own_lines)" = 1 ]
check "output before it is kept" grep -qx before "$work/stdout"
check "console kept" [ -f "$(sed -n 's/.*console is in //p' "$work/stderr")" ]

lab --qemu '-no-such-option' -- true
check "QEMU refuses: exit code 71" [ $code = 71 ]
check "said in one line" [ "$(own_lines)" = 1 ]
lab --kernel 5.0 -- true
check "no such kernel" [ $code = 71 ]

# Killed without mercy, the lab takes its guest along.
tools/lab --kernel "$kernel" -- sleep 1000 2>/dev/null &
lab_process=$!
sleep 5
guest=$(pgrep -P $lab_process -f qemu-system)
kill -9 $lab_process
wait $lab_process 2>/dev/null
for _ in $(seq 100); do
    is_running "$guest" || break
    sleep 0.1
done
check "there was a guest" [ -n "$guest" ]
check "it is gone" refused is_running "$guest"
rm -rf "$work"/servedby-lab-*

tools/lab --kernel "$kernel" -- sleep 1000 2>/dev/null &
lab_process=$!
sleep 5
kill -TERM $lab_process
wait $lab_process
check "exit code 143 after SIGTERM" [ $? = 143 ]
check "nothing is left behind" [ -z "$(find "$work" -name 'servedby-lab-*')" ]

if [ "$failed" = 0 ]; then rm -rf "$work"; else echo "kept: $work"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
