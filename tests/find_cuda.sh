#!/bin/sh
# Where CUDA and NCCL are, for the Makefile. Usage: find_cuda.sh nvcc: prints the compiler, or nothing.
# find_cuda.sh nccl NVCC: prints the folder of nccl.h, or nothing. CUDA_HOME and NCCL_HOME come first;
# CUDA_HOME=none builds without CUDA, NCCL_HOME=none without NCCL.
nvcc() {
    case ${CUDA_HOME:-} in
    none) return ;;
    ?*) found=$CUDA_HOME/bin/nvcc ;;
    *) found=$(command -v nvcc) ;;
    esac
    [ -x "$found" ] || found=/usr/local/cuda/bin/nvcc
    if ! [ -x "$found" ]; then
        for package in $(pkg-config --list-all 2>/dev/null | sed -n 's/^\(cudart[^ ]*\).*/\1/p'); do
            found=$(pkg-config --variable=cudaroot "$package")/bin/nvcc
            [ -x "$found" ] && break
        done
    fi
    [ -x "$found" ] && readlink -f "$found"
}
nccl() {
    case ${NCCL_HOME:-} in none) return ;; esac
    wheel=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null)
    for folder in ${NCCL_HOME:+"$NCCL_HOME/include"} "${1%/bin/nvcc}/include" /usr/include \
        ${wheel:+"$wheel/include"}; do
        [ -e "$folder/nccl.h" ] && echo "$folder" && return
    done
}
"$@"
exit 0
