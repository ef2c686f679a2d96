#!/usr/bin/env bash
# Every public header compiles alone and twice, in old and new C and C++, with every warning an error,
# with each installed compiler; and all files that name the version name the same one.
# $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
cd "$(dirname "$0")/../.." || exit 2

headers=$(cd include && ls lierne.h lierne/*.h)
# MPI's headers are not ours to judge.
mpicc=${MPICC:-mpicc}
if command -v "$mpicc" >/dev/null; then
    mpi=$($mpicc -show | grep -oE -- '-I *[^ ]+' | sed 's/^-I/-isystem /')
else
    headers=$(grep -v '^lierne/mpi\.h$' <<<"$headers")
    mpi=
    echo "no $mpicc: lierne/mpi.h was left out"
fi

# compiles COMPILER LANGUAGE STANDARD HEADER [FOLDER]
compiles() {
    printf '#include <%s>\n#include <%s>\n' "$4" "$4" >"$work/alone.$2"
    "$1" -std="$3" -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only -I"${5:-include}" $mpi "$work/alone.$2"
}
compilers=0
while read -r compiler language standards; do
    command -v "$compiler" >/dev/null || continue
    compilers=$((compilers + 1))
    for standard in $standards; do
        for header in $headers; do
            compiles "$compiler" "$language" "$standard" "$header"
            verdict $? "$header, $compiler -std=$standard"
        done
    done
done <<'END'
gcc c c99 c11
g++ cc c++11 c++17 c++20
clang c c99 c11
clang++ cc c++11 c++17 c++20
END
[ $compilers -ge 2 ]
verdict $? "a C and a C++ compiler are there"

# The check itself must be able to fail, each time for one reason.
mkdir "$work/bad"
while read -r expected name text; do
    printf '%b\n' "$text" >"$work/bad/$name.h"
    result=accepted
    compiles gcc c c11 "$name.h" "$work/bad" 2>/dev/null || result=rejected
    [ $result = "$expected" ]
    verdict $? "a header with $name is $expected"
done <<'END'
accepted nothing-wrong #pragma once\nint f(void);
rejected an-include-forgotten #pragma once\nsize_t f(void);
rejected no-guard enum x { y };
rejected a-narrowing #pragma once\nstatic inline signed char f(int a) { return a; }
END

for header in $headers; do
    name=${header##*/}
    guard=LIERNE_$(tr a-z. A-Z_ <<<"$name")
    [ "$(grep -c "^#ifndef $guard\$" "include/$header")" = 1 ] && [ "$(grep -c "^#define $guard\$" "include/$header")" = 1 ]
    verdict $? "$header has the guard $guard"
    grep -q '\<LIERNE_API\>.*(' "include/$header" || continue
    grep -q '^extern "C" {$' "include/$header"
    verdict $? "$header declares its functions extern \"C\""
done

# One spelling per verb: what makes is _create, what frees is _destroy.
verbs='_(init|new|make|open|free|release|delete|close)(_|$)'
functions=$(cat include/lierne/*.h | grep -v '^ \*' | grep -oE '\<lierne_[a-z0-9_]+\(' | tr -d '(' | sort -u)
[ "$(wc -l <<<"$functions")" -gt 130 ] && ! grep -E "$verbs" <<<"$functions"
verdict $? "functions are named create and destroy"
grep -qE "$verbs" <<<lierne_plan_free
verdict $? "a function named otherwise is found"

# Each function has a user besides the tests: an example, the command, the package or a page.
users() { # users PLACE...
    comm -23 <(echo "$functions") <(grep -rhoE --exclude=CHANGELOG.md '\<lierne_[a-z0-9_]+' "$@" | sort -u)
}
unused=$(users examples src/tool src/python/lierne docs README.md)
[ -z "$unused" ]
verdict $? "functions without a user: $unused"
[ -n "$(users examples src/tool)" ]
verdict $? "a function without a user is found"

# One version. That of the .pc files and of the command is compared where they are installed.
version=$(sed -n 's/^#define LIERNE_VERSION_STRING "\(.*\)"$/\1/p' include/lierne/status.h)
numbers=$(printf '#include <lierne/status.h>\nLIERNE_VERSION_MAJOR.LIERNE_VERSION_MINOR.LIERNE_VERSION_PATCH\n' |
    cc -E -P -Iinclude - | tail -n 1 | tr -d ' ')
[ "$numbers" = "$version" ]
verdict $? "LIERNE_VERSION_STRING $version is $numbers"
# CHANGELOG.md names what the headers have; the first column of a table has former names.
old=$(python3 - <(cat include/lierne.h include/lierne/*.h) CHANGELOG.md <<'END'
import re, sys
headers, changes = (open(path).read() for path in sys.argv[1:])
known = set(re.findall(r"\b(?:lierne|LIERNE)_\w+", headers))
known |= {f"LIERNE_DIAGNOSTIC_{name}" for name in re.findall(r"^    X\(\d+, (\w+),", headers, re.M)}
now = re.sub(r"^\|[^|]*\|", "", changes, flags=re.M)
named = set(re.findall(r"\b((?:lierne|LIERNE)_\w+)\b(?!\.\.\.|\*)", now))
print(*sorted(name for name in named if name not in known and not name.endswith("_")))
END
)
[ -z "$old" ]
verdict $? "CHANGELOG.md has names that the headers lack: $old"
top=$(sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)
[ "$top" = "$version" ]
verdict $? "the top entry of CHANGELOG.md, $top, is $version"
for map in src/*.map; do
    grep -q "^LIERNE_${version%.*} {" "$map"
    verdict $? "$map has a version for ${version%.*}"
done

verdicts
