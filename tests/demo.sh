#!/bin/sh
# Shows lierne at work on 8 ranks of this machine: demo.sh BUILD
set -eu
build=$(cd "${1:?usage: demo.sh BUILD}" && pwd)
cd "$(dirname "$0")/.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl="${OMPI_MCA_btl-^tcp}" # one machine: Open MPI 5 warns of network interfaces in pages

own=grids/encoder-llm-8.json
published=grids/flagscale-colocated-8.json

step() {
    printf '\n== %s\n' "$*"
}

# right FILE BRIDGE: moves the tensor on 8 processes, those of mpirun or, where there is no MPI, of
# lierne itself; ends the demo if anything is wrong
right() {
    if [ -x "$build/lierne-run" ]; then
        set -- "$1" "$2" mpirun --oversubscribe -n 8 "$build/lierne" run "$1" --bridge "$2"
    else
        set -- "$1" "$2" "$build/lierne" run "$1" --bridge "$2" --launch 8
    fi
    file=$1
    shift 2
    timeout 1000 "$@" || {
        echo "the demo failed: $file did not run right on 8 ranks" >&2
        exit 1
    }
}

[ -x "$build/lierne-run" ] || echo "No mpicc was found: lierne starts the processes itself."

echo "A vision encoder and a language model share 8 processes, each in a parallel layout of its own."
echo "In every training step the encoder's output must move from one layout to the other, and the"
echo "gradient must come back."

step "lierne check: is the description of the two layouts valid?"
"$build/lierne" check "$own"

step "lierne plan: which process sends what to which, and is that the minimum?"
"$build/lierne" plan "$own" --bridge vision_to_llm

step "lierne run: the same on 8 real processes, every element checked, then timed"
right "$own" vision_to_llm

step "lierne run: a published configuration ($published)"
right "$published" vit_to_llm

printf '\nDone: on 8 ranks, in both configurations, every element of forward and adjoint was right.\n'
