#!/usr/bin/env bash
# A rank dies (SIGKILL) or stops answering (SIGSTOP) at a random moment, ten times each: the three
# others must return PEER_FAILED or TIMEOUT within their deadline of one second plus a second, and
# dump what they were doing, over shared memory and over MPI. Nothing may hang, and lierne may leave
# nothing behind. Then ranks that are left after a death go on in a smaller context, SHRINKS times
# (12), every third time on emulated nodes.
set -u
build=${1:?usage: test_death.sh BUILD [SHRINKS]}
shrinks=${2:-12}
. "$(dirname "$0")/../verdict.sh"
ok() { verdict 0; }
no() { verdict 1 "$*"; }
if [ ! -x "$build/tests/mpi/peers" ]; then
    echo "skipped: there is no MPI, or the programs of tests/mpi are not built"
    echo "0 passed, 0 failed"
    exit 0
fi
dir=$work
# What Open MPI leaves of killed jobs lies in folders of this run: other jobs' files look the same. Each
# job has one of its own for its session: a killed one still removes the folder that the next one makes.
segments=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$work" "$segments"' EXIT
export OMPI_MCA_btl_vader_backing_directory=$segments

# wait_for SECONDS FILE...: until all of them exist.
wait_for() {
    local deadline=$(($(date +%s%N) + $1 * 1000000000)) file
    shift
    for file; do
        until [ -e "$file" ]; do
            [ "$(date +%s%N)" -gt "$deadline" ] && return 1
            sleep 0.02
        done
    done
}

round() { # round NUMBER SIGNAL [shared|delta]
    local d=$dir/$1 signal=$2 shared=${3:-} victim=$((RANDOM % 4)) r launcher line status seconds pids others=()
    mkdir "$d" "$d/dumps"
    OMPI_MCA_orte_tmpdir_base=$d LIERNE_DUMP_DIR=$d/dumps timeout -k 2 60 mpirun --oversubscribe --enable-recovery -n 4 "$build/tests/mpi/peers" "$d" $shared >"$d/log" 2>&1 &
    launcher=$!
    if ! wait_for 30 "$d"/pid.{0,1,2,3}; then
        no "round $1: the ranks did not start: $(tail -n 3 "$d/log")"
        kill -KILL $launcher 2>/dev/null
        return
    fi
    sleep "0.$((RANDOM % 5))$((RANDOM % 10))"
    kill "-$signal" "$(cat "$d/pid.$victim")"
    for r in 0 1 2 3; do
        [ $r -ne $victim ] && others+=("$d/end.$r")
    done
    # A busy machine may take ten times the deadline of a second to run the ranks.
    if ! wait_for 20 "${others[@]}"; then
        no "round $1 ($signal of rank $victim): a rank hangs; there is: $(ls "$d"): $(tail -n 5 "$d/log")"
    fi
    for r in "${others[@]}"; do
        [ -e "$r" ] || continue
        read -r status seconds <"$r"
        case $status in
        LIERNE_ERR_PEER_FAILED | LIERNE_ERR_TIMEOUT)
            if awk "BEGIN { exit !($seconds < 10.0) }"; then ok; else no "round $1: $r took $seconds s"; fi
            ;;
        *) no "round $1 ($signal of rank $victim): $r says $(cat "$r")" ;;
        esac
        if grep -q "^in flight: \(forward\|adjoint\) [0-9]* of plan [0-9]*, stage [01] of [12], since .* waits for rank [0-9]" "$r" &&
            grep -q "^rank [0-9] of 4 over $LIERNE_TRANSPORTS: " <(sed 's/shm, mpi/shm,mpi/' "$r"); then ok; else no "round $1: no dump in $r: $(cat "$r")"; fi
    done
    # With SIGKILL somebody waits for the dead one itself, and is told so long before the deadline.
    if [ "$signal" = KILL ]; then
        if grep -lq PEER_FAILED "${others[@]}"; then ok; else no "round $1: nobody saw that rank $victim died"; fi
    fi
    "$build/lierne" hang "$d/dumps" >"$d/hang"
    if [ $? = 1 ] && grep -q "^rank $victim \(is silent\|has ended\|did not begin\)" "$d/hang"; then ok; else no "round $1 ($signal of rank $victim): $(cat "$d/hang")"; fi
    pids=$(cat "$d"/pid.*)
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null
    kill -KILL $launcher 2>/dev/null
    wait $launcher 2>/dev/null
}

# A rank that gave up because a peer was killed, and one that comes later: tests/mpi/late_rank.c.
late() { # late ARGUMENT...
    local count
    count=$(OMPI_MCA_orte_tmpdir_base=$(mktemp -d -p "$dir") timeout -k 2 600 mpirun --oversubscribe --enable-recovery -n 3 "$build/tests/mpi/late_rank" killed "$@" 2>"$dir/log" |
        grep -E '^[0-9]+ passed, [0-9]+ failed$')
    if [ "${count#* passed, }" = "0 failed" ]; then ok; else no "late killed $*: '$count': $(head -n 5 "$dir/log")"; fi
}

# Ranks that are left after one or two were killed go on in a smaller context: tests/mpi/shrink.c.
shrink() { # shrink NUMBER
    local d=$dir/shrink.$1 n=$((3 + RANDOM % 5)) first second at r left=LIERNE_OK launcher others=() pids=() victims
    first=$((RANDOM % n)) second=$((RANDOM % n)) at=$((1 + RANDOM))
    [ $n != 3 ] || second=$first # two must be left
    victims="$first $at"
    # Every second time at once.
    [ $first = $second ] || victims="$victims $second $((at + RANDOM % 2 * (RANDOM % 5000)))"
    mkdir "$d"
    # shellcheck disable=SC2086
    OMPI_MCA_orte_tmpdir_base=$d timeout -k 2 60 mpirun --oversubscribe --enable-recovery -n $n "$build/tests/mpi/shrink" "$d" $victims >"$d/log" 2>&1 &
    launcher=$!
    for ((r = 0; r < n; r++)); do
        pids+=("$d/pid.$r")
        if [ $r != $first ] && [ $r != $second ]; then
            others+=("$d/end.$r")
            left="$left $r"
        fi
    done
    if ! wait_for 30 "${pids[@]}"; then
        no "shrink $1: the ranks did not start: $(tail -n 3 "$d/log")"
        kill -KILL $launcher 2>/dev/null
        return
    fi
    wait_for 30 "${others[@]}"
    verdict $? "shrink $1: of $n ranks, killed $victims, some have no end: $(ls "$d"): $(tail -n 3 "$d/log")"
    for r in "${others[@]}"; do
        [ "$(cat "$r" 2>/dev/null)" = "$left" ]
        verdict $? "shrink $1: of $n ranks, killed $victims, $r has '$(cat "$r" 2>/dev/null)', must be '$left'"
    done
    # shellcheck disable=SC2046
    kill -KILL $(cat "$d"/pid.*) $launcher 2>/dev/null
    wait $launcher 2>/dev/null
}

before=$(ls /dev/shm 2>/dev/null | grep -c lierne)
for n in 0 1 2 3; do
    LIERNE_TRANSPORTS=shm,mpi late $n
    late $n
    late $n apart
    OMPI_MCA_btl_vader_single_copy_mechanism=none late $n
done
for i in 1 2 3 4 5 6 7 8 9 10; do
    if [ $((i % 2)) = 1 ]; then export LIERNE_TRANSPORTS=shm,mpi; else export LIERNE_TRANSPORTS=mpi; fi
    shared=
    if [ $((i % 4)) = 1 ]; then shared=shared; fi # an output that all ranks share
    if [ $((i % 4)) -ge 2 ]; then shared=delta; fi
    round "$i.kill" KILL $shared
    round "$i.stop" STOP $shared
done
for ((i = 1; i <= shrinks; i++)); do
    if [ $((i % 2)) = 1 ]; then export LIERNE_TRANSPORTS=mpi,socket; else unset LIERNE_TRANSPORTS; fi
    if [ $((i % 3)) = 0 ]; then export LIERNE_TEST_NODE_RANKS=$((1 + i % 2)); else unset LIERNE_TEST_NODE_RANKS; fi
    shrink $i
done
after=$(ls /dev/shm 2>/dev/null | grep -c lierne)
if [ "$before" -eq "$after" ]; then ok; else no "segments left in /dev/shm"; fi
verdicts
