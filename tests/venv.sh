#!/bin/sh
# Makes BUILD/venv, the interpreter of all Python tests, with cffi, jsonschema and numpy: over an
# interpreter that has all three (modules of two interpreters are of no use together), else from PyPI.
# Usage: venv.sh BUILD [here | pypi | torch] [PYTHON...]. here: only over an interpreter of this machine.
# torch: from PyPI, with PyTorch, and with Megatron-LM's core where it takes that Python. PYTHON: interpreters to look at, by default python3 and Debian's.
set -eu
build=${1:?usage: venv.sh BUILD [here | pypi | torch] [PYTHON...]}
way=${2:-pypi}
venv=$build/venv
[ $# -gt 1 ] && shift
shift
[ $# -gt 0 ] || set -- python3 /usr/bin/python3
packages="cffi jsonschema numpy"
imports="import cffi, numpy; from jsonschema import Draft202012Validator"
if [ "$way" = torch ]; then
    packages="$packages setuptools>=77 torch>=2.4"
    imports="$imports; import torch"
fi
has_all() { # has_all PYTHON
    "$1" -c "$imports" 2>/dev/null
}
if [ -n "${PYTHON:-}" ] && has_all "$PYTHON" || has_all "$venv/bin/python"; then
    exit 0
fi
mkdir -p "$build"
log=$build/venv.log
[ "$way" != torch ] && for python in "$@"; do
    "$python" -m venv --clear --system-site-packages --without-pip "$venv" >"$log" 2>&1 && has_all "$venv/bin/python" ||
        continue
    echo "made $venv over $python"
    exit 0
done
rm -rf "$venv"
[ "$way" != here ] || exit 1
echo "making $venv with $packages from PyPI"
# shellcheck disable=SC2086
"$1" -m venv --clear "$venv" >"$log" 2>&1 && "$venv/bin/python" -m pip install -q $packages >>"$log" 2>&1 &&
    has_all "$venv/bin/python" && {
    [ "$way" != torch ] ||
        "$venv/bin/python" -m pip install -q --only-binary=:all: "megatron-core>=0.19" >>"$log" 2>&1 ||
        echo "no megatron-core 0.19 for this Python: its own models are left out of the tests"
    exit 0
}
tail -n 5 "$log" >&2
rm -rf "$venv"
echo "no interpreter has all of $packages: install them for one, and name it: make check PYTHON=..." >&2
exit 1
