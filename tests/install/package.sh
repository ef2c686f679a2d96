#!/usr/bin/env bash
# The Python package as an index takes it: wheel and source distribution pass twine, have their licenses, and
# install into empty environments, where the command and typed programs work. $1: the build folder.
# Needs PyPI for build, mypy and twine; python3-venv for the environments.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: package.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
tools=$build/venv-package
if ! "$tools/bin/python" -c 'import build, mypy, twine, yaml, setuptools as s; assert s.__version__ >= "77"' 2>/dev/null; then
    rm -rf "$tools"
    python3 -m venv "$tools" && "$tools/bin/pip" install -q build cffi mypy numpy pyyaml 'setuptools>=77' twine
    verdict $? "build, mypy and twine from PyPI"
fi >"$work/log" 2>&1
PYTHON=$tools/bin/python make -s "B=$build" DEPS=0 wheel sdist >"$work/log" 2>&1
verdict $? "make wheel sdist: $(tail -n 5 "$work/log")"
wheel=$(echo "$build"/dist/*.whl) sdist=$(echo "$build"/dist/*.tar.gz)
"$tools/bin/twine" check --strict "$wheel" "$sdist" >"$work/log" 2>&1
verdict $? "twine check: $(tail -n 5 "$work/log")"
mkdir "$work/source" && tar -xzf "$sdist" -C "$work/source" && got=$(make -n -C "$work"/source/*/source DEPS=0 all 2>&1 >/dev/null) && [ -z "$got" ]
verdict $? "make in the source distribution lacks nothing: $got"
python3 -m zipfile -e "$wheel" "$work/unpacked"
meta=$(echo "$work"/unpacked/*.dist-info)
for line in 'License-Expression: Apache-2.0 AND MIT' 'Classifier: Typing :: Typed' 'Requires-Dist: cffi>=1.15' \
    'Description-Content-Type: text/markdown' '# lierne'; do
    grep -qxF -- "$line" "$meta/METADATA"
    verdict $? "the wheel says: $line"
done
! grep -nE '\]\(docs/|\]\(include/|^!\[' "$meta/METADATA"
verdict $? "the description has no link into this tree"
cmp "$meta/licenses/LICENSE" LICENSE && grep -q 'Dave Gamble' "$meta/licenses/licenses/cJSON.txt"
verdict $? "the wheel has both licenses"
[ -e "$work/unpacked/lierne/py.typed" ]
verdict $? "the wheel has py.typed"

"$tools/bin/pip" install -q --force-reinstall --no-deps "$wheel" >"$work/log" 2>&1
types() { # types FILE...: what mypy says of programs, by the types of the installed package
    "$tools/bin/mypy" --strict --ignore-missing-imports --cache-dir "$work/types" "$@"
}
got=$(types examples/python/*.py)
verdict $? "mypy --strict over the examples: $(tail -n 10 <<<"$got")"
cat >"$work/wrong.py" <<'END'
import lierne
with lierne.Context.self() as context:
    grid = lierne.Grid({"tp": 1, "dp": 1})
    lierne.Bridge(context, grid, grid, (4, 2), "f32", owner="zigzga")
    lierne.Context.self(timeot=3)
    rank: str = context.rank
    lierne.all_reduce(context, 3, "f64", reduction=0).shapes(direction="back")
END
got=$(types "$work/wrong.py" | grep -o 'wrong.py:[0-9]*: error' | sort -u | xargs)
[ "$got" = "wrong.py:4: error wrong.py:5: error wrong.py:6: error wrong.py:7: error" ]
verdict $? "mypy finds what is wrong in each line: $got"

installed() { # installed NAME FILE: into an empty environment; then a program of its own, and the command
    python3 -m venv "$work/$1" && "$work/$1/bin/pip" install -q "$2" >"$work/log" 2>&1
    verdict $? "pip install of the $1: $(tail -n 5 "$work/log")"
    (cd "$work" && "$work/$1/bin/python" -c '
import lierne, numpy
with lierne.Context.self() as context:
    plan = lierne.all_reduce(context, 3, "f64")
    assert plan.forward(numpy.array([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 3.0]' >"$work/log" 2>&1)
    verdict $? "a program with the $1: $(tail -n 5 "$work/log")"
    [ "$("$work/$1/bin/lierne" --version)" = "$("$build/lierne" --version)" ]
    verdict $? "the command of the $1"
    "$work/$1/bin/lierne" check --quiet no-such-file.json 2>/dev/null
    [ $? = 2 ]
    verdict $? "the status of the command of the $1"
    got=$(LD_LIBRARY_PATH='' ldd "$work/$1"/lib/python3*/site-packages/lierne/bin/lierne | sed -n 's/.*libcjson.* => \([^ ]*\).*/\1/p')
    [[ $(readlink -m "$got") == "$work/$1"/* ]]
    verdict $? "the command of the $1 takes the libcjson beside it: $got"
}
installed wheel "$wheel"

# The sample for a user's CI: its commands, but for the installation.
mkdir "$work/ci" "$work/ci/layouts"
cp grids/encoder-llm-8.json "$work/ci/layouts/job.json"
"$tools/bin/python" - examples/ci/layouts.yml "$work/ci" <<'END'
import sys, yaml
steps = yaml.safe_load(open(sys.argv[1]))["jobs"]["layouts"]["steps"]
runs = [step["run"] for step in steps if "run" in step]
assert runs[0].startswith("pip install lierne==") and len(runs) == 4, runs
for i, run in enumerate(runs[1:]):
    open(f"{sys.argv[2]}/{i}.sh", "w").write(run)
END
verdict $? "the sample for CI is YAML"
for step in 0 1 2; do
    (cd "$work/ci" && PATH=$work/wheel/bin:$PATH bash -e "$step.sh" >"$work/log" 2>&1)
    verdict $? "step $step of the sample for CI: $(tail -n 3 "$work/log")"
done
sed -i 's/"world_size": 8/"world_size": 6/' "$work/ci/layouts/job.json"
! (cd "$work/ci" && PATH=$work/wheel/bin:$PATH bash -e 0.sh >"$work/log" 2>&1) && grep -q '^::error ' "$work/log"
verdict $? "it finds a configuration that is wrong: $(cat "$work/log")"
installed sdist "$sdist"
verdicts
