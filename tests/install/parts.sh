#!/usr/bin/env bash
# make CUDA=0 MPI=0 in a folder that had all: what is left builds, installs, and is found by pkg-config and
# CMake, and nothing of MPI, CUDA and NCCL stays. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: parts.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
own=$build/parts
mkdir -p "$own"
touch "$own"/lierne-run "$own"/liblierne_{mpi.a,mpi.so,mpi.so.0,cuda.so,cuda.so.0,nccl.so,nccl.so.0}
without=(make -s -j"$(nproc)" "B=$own" DEPS=0 CUDA=0 MPI=0)
left() { # left FOLDER: what is there of the parts that were left out
    find "$1" \( -name 'liblierne_*' -o -name 'lierne_*.pc' -o -name lierne-run -o -path '*/include/*' \
        \( -name mpi.h -o -name cuda.h -o -name nccl.h \) \) -printf '%P '
}
"${without[@]}" all tests >"$work/log" 2>&1 && ! grep 'warning: ' "$work/log"
verdict $? "make all tests CUDA=0 MPI=0: $(tail -n 5 "$work/log")"
got=$(find "$own" -maxdepth 1 \( -name 'liblierne_*' -o -name lierne-run \) -printf '%P ')
[ -z "$got" ]
verdict $? "libraries of an earlier build stay: $got"
[ -x "$own/lierne" ] && ! ldd "$own/liblierne.so" | grep -iE 'mpi|cuda|nccl'
verdict $? "liblierne needs neither"
build=$own
unit 'bridge/*'
golden LIERNE_TEST_CONTEXTS=
"${without[@]}" install "PREFIX=$work/prefix" >"$work/log" 2>&1
verdict $? "make install CUDA=0 MPI=0: $(tail -n 5 "$work/log")"
got=$(left "$work/prefix")
[ -z "$got" ]
verdict $? "what is installed of the parts left out: $got"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
pkg-config --exists lierne && ! pkg-config --exists lierne_mpi && ! pkg-config --exists lierne_cuda
verdict $? "pkg-config knows lierne alone"
env MPICC=none MPIRUN=none CUDA_HOME=none bash tests/cli/test_install.sh "$own" >"$work/out" 2>&1
adds $? "$work/out"
! grep -i mpi "$work/out"
verdict $? "the installed tree without MPI, by test_install.sh"
got=$(DEPS=0 MPI=0 B=$own PATH=/nowhere /bin/sh tests/deps.sh 2>&1)
[[ $got != *mpi* ]]
verdict $? "no package of MPI is asked for: $got"
verdicts
