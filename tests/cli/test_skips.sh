#!/usr/bin/env bash
# A test that finds nothing to run counts nothing as passed, and says so; make check names it in the end,
# and counts it as failed where it should have run. $1: the build folder, which is not used: the tests run
# here with an empty one, and without clang-format.
set -u
. "$(dirname "$0")/../verdict.sh"
cd "$(dirname "$0")/../.." || exit 2
mkdir "$work/empty"
for name in death format lammps oracle petsc python schema torch; do
    text=$(PYTHON= CLANG_FORMAT=none bash "tests/cli/test_$name.sh" "$work/empty" 2>&1) &&
        [ "$(tail -n 1 <<<"$text")" = "0 passed, 0 failed" ] && grep -q '^skipped: ' <<<"$text"
    verdict $? "test_$name.sh without anything to run: $text"
done

# all LOG...: how make check closes for suites of these names, whose logs are in $work/logs; closing: its last lines.
all() {
    bash -c 'logs=$1; shift; . tests/report.sh; for name; do report "$name"; done >/dev/null; close_report
        echo "status $?"' - "$work/logs" "$@"
}
closing() {
    all "$@" | tail -n 3
}
log() { # log NAME STATUS LINE...
    printf '%s\n' "${@:3}" >"$work/logs/$1.log"
    echo "$2 7" >"$work/logs/$1.log.rc"
}
closes() { # closes EXPECTED NAME...
    [ "$(closing "${@:2}")" = "$1" ]
    verdict $? "make check after ${*:2}: $(closing "${@:2}")"
}
mkdir "$work/logs"
log unit 0 "[====] Synthesis: Tested: 5 | Passing: 5 | Failing: 0 | Crashing: 0 "
log draw 0 "no g++: left out" "3 passed, 0 failed"
log torch 0 "skipped: no PyTorch" "0 passed, 0 failed"
log python 0 "skipped: no numpy" "0 passed, 0 failed"
log silent 0 "0 passed, 0 failed"
log late 124 "4 passed, 0 failed"
log dead 0 "half a li"
closes $'skipped: nothing\n8 passed, 0 failed\nstatus 0' unit draw
closes $'skipped: torch (no PyTorch)\n8 passed, 0 failed\nstatus 0' unit torch draw
closes $'skipped: nothing\n5 passed, 1 failed\nstatus 1' unit python
closes $'skipped: nothing\n5 passed, 1 failed\nstatus 1' unit silent
closes $'skipped: nothing\n4 passed, 1 failed\nstatus 1' late
closes $'skipped: nothing\n0 passed, 1 failed\nstatus 1' dead
closes $'skipped: torch (no PyTorch)\n0 passed, 0 failed\nstatus 1' torch
grep -qx 'FAIL python ran no test, and make check installs what it needs: no numpy' "$work/logs/python.log"
verdict $? "the log of a suite that should have run: $(cat "$work/logs/python.log")"
log unit 0 $'[\x1b[0;31m----\x1b[0m] tests/unit/test_a.c:7: Assertion Failed' "[====] Synthesis: Tested: 5 | Passing: 4 | Failing: 1 | Crashing: 0 "
log draw 1 "FAIL picture" "2 passed, 1 failed"
got=$(all unit dead draw torch | head -n 3)
[ "$got" = "FAILED unit: [----] tests/unit/test_a.c:7: Assertion Failed
FAILED dead: its last line is: half a li
FAILED draw: FAIL picture" ]
verdict $? "what failed is named again in the end: $got"
verdicts
