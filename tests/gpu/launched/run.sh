#!/usr/bin/env bash
# run.sh BUILD [PROGRAMS]: programs of tests/launched, and of tests/gpu/ranks, on the memory of GPUs, which
# ranks share where there are fewer: over windows between processes, over sockets, and over NCCL; some of
# tests/mpi over MPI. PROGRAMS: their folder, where it is that of programs on the emulated device. Prints a line
# per launch and what was skipped; last line: N passed, N failed.
set -u
build=${1:?usage: run.sh BUILD [PROGRAMS]}
programs=${2:-$build/tests/gpu}
cd "$(dirname "$0")/../../.." || exit 2
. tests/verdict.sh
devices=${2:+1}
[ -n "$devices" ] || devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
if [ "$devices" = 0 ]; then
    echo "skipped: there is no CUDA device"
    verdicts
    exit
fi
[ "$devices" -ge 8 ] || [ -n "${2:-}" ] || [ -e "${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}" ] ||
    echo "ranks share $devices devices and take turns, which takes long: see nvidia-cuda-mps-control"

try() { # try EXECUTOR RANKS PROGRAM LAUNCHER...
    local executor=$1 ranks=$2 program=$3 status
    shift 3
    LIERNE_TEST_EXECUTOR=$executor timeout -k 5 600 "$@" "$ranks" "$programs/$program" \
        >"$work/log" 2>&1 </dev/null
    status=$?
    echo "$program on $ranks ranks, $executor: $(tail -n 1 "$work/log")"
    [ $status = 0 ] && grep -qE '^[1-9][0-9]* passed, 0 failed$' "$work/log"
    verdict $? "$program on $ranks ranks, $executor, exit status $status: $(head -n 20 "$work/log")"
}

launch() { # launch EXECUTOR RANKS PROGRAM
    try "$1" "$2" "launched/$3" "$build/tests/launched/launch"
}

ranks() { # ranks EXECUTOR RANKS PROGRAM
    try "$1" "$2" "ranks/$3" "$build/tests/launched/launch"
}

for ranks in 2 4 8; do
    for program in golden sparse general; do
        launch cuda $ranks $program
    done
done
for program in halos update layers inflight known_answer; do
    launch cuda 4 $program
done
launch cuda 8 members
LIERNE_TRANSPORTS=socket launch cuda 3 general
LIERNE_TEST_NODE_RANKS=2 launch cuda 4 golden
for ranks in 2 4 8; do
    ranks cuda $ranks captures
done
for ranks in 2 4; do
    ranks cuda $ranks hang
done
ranks cuda 8 schedule

# Device memory is read by MPI, or packed into host memory, as MPIX_Query_cuda_support says.
if [ -x "$programs/mpi/golden" ] && command -v "${MPIRUN:-mpirun}" >/dev/null; then
    for ranks in 2 4; do
        for program in golden sparse general update; do
            LIERNE_TRANSPORTS=mpi try cuda $ranks "mpi/$program" "${MPIRUN:-mpirun}" -n
        done
    done
else
    echo "skipped: no MPI"
fi

minor=
[ -n "${2:-}" ] || minor=$("$build/lierne" info | sed -n 's/^nccl: NCCL 2\.\([0-9]*\)\..*/\1/p')
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
    for program in captures hang schedule; do
        ranks nccl $ranks $program
    done
fi
verdicts
