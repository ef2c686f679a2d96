#!/usr/bin/env bash
# Builds, runs every test and adds up what they count (report.sh). Usage: check.sh BUILD [fast]
# In two tiers: first what takes a minute or two (compilers, format, words, includes, unit tests, golden
# files), then the rest, which fast leaves out. MAKE names make, with its options.
# A suite that exceeds its time counts as one failure. The last line is the sum; the one before it names
# the suites that were skipped, and why.
set -u
build=${1:?usage: check.sh BUILD [fast]}
only=${2:-}
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

has_mpi_compilers() {
    command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 && command -v "${MPICC:-mpicc}" >/dev/null 2>&1
}

# A second MPI. MPICH does not give up the core while it waits, so it gets no more ranks than there
# are cores.
measure_mpich() {
    local ranks
    make -s B="$build/mpich" MPICC=mpicc.mpich mpi-tests >/dev/null
    ranks=$(nproc)
    [ "$ranks" -ge 2 ] || ranks=2
    [ "$ranks" -le 4 ] || ranks=4
    measure mpich 3000 env MPIRUN=mpirun.mpich UCX_LOG_LEVEL=error bash tests/mpi/run.sh "$build/mpich" "$ranks"
}

# What this tier needs. A warning of the compiler counts as a failure, and the rest of the tests still run.
build_tier() { # build_tier TARGET...
    local log=$logs/compile.log start=$SECONDS status warnings
    ${MAKE:-make} --no-print-directory -s "B=$build" "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    warnings=$(grep -cE 'warning: ' "$log")
    grep 'warning: ' "$log" | sed 's/^/FAIL /' >>"$log"
    echo "$((warnings == 0)) passed, $((warnings > 0)) failed" >>"$log"
    echo "$status $((SECONDS - start))" >"$log.rc"
    report compile
    [ "$status" = 0 ] || { close_report && exit 1; }
}

# Those that keep a core busy run two at a time, each as soon as one ends, the longest early, and before those
# with ranks, which take turns: a rank that yields to a compiler waits for its whole slice, so that eight ranks
# take ten times as long. Those joined by + write to the same folders, and run one after the other.
fast="format words includes unit clang golden"
busy="format words includes unit sanitize+fuzz clang build+cuda+docs+install+wheel+python transports emulator
    balance mutants plan golden headers bad draw import set schema"
[ "$only" != fast ] || busy=$fast
mpich=
if has_mpi_compilers && command -v mpicc.mpich mpirun.mpich >/dev/null 2>&1; then
    mpich=mpich
else
    skip mpich "there is no MPICH beside the MPI in use"
fi
rm -f "$logs"/*.rc

if [ "$only" = fast ]; then
    build_tier all "$build/unit" "$build/golden"
    skip "the slow tier" "only the fast one was asked for"
else
    build_tier tests
fi
unset MAKEFLAGS MAKELEVEL MFLAGS # what tests build is not this make's
measure_busy() { # measure_busy NAMES: those joined by +
    local name
    for name in ${1//+/ }; do
        case $name in
        unit) measure unit 3000 "$build/unit" ;;
        golden) measure golden 1500 "$build/golden" tests/golden ;;
        *) measure "$name" 3000 bash "tests/cli/test_$name.sh" "$build" ;;
        esac
    done
}
export -f measure measure_busy log_of
export build logs
printf '%s\n' $busy | xargs -P 2 -I NAMES bash -c 'measure_busy NAMES' &
pool=$!
for name in ${busy//+/ }; do
    while [ ! -s "$(log_of "$name").rc" ] && kill -0 $pool 2>/dev/null; do
        sleep 0.2
    done
    report "$name"
done
wait
if [ "$only" = fast ]; then
    close_report
    exit
fi
for program in node/jobs node/launchers node/refusals node/rounds node/shrink node/neighbours ipc/ranks ipc/groups ipc/rounds; do
    run "$program" 600 "$build/tests/$program"
done
run launched 3000 bash tests/launched/run.sh "$build"
for script in tests/cli/test_*.sh; do
    name=${script##*/test_}
    name=${name%.sh}
    [[ " ${busy//[+[:space:]]/ } " == *" $name "* ]] || run "$name" 3000 bash "$script" "$build"
done
run mpi 3000 bash tests/mpi/run.sh "$build"
run oob 1500 env LIERNE_TEST_CONTEXTS=oob bash tests/mpi/run.sh "$build" 4
run bench 1500 bash tests/bench/run.sh "$build" quick
if [ -n "$mpich" ]; then
    measure_mpich
    report mpich
fi
close_report
