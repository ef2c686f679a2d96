#!/usr/bin/env bash
# PETSc's star forests as an oracle: tests/oracle/petsc_sf.c, where PETSc is installed; it is not
# needed. $1: the build folder.
set -u
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0
mpicc=${MPICC:-mpicc}
mpirun=${MPIRUN:-mpirun}

if ! pkg-config --exists PETSc || [ ! -f "$build/liblierne_mpi.a" ]; then
    echo "skipped: PETSc is not installed"
    echo "0 passed, 0 failed"
    exit 0
fi
passed=0
failed=0
# shellcheck disable=SC2046
if ! $mpicc -std=c11 -D_GNU_SOURCE -O2 -Wall -Iinclude -Isrc -Itests -o "$work/petsc_sf" \
    tests/oracle/petsc_sf.c "$build"/tests/mpi/{common,rows,swaps}.o "$build/liblierne_mpi.a" \
    "$build/liblierne.a" $(pkg-config --cflags --libs PETSc) \
    $(pkg-config --libs libcjson 2>/dev/null || echo -lcjson) -lm >"$work/log" 2>&1; then
    cat "$work/log"
    echo "0 passed, 1 failed"
    exit 1
fi
for n in 1 2 3 4 8; do
    timeout -k 5 60 "$mpirun" -n $n "$work/petsc_sf" >"$work/log" 2>&1 </dev/null
    status=$?
    count=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/log" | tail -n 1)
    if [ -z "$count" ] || { [ $status -ne 0 ] && [ "${count#*, }" = '0 failed' ]; }; then
        count="0 passed, 1 failed (exit status $status)"
    fi
    echo "PETSc on $n: $count"
    passed=$((passed + $(echo "$count" | cut -d' ' -f1)))
    if [ "$(echo "$count" | cut -d' ' -f3)" != 0 ]; then
        failed=$((failed + $(echo "$count" | cut -d' ' -f3)))
        head -n 30 "$work/log"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
