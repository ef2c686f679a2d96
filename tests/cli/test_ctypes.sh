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
header=$(mktemp)
trap 'rm -f "$header"' EXIT
unset LD_LIBRARY_PATH
export PYTHONDONTWRITEBYTECODE=1
passed=0
failed=0

add() { # add NAME OUTPUT: the counts of its last line
    grep -v passed <<<"$2"
    if [[ ${2##*$'\n'} =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    else
        failed=$((failed + 1))
        echo "FAIL $1 did not end"
    fi
}

printf '#include <lierne.h>\n#include <lierne/sim.h>\n' | cc -E -P -I"$root/include" - >"$header" || exit 1
for program in binding outputs; do
    add $program "$(python3 "$root/tests/cli/$program.py" "$build/liblierne.so" "$header" 2>&1)"
done
mpirun=${MPIRUN:-mpirun}
if [ -e "$build/liblierne_mpi.so" ] && command -v "$mpirun" >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1
    got=$(timeout 300 "$mpirun" -n 2 python3 "$root/tests/cli/mpi_binding.py" "$build/liblierne_mpi.so" 2>&1)
    if grep -q '^rank 1 of 2$' <<<"$got"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL a context over MPI from Python: $got"
    fi
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
