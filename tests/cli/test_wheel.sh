#!/usr/bin/env bash
# `make wheel` with every setuptools: by itself from 77 on, else with one that pip fetches; where there is
# none, two lines say what is missing. The interpreters are played, but for the last. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: test_wheel.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
unset MAKEFLAGS MAKELEVEL MFLAGS # options of a make above this one
real=${PYTHON:-$build/venv/bin/python}
if ! "$real" -c 'import cffi' 2>/dev/null || [ ! -e "$build/liblierne.so.0" ]; then
    echo "skipped: there is no $real with cffi (make deps), or no library"
    echo "0 passed, 0 failed"
    exit 0
fi

# $0.setuptools: its version; $0.pip: what its pip does. Everything else is the real interpreter's.
cat >"$work/played" <<END
#!/bin/bash
case "\$*" in
*import\ setuptools\ as\ s*) [[ \$(cat "\$0.setuptools") > 77 ]] ;;
*'setuptools.__version__'*) cat "\$0.setuptools" ;;
*'-m pip --version') [ "\$(cat "\$0.pip")" != missing ] ;;
*'-m pip wheel '*)
    [ "\$(cat "\$0.pip")" = works ] || { echo Traceback && exit 1; }
    while [ "\$1" != -w ]; do echo "\$1" && shift; done >"\$0.options"
    mkdir -p "\$2" && : >"\$2/lierne.whl"
    ;;
*import\ cffi*) [ "\$(cat "\$0.pip")" != nocffi ] && exec "$real" "\$@" ;;
*) exec "$real" "\$@" ;;
esac
END
chmod +x "$work/played"
wheel() { # wheel SETUPTOOLS PIP [BUILD]: make wheel with such an interpreter; its output goes to $got
    echo "$1" >"$work/played.setuptools"
    echo "$2" >"$work/played.pip"
    : >"$work/played.options"
    got=$(PYTHON=$work/played timeout 300 make -s wheel "B=${3:-$build}" 2>&1)
}
short() { # short TEXT...: what make wheel said has these texts, and at most two lines beside make's own
    local text
    [ "$(grep -vc -e '^make' -e '^built' <<<"$got")" -le 2 ] && [[ $got != *Traceback* ]] || return 1
    for text; do
        [[ $got == *"$text"* ]] || return 1
    done
}
wheel 80.9 works && grep -qx -- --no-build-isolation "$work/played.options"
verdict $? "setuptools 80.9 packs by itself: $got $(cat "$work/played.options")"
wheel 65.5 works && ! grep -qx -- --no-build-isolation "$work/played.options"
verdict $? "with setuptools 65.5, pip fetches one: $got $(cat "$work/played.options")"
! wheel 65.5 fails && short "setuptools 65.5" "needs setuptools 77" "PYTHON="
verdict $? "setuptools 65.5 and no PyPI: $got"
# A first build says so before it compiles.
! wheel 65.5 missing "$work/new" && short "has no pip" "PYTHON=" && [ ! -e "$work/new" ]
verdict $? "no pip: $got"
! wheel 65.5 nocffi "$work/new" && short "has no cffi" "PYTHON=" && [ ! -e "$work/new" ]
verdict $? "no cffi: $got"

# The folder build/ is no package build.
printf '#!/bin/sh\nexec "%s" -S "$@"\n' "$real" >"$work/bare"
chmod +x "$work/bare"
! got=$(PYTHON=$work/bare make -s sdist "B=$build" 2>&1) && short "has no package build" "PYTHON="
verdict $? "no package build: $got"

if got=$(PIP_NO_INDEX=1 PYTHON=$real make -s wheel "B=$build" 2>&1); then
    listed=$("$real" -m zipfile -l "$build"/dist/*.whl)
    [[ $listed == *lierne/_binding.py* && $listed == *lierne/lib/liblierne.so.0* ]]
else
    short "needs setuptools 77" || short "has no pip"
fi
verdict $? "$real without PyPI: $got"
verdicts
