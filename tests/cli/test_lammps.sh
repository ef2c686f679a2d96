#!/usr/bin/env bash
# LAMMPS as an oracle: tests/oracle/lammps.c and melt.cpp, where LAMMPS' library and headers are
# installed (liblammps-dev); they are not needed. $1: the build folder.
set -u
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/oracle/ranks.sh
mpicc=${MPICC:-mpicc}
mpicxx=${MPICXX:-mpicxx}

if ! pkg-config --exists liblammps || [ ! -f "$build/liblierne_mpi.a" ]; then
    echo "skipped: LAMMPS' library and headers are not installed"
    echo "0 passed, 0 failed"
    exit 0
fi
headers=$(pkg-config --variable=includedir liblammps)/lammps
# shellcheck disable=SC2046
if ! { $mpicxx -O2 -Wall -Itests/oracle $(pkg-config --cflags liblammps) -I"$headers" -c \
    -o "$work/melt.o" tests/oracle/melt.cpp &&
    $mpicc -std=c11 -D_GNU_SOURCE -O2 -Wall -Iinclude -Isrc -Itests -Itests/support -c -o "$work/lammps.o" \
        tests/oracle/lammps.c &&
    $mpicxx -o "$work/lammps" "$work/lammps.o" "$work/melt.o" "$build"/tests/{mpi/parts.a,support/numbers.o} \
        "$build/liblierne_mpi.a" "$build/liblierne.a" $(pkg-config --libs liblammps) \
        $(pkg-config --libs libcjson 2>/dev/null || echo -lcjson) -lm; } >"$work/log" 2>&1; then
    cat "$work/log"
    echo "0 passed, 1 failed"
    exit 1
fi
run_oracle LAMMPS "$work/lammps"
