#!/usr/bin/env bash
# A cross build for aarch64, as for Grace and Ampere: library, command, golden files and units run under qemu. One
# thread calls for all ranks. $1: the build folder. Needs gcc-aarch64-linux-gnu, qemu-user and Debian's mirror,
# from which libcjson1 of that machine comes without being installed.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: aarch64.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
for name in aarch64-linux-gnu-gcc qemu-aarch64; do
    if ! command -v $name >/dev/null; then
        echo "skipped: there is no $name (apt install gcc-aarch64-linux-gnu qemu-user)"
        verdicts
        exit
    fi
done
own=$build/aarch64 system=$build/aarch64/system
mkdir -p "$system" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
touch "$work/apt/status"
of_arm64() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$work/apt/lists" \
        -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" -o APT::Sandbox::User=root "$@"
}
if [ ! -e "$system/libcjson.so" ]; then
    of_arm64 update >"$work/log" 2>&1
    (cd "$work" && of_arm64 download libcjson1 >>"$work/log" 2>&1 && dpkg -x libcjson1_*_arm64.deb "$work/cjson")
    verdict $? "libcjson1 of arm64: $(tail -n 3 "$work/log")"
    cp -L "$work"/cjson/usr/lib/aarch64-linux-gnu/libcjson.so.1 "$system"
    ln -sfn libcjson.so.1 "$system/libcjson.so"
fi
# Criterion starts each test anew, which takes the emulator ten seconds: a test is a fork here.
aarch64-linux-gnu-gcc -std=c11 -D_GNU_SOURCE -O1 -c -o "$own/run.o" tests/install/aarch64/run.c &&
    make -s -j"$(nproc)" "B=$own" DEPS=0 CUDA=0 MPI=0 CC=aarch64-linux-gnu-gcc "LDFLAGS=-L$system" \
        CPPFLAGS=-Itests/install/aarch64 "CRITERION=$own/run.o" "${own#"$PWD"/}/golden" "${own#"$PWD"/}/unit" all \
        >"$work/log" 2>&1 && ! grep 'warning: ' "$work/log"
verdict $? "make for aarch64: $(tail -n 5 "$work/log")"
arm() { # arm COMMAND...: under qemu, with the libraries of the cross compiler
    LD_LIBRARY_PATH='' qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$system:$own" "$@"
}
file=grids/mimo-colocated-fanin-8.json
[ "$(arm "$own/lierne" simulate "$file" -b images_to_language)" = "$("$build/lierne" simulate "$file" -b images_to_language)" ]
verdict $? "the command says there what it says here"
arm "$own/golden" tests/golden >"$work/out" 2>&1
adds $? "$work/out"
# Without what takes minutes here already, thousands of ranks or operations; and without ranks that are threads and
# watch each other's processes, since qemu tells each thread another time at which its process began.
filter='!(bridge_general|departure|oob*)/!(all_pairs_[57]*|gradient_and_output_over_cp_*|chunks_of_sums_*|busiest_*|ten_thousand_*|four_thousand_*)'
LIERNE_SEEDS=10 arm "$own/unit" "$filter" >"$work/out" 2>"$work/why"
adds $? "$work/out"
grep -E '^tests/unit/' "$work/why" | head -n 20
verdicts
