#!/usr/bin/env bash
# Every golden case and every random bridge over several transports at once: one that exposes, one
# without match ids, and sim, each for some pairs of ranks. $1: the build folder.
set -u
build=${1:?usage: test_transports.sh BUILD}
export LIERNE_TEST_TRANSPORTS=mixed
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count() { # count PASSED FAILED STATUS: adds them up, and shows the log of what failed
    passed=$((passed + $1))
    failed=$((failed + $2))
    [ "$2" -ne 0 ] || [ "$3" -eq 0 ] || failed=$((failed + 1))
    [ "$2" -eq 0 ] && [ "$3" -eq 0 ] || grep -iE 'fail|seed' "$log" | head -n 20
}
"$build/golden" tests/golden >"$log" 2>&1
status=$?
read -r p _ f _ <<<"$(tail -n 1 "$log")"
count "${p:-0}" "${f:-1}" $status
"$build/unit" --filter '@(bridge_general|halo|graph|references|brick)/*' >"$log" 2>&1
status=$?
line=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep 'Synthesis: Tested:' | tail -n 1)
p=$(sed -E 's/.*Passing: ([0-9]+).*/\1/' <<<"$line")
f=$(sed -E 's/.*Tested: ([0-9]+).*/\1/' <<<"$line")
count "${p:-0}" $((${f:-1} - ${p:-0})) $status
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
