#!/bin/sh
# Packs BUILD/python (stage.sh) as a wheel in BUILD/dist. setuptools knows the fields of licenses from 77 on;
# where PYTHON's is older, pip fetches one for this build alone.
# Usage: wheel.sh BUILD; PYTHON names an interpreter that has pip.
set -eu
build=${1:?usage: wheel.sh BUILD}
python=${PYTHON:-python3}
log=$build/wheel.log
rm -f "$build"/dist/*.whl
if "$python" -c 'import setuptools as s; assert int(s.__version__.split(".")[0]) >= 77' 2>/dev/null; then
    "$python" -m pip wheel -q --no-deps --no-build-isolation -w "$build/dist" "$build/python"
else
    version=$("$python" -c 'import setuptools; print(setuptools.__version__)' 2>/dev/null || echo none)
    "$python" -m pip wheel -q --no-deps -w "$build/dist" "$build/python" >"$log" 2>&1 || {
        echo "make wheel needs setuptools 77: $python has setuptools $version, and pip could not fetch one ($log)." >&2
        echo "Install it ($python -m pip install 'setuptools>=77'), or name another interpreter: make wheel PYTHON=..." >&2
        exit 1
    }
fi
echo "built $(ls "$build"/dist/*.whl)"
