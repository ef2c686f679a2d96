#!/usr/bin/env bash
# make manylinux: a wheel that an index takes, which works on an older system than this one: the current
# stable release but one of Debian, in a chroot. $1: the build folder. Needs PyPI, debootstrap and root.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: manylinux.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
make -s "B=$build" DEPS=0 manylinux >"$work/log" 2>&1
verdict $? "make manylinux: $(tail -n 5 "$work/log")"
! grep 'warning: ' "$work/log"
verdict $? "it compiles without warnings"
wheel=$(echo "$build"/manylinux/dist/*.whl)
[[ $wheel == *py3-none-manylinux_2_28_$(uname -m).whl || $wheel == *manylinux_2_*manylinux_2_28_$(uname -m).whl ]]
verdict $? "its name says for which systems it is: $wheel"
root=${TMPDIR:-/tmp}/lierne-bullseye
if [ ! -x "$root/usr/bin/python3" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
        echo "skipped: an older system needs root and debootstrap"
        verdicts
        exit
    fi
    rm -rf "$root"
    debootstrap --variant=minbase --include=python3-pip bullseye "$root" >"$work/log" 2>&1
    verdict $? "debootstrap: $(tail -n 3 "$work/log")"
fi
# Without /proc the loader finds no libraries beside a program.
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"; rm -rf "$work"' EXIT
rm -rf "$root"/tmp/*
cp "$wheel" grids/mimo-colocated-fanin-8.json "$root/tmp"
"$build/manylinux/venv/bin/pip" download -q -d "$root/tmp" --only-binary :all: --python-version 3.9 \
    --platform "manylinux2014_$(uname -m)" numpy cffi >"$work/log" 2>&1
verdict $? "numpy and cffi from PyPI: $(tail -n 3 "$work/log")"
cat >"$root/tmp/try.py" <<'END'
import lierne
import numpy as np

src, dst = lierne.Grid({"tp": 2, "dp": 2}), lierne.Grid({"tp": 4, "dp": 1})


def rank(context):
    plan, dp = lierne.Bridge(context, src, dst, (4, 8, 16), "f32"), context.rank // 2
    whole = np.arange(4 * 8 * 16, dtype="f4").reshape(4, 8, 16)
    return np.array_equal(plan.forward(whole[2 * dp:2 * dp + 2].copy()), whole)


with lierne.Context.sim(4) as world:
    assert world.run(rank) == [True] * 4
print("glibc", __import__("platform").libc_ver()[1], "lierne", lierne.__version__)
END
chroot "$root" sh -c 'python3 -m pip install -q --no-index --find-links /tmp --target /tmp/site /tmp/*.whl &&
    PYTHONPATH=/tmp/site python3 /tmp/try.py' >"$work/out" 2>&1 && grep -qE '^glibc 2.(2[89]|3[0-5]) ' "$work/out"
verdict $? "the wheel in an older system: $(tail -n 5 "$work/out")"
chroot "$root" /tmp/site/lierne/bin/lierne simulate /tmp/mimo-colocated-fanin-8.json -b images_to_language >"$work/out" 2>&1 &&
    grep -q 'forward and adjoint are right' "$work/out"
verdict $? "the command there: $(tail -n 5 "$work/out")"
verdicts
