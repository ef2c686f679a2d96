#!/usr/bin/env bash
# run.sh BUILD: programs of tests/launched on the memory of GPUs, which ranks share where there are fewer:
# over windows between processes, over sockets, and over NCCL. Prints a line per launch and what was
# skipped; last line: N passed, N failed.
set -u
build=${1:?usage: run.sh BUILD}
cd "$(dirname "$0")/../../.." || exit 2
. tests/verdict.sh
devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
if [ "$devices" = 0 ]; then
    echo "skipped: there is no CUDA device"
    verdicts
    exit
fi

launch() { # launch EXECUTOR RANKS PROGRAM
    local status
    LIERNE_TEST_EXECUTOR=$1 timeout -k 5 600 "$build/tests/launch" "$2" "$build/tests/gpu/launched/$3" \
        >"$work/log" 2>&1 </dev/null
    status=$?
    echo "$3 on $2 ranks, $1: $(tail -n 1 "$work/log")"
    [ $status = 0 ] && grep -qE '^[1-9][0-9]* passed, 0 failed$' "$work/log"
    verdict $? "$3 on $2 ranks, $1, exit status $status: $(head -n 20 "$work/log")"
}

for ranks in 2 4 8; do
    for program in golden sparse general; do
        launch cuda $ranks $program
    done
done
for program in halos update layers inflight known_answer; do
    launch cuda 4 $program
done
launch cuda 2 bridge
launch cuda 8 members
LIERNE_TRANSPORTS=socket launch cuda 3 general
LIERNE_TEST_NODE_RANKS=2 launch cuda 4 golden

minor=$("$build/lierne" info | sed -n 's/^nccl: NCCL 2\.\([0-9]*\)\..*/\1/p')
ranks=$devices
if [ "$ranks" -lt 2 ] && [ "${minor:-0}" -ge 30 ]; then
    export NCCL_MULTI_RANK_GPU_ENABLE=1 # several on one device; experimental
    ranks=4
fi
if [ -z "$minor" ]; then
    echo "skipped: no NCCL"
elif [ "$ranks" -lt 2 ]; then
    echo "skipped: NCCL 2.$minor needs a device for each rank, and there is one; 2.30 needs none"
else
    [ "$ranks" -le 8 ] || ranks=8
    for program in golden sparse general; do
        launch nccl $ranks $program
    done
fi
verdicts
