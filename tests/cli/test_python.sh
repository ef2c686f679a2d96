#!/usr/bin/env bash
# The Python package, from a folder with its shared libraries as a wheel has them. $1: the build folder.
# PYTHON names the interpreter; by default the first one that has cffi and numpy.
set -u
build=$(cd "${1:?usage: test_python.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
python=
for program in ${PYTHON:-python3 /usr/bin/python3}; do
    if "$program" -c 'import cffi, numpy' 2>/dev/null; then
        python=$program
        break
    fi
done
if [ -z "$python" ] || [ ! -e "$build/liblierne.so.0" ]; then
    echo "skipped: there is no python3 with cffi and numpy"
    echo "0 passed, 0 failed"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
PYTHON=$python sh src/python/stage.sh "$build" || exit 1
out=$(PYTHONPATH=$build/python:tests/python timeout 300 "$python" tests/python/package.py 2>&1)
line=$(tail -n 1 <<<"$out")
[[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] || { echo "$out" && exit 1; }
passed=${BASH_REMATCH[1]}
failed=${BASH_REMATCH[2]}
[ "$failed" = 0 ] || grep -v passed <<<"$out"

# The README shows the example that runs.
shown=$(awk '/^```python$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md)
if [ "$shown" = "$(cat examples/python/bridge.py)" ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    diff <(echo "$shown") examples/python/bridge.py
    echo "FAIL the README shows another program than examples/python/bridge.py"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
