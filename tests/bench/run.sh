#!/bin/bash
# run.sh BUILD [quick|--csv] [TEXT...]: the benchmarks. A workload is timed where its title contains
# every TEXT ("8 ranks", "small", "graph"); planning, sets, memory and others have no titles. quick compares the
# outputs of all methods and times nothing. --csv prints rows instead of tables, for a file of
# docs/performance; what else there is to say goes to stderr.
# Last line: N passed, N failed.
set -u
build=${1:?usage: run.sh BUILD [quick|TEXT...]}
shift
here=$(dirname "$0")
mpirun=${MPIRUN:-mpirun}
. "$here/../verdict.sh"
# The C library would map and unmap Open MPI's scratch memory in every reduction. Its limit for the
# first of these is 32 MiB, hence the second.
export MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296

quick= csv=
[ "${1:-}" = quick ] && quick=quick
[ "${1:-}" = --csv ] && csv=--csv
show() { # what a program prints; as CSV its rows only
    if [ -n "$csv" ]; then grep '^"'; else cat; fi
}
if [ -n "$csv" ]; then
    echo "# make bench BENCH_ARGS=\"${*@Q}\", $(date +%F), commit $(git -C "$here" describe --always --dirty 2>/dev/null)"
    echo "title,unit,method,forward,adjoint,both,both_p25,both_p75,forward_ratio,adjoint_ratio,both_ratio"
fi
[ $# -eq 0 ] || [ -n "$quick" ] && without_titles="planning sets memory recorder partition delta shrink"
for program in ${without_titles:-}; do
    timeout -k 5 600 "$build/tests/bench/$program" $quick 2>&1 </dev/null | tee "$work/log"
    adds "${PIPESTATUS[0]}" "$work/log" >&2
done
for program in bridge collective sparse dense samples; do
    [ -x "$build/tests/bench/$program" ] || continue # no MPI
    for n in 2 4 8; do
        timeout -k 5 3600 $mpirun -n $n "$build/tests/bench/$program" "$@" 2>&1 </dev/null | tee "$work/log" | show
        adds "${PIPESTATUS[0]}" "$work/log" >&2
    done
done
if [ -z "$csv" ] && [ -x "$build/tests/bench/weights" ]; then
    timeout -k 5 600 $mpirun -n 2 "$build/tests/bench/weights" ${quick:+4 1} 2>&1 </dev/null | tee "$work/log"
    adds "${PIPESTATUS[0]}" "$work/log" >&2
fi
if [ -n "$quick$csv" ]; then
    :
elif "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
    printf '\n%-58s %9s %9s %9s\n' "gloo recipe, milliseconds" forward adjoint both
    for n in 2 4 8; do
        for ((r = 0; r < n; r++)); do # without torchrun, which not every package has working
            RANK=$r WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 GLOO_SOCKET_IFNAME=lo \
                OMP_NUM_THREADS=1 timeout -k 5 3600 "${PYTHON:-python3}" "$here/gloo.py" &
        done
        wait
    done
else
    echo "no PyTorch: the gloo recipe was left out"
fi
if [ -n "$csv" ]; then exec >&2; fi
verdicts && [ "$passed" != 0 ]
