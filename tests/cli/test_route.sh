#!/usr/bin/env bash
# Python executes a bridge from the routes that the command prints. $1: the build folder.
set -u
build=${1:?usage: test_route.sh BUILD}
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3"
    echo "0 passed, 0 failed"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$(dirname "$0")/route.py" "$build/lierne" "$work"
