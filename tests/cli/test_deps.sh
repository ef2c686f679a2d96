#!/usr/bin/env bash
# The interpreter of the Python tests (tests/venv.sh): one that has all modules, over one of this machine or
# from PyPI; and Debian's packages that targets need. The interpreters here are played: files that know
# which modules they have. $1: not used.
set -u
. "$(dirname "$0")/../verdict.sh"
cd "$(dirname "$0")/../.." || exit 2
unset PYTHON

cat >"$work/played" <<'END'
#!/bin/bash
# $0.has: its modules; $0.pip: those that its pip installs. An environment is a copy, with or without them.
has_all() { # has_all IMPORTS
    for module in cffi numpy jsonschema torch; do
        [[ $1 != *$module* || " $(cat "$0.has") " == *" $module "* ]] || return 1
    done
}
environment() { # environment FOLDER
    mkdir -p "$1/bin"
    cp "$0" "$1/bin/python"
    cp "$0.has" "$1/bin/python.has"
    cp "$0.pip" "$1/bin/python.pip"
}
case "$*" in
'-m venv --clear --system-site-packages --without-pip '*) environment "${@: -1}" ;;
'-m venv --clear '*) environment "${@: -1}" && : >"${@: -1}/bin/python.has" ;;
'-m pip install -q '*) [ -s "$0.pip" ] && cp "$0.pip" "$0.has" ;;
'-c '*) has_all "$2" ;;
*) exit 2 ;;
esac
END
chmod +x "$work/played"
interpreter() { # interpreter NAME MODULES PIP
    cp "$work/played" "$work/$1"
    echo "$2" >"$work/$1.has"
    printf %s "$3" >"$work/$1.pip"
}
# makes STATUS LINE NAME ARGUMENT...: venv.sh with these arguments, into a new folder, ends so.
makes() {
    rm -rf "${work:?}/build"
    got=$(sh tests/venv.sh "$work/build" "${@:4}" 2>"$work/err")
    [ "$?" = "$1" ] && [ "$(tail -n 1 <<<"$got")" = "$2" ]
    verdict $? "$3: $got $(cat "$work/err")"
    if [ "$1" = 0 ]; then
        "$work/build/venv/bin/python" -c "import cffi, numpy, jsonschema"
    else
        [ ! -e "$work/build/venv" ]
    fi
    verdict $? "$3: the interpreter"
}
interpreter half "cffi jsonschema" ""
interpreter other "numpy" ""
interpreter whole "cffi jsonschema numpy" ""
interpreter online "" "cffi jsonschema numpy torch"
pypi="making $work/build/venv with cffi jsonschema numpy"
makes 1 "" "two interpreters that have a part each" here "$work/half" "$work/other"
makes 0 "made $work/build/venv over $work/whole" "the third has all" here "$work/half" "$work/other" "$work/whole"
makes 0 "$pypi from PyPI" "from PyPI" pypi "$work/online"
makes 0 "$pypi setuptools>=77 torch>=2.4 from PyPI" "with PyTorch" torch "$work/online" "$work/whole"
sh tests/venv.sh "$work/build" here "$work/half"
verdict $? "an interpreter that is there stays"
makes 1 "$pypi from PyPI" "without PyPI" pypi "$work/half" "$work/other"
grep -qx "no interpreter has all of cffi jsonschema numpy: install them for one, and name it: make check PYTHON=..." "$work/err"
verdict $? "the remedy: $(cat "$work/err")"
PYTHON=$work/whole sh tests/venv.sh "$work/named" here "$work/half" && [ ! -e "$work/named" ]
verdict $? "PYTHON that has all is taken as it is"

# A machine with nothing: a target asks for what it needs and no more.
asks() { # asks TARGET PACKAGE...
    got=$(PATH=$work/none DEPS=0 B=$work/named /bin/sh tests/deps.sh "$1" 2>&1)
    [ $? = 1 ] && [ "$got" = "missing packages: ${*:2} (not installed: DEPS=0)" ]
    verdict $? "what make needs for $1: $got"
}
asks demo make gcc pkg-config libopenmpi-dev openmpi-bin libcjson-dev libxxhash-dev libc6-dev
asks mkdocs git mkdocs
# With apt-get, but neither root nor sudo.
mkdir "$work/user"
printf '#!/bin/sh\necho 1000\n' >"$work/user/id"
ln -s /bin/true "$work/user/apt-get"
chmod +x "$work/user/id"
! got=$(PATH=$work/user B=$work/named /bin/sh tests/deps.sh mkdocs 2>&1) && [ "$got" = "please install as root: apt-get install git mkdocs" ]
verdict $? "a user without sudo: $got"

# make deb: a python3 in front of Debian's that has cffi is not Debian's python3-cffi.
mkdir "$work/bin"
printf '#!/bin/sh\n[ "$4" = python3-cffi ] || echo install ok installed\n' >"$work/bin/dpkg-query"
printf '#!/bin/sh\n' | tee "$work/bin/lintian" >"$work/bin/python3"
chmod +x "$work"/bin/*
got=$(PATH=$work/bin:$PATH DEPS=0 B=$work/named PYTHON=$work/whole sh tests/deps.sh deb 2>&1)
[ $? = 1 ] && [ "$got" = "missing packages: python3-cffi (not installed: DEPS=0)" ]
verdict $? "what make deb lacks where another python3 comes first: $got"
verdicts
