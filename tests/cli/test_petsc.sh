#!/usr/bin/env bash
# PETSc's star forests as an oracle: tests/oracle/petsc_sf.c, where PETSc is installed; it is not
# needed. $1: the build folder.
set -u
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/oracle/ranks.sh
mpicc=${MPICC:-mpicc}

if ! pkg-config --exists PETSc || [ ! -f "$build/liblierne_mpi.a" ]; then
    echo "skipped: PETSc is not installed"
    echo "0 passed, 0 failed"
    exit 0
fi
# shellcheck disable=SC2046
if ! $mpicc -std=c11 -D_GNU_SOURCE -O2 -Wall -Iinclude -Isrc -Itests -Itests/support -o "$work/petsc_sf" \
    tests/oracle/petsc_sf.c "$build"/tests/{unit/halo_case.o,mpi/parts.a,support/numbers.o} "$build/liblierne_mpi.a" \
    "$build/liblierne.a" $(pkg-config --cflags --libs PETSc) \
    $(pkg-config --libs libcjson 2>/dev/null || echo -lcjson) -lm >"$work/log" 2>&1; then
    cat "$work/log"
    echo "0 passed, 1 failed"
    exit 1
fi
run_oracle PETSc "$work/petsc_sf"
