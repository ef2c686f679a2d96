#!/usr/bin/env bash
# lierne.torch on ranks of torchrun, where an interpreter has PyTorch (make check-torch installs it).
# $1: the build folder. PYTHON names the interpreter.
set -u
build=$(cd "${1:?usage: test_torch.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
python=
for program in ${PYTHON:-"$build/venv/bin/python" python3 /usr/bin/python3}; do
    if "$program" -c 'import cffi, numpy, torch; assert torch.__version__ >= "2.4"' 2>/dev/null; then
        python=$program
        break
    fi
done
if [ -z "$python" ] || [ ! -e "$build/liblierne.so.0" ]; then
    echo "skipped: there is no python3 with PyTorch 2.4 or later (make check-torch installs it)"
    echo "0 passed, 0 failed"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1
passed=0
failed=0

torchrun=("$python" -m torch.distributed.run --standalone --nproc-per-node)

# count COMMAND...: runs a program and adds its counts.
count() {
    local out line
    out=$(timeout 300 "$@" 2>&1)
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' <<<"$out" | tail -n 1)
    if [[ $line =~ ^([0-9]+)\ passed,\ 0\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
    else
        failed=$((failed + 1))
        grep -v '^$' <<<"$out" | head -n 60
        echo "FAIL $*"
    fi
}
alone() { count "$python" "$@"; }
ranks() { count "${torchrun[@]}" "$@"; }
verdict() { # verdict NAME PYTHONPATH PROGRAM: an example, which prints something for each rank
    local out
    out=$(cd "${TMPDIR:-/tmp}" && PYTHONPATH=$2 timeout 120 "${torchrun[@]}" 4 "$3" 2>&1)
    if [ $? = 0 ] && [ "$(grep -o 'rank [0-3]: ' <<<"$out" | sort -u | wc -l)" = 4 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$out"
        echo "FAIL $1"
    fi
}

PYTHON=$python sh src/python/stage.sh "$build" || exit 1
export PYTHONPATH=$build/python:tests/python
alone tests/python/megatron_mapping.py
ranks 4 tests/python/torch_ranks.py
ranks 8 tests/python/torch_ranks.py
for name in bridge.py graph.py halo.py; do
    verdict "$name" "$PYTHONPATH" "$PWD/examples/python/$name"
done

# The wheel, installed by pip into an empty folder, serves the example from elsewhere.
if "$python" -c 'import setuptools; assert int(setuptools.__version__.split(".")[0]) >= 71' 2>/dev/null; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$python" -m pip wheel -q --no-deps --no-build-isolation -w "$work" "$build/python" >"$work/log" 2>&1 &&
        "$python" -m pip install -q --no-deps --target "$work/site" "$work"/*.whl >>"$work/log" 2>&1 ||
        cat "$work/log"
    verdict "the installed wheel" "$work/site" "$PWD/examples/python/bridge.py"
else
    echo "the wheel was not built: there is no setuptools 71"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
