#!/usr/bin/env bash
# Balanced routing, and messages over few peers. Every golden case and thousands of random ones are as
# with direct routing and any peers; and on
# every published configuration whose dp ranks have at least 64 KiB, the busiest rank sends and
# receives at most 1.05 of the bound, and no more than with direct routing and with Megatron-LM's
# algorithms. "table" as $2 prints that comparison only. $1: the build folder.
set -u
build=${1:?usage: test_balance.sh BUILD [table]}
here=$(dirname "$0")
. "$here/../verdict.sh"

table() {
    python3 "$here/balance.py" "$build/lierne" grids/*.json | tee "$work/log"
    local status=${PIPESTATUS[0]}
    echo "$(grep -c ' ok$' "$work/log") passed, $(grep -cE ' (above|worse)' "$work/log") failed" >>"$work/log"
    adds "$status" "$work/log"
}

table
if [ "${2:-}" != table ]; then
    export LIERNE_TEST_ROUTING=balanced
    golden
    unit 'redistribute/random*'
    unit 'bridge_general/random*' LIERNE_SEEDS="${LIERNE_SEEDS:-1000}"
    unit 'bridge_general/random*' LIERNE_SEEDS="${LIERNE_SEEDS:-1000}" LIERNE_TEST_TRANSPORTS=mixed
    export LIERNE_TEST_PEERS=1
    unset LIERNE_TEST_ROUTING
    golden
    unit 'bridge_general/random*' LIERNE_SEEDS="${LIERNE_SEEDS:-300}" # fewer: each rank plans as all
    unit 'redistribute/over_few_peers' LIERNE_TEST_TRANSPORTS=mixed
fi
verdicts && [ "$passed" -gt 0 ]
