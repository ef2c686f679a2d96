#!/usr/bin/env bash
# All mutations apply; a few, one of each kind, must each be caught by a test. "make mutants" runs all.
set -u
here=$(dirname "$0")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0

add() { # add STATUS: of the program whose output is in the log
    local line
    grep -v '^[0-9]* passed, [0-9]* failed$' "$log"
    line=$(tail -n 1 "$log")
    [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] || { echo "FAIL no last line" && line="0 passed, 1 failed"; }
    passed=$((passed + ${line%% *}))
    line=${line#*, }
    failed=$((failed + ${line%% *}))
    [ "$1" = 0 ] || [ "${line%% *}" != 0 ] || failed=$((failed + 1))
}

python3 "$here/../mutants/applies.py" >"$log" 2>&1
add $?
bash "$here/../mutants.sh" "${1:?usage: test_mutants.sh BUILD}" \
    cp_sum_dropped shares_swapped zigzag_second_chunk order_of_the_sum tag_without_direction \
    duplicates_accepted gradients_not_added_before_they_travel gathered_by_rank \
    adjoint_in_the_order_of_forward >"$log" 2>&1
add $?
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
