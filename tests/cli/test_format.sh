#!/usr/bin/env bash
# `make format` would change no C file. Other versions of clang-format format differently, so the
# check needs version 14. CLANG_FORMAT names the program. $1: the build folder, which is not used.
set -u
cd "$(dirname "$0")/../.." || exit 2
program=
for name in ${CLANG_FORMAT:-clang-format clang-format-14}; do
    if "$name" --version 2>/dev/null | grep -q 'version 14\.'; then
        program=$name
        break
    fi
done
if [ -z "$program" ]; then
    echo "skipped: there is no clang-format 14"
    echo "0 passed, 0 failed"
    exit 0
fi
. tests/verdict.sh

# The check itself must be able to fail.
! printf 'int  f(void){return 0;}\n' | "$program" --dry-run -Werror --assume-filename=src/x.c 2>/dev/null
verdict $? "a file with other formatting is found"

mapfile -t files < <(find include src tests examples -name '*.c' -o -name '*.h' | sort)
changed=$("$program" --dry-run -Werror "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):[0-9].*error: .*/\1/p' | sort -u)
for file in $changed; do
    verdict 1 "make format would change $file"
done
[ ${#files[@]} -gt 0 ] && passed=$((passed + ${#files[@]} - failed))
verdicts
