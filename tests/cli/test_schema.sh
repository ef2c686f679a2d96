#!/usr/bin/env bash
# The JSON Schema of configurations agrees with the command (tests/cli/schema.py). $1: the build folder.
set -u
build=$(cd "${1:?usage: test_schema.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
for python in python3 /usr/bin/python3; do
    if "$python" -c 'import jsonschema; jsonschema.Draft202012Validator' 2>/dev/null; then
        exec timeout 300 "$python" tests/cli/schema.py "$build/lierne" "$work"
    fi
done
echo "skipped: there is no python3 with jsonschema"
echo "0 passed, 0 failed"
