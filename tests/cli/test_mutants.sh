#!/usr/bin/env bash
# All mutations apply; a few, one of each kind, must each be caught by a test. "make mutants" runs all.
set -u
here=$(dirname "$0")
. "$here/../verdict.sh"

python3 "$here/../mutants/applies.py" >"$work/log" 2>&1
adds $? "$work/log"
bash "$here/../mutants.sh" "${1:?usage: test_mutants.sh BUILD}" \
    cp_sum_dropped shares_swapped zigzag_second_chunk order_of_the_sum tag_without_direction \
    duplicates_accepted gradients_not_added_before_they_travel gathered_by_rank \
    adjoint_in_the_order_of_forward >"$work/log" 2>&1
adds $? "$work/log"
verdicts
