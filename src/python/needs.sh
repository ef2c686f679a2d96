#!/bin/sh
# Says what is missing for a target that packs Python, before anything is compiled or fetched.
# Usage: needs.sh TARGET: python, wheel, sdist or manylinux; PYTHON names the interpreter.
set -eu
target=${1:?usage: needs.sh TARGET}
python=${PYTHON:-python3}
lacks() { # lacks WHAT REMEDY
    echo "make $target: $1: install $2, or name another interpreter: make $target PYTHON=..." >&2
    exit 1
}
module() { # module NAME REMEDY
    "$python" -m "$1" --version >/dev/null 2>&1 || lacks "$python has no $1" "$2"
}
command -v "$python" >/dev/null || lacks "there is no $python" "python3 and python3-venv"
case $target in
python | wheel)
    "$python" -c 'import cffi' 2>/dev/null || lacks "$python has no cffi" "it ($python -m pip install cffi, or python3-cffi)"
    ;;
esac
case $target in
wheel) module pip "it (python3-pip)" ;;
sdist) # import build would find the folder build/
    "$python" -m build --version >/dev/null 2>&1 || lacks "$python has no package build" "it ($python -m pip install build)"
    ;;
manylinux) module ensurepip "it (python3-venv)" ;;
esac
