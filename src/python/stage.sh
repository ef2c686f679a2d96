#!/bin/sh
# Puts the package together in a folder: the Python files, the declarations made from the headers, and
# the shared libraries. Programs run from it (PYTHONPATH), and `make wheel` packs it.
# Usage: stage.sh BUILD; PYTHON names an interpreter that has cffi.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: stage.sh BUILD}" && pwd)
stage=$build/python
python=${PYTHON:-python3}
"$python" -c 'import cffi' 2>/dev/null || {
    echo "make python: $python has no cffi: install it, or name another interpreter: make python PYTHON=..." >&2
    exit 1
}
rm -rf "$stage"
mkdir -p "$stage/lierne/lib"
cp -R "$here/lierne" "$here/pyproject.toml" "$here/setup.py" "$stage"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
"$python" "$here/generate.py" "$here/../../include" "$stage/lierne/_binding.py"
for library in liblierne liblierne_mpi; do
    [ ! -e "$build/$library.so.0" ] || cp -L "$build/$library.so.0" "$stage/lierne/lib/"
done
# liblierne looks for libcjson beside itself first (RUNPATH), so that a machine needs none.
cjson=$(ldd "$build/liblierne.so.0" | sed -n 's/.*libcjson[^ ]* => \([^ ]*\) .*/\1/p')
[ -z "$cjson" ] || cp -L "$cjson" "$stage/lierne/lib/"
