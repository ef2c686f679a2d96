#!/bin/sh
# Installs the missing packages that building and testing need, and names them. Arguments: further
# commands, whose packages mostly have their names.
# DEPS=0: only names what is missing, and fails if something is. deps.sh demo fails then only if the
# demo cannot do without it: the compiler, make and cJSON.
set -eu
missing=
need() { # need COMMAND PACKAGE: a command on the PATH
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
module() { # module NAME PACKAGE: a Python module, for an interpreter that test_python.sh tries
    for python in python3 /usr/bin/python3; do
        "$python" -c "import $1" 2>/dev/null && return
    done
    missing="$missing $2"
}
header() { # header FILE PACKAGE: a header that the compiler finds
    printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1 || missing="$missing $2"
}
need make make
need cc gcc
need g++ g++ # the public headers are tested from C++ too
need pkg-config pkg-config
need mpicc libopenmpi-dev
need mpirun openmpi-bin
need git git
module cffi python3-cffi # without these two the tests of the Python package are skipped
module numpy python3-numpy
module jsonschema python3-jsonschema # without it the schema of configurations is not compared
for command in "$@"; do
    case $command in
    demo) ;;
    dh) need dh debhelper ;;
    dh_python3) need dh_python3 dh-python ;;
    *) need "$command" "$command" ;;
    esac
done
if command -v cc >/dev/null 2>&1; then
    header cjson/cJSON.h libcjson-dev
    header xxhash.h libxxhash-dev # inlined: nothing links it
    header criterion/criterion.h libcriterion-dev
    header math.h libc6-dev
else
    missing="$missing libc6-dev libcjson-dev libxxhash-dev libcriterion-dev"
fi
[ -z "$missing" ] && exit 0
if [ "${DEPS:-1}" = 0 ]; then
    echo "missing packages:$missing (not installed: DEPS=0)" >&2
    for package in $missing; do
        case "${1:-} $package" in
        *' python3-cffi' | *' python3-numpy' | *' python3-jsonschema') ;;
        'demo g++' | 'demo pkg-config' | 'demo libopenmpi-dev' | 'demo openmpi-bin' | 'demo git' | \
            'demo libcriterion-dev') ;;
        *) exit 1 ;;
        esac
    done
    exit 0
fi
command -v apt-get >/dev/null 2>&1 || { echo "please install:$missing (no apt-get here)" >&2; exit 1; }
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing:$missing"
log=$(mktemp)
if ! { $sudo apt-get update && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "installing failed; the log is $log" >&2
    exit 1
fi
rm -f "$log"
