#!/usr/bin/env bash
# Runs every test and adds up what they count. Usage: check.sh BUILD
# Each test ends with a line "N passed, N failed" (Criterion: its synthesis); a test without it, or
# one that exceeds its time, counts as one failure. The last line is the sum.
set -u
build=${1:?usage: check.sh BUILD}
cd "$(dirname "$0")/.." || exit 2
passed=0
failed=0
logs=$build/logs
mkdir -p "$logs"

# measure NAME SECONDS COMMAND...: into the log of NAME, and a file with its exit status and seconds.
measure() {
    local seconds=$2 log=$logs/${1//[^a-z0-9]/_}.log start=$SECONDS
    shift 2
    timeout -k 5 "$seconds" "$@" >"$log" 2>&1 </dev/null
    echo "$? $((SECONDS - start))" >"$log.rc"
}

# report NAME: shows one line, and the log of a test that failed.
report() {
    local log=$logs/${1//[^a-z0-9]/_}.log rc seconds p f line
    read -r rc seconds <"$log.rc"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    if [ -n "$line" ]; then
        p=${line%% *}
        f=${line#*, }
        f=${f%% *}
    elif line=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -E 'Synthesis: Tested:' | tail -n 1) && [ -n "$line" ]; then
        p=$(sed -E 's/.*Passing: ([0-9]+).*/\1/' <<<"$line")
        f=$(sed -E 's/.*Tested: ([0-9]+).*/\1/' <<<"$line")
        f=$((f - p))
    else
        p=0
        f=1
    fi
    [ "$rc" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    passed=$((passed + p))
    failed=$((failed + f))
    printf '%-28s %5d passed %4d failed  %3d s\n' "$1" "$p" "$f" "$seconds"
    if [ "$f" -ne 0 ]; then
        grep -a '^FAIL' "$log" | head -n 10
        echo "--- last lines of $log (exit $rc)"
        tail -n 25 "$log"
        echo "---"
    fi
}

run() {
    measure "$@"
    report "$1"
}

has_mpi() {
    command -v mpirun >/dev/null 2>&1 && [ -x "$build/lierne-run" ]
}

# A second MPI. MPICH does not give up the core while it waits, so it gets no more ranks than there
# are cores.
measure_mpich() {
    local ranks
    make -s B="$build/mpich" MPICC=mpicc.mpich PETSC= mpi-tests >/dev/null
    ranks=$(nproc)
    [ "$ranks" -ge 2 ] || ranks=2
    [ "$ranks" -le 4 ] || ranks=4
    measure mpich 3000 env MPIRUN=mpirun.mpich UCX_LOG_LEVEL=error bash tests/mpi/run.sh "$build/mpich" "$ranks"
}

# Those that take minutes of one core run beside the others.
beside="sanitize transports fuzz"
mpich=
if has_mpi && command -v mpicc.mpich mpirun.mpich >/dev/null 2>&1; then
    mpich=mpich
elif has_mpi; then
    echo "no MPICH beside the MPI in use: left out"
fi
rm -f "$logs"/*.rc
(
    for name in $beside; do
        measure "$name" 3000 bash "tests/cli/test_$name.sh" "$build"
    done
    [ -z "$mpich" ] || measure_mpich
) &

run unit 3000 "$build/unit"
run golden 1500 "$build/golden" tests/golden
run jobs 600 "$build/tests/jobs"
run refusals 600 "$build/tests/refusals"
run ipc 600 "$build/tests/ipc_ranks"
run ipc_late 600 "$build/tests/ipc_late"
run ipc_replays 600 "$build/tests/ipc_replays"
run launched 3000 bash tests/launched/run.sh "$build"
for script in tests/cli/test_*.sh; do
    name=${script##*/test_}
    name=${name%.sh}
    [[ " $beside " == *" $name "* ]] || run "$name" 3000 bash "$script" "$build"
done
if has_mpi; then
    run mpi 3000 bash tests/mpi/run.sh "$build"
    run oob 1500 env LIERNE_TEST_CONTEXTS=oob bash tests/mpi/run.sh "$build" 4
    run bench 1500 bash tests/bench/run.sh "$build" quick
else
    echo "no MPI: the tests under mpirun were left out"
fi
wait
for name in $beside $mpich; do
    report "$name"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
