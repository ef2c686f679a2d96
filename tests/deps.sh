#!/bin/sh
# Installs the missing packages that building and testing need, and names them; then makes $B/venv for the
# Python tests (venv.sh). Arguments: further commands, whose packages mostly have their names; demo, deb or
# mkdocs alone: only what the demo, Debian's packages or the site need.
# MPI=0: without MPI. DEPS=0: only names what is missing, and fails if something is but Python's modules. deps.sh demo fails
# then only if the demo cannot do without it: the compiler, make and cJSON. It needs no Python.
set -eu
missing=
python= # packages of Debian's Python, which PyPI has, too
need() { # need COMMAND PACKAGE: a command on the PATH
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
module() { # module NAME PACKAGE: a module of Debian's Python
    /usr/bin/python3 -c "import $1" 2>/dev/null || python="$python $2"
}
debian_build() { # what debian/control asks for: dpkg counts its own packages, not what else is on the PATH
    for package in build-essential $(sed -n '/^Build-Depends:/,/[^,]$/p' debian/control | sed 's/^Build-Depends://; s/([^)]*)//; s/:any//' | tr -d ','); do
        case $package in
        debhelper-compat) package=debhelper ;;
        dh-sequence-python3) package=dh-python ;;
        esac
        dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q ' ok installed' || missing="$missing $package"
    done
}
header() { # header FILE PACKAGE: a header that the compiler finds
    printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1 || missing="$missing $2"
}
install() { # install PACKAGE...
    command -v apt-get >/dev/null 2>&1 || { echo "please install: $* (no apt-get here)" >&2; return 1; }
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    [ -z "$sudo" ] || command -v sudo >/dev/null 2>&1 || { echo "please install as root: apt-get install $*" >&2; return 1; }
    echo "installing: $*"
    log=$(mktemp)
    if ! { $sudo apt-get update && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "installing failed; the log is $log" >&2
        return 1
    fi
    rm -f "$log"
}
tested() { # what tests need beside the demo
    need g++ g++ # the public headers are tested from C++ too
    need git git
    header criterion/criterion.h libcriterion-dev
    sh tests/venv.sh "$B" here && return
    venv=
    module cffi python3-cffi
    module jsonschema python3-jsonschema
    module numpy python3-numpy
}
built() { # what the libraries and the command need, and the demo
    need make make
    need cc gcc
    need pkg-config pkg-config
    [ "${MPI:-}" = 0 ] || {
        need mpicc libopenmpi-dev
        need mpirun openmpi-bin
    }
    header cjson/cJSON.h libcjson-dev
    header xxhash.h libxxhash-dev # inlined: nothing links it
    header math.h libc6-dev
}
venv=made
case "${1:-}" in
demo) built ;;
deb)
    need git git
    debian_build
    need lintian lintian
    ;;
mkdocs) # the site compiles nothing
    need git git
    need mkdocs mkdocs
    ;;
*)
    built
    tested
    ;;
esac
for command in "$@"; do
    case $command in
    demo | deb | mkdocs) ;;
    ensurepip) module ensurepip python3-venv ;;
    *) need "$command" "$command" ;;
    esac
done
if [ "${DEPS:-1}" = 0 ]; then
    [ -z "$missing$python" ] || echo "missing packages:$missing$python (not installed: DEPS=0)" >&2
    for package in $missing; do
        case "${1:-} $package" in
        'demo pkg-config' | 'demo libopenmpi-dev' | 'demo openmpi-bin') ;;
        *) exit 1 ;;
        esac
    done
    exit 0
fi
# shellcheck disable=SC2086
if [ -n "$missing$python" ] && ! install $missing $python; then
    [ -z "$missing" ] || exit 1
    echo "trying PyPI for Python's modules"
fi
[ -n "$venv" ] || sh tests/venv.sh "$B"
