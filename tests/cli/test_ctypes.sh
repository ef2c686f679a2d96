#!/usr/bin/env bash
# The shared library from a foreign language: Python's ctypes, nothing compiled. $1: the build folder.
set -u
build=${1:?usage: test_ctypes.sh BUILD}
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3"
    echo "0 passed, 0 failed"
    exit 0
fi
root=$(dirname "$0")/../..
header=$(mktemp)
trap 'rm -f "$header"' EXIT
printf '#include <lierne.h>\n#include <lierne/sim.h>\n' | cc -E -P -I"$root/include" - >"$header" || exit 1
python3 "$root/tests/cli/binding.py" "$(ls "$(cd "$build" && pwd)"/liblierne.so.*.*.*)" "$header"
