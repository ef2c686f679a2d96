#!/usr/bin/env bash
# Runs every test and adds up what they count (report.sh). Usage: check.sh BUILD
# A suite that exceeds its time counts as one failure. The last line is the sum; the one before it names
# the suites that were skipped, and why.
set -u
build=${1:?usage: check.sh BUILD}
cd "$(dirname "$0")/.." || exit 2
logs=$build/logs
mkdir -p "$logs"
. tests/report.sh

# measure NAME SECONDS COMMAND...: into the log of NAME, and a file with its exit status and seconds.
measure() {
    local seconds=$2 start=$SECONDS log
    log=$(log_of "$1")
    shift 2
    timeout -k 5 "$seconds" "$@" >"$log" 2>&1 </dev/null
    echo "$? $((SECONDS - start))" >"$log.rc"
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
else
    skip mpich "there is no MPICH beside the MPI in use"
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
run mpi 3000 bash tests/mpi/run.sh "$build"
run oob 1500 env LIERNE_TEST_CONTEXTS=oob bash tests/mpi/run.sh "$build" 4
run bench 1500 bash tests/bench/run.sh "$build" quick
wait
for name in $beside $mpich; do
    report "$name"
done
close_report
