#!/usr/bin/env bash
# run.sh BUILD: programs of tests/mpi without MPI, on ranks of a node that build/tests/launched/launch starts,
# over shared memory; some also over sockets, over both, and over windows. Prints a line per launch; last line: N
# passed, N failed. A launch that hangs, crashes or prints no count is one more failure.
set -u
build=${1:?usage: run.sh BUILD}
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

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
    local count bad status
    timeout -k 5 600 "$build/tests/launched/launch" "$1" "$build/tests/launched/$2" >"$log" 2>&1 </dev/null
    status=$?
    count=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    bad=$(cut -d' ' -f3 <<<"$count")
    if [ -z "$count" ] || { [ $status -ne 0 ] && [ "$bad" = 0 ]; }; then
        count="0 passed, 1 failed (exit status $status)"
    fi
    echo "launched $2 on $1: $count"
    passed=$((passed + $(cut -d' ' -f1 <<<"$count")))
    if [ "$(cut -d' ' -f3 <<<"$count")" != 0 ]; then
        failed=$((failed + $(cut -d' ' -f3 <<<"$count")))
        head -n 30 "$log" | sed 's/^/    /'
    fi
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
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
