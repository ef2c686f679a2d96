#!/usr/bin/env bash
# The Python package, from a folder with its shared libraries as a wheel has them. $1: the build folder.
# PYTHON names the interpreter; by default that of venv.sh.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: test_python.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
python=${PYTHON:-$build/venv/bin/python}
if ! "$python" -c 'import cffi, numpy' 2>/dev/null || [ ! -e "$build/liblierne.so.0" ]; then
    echo "skipped: there is no $python with cffi and numpy (make deps), or no library"
    echo "0 passed, 0 failed"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
PYTHON=$python sh src/python/stage.sh "$build" || exit 1
for program in package package_rows package_plans schedules shared_outputs windows wrong_calls signatures megatron_members; do
    PYTHONPATH=$build/python:tests/python timeout 300 "$python" tests/python/$program.py >"$work/out" 2>&1
    adds $? "$work/out"
    [ "${count#* passed, }" = "0 failed" ] || cat "$work/out"
done

if command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 && [ -e "$build/liblierne_mpi.so.0" ]; then
    PYTHONPATH=$build/python:tests/python timeout 120 "${MPIRUN:-mpirun}" -n 2 "$python" \
        tests/python/mpi_ranks.py >"$work/out" 2>&1 && grep -qx '1 passed, 0 failed' "$work/out"
    mpi=$?
    [ $mpi = 0 ] || cat "$work/out"
    verdict $mpi "contexts of MPI communicators"
fi

# On the emulated device, whose library for Python is another one.
mkdir "$work/lib" && ln -s "$build/liblierne.so.0" "$work/lib" &&
    ln -s "$build/emulated/for_python.so" "$work/lib/liblierne_cuda.so.0"
LIERNE_LIBRARY_PATH=$work/lib PYTHONPATH=$build/python:tests/python timeout 120 "$build/tests/launched/launch" 2 \
    "$python" tests/python/device.py "$build/emulated/libcuda.so.1" >"$work/out" 2>&1 &&
    [ "$(grep -o '9 passed, 0 failed' "$work/out" | wc -l)" = 2 ]
verdict $? "plans on device memory: $(cat "$work/out")"
[ "$(PYTHONPATH=$build/python "$python" -m lierne --version)" = "$("$build/lierne" --version)" ]
verdict $? "python -m lierne is the command"

shown() { # shown FILE: its blocks of Python
    awk '/^```python$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1"
}
shown docs/gradients.md >"$work/gradients.py"
[ "$(grep -c '^assert' "$work/gradients.py")" -ge 4 ] && PYTHONPATH=$build/python "$python" "$work/gradients.py"
verdict $? "the numbers of docs/gradients.md"
shown README.md >"$work/shown"
[ "$(wc -l <"$work/shown")" -ge 10 ] && ! diff "$work/shown" examples/python/bridge.py | grep '^<'
verdict $? "the README shows lines of examples/python/bridge.py"
verdicts
