#!/usr/bin/env bash
# PETSc as an oracle, its star forests (tests/oracle/petsc_sf.c) and DMDA (petsc_dmda.c), where it is
# installed; it is not needed. $1: the build folder.
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
build_oracle() { # build_oracle NAME: tests/oracle/NAME.c
    local name=$1
    # shellcheck disable=SC2046
    $mpicc -std=c11 -D_GNU_SOURCE -O2 -Wall -Iinclude -Isrc -Itests -Itests/support -o "$work/$name" \
        "tests/oracle/$name.c" "$build/tests/mpi/parts.a" "$build/tests/parts.a" "$build/liblierne_mpi.a" \
        "$build/liblierne.a" \
        $(pkg-config --cflags --libs PETSc) $(pkg-config --libs libcjson 2>/dev/null || echo -lcjson) \
        -lm >"$work/log" 2>&1 && return
    cat "$work/log"
    echo "0 passed, 1 failed"
    exit 1
}
passed=0 failed=0
for oracle in petsc_sf petsc_dmda; do
    build_oracle $oracle
    run_oracle "PETSc, $oracle" "$work/$oracle" >"$work/out"
    sed '$d' "$work/out"
    count=$(tail -n 1 "$work/out")
    passed=$((passed + ${count%% *}))
    failed=$((failed + $(echo "$count" | cut -d' ' -f3)))
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
