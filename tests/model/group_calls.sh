#!/usr/bin/env bash
# group_calls.sh: proves with Spin that the group calls of 200 random small stages, cut by the
# library's own function, end in every interleaving without any buffering, and that a cut by each
# rank's own order does not. Last line: N passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
for tool in spin gcc; do
    command -v $tool >/dev/null || { echo "no $tool: left out"; echo "0 passed, 0 failed"; exit 0; }
done
root=$PWD
. tests/verdict.sh
gcc -std=c11 -D_GNU_SOURCE -O1 -Iinclude -Isrc -o "$work/print" tests/model/group_calls.c \
    src/backend/nccl/group_calls.c src/base/*.c || exit 2
cd "$work" || exit 2

# check WANTED ARGUMENTS: WANTED is "errors: 0" or "invalid end state".
check() {
    local wanted=$1
    shift
    "$work/print" "$@" >model.pml && spin -a model.pml >spin.log 2>&1 &&
        gcc -O0 -w -DSAFETY -DMEMLIM=2000 -o pan pan.c && ./pan -m100000 >search.log 2>&1 &&
        ! grep -q 'max search depth too small\|out of memory' search.log && grep -q "$wanted" search.log
    verdict $? "$*: must have '$wanted': $(tail -n 5 spin.log search.log)"
}
check 'errors: 0' 200
check 'invalid end state' 200 own
cd "$root" || exit 2
verdicts && [ "$passed" -gt 0 ]
