#!/bin/sh
# Where CUDA and NCCL are, for the Makefile. Usage: find_cuda.sh nvcc: prints the compiler, or nothing.
# find_cuda.sh nccl NVCC: prints the folder of nccl.h, or nothing. CUDA_HOME and NCCL_HOME come first;
# CUDA_HOME=none builds without CUDA, NCCL_HOME=none without NCCL. A toolkit counts if its header and its
# static library lie where it is installed, without them nothing links, and if it is CUDA 11.7 or later.

# toolkit NVCC: the folder of the toolkit that a compiler is of, which a wrapper or a link stands for.
toolkit() {
    [ -x "$1" ] || return
    top=$("$1" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
    top=$(readlink -f "${top:-/nowhere}")
    [ -x "$top/bin/nvcc" ] && [ -e "$top/include/cuda_runtime.h" ] &&
        { [ -e "$top/lib64/libcudart_static.a" ] || [ -e "$top/lib/libcudart_static.a" ]; } &&
        [ "$(sed -n 's/^#define CUDART_VERSION *//p' "$top/include/cuda_runtime_api.h")" -ge 11070 ] &&
        echo "$top/bin/nvcc"
}
find_nvcc() {
    case ${CUDA_HOME:-} in none) return ;; esac
    roots=$(for package in $(pkg-config --list-all 2>/dev/null | sed -n 's/^\(cudart[^ ]*\).*/\1/p'); do
        pkg-config --variable=cudaroot "$package"
    done)
    for found in ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} "$(command -v nvcc)" /usr/local/cuda/bin/nvcc \
        $(for root in $roots; do echo "$root/bin/nvcc"; done); do
        toolkit "$found" && return
    done
}
find_nccl() {
    case ${NCCL_HOME:-} in none) return ;; esac
    wheel=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null)
    for folder in ${NCCL_HOME:+"$NCCL_HOME/include"} "${1%/bin/nvcc}/include" /usr/include \
        ${wheel:+"$wheel/include"}; do
        [ -e "$folder/nccl.h" ] && echo "$folder" && return
    done
}
case ${1:-} in
nvcc) find_nvcc ;;
nccl) find_nccl "$2" ;;
*) echo "usage: find_cuda.sh nvcc | nccl NVCC" >&2 && exit 2 ;;
esac
exit 0
