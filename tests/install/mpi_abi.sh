#!/usr/bin/env bash
# liblierne_mpi by the standard ABI of MPI, as MPICH 5 of PyPI has it: programs over it, and a program of
# another mpi.h, which must not link. $1: the build folder, in which it keeps a build of its own.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: mpi_abi.sh BUILD}" && pwd)/mpi-abi
cd "$(dirname "$0")/../.." || exit 2
[ -x "$build/venv/bin/mpicc_abi" ] || { python3 -m venv "$build/venv" && "$build/venv/bin/pip" install -q 'mpich>=5.0'; }
verdict $? "MPICH 5 from PyPI"
export PATH=$build/venv/bin:$PATH MPIRUN=$build/venv/bin/mpirun UCX_LOG_LEVEL=error
make -s "B=$build" DEPS=0 CUDA=0 all mpi-tests >"$work/log" 2>&1 && ! grep 'warning: ' "$work/log"
verdict $? "make finds mpicc_abi: $(tail -n 5 "$work/log")"
readelf -d "$build/liblierne_mpi.so" | grep -q 'libmpi_abi\.so\.1'
verdict $? "liblierne_mpi needs libmpi_abi"
for program in backward_thread redistribute transport golden windows failure; do
    timeout 300 "$MPIRUN" -n 2 "$build/tests/mpi/$program" >"$work/out" 2>&1
    verdict $? "$program on 2 ranks: $(tail -n 1 "$work/out")"
done
cat >"$work/one.c" <<'END_C'
#include <lierne/mpi.h>
int main(void) {
    lierne_context *context;
    return lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL);
}
END_C
for compiler in mpicc_abi mpicc; do
    $compiler -Iinclude "$work/one.c" -o "$work/one" -L"$build" -llierne_mpi -llierne -Wl,-rpath-link,"$build" \
        >"$work/$compiler" 2>&1
    echo $? >>"$work/$compiler"
done
[ "$(tail -n 1 "$work/mpicc_abi")" = 0 ]
verdict $? "a program of the same ABI links: $(tail -n 3 "$work/mpicc_abi")"
grep -q 'undefined reference to .lierne_context_create_mpi.$' "$work/mpicc"
verdict $? "one of another mpi.h does not: $(tail -n 3 "$work/mpicc")"
verdicts
