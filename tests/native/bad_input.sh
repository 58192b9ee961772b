#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bad_input.sh SERVEDBY: wrong usage and bad input get one line on stderr and the right exit code, and leave nothing behind.
set -u
servedby=$(realpath "$1")
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/bad-input-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
passed=0 failed=0

# wants CODE TEXT ARGUMENTS…: exit code CODE, exactly one line on stderr, and that holds TEXT; nothing on stdout.
wants() {
  local code=$1 text=$2
  shift 2
  "$servedby" "$@" >out 2>err </dev/null
  local got=$?
  if [ "$got" -eq "$code" ] && [ "$(wc -l <err)" -eq 1 ] && grep -qF -- "$text" err && [ ! -s out ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL servedby $*: exit code $got, wanted $code and one line with '$text'; stderr:"
    sed 's/^/     /' err
  fi
}

mkfifo fifo
mkdir folder
ln -s nowhere dangling
echo kept >kept
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' 0 >pointer.safetensors
printf '\377\377\377\377\377\377\377\000{}' >past.safetensors

wants 2 'see servedby --help'
wants 2 'no command is called nosuchcommand; see servedby --help' nosuchcommand
wants 2 'see servedby --help' attach
wants 2 'bogus' attach --pid 1 --tier bogus
wants 4 'no such process' attach --pid 4194303
wants 2 'CMD' run
wants 2 '--bogus is not known here' run --bogus
wants 2 'range' attach --pid abc
wants 2 'range' attach --pid 0
wants 2 'belongs to the command' run -o - -- true
wants 2 'no hook is called' run --without nosuchhook -- true
wants 2 'it exists' run -o kept -- true
wants 2 'power of two' run --ring 5000 -- true
wants 127 './missing' run --tier counters -- ./missing
wants 126 'kept' run --tier counters -- ./kept
wants 4 'No such file' layers missing
wants 4 'FIFO' layers fifo
wants 4 'No such file' residency missing
wants 4 'dangling' residency dangling
wants 4 'folder' evict folder
wants 4 'fifo' evict fifo
wants 4 'LFS' probe aimdo pointer.safetensors
wants 4 'past.safetensors' probe aimdo past.safetensors
wants 4 'missing' probe sequential missing
wants 4 'kept' report kept
wants 4 'missing' report missing
[ "$(cat kept)" = kept ] || { echo "FAIL an existing file was overwritten"; failed=$((failed + 1)); }

# The command's own exit code is passed on, and its streams are its own.
if [ "$(echo in | "$servedby" run --quiet --tier counters -- sh -c 'cat; exit 7' 2>err; echo $?)" = "in
7" ] && [ ! -s err ]; then passed=$((passed + 1)); else
  failed=$((failed + 1))
  echo "FAIL run does not pass stdin, stdout and the exit code"
fi
# A full disk is said, and no half-written result is left under the name.
if [ -c /dev/full ]; then
  "$servedby" run --quiet --tier counters -o /dev/full --force -- true 2>err
  if [ $? -eq 125 ] && grep -q 'No space left' err; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAIL a full disk: $(cat err)"
  fi
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
