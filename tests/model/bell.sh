#!/usr/bin/env bash
# bell.sh: checks the flags and the bell of src/backend/shm in all interleavings (bell.pml), for 2
# ranks and 3 rounds, for 3 ranks and one round, for messages with two lines, and for short calls, and
# that each of four mistakes is found.
# Last line: N passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
for tool in spin gcc; do
    command -v $tool >/dev/null || { echo "no $tool: left out"; echo "0 passed, 0 failed"; exit 0; }
done
model=$PWD/tests/model/bell.pml
. tests/verdict.sh

# check NAME WANTED FLAGS...: WANTED is "none", or what the search must find.
check() {
    local name=$1 wanted=$2 got ignored=
    shift 2
    [ "$wanted" != "assertion violated" ] || ignored=-E # deadlocks
    cd "$work" || exit 2
    spin -a "$@" "$model" >spin.log 2>&1 && gcc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=3000 -o pan pan.c &&
        ./pan -m2000000 $ignored >search.log 2>&1
    if grep -q 'max search depth too small\|out of memory' search.log; then
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

check "2 ranks" none -DRANKS=2 -DROUNDS=3
check "3 ranks" none -DRANKS=3 -DROUNDS=1
check "two lines" none -DRANKS=2 -DROUNDS=4 -DLINES=2
check "two lines, not waiting for taken" "assertion violated" -DRANKS=3 -DROUNDS=3 -DLINES=2 -DNO_DONE
check "two lines, answered instead of taken" none -DRANKS=2 -DROUNDS=4 -DLINES=2 -DNO_DONE
check "short calls, 2 ranks" none -DRANKS=2 -DROUNDS=4 -DLINES=2 -DNO_DONE -DSHORT
check "short calls, 3 ranks" none -DRANKS=3 -DROUNDS=1 -DLINES=2 -DSHORT
check "short calls, no receiver woken" "invalid end state" -DRANKS=3 -DROUNDS=1 -DLINES=2 -DSHORT -DFORGETS
check "two lines, no fence" "invalid end state" -DRANKS=2 -DROUNDS=3 -DLINES=2 -DNO_FENCE
for ranks in 2 3; do
    check "no fence, $ranks ranks" "invalid end state" -DRANKS=$ranks -DROUNDS=2 -DNO_FENCE
    check "no last look, $ranks ranks" "invalid end state" -DRANKS=$ranks -DROUNDS=2 -DNO_LAST_LOOK
    check "not waiting for taken, $ranks ranks" "assertion violated" -DRANKS=$ranks -DROUNDS=2 -DNO_DONE
done
verdicts && [ "$passed" -gt 0 ]
