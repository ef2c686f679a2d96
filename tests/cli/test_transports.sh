#!/usr/bin/env bash
# Every golden case and thousands of random ones, over several transports at once (one that exposes, one without
# match ids, and sim, each for some pairs of ranks), on streams, both, and on streams with the arithmetic of
# the CUDA kernels, on a device that is played, whose messages go through host memory; rows also over a transport that
# connects both ends of its messages. $1: the build folder; "long" as $2 adds random bridges on streams,
# which take minutes, a thread per rank and world, and takes all of those that are here a quarter.
set -u
build=${1:?usage: test_transports.sh BUILD [long]}
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count() { # count PASSED FAILED STATUS: adds them up, and shows what failed
    passed=$((passed + $1))
    failed=$((failed + $2))
    [ "$2" -ne 0 ] || [ "$3" -eq 0 ] || failed=$((failed + 1))
    [ "$2" -eq 0 ] && [ "$3" -eq 0 ] || grep -iE 'fail|seed|case' "$log" | head -n 20
}
golden() { # golden VARIABLE=VALUE...
    env "$@" timeout 1200 "$build/golden" tests/golden >"$log" 2>&1
    local status=$? p f
    p=$(tail -n 1 "$log" | sed -nE 's/^([0-9]+) passed, [0-9]+ failed$/\1/p')
    f=$(tail -n 1 "$log" | sed -nE 's/^[0-9]+ passed, ([0-9]+) failed$/\1/p')
    count "${p:-0}" "${f:-1}" $status
}
unit() { # unit FILTER VARIABLE=VALUE...
    local filter=$1 line t p status
    shift
    env "$@" timeout 1200 "$build/unit" --filter "$filter" >"$log" 2>&1
    status=$?
    line=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep 'Synthesis: Tested:' | tail -n 1)
    t=$(sed -nE 's/.*Tested: ([0-9]+).*/\1/p' <<<"$line")
    p=$(sed -nE 's/.*Passing: ([0-9]+).*/\1/p' <<<"$line")
    count "${p:-0}" $((${t:-1} - ${p:-0})) $status
}
seeds=5000
[ "${2:-}" != long ] || seeds=20000
rows='@(halo|graph|references|brick)/*'
golden LIERNE_TEST_TRANSPORTS=mixed
unit "$rows" LIERNE_TEST_TRANSPORTS=mixed
unit 'bridge_general/random*' LIERNE_TEST_TRANSPORTS=mixed LIERNE_SEEDS=$seeds
golden LIERNE_TEST_TRANSPORTS=connected
unit "$rows" LIERNE_TEST_TRANSPORTS=connected
golden LIERNE_TEST_EXECUTOR=device
unit "$rows" LIERNE_TEST_EXECUTOR=device
unit '@(collective|coalesced|redistribute)/*' LIERNE_TEST_EXECUTOR=device
[ "${2:-}" != long ] || unit 'bridge_general/*' LIERNE_TEST_EXECUTOR=device
golden LIERNE_TEST_TRANSPORTS=mixed LIERNE_TEST_EXECUTOR=device
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
