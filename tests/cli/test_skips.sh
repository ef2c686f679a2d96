#!/usr/bin/env bash
# A test that finds nothing to run counts nothing as passed, and says so. $1: the build folder, which
# is not used: the tests run here with an empty one, and without clang-format.
set -u
cd "$(dirname "$0")/../.." || exit 2
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
passed=0
failed=0
for name in death format lammps oracle petsc python torch; do
    text=$(CLANG_FORMAT=none bash "tests/cli/test_$name.sh" "$empty" 2>&1)
    status=$?
    if [ $status = 0 ] && [ "$(tail -n 1 <<<"$text")" = "0 passed, 0 failed" ] &&
        grep -q '^skipped: ' <<<"$text"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL test_$name.sh without anything to run (exit status $status): $text"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
