#!/bin/bash
# run.sh BUILD [MOST]: runs every program of BUILD/tests/mpi at its numbers of ranks, or at those up to
# MOST, each launch with a timeout of ten times what a busy machine needs, so that a deadlock is a
# failure. Prints a line per launch; last line: N passed, N failed. A launch that times out, crashes or
# prints no count is one more failure.
set -u
build=${1:?usage: run.sh BUILD [MOST]}
most=${2:-1000}
. "$(dirname "$0")/../verdict.sh"
mpirun=${MPIRUN:-mpirun}

sizes() { # sizes PROGRAM: the numbers of ranks that it runs on
    case $1 in
    late_rank) echo 2 3 ;;
    device) echo 2 ;;
    abort | backward_thread) echo 1 2 4 ;;
    one_way) echo 2 ;;
    ahead | tags) echo 3 ;;
    general) echo 1 2 3 4 5 6 7 8 17 ;;
    groups) echo 1 2 3 4 ;;
    collective | known_answer | schedule | shared_output | windows) echo 2 4 8 ;;
    rounds) echo 1 2 3 8 ;;
    soak) echo 1 2 4 ;;
    golden | sparse | halos | layers) echo 1 2 3 4 5 6 7 8 ;;
    timeout | failure) echo 2 3 4 8 ;;
    train | members) echo 4 8 ;;
    hangs) echo 4 ;;
    *) echo 1 2 3 4 8 ;;
    esac
}

launch() { # launch RANKS PROGRAM [ARGUMENT...]
    local n=$1 start=${EPOCHREALTIME/./}
    shift
    [ "$n" -le "$most" ] || return
    timeout -k 5 1200 $mpirun -n "$n" "$build/tests/mpi/$@" >"$work/log" 2>&1 </dev/null
    adds $? "$work/log"
    echo "mpi $* on $n: $count, $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
}

for program in "$build"/tests/mpi/*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    name=$(basename "$program")
    [ "$name" = peers ] || [ "$name" = shrink ] && continue # for tests/cli/test_death.sh
    case ${LIERNE_TEST_CONTEXTS:-} in
    oob) case $name in golden | general | sparse | redistribute | members | update | shared_output) ;; *) continue ;; esac ;;
    esac
    for n in $(sizes "$name"); do
        launch "$n" "$name"
    done
done
if [ -n "${LIERNE_TEST_CONTEXTS:-}" ]; then # functions of a caller instead of MPI (contexts.c)
    for run in "4 golden" "3 sparse" "3 redistribute" "3 general" "3 samples" "3 delta"; do
        LIERNE_TRANSPORTS=oob launch $run
        LIERNE_TEST_NODE_RANKS=2 launch $run
    done
    verdicts && [ "$passed" != 0 ]
    exit
fi
# Ranks that are nodes of their own; two to a node, so that plans use shared memory and MPI.
for n in 2 3; do
    launch $n late_rank apart
    launch $n abort apart
done
export LIERNE_TEST_NODE_RANKS=2
for run in "4 general" "4 golden" "3 sparse" "3 halos" "8 redistribute" "3 samples" "3 delta"; do
    launch $run
done
for run in "4 golden" "6 golden" "4 general"; do
    LIERNE_TEST_PEERS=1 launch $run
done
unset LIERNE_TEST_NODE_RANKS
LIERNE_TEST_PEERS=1 launch 8 golden
launch 2 shm caller
launch 2 schedule threads
launch 4 schedule threads
launch 4 shared_output pairs
# Over MPI alone, and with messages that it moves piece by piece, by both ends.
export LIERNE_TRANSPORTS=mpi
for run in "4 golden" "4 general" "4 known_answer" "3 sparse" "3 halos" "3 redistribute" "3 steps" "3 samples" "4 delta" \
    "3 shared_output" "3 rounds" "4 schedule" "2 one_way" "2 one_way fragments" "2 late_rank" "3 late_rank" "3 timeout" "3 failure" "2 soak"; do
    launch $run
done
LIERNE_TEST_PEERS=1 launch 4 golden
for n in 2 3; do
    OMPI_MCA_btl_vader_single_copy_mechanism=none launch $n late_rank
done
verdicts && [ "$passed" != 0 ]
