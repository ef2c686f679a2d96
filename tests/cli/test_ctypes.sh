#!/usr/bin/env bash
# The shared libraries from a foreign language: Python's ctypes, nothing compiled, loaded from the
# build folder without LD_LIBRARY_PATH. $1: the build folder.
set -u
build=$(cd "${1:?usage: test_ctypes.sh BUILD}" && pwd)
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3"
    echo "0 passed, 0 failed"
    exit 0
fi
root=$(dirname "$0")/../..
. "$root/tests/verdict.sh"
header=$work/lierne.h
unset LD_LIBRARY_PATH
export PYTHONDONTWRITEBYTECODE=1
printf '#include <lierne.h>\n#include <lierne/sim.h>\n' | cc -E -P -I"$root/include" - >"$header" || exit 1
for program in binding outputs; do
    python3 "$root/tests/cli/$program.py" "$build/liblierne.so" "$header" >"$work/log" 2>&1
    adds $? "$work/log"
done
mpirun=${MPIRUN:-mpirun}
if [ -e "$build/liblierne_mpi.so" ] && command -v "$mpirun" >/dev/null; then
    got=$(timeout 300 "$mpirun" -n 2 python3 "$root/tests/cli/mpi_binding.py" "$build/liblierne_mpi.so" 2>&1)
    grep -q '^rank 1 of 2$' <<<"$got"
    verdict $? "a context over MPI from Python: $got"
fi
verdicts
