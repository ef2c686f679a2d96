#!/usr/bin/env bash
# clang builds everything that gcc does, without a warning, and the programs link. Without optimisation:
# its warnings do not depend on it. Kernels are nvcc's. $1: the build folder; clang gets one below it.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:?usage: test_clang.sh BUILD}
cd "$(dirname "$0")/../.." || exit 2
clang=${CLANG:-clang}
if ! command -v "$clang" >/dev/null 2>&1; then
    echo "skipped: there is no clang"
    echo "0 passed, 0 failed"
    exit 0
fi
log=$work/log
clang_makes() { # clang_makes TARGET...
    make -k -s -j"$(nproc)" "B=$build/clang" "CC=$clang" CFLAGS="-O0 -g0" WERROR=-Werror CUDA_HOME=none "$@" >"$log" 2>&1
}
clang_makes tests
verdict $? "clang builds everything without a warning: $(grep -E 'error|warning' "$log" | head -n 20)"
# What reads CUDA's headers is compiled only.
nvcc=$(sh tests/find_cuda.sh nvcc)
nccl=$([ -z "$nvcc" ] || sh tests/find_cuda.sh nccl "$nvcc")
if [ -n "$nccl" ]; then
    "$clang" -fsyntax-only -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror \
        -Iinclude -Isrc -Itests -Itests/support -isystem "${nvcc%/bin/nvcc}/include" -isystem "$nccl" src/backend/cuda/*.c \
        src/backend/nccl/*.c tests/nccl/*.c tests/gpu/*.c tests/gpu/*/*.c tests/bench/gpu/*.c >"$log" 2>&1
    verdict $? "clang finds nothing in what is for GPUs: $(head -n 20 "$log")"
fi
# The check itself must be able to fail.
echo 'int x = 1.5;' | "$clang" -fsyntax-only -Wconversion -Werror -x c - 2>/dev/null
[ $? != 0 ]
verdict $? "a warning is found"
verdicts
