#!/usr/bin/env bash
# A few mutations, one of each kind, each of which a test must catch; "make mutants" runs all.
set -u
exec bash "$(dirname "$0")/../mutants.sh" "${1:?usage: test_mutants.sh BUILD}" \
    cp_sum_dropped shares_swapped zigzag_second_chunk order_of_the_sum tag_without_direction \
    duplicates_accepted gradients_not_added_before_they_travel gathered_by_rank \
    adjoint_in_the_order_of_forward
