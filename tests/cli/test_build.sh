#!/usr/bin/env bash
# The Makefile: variables of the command line count and leave it its own flags, what changes is built again, a
# first build says how much it is, and make t runs any test. Most of it is read from make -n. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:?usage: test_build.sh BUILD}
cd "$(dirname "$0")/../.." || exit 2
unset MAKEFLAGS MAKELEVEL MFLAGS
dry() { # dry ARGUMENT...: the commands of make in a folder where nothing was built
    env -u CC -u CFLAGS -u CUDA_HOME -u NCCL_HOME make -n --no-print-directory "B=$work/dry" "$@" 2>&1
}
has() { # has TEXT PATTERN
    grep -qE -- "$2" <<<"$1"
}

got=$(wc -l <Makefile)
[ "$got" -lt 300 ]
verdict $? "the Makefile has fewer than 300 lines: $got"
got=$(awk 'length($0) > 120 { print FILENAME ":" FNR }' Makefile src/install.mk tests/tests.mk tests/emulator/emulator.mk)
[ -z "$got" ]
verdict $? "lines of more than 120 columns: $got"

# What is missing is said before anything is compiled.
! got=$(timeout 60 make -s "B=$work/bare" CC='cc -nostdinc' CUDA=0 all 2>&1) && [ ! -e "$work/bare/src" ] && has "$got" "make deps .*libcjson-dev"
verdict $? "no header of cJSON: $got"
! got=$(timeout 60 make -s "B=$work/bare" CC=no-such-compiler CUDA=0 all 2>&1) && has "$got" "no compiler no-such-compiler: make deps"
verdict $? "no compiler: $got"

# A toolkit that is there as far as tests/find_cuda.sh looks.
toolkit=$work/toolkit
mkdir -p "$toolkit"/{bin,include,lib64}
printf '#!/bin/sh\necho "#$ TOP=%s" >&2\necho sm_90\n' "$toolkit" >"$toolkit/bin/nvcc"
chmod +x "$toolkit/bin/nvcc"
touch "$toolkit"/{include/cuda_runtime.h,include/nccl.h,lib64/libcudart_static.a}
echo '#define CUDART_VERSION 12000' >"$toolkit/include/cuda_runtime_api.h"
got=$(dry all CUDA_HOME="$toolkit")
has "$got" "^.*$toolkit/bin/nvcc " && has "$got" "liblierne_nccl\.so"
verdict $? "CUDA_HOME of the command line is used"
got=$(dry all CUDA_HOME="$toolkit" NCCL_HOME=none)
! has "$got" "liblierne_nccl\.so"
verdict $? "NCCL_HOME=none of the command line builds without NCCL"
got=$(PATH="$toolkit/bin:$PATH" dry all CUDA_HOME=none)
! has "$got" "nvcc|liblierne_cuda"
verdict $? "CUDA_HOME=none of the command line builds without CUDA: $(grep -m1 -E 'nvcc|liblierne_cuda' <<<"$got")"
others='nvcc |mpicc|/liblierne_(mpi|cuda|nccl)|/lierne_(mpi|cuda|nccl)\.pc|lierne-run |lierne/(mpi|cuda|nccl)\.h'
has "$(dry install CUDA_HOME="$toolkit")" "$others"
verdict $? "a build with all has what CUDA=0 MPI=0 leave out"
for target in all tests install; do
    got=$(dry "$target" CUDA_HOME="$toolkit" CUDA=0 MPI=0)
    ! has "$got" "$others"
    verdict $? "CUDA=0 MPI=0 reach $target: $(grep -m1 -E -- "$others" <<<"$got")"
done
printf '%s\n' 'include Makefile' 'seen: ; @echo "$$CUDA_HOME $$MPICC $$MPIRUN"' >"$work/seen.mk"
got=$(make -s -f "$work/seen.mk" "B=$work/dry" CUDA=0 MPI=0 MPIRUN=srun seen)
[ "$got" = "none none none" ]
verdict $? "what tests run has CUDA=0 and MPI=0, too: $got"

got=$(dry "$work/dry/golden" LDFLAGS=-Lnowhere CPPFLAGS=-DHERS CFLAGS=-O1 CUDA_HOME=none)
has "$got" "-Lnowhere.* -Wl,--wrap=lierne_plan_forward.* -o $work/dry/golden"
verdict $? "golden keeps its own flags beside LDFLAGS"
wrong=$(grep -oE 'tests/[a-z_/0-9]*\.c$' <<<"$got" | xargs grep -lE '<criterion/|config_case\.h')
[ "$(grep -c 'tests/.*\.c$' <<<"$got")" -gt 10 ] && [ -z "$wrong" ]
verdict $? "golden needs no Criterion: $wrong"
has "$got" "-O1 .*-std=c11.* -DHERS -Iinclude -Isrc.* -o $work/dry/src/base/status.o"
verdict $? "objects keep their own flags beside CFLAGS and CPPFLAGS"
has "$got" "-O3.* -o $work/dry/src/runtime/memory/host.o"
[ $? != 0 ]
verdict $? "no -O3 beside CFLAGS=-O1"
has "$(dry "$work/dry/golden" CFLAGS=-O2 CUDA_HOME=none)" "-O2 .*-O3.* -o $work/dry/src/runtime/memory/host.o"
verdict $? "copies and sums have -O3 beside CFLAGS=-O2"

got=$(dry "$work/dry/golden" CFLAGS=-O2 CUDA_HOME=none)
has "$got" "-fstack-protector-strong.*FORTIFY_SOURCE=2.* -o $work/dry/src/base/status.o" && has "$got" "-pie .*relro.* -o $work/dry/golden"
verdict $? "hardened by default"
! has "$(dry "$work/dry/golden" CFLAGS=-O2 CUDA_HOME=none HARDEN=0)" "stack-protector|FORTIFY|-pie|relro"
verdict $? "HARDEN=0 is not"
! has "$(dry "$work/dry/golden" CFLAGS='-O1 -fsanitize=address' CUDA_HOME=none)" "stack-protector|FORTIFY|-pie|relro"
verdict $? "a sanitizer's build is not"
! has "$(dry "$work/dry/golden" CFLAGS=-O0 CUDA_HOME=none)" FORTIFY
verdict $? "no checks that need a compiler which optimizes beside CFLAGS=-O0"

# A change of flags, of the compiler, or nothing.
object=$work/own/tests/errors_md.o
compiles() { # compiles ARGUMENT...: whether make builds the object anew
    local before after
    before=$(stat -c %y "$object" 2>/dev/null)
    env -u CC -u CFLAGS -u CPPFLAGS make -s "B=$work/own" CUDA_HOME=none "$@" "$object" >"$work/out" 2>&1 || { cat "$work/out" && return 2; }
    after=$(stat -c %y "$object")
    [ "$before" != "$after" ]
}
compiles
verdict $? "an object is built"
compiles
[ $? = 1 ]
verdict $? "nothing is built twice"
compiles CFLAGS="-O0 -DQUOTED='\"it\"'"
verdict $? "other CFLAGS build it again"
compiles CFLAGS="-O0 -DQUOTED='\"it\"'"
[ $? = 1 ]
verdict $? "the same CFLAGS do not"
compiles CPPFLAGS=-DHERS
verdict $? "CPPFLAGS build it again"
printf '#!/bin/sh\n[ "$1" != --version ] || { echo another && exit; }\nexec cc "$@"\n' >"$work/another"
chmod +x "$work/another"
compiles CPPFLAGS=-DHERS CC="$work/another"
verdict $? "another compiler builds it again"
sed -i 's/another/a later one/' "$work/another"
compiles CPPFLAGS=-DHERS CC="$work/another"
verdict $? "another version of it builds it again"

got=$(make -s "B=$work/own" CUDA_HOME=none announce-all)
[[ $got =~ ^"building libraries and command in $work/own: "[1-9][0-9]+" files to compile" ]]
verdict $? "a first build says how much it is: $got"
got=$(make -s "B=$build" announce-all announce-tests)
[ -z "$got" ]
verdict $? "a later one does not: $got"
got=$(grep -n 'tests/[a-z]*/[a-z_]*\.c\b' Makefile tests/tests.mk | grep -v '#')
[ -z "$got" ]
verdict $? "no test has a line of its own: $got"

# One test of each kind, and names that are none.
one() { # one PATTERN TEST [ARGUMENT...]
    got=$(make --no-print-directory -s t "B=$build" T="$2" "${@:3}" 2>&1)
    has "$got" "$1"
    verdict $? "make t T=$2: $(tail -n 3 <<<"$got")"
}
one 'Tested: 1 \| Passing: 1' base/every_status
one 'grids.json: [1-9][0-9]* passed, 0 failed' golden/grids
one '^[1-9][0-9]* passed, 0 failed' cli/includes
one '^[1-9][0-9]* passed, 0 failed' launched/known_answer N=2
one '^[1-9][0-9]* passed, 0 failed' hang/sim T="hang/sim 0 1"
[ ! -x "$build/lierne-run" ] || one '^[1-9][0-9]* passed, 0 failed' mpi/known_answer N=2
for none in no/such golden/no cli/no mpi/no launched/no ''; do
    one 'make t: there is no test|SUITE/TEST  ' "$none"
done
verdicts
