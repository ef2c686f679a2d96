#!/usr/bin/env bash
# Balanced routing. Every golden case and thousands of random ones are as with direct routing; and on
# every published configuration whose dp ranks have at least 64 KiB, the busiest rank sends and
# receives at most 1.05 of the bound, and no more than with direct routing and with Megatron-LM's
# algorithms. "table" as $2 prints that comparison only. $1: the build folder.
set -u
build=${1:?usage: test_balance.sh BUILD [table]}
here=$(dirname "$0")
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

count() { # count NAME PASSED FAILED STATUS: adds them up, and shows what failed
    passed=$((passed + $2))
    failed=$((failed + $3))
    if [ "$3" -ne 0 ] || [ "$4" -ne 0 ]; then
        [ "$3" -ne 0 ] || failed=$((failed + 1))
        echo "FAIL $1"
        grep -iE 'fail|seed|case|worse|above' "$log" | head -n 20
    fi
}

table() {
    python3 "$here/balance.py" "$build/lierne" grids/*.json | tee "$log"
    count table "$(grep -c ' ok$' "$log")" "$(grep -cE ' (above|worse)' "$log")" "${PIPESTATUS[0]}"
}

golden() {
    LIERNE_TEST_ROUTING=balanced timeout 1200 "$build/golden" tests/golden >"$log" 2>&1
    local status=$? p f
    p=$(tail -n 1 "$log" | sed -nE 's/^([0-9]+) passed, [0-9]+ failed$/\1/p')
    f=$(tail -n 1 "$log" | sed -nE 's/^[0-9]+ passed, ([0-9]+) failed$/\1/p')
    count golden "${p:-0}" "${f:-1}" $status
}

unit() { # unit FILTER VARIABLE=VALUE...
    local filter=$1 line t p status
    shift
    env LIERNE_TEST_ROUTING=balanced "$@" timeout 1200 "$build/unit" --filter "$filter" >"$log" 2>&1
    status=$?
    line=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep 'Synthesis: Tested:' | tail -n 1)
    t=$(sed -nE 's/.*Tested: ([0-9]+).*/\1/p' <<<"$line")
    p=$(sed -nE 's/.*Passing: ([0-9]+).*/\1/p' <<<"$line")
    count "$filter" "${p:-0}" $((${t:-1} - ${p:-0})) $status
}

table
if [ "${2:-}" != table ]; then
    golden
    unit 'redistribute/random*'
    unit 'bridge_general/random*'
    unit 'bridge_general/random*' LIERNE_TEST_TRANSPORTS=mixed
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
