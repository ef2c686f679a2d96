#!/usr/bin/env bash
# shrink.sh: checks in all interleavings how ranks that are left agree, in shared memory (shrink.pml)
# and over connections (remote.pml): 3 ranks, of which one or two die at any moment and one may fail by
# itself; and that each of four and three mistakes is found.
# Last line: N passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
for tool in spin gcc; do
    command -v $tool >/dev/null || { echo "no $tool: left out"; echo "0 passed, 0 failed"; exit 0; }
done
models=$PWD/tests/model
model=$models/shrink.pml
. tests/verdict.sh

# check NAME WANTED FLAGS...: WANTED is "none", or what the search must find.
check() {
    local name=$1 wanted=$2 got
    shift 2
    cd "$work" || exit 2
    spin -a "$@" "$model" >spin.log 2>&1 && gcc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c &&
        ./pan -m2000000 >search.log 2>&1
    if grep -q 'max search depth too small\|out of memory\|reached -DMEMLIM' search.log; then
        got="no end"
    elif grep -q 'errors: 0' search.log; then
        got=none
    else
        got=$(grep -oE 'invalid end state|assertion violated' search.log | head -n 1)
    fi
    [ "$got" = "$wanted" ]
    verdict $? "$name: '$got', must be '$wanted'"
    rm -f search.log
}

check "one death" none -DDEATHS=1
check "one death, a deadline" none -DDEATHS=1 -DDEADLINE
check "two deaths" none -DDEATHS=2
check "a rank that came is marked as gone" "assertion violated" -DDEATHS=1 -DNO_COMPARE
check "an outcome is overwritten" "invalid end state" -DDEATHS=1 -DOVERWRITES
check "own result only" "assertion violated" -DDEATHS=1 -DOWN_RESULT
check "results of the attempt before" "assertion violated" -DDEATHS=1 -DSTALE

model=$models/remote.pml
check "connections: one death" none -DDEATHS=1
check "connections: two deaths" none -DDEATHS=2
check "a proposal is decided too early" "assertion violated" -DDEATHS=1 -DNO_WAIT
check "what was taken over is forgotten" "assertion violated" -DDEATHS=1 -DFORGETS
check "a proposal of a rank that has ended" "assertion violated" -DDEATHS=2 -DNO_ORDER
verdicts && [ "$passed" -gt 0 ]
