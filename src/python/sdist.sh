#!/bin/sh
# Packs a source distribution in BUILD/dist: the Python package, and in source/ what `make python` needs.
# pip builds a wheel of it with a compiler, make and cJSON; setuptools and cffi it fetches itself.
# Usage: sdist.sh BUILD; PYTHON names an interpreter that has the package build.
set -eu
build=$(cd "${1:?usage: sdist.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
stage=$build/sdist
sh src/python/needs.sh sdist
rm -rf "$stage" "$build"/dist/*.tar.gz
mkdir -p "$stage/source/tests" "$stage/source/docs" "$build/dist"
cp -R src/python/lierne src/python/licenses src/python/pyproject.toml src/python/setup.py LICENSE "$stage"
sh src/python/readme.sh README.md >"$stage/README.md"
cp -R Makefile LICENSE README.md include src kernels examples "$stage/source"
cp docs/lierne.1 "$stage/source/docs"
cp -R tests/find_cuda.sh tests/tests.mk tests/emulator "$stage/source/tests"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
printf 'graft source\ngraft licenses\ninclude LICENSE README.md\n' >"$stage/MANIFEST.in"
"$python" -m build --sdist -o "$build/dist" "$stage" >"$build/sdist.log" 2>&1 || {
    tail -n 20 "$build/sdist.log" >&2
    exit 1
}
echo "built $(ls "$build"/dist/*.tar.gz)"
