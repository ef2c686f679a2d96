#!/bin/sh
# Builds liblierne_torch.so beside liblierne, for the PyTorch of PYTHON, and programs that use that PyTorch.
# Usage: build.sh BUILD [PROGRAM.cpp...]; CXX and CXXFLAGS as usual.
set -eu
cd "$(dirname "$0")/../.."
build=${1:?usage: build.sh BUILD [PROGRAM.cpp...]}
shift
torch=$("${PYTHON:-python3}" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null) || {
    echo "make torch: ${PYTHON:-python3} has no PyTorch: name an interpreter that has: make torch PYTHON=..." >&2
    exit 1
}
# compile OUTPUT SOURCE OPTIONS...: where anything that it is made of is newer
compile() {
    [ ! -e "$1" ] || [ -n "$(find "$2" src/torch include "$build/liblierne.so.0" "$torch/version.py" -newer "$1")" ] || return 0
    mkdir -p "$(dirname "$1")"
    output=$1 source=$2
    shift 2
    # shellcheck disable=SC2086
    ${CXX:-g++} -std=c++20 ${CXXFLAGS:--O2} -fPIC -fvisibility=hidden -Wall -Wextra -Iinclude -isystem "$torch/include" \
        -o "$output" "$source" "$build/liblierne.so.0" -L"$torch/lib" -ltorch_cpu -lc10 "$@"
}
compile "$build/liblierne_torch.so" src/torch/deepmd.cpp -shared -Wl,-soname,liblierne_torch.so -Wl,-z,defs \
    -Wl,--enable-new-dtags -Wl,-rpath,'$ORIGIN'
for source in "$@"; do
    compile "$build/${source%.cpp}" "$source" -Wl,-rpath,"$(cd "$build" && pwd):$torch/lib" -ldl
done
