#!/usr/bin/env bash
# The ABI of the headers has all that tests/abi.txt has: programs that were compiled before still run.
# "make abi" writes the file anew. $1: the build folder, of which nothing is used.
set -u
cd "$(dirname "$0")/../.." || exit 2
if ! command -v python3 >/dev/null || [ "$(getconf LONG_BIT)" != 64 ]; then
    echo "skipped: the baseline is that of a 64-bit machine, read by python3"
    echo "0 passed, 0 failed"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 tests/cli/abi.py include tests/abi.txt
status=$?
# What breaks programs must be found: a field that moves, a constant that changes, a function that goes.
cp -R include "$work/include"
sed -i 's/^    const lierne_grid \*src;$/    int moved; &/' "$work/include/lierne/bridge.h"
sed -i 's/LIERNE_PLACEMENT_REPLICATE = 0/LIERNE_PLACEMENT_REPLICATE = 7/' "$work/include/lierne/layout.h"
sed -i 's/lierne_partition_split(/lierne_partition_cut(/' "$work/include/lierne/sparse.h"
found=$(python3 tests/cli/abi.py "$work/include" tests/abi.txt)
for change in 'field lierne_bridge_spec: const lierne_grid \*src 8 8' 'constant LIERNE_PLACEMENT_REPLICATE 0' \
    'lierne_status lierne_partition_split('; do
    grep -q "^FAIL the ABI has no longer: $change" <<<"$found" || { echo "FAIL not found: $change" && status=1; }
done
grep -q 'no longer: struct lierne_bridge_spec' <<<"$found" && echo "FAIL a spec that grows is no break" && status=1
exit $status
