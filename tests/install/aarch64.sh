#!/usr/bin/env bash
# A cross build for aarch64, as for Grace and Ampere: library, command, golden files and unit tests run under
# qemu. One thread calls for all ranks of a golden file. $1: the build folder. Needs gcc-aarch64-linux-gnu,
# qemu-user and Debian's mirror, from which Criterion and libcjson1 of that machine come without being installed;
# for the unit tests, which start themselves anew, also qemu-user-binfmt.
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
apt=$work/apt
mkdir -p "$system" "$apt/lists/partial" "$apt/cache/archives/partial"
touch "$apt/status"
of_arm64() {
    apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$apt/lists" \
        -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root "$@"
}
libraries=$system/usr/lib/aarch64-linux-gnu
if [ ! -e "$libraries/libcjson.so" ]; then
    of_arm64 update >"$work/log" 2>&1
    of_arm64 --no-install-recommends --download-only install libcriterion-dev libcjson1 >>"$work/log" 2>&1
    verdict $? "Criterion and libcjson1 of arm64: $(tail -n 3 "$work/log")"
    for package in "$apt"/cache/archives/*.deb; do
        dpkg -x "$package" "$system"
    done
    ln -sfn libcjson.so.1 "$libraries/libcjson.so"
fi
make -s -j"$(nproc)" "B=$own" DEPS=0 CUDA=0 MPI=0 CC=aarch64-linux-gnu-gcc "CPPFLAGS=-isystem $system/usr/include" \
    "LDFLAGS=--sysroot=$system" "${own#"$PWD"/}/golden" "${own#"$PWD"/}/unit" all >"$work/log" 2>&1 &&
    ! grep 'warning: ' "$work/log"
verdict $? "make for aarch64: $(tail -n 5 "$work/log")"
export QEMU_LD_PREFIX=$system QEMU_SET_ENV=LD_LIBRARY_PATH=$own:/usr/lib/aarch64-linux-gnu
arm() { # arm COMMAND...: under qemu
    LD_LIBRARY_PATH='' qemu-aarch64 "$@"
}
file=grids/mimo-colocated-fanin-8.json
[ "$(arm "$own/lierne" simulate "$file" -b images_to_language)" = "$("$build/lierne" simulate "$file" -b images_to_language)" ]
verdict $? "the command says there what it says here"
arm "$own/golden" tests/golden >"$work/out" 2>&1
adds $? "$work/out"
if [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    echo "skipped: the unit tests, as the system starts no program of aarch64 (apt install qemu-user-binfmt)"
else
    build=$own
    unit '*' LD_LIBRARY_PATH=
fi
verdicts
