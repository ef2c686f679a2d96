#!/usr/bin/env bash
# The JSON Schema of configurations agrees with the command (tests/cli/schema.py). $1: the build folder.
# PYTHON names the interpreter; by default that of venv.sh.
set -u
build=$(cd "${1:?usage: test_schema.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
python=${PYTHON:-$build/venv/bin/python}
if "$python" -c 'from jsonschema import Draft202012Validator' 2>/dev/null; then
    exec timeout 300 "$python" tests/cli/schema.py "$build/lierne" "$work"
fi
echo "skipped: there is no $python with jsonschema (make deps)"
echo "0 passed, 0 failed"
