#!/usr/bin/env bash
# lierne.torch on ranks of torchrun, where an interpreter has PyTorch (make check-torch installs it).
# $1: the build folder. PYTHON names the interpreter; by default that of venv.sh.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: test_torch.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
python=${PYTHON:-$build/venv/bin/python}
if ! "$python" -c 'import cffi, numpy, torch; assert torch.__version__ >= "2.4"' 2>/dev/null ||
    [ ! -e "$build/liblierne.so.0" ]; then
    echo "skipped: there is no PyTorch 2.4 or later (make check-torch installs it)"
    echo "0 passed, 0 failed"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
torchrun=("$python" -m torch.distributed.run --standalone --nproc-per-node)

# count COMMAND...: runs a program and adds what it counts.
count() {
    timeout 300 "$@" >"$work/out" 2>&1
    if [[ $(grep -E '^[0-9]+ passed, ' "$work/out" | tail -n 1) =~ ^([0-9]+)\ passed,\ 0\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        grep -m 1 '^skipped: ' "$work/out"
    else
        grep -v '^$' "$work/out" | head -n 60
        verdict 1 "$*"
    fi
}
# example PYTHONPATH FILE [RANKS]: an example, from another folder; each rank prints what it has.
example() {
    (cd "$work" && PYTHONPATH=$1 timeout 120 "${torchrun[@]}" "${3:-4}" "$2") >"$work/out" 2>&1 &&
        [ "$(grep -o 'rank [0-7]: ' "$work/out" | sort -u | wc -l)" = "${3:-4}" ]
    local status=$?
    [ $status = 0 ] || cat "$work/out"
    verdict $status "$2 with the package of $1"
}

PYTHON=$python sh src/python/stage.sh "$build" || exit 1
export PYTHONPATH=$build/python:tests/python
count "$python" tests/python/megatron_mapping.py
count "${torchrun[@]}" 4 tests/python/torch_ranks.py
count "${torchrun[@]}" 4 tests/python/torch_megatron.py
count "${torchrun[@]}" 4 tests/python/torch_fairchem.py
count "${torchrun[@]}" 4 tests/python/torch_samples.py
count "${torchrun[@]}" 4 tests/python/torch_packed.py
count "${torchrun[@]}" 4 tests/python/torch_halo.py
count "${torchrun[@]}" 4 tests/python/torch_halo_conv.py
for ranks in 1 2 3; do
    count "${torchrun[@]}" $ranks tests/python/torch_halo_conv.py worlds
done
for ranks in 1 2 3 4; do
    if "$python" -c 'import torch; assert torch.__version__ >= "2.15"' 2>/dev/null; then
        count "${torchrun[@]}" $ranks tests/python/torch_backend.py
    else
        echo "skipped: the backend of torch.distributed needs PyTorch 2.15"
    fi
done
count "${torchrun[@]}" 1 tests/python/torch_deepmd.py
count "${torchrun[@]}" 4 tests/python/torch_deepmd.py
if ${CXX:-g++} --version >/dev/null 2>&1; then
    PYTHON=$python sh src/torch/build.sh "$build" tests/torch/deepmd.cpp
    verdict $? "liblierne_torch and its program are built"
    for ranks in 1 4; do
        LIERNE_TORCH_LIBRARY=$build/liblierne_torch.so count "${torchrun[@]}" $ranks tests/python/torch_deepmd.py
    done
else
    echo "no ${CXX:-g++}: liblierne_torch was left out"
fi
count "${torchrun[@]}" 1 tests/python/torch_faults.py
count "${torchrun[@]}" 4 tests/python/torch_faults.py
count "${torchrun[@]}" 4 tests/python/torch_schedules.py
count "${torchrun[@]}" 4 tests/python/torch_fx.py
count "${torchrun[@]}" 1 tests/python/torch_cuda.py
count "${torchrun[@]}" 8 tests/python/torch_ranks.py
count "${torchrun[@]}" 8 tests/python/torch_megatron.py
count "${torchrun[@]}" 10 tests/python/torch_megatron.py
count "${torchrun[@]}" 8 tests/python/torch_overlap.py
count "${torchrun[@]}" 8 tests/python/torch_train.py
count "${torchrun[@]}" 8 tests/python/torch_towers.py
count "${torchrun[@]}" 8 tests/python/torch_mimo.py
cp grids/encoder-llm-8.json "$work/job.json"
count env -C "$work" PYTHONPATH="$build/python" "${torchrun[@]}" 8 "$PWD/tests/python/snippets.py"
for file in examples/python/*.py; do
    example "$build/python" "$PWD/$file"
done
example "$build/python" "$PWD/examples/python/multimodal.py" 8
example "$build/python" "$PWD/examples/python/deltas.py" 6

# The wheel, as pip installs it into an empty folder.
if "$python" -c 'import setuptools; assert int(setuptools.__version__.split(".")[0]) > 70' 2>/dev/null; then
    "$python" -m pip wheel -q --no-deps --no-build-isolation -w "$work/dist" "$build/python" &&
        "$python" -m pip install -q --no-deps --target "$work/site" "$work"/dist/*.whl
    verdict $? "pip installs the wheel"
    example "$work/site" "$PWD/examples/python/bridge.py"
else
    echo "no setuptools above 70: the wheel was left out"
fi
verdicts
