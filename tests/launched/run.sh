#!/usr/bin/env bash
# run.sh BUILD: programs of tests/mpi without MPI, on ranks of a node that build/tests/launched/launch starts,
# over shared memory; some also over sockets, over both, and over windows. Prints a line per launch; last line: N
# passed, N failed. A launch that hangs, crashes or prints no count is one more failure.
set -u
build=${1:?usage: run.sh BUILD}
. "$(dirname "$0")/../verdict.sh"

sizes() { # sizes PROGRAM: the numbers of ranks that it runs on
    case $1 in
    members) echo 4 8 ;;
    general) echo 1 3 8 17 ;;
    golden | sparse | halos | layers) echo 1 3 5 8 ;;
    known_answer) echo 2 4 8 ;;
    *) echo 1 3 4 8 ;;
    esac
}

launch() { # launch RANKS PROGRAM
    timeout -k 5 600 "$build/tests/launched/launch" "$1" "$build/tests/launched/$2" >"$work/log" 2>&1 </dev/null
    adds $? "$work/log"
    echo "launched $2 on $1: $count"
}

for program in "$build"/tests/launched/*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    name=$(basename "$program")
    [ "$name" = launch ] && continue
    for n in $(sizes "$name"); do
        launch "$n" "$name"
    done
done
for run in "4 golden" "3 sparse" "3 general" "3 redistribute" "3 samples"; do
    # shellcheck disable=SC2086
    LIERNE_TRANSPORTS=socket launch $run
    # shellcheck disable=SC2086
    LIERNE_TEST_NODE_RANKS=2 launch $run
done
# Windows of a device that is played (tests/support/ipc.h).
for run in "4 golden" "4 sparse" "4 halos" "4 general" "8 members" "4 update" \
    "4 layers" "4 inflight" "4 known_answer"; do
    # shellcheck disable=SC2086
    LIERNE_TEST_EXECUTOR=ipc launch $run
done
LIERNE_TEST_EXECUTOR=ipc LIERNE_TEST_NODE_RANKS=2 launch 3 general
# The same with copies of all buffers, as on a device that is not played (tests/gpu/launched).
for run in "4 golden" "4 inflight" "3 general"; do
    # shellcheck disable=SC2086
    LIERNE_TEST_EXECUTOR=staged launch $run
done
verdicts && [ "$passed" != 0 ]
