#!/usr/bin/env bash
# Every file of grids/bad has exactly the diagnostics of grids/bad/expected.txt, in text and in JSON,
# with the right exit status. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:-build}
lierne=$build/lierne
bad=grids/bad

same() { # same NAME WANTED GOT: two files with equal content
    diff -u "$2" "$3" >"$work/diff"
    local status=$?
    [ $status = 0 ] || cat "$work/diff"
    verdict $status "$1"
}

# "file line:column CODE pointer" from the text (which has no pointer) and from the JSON of check.
from_text() {
    sed -n 's/^.*\/\([^/:]*\):\([0-9]*:[0-9]*\): [a-z]*: \[\([A-Z_0-9]*\)\] .*$/\1 \2 \3/p'
}
from_json() {
    sed -n "s/^ {\"severity\":\"[a-z]*\",\"code\":\"\([A-Z_0-9]*\)\",\"line\":\([0-9]*\),\"column\":\([0-9]*\),\"pointer\":\"\([^\"]*\)\",\"message\":\".*\",\"hint\":\".*\"}.*$/$1 \2:\3 \1 \4/p" |
        sed 's/ $//'
}

check_file() { # check_file NAME
    local name=$1 status wanted=1
    case $name in warning-*) wanted=0 ;; esac
    awk -v name="$name" '$1 == name' "$bad/expected.txt" >"$work/wanted"
    cut -d' ' -f1-3 "$work/wanted" >"$work/wanted_text"

    "$lierne" check "$bad/$name" >"$work/out" 2>"$work/err"
    status=$?
    [ $status = $wanted ] && [ ! -s "$work/err" ]
    verdict $? "$name: exit status $status, wanted $wanted"
    from_text <"$work/out" >"$work/got"
    same "$name: text" "$work/wanted_text" "$work/got"

    "$lierne" check --strict --format json "$bad/$name" >"$work/out" 2>"$work/err"
    status=$?
    [ $status = 1 ] && grep -q '"valid":false' "$work/out"
    verdict $? "$name: exit status $status with --strict, wanted 1"
    from_json "$name" <"$work/out" >"$work/got"
    same "$name: JSON" "$work/wanted" "$work/got"
}

for file in "$bad"/*.json; do
    check_file "${file##*/}"
done

# Nothing is expected of a file that is not there, and every code has its example.
grep -v '^#' "$bad/expected.txt" | cut -d' ' -f1 | sort -u >"$work/named"
(cd "$bad" && ls -- *.json) | sort >"$work/there"
same "expected.txt names the files that are there" "$work/there" "$work/named"
# LG011 (16 MiB), LG012 (a million values), LG028 and LG111 (a thousand diagnostics) would need large
# files: the unit tests make them.
sed -n 's/^ *X(\([0-9]*\), [A-Z0-9_]*,.*/LG\1/p' include/lierne/diagnostics.h |
    grep -v -e LG011 -e LG012 -e LG028 -e LG111 | sort -u >"$work/codes"
grep -v "^#" "$bad/expected.txt" | cut -d" " -f3 | grep "^LG" | sort -u >"$work/shown"
same "every code has an example" "$work/codes" "$work/shown"

verdicts
