#!/usr/bin/env bash
# barrier.sh [long]: checks the barrier of window collectives and its wrong variants in all
# interleavings (barrier.pml), with the outcomes of tests/golden/windows.json. long: also 4 ranks.
# Last line: N passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
for tool in spin gcc python3; do
    command -v $tool >/dev/null || { echo "no $tool: left out"; echo "0 passed, 0 failed"; exit 0; }
done
model=$PWD/tests/model/barrier.pml
. tests/verdict.sh

# flags PROTOCOL: the name in the golden file, as -D of the model.
flags() {
    local f=
    case $1 in
    seed*) f=-DADD ;;
    selfreset) f="-DADD -DRESET" ;;
    bit*) f=-DBIT ;;
    phaseset*) f=-DSET ;;
    phaseadd*) f="-DADD -DEPOCH" ;;
    central*) f=-DCENTRAL ;;
    *) return 1 ;;
    esac
    case $1 in *_nosnap*) f+=" -DNOSNAP" ;; esac
    case $1 in *_dbl) f+=" -DBUFFERS=2" ;; *_exit) f+=" -DEXIT" ;; esac
    echo "$f"
}

# search OPTION: whether the search finds an error; -E ignores deadlocks, -A assertions.
search() {
    ./pan -m1000000 "$1" >search.log 2>&1
    grep -q 'max search depth too small\|out of memory' search.log && return 2
    grep -q 'errors: [1-9]' search.log
}

# check NAME RANKS ROUNDS BAD DEADLOCK FLAGS...: BAD and DEADLOCK are 1 where they must be found.
check() {
    local name=$1 ranks=$2 rounds=$3 bad=$4 deadlock=$5 got_bad=0 got_deadlock=0
    shift 5
    cd "$work" || exit 2
    if spin -a -DN="$ranks" -DROUNDS="$rounds" "$@" "$model" >spin.log 2>&1 &&
        gcc -O1 -w -DSAFETY -DMEMLIM=2000 -o pan pan.c; then
        search -E && got_bad=1
        search -A && got_deadlock=1
    else
        got_bad=none
        cat spin.log
    fi
    [ "$got_bad $got_deadlock" = "$bad $deadlock" ]
    verdict $? "$name, $ranks ranks, $rounds rounds: bad read $got_bad, must be $bad; deadlock $got_deadlock, must be $deadlock"
}

while read -r name ranks rounds bad deadlock; do
    f=$(flags "$name") || { verdict 1 "no model of $name" && continue; }
    check "$name" "$ranks" "$rounds" "$bad" "$deadlock" $f
done < <(python3 -c '
import json
for r in json.load(open("tests/golden/windows.json"))["barrier_models"]:
    print(r["protocol"], r["ranks"], r["rounds"], int(r["bad_read_reachable"]),
          int(r["deadlock_reachable"]))')

# The barrier that lierne has: an epoch is stored, two buffers take turns. It wraps; a comparison
# that does not passes too early, and waits for ever. A flag before the data is a bad read.
for ranks in 2 3 ${1:+4}; do
    rounds=$((ranks < 4 ? 5 : 3))
    check "epoch" $ranks $rounds 0 0 -DSET -DBUFFERS=2 -DMODULUS=8 -DSTART=6
    check "comparison without wrap" $ranks 3 1 1 -DSET -DBUFFERS=2 -DMODULUS=8 -DSTART=6 -DLAG
    check "flag before data" $ranks 2 1 0 -DSET -DBUFFERS=2 -DEARLY
    # Windows of programs: flags take turns as buffers do. One flag is overwritten before it was seen.
    check "flags that take turns" $ranks $rounds 0 0 -DSET -DTURNS -DBUFFERS=2 -DMODULUS=8 -DSTART=6
    check "flags that take turns, one buffer" $ranks 3 1 0 -DSET -DTURNS -DMODULUS=8 -DSTART=6
    check "equality of one flag" $ranks 3 0 1 -DSET -DALONE -DBUFFERS=2
done
verdicts && [ "$passed" -gt 0 ]
