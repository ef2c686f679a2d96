#!/bin/sh
# Puts the package together in a folder: the Python files, the declarations made from the headers, the
# shared libraries and the command. Programs run from it (PYTHONPATH), and `make wheel` packs it.
# Usage: stage.sh BUILD; PYTHON names an interpreter that has cffi.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: stage.sh BUILD}" && pwd)
stage=$build/python
python=${PYTHON:-python3}
rm -rf "$stage"
mkdir -p "$stage/lierne/lib" "$stage/lierne/bin"
cp -R "$here/lierne" "$here/licenses" "$here/pyproject.toml" "$here/setup.py" "$here/../../LICENSE" "$stage"
sh "$here/readme.sh" "$here/../../README.md" >"$stage/README.md"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
"$python" "$here/generate.py" "$here/../../include" "$stage/lierne/_binding.py"
for library in liblierne liblierne_mpi liblierne_cuda liblierne_nccl; do
    [ ! -e "$build/$library.so.0" ] || cp -L "$build/$library.so.0" "$stage/lierne/lib/"
done
[ ! -e "$build/lierne" ] || cp "$build/lierne" "$stage/lierne/bin/"
# liblierne looks for libcjson beside itself first, the command in ../lib (RUNPATH), so that a
# machine needs none.
cjson=$(ldd "$build/liblierne.so.0" | sed -n 's/.*libcjson[^ ]* => \([^ ]*\) .*/\1/p')
[ -z "$cjson" ] || cp -L "$cjson" "$stage/lierne/lib/"
