#!/usr/bin/env bash
# one.sh BUILD TEST [ARGUMENT...]: builds what one test needs, and runs it. TEST is
#   SUITE/TEST        unit tests whose names begin so: bridge/all_pairs, or bridge/ for all of the suite
#   golden/FILE       a file of tests/golden, or golden for all
#   cli/NAME          tests/cli/test_NAME.sh
#   mpi/NAME, launched/NAME   a program under mpirun, or on ranks of a node; N=4 ranks
#   mutant/NAME       the mutant of tests/mutants, by the test that must catch it
#   FOLDER/NAME       the program of tests/FOLDER/NAME.c: node/jobs, ipc/ranks, hang/sim, bench/sets, ...
set -u
build=${1:?usage: one.sh BUILD TEST [ARGUMENT...]}
test=${2-}
cd "$(dirname "$0")/.." || exit 2
shift $(($# < 2 ? $# : 2))
ranks=${N:-4}

made() { # made TARGET...: builds them below the build folder
    local target targets=()
    for target; do
        targets+=("$build/$target")
    done
    ${MAKE:-make} --no-print-directory -s "B=$build" "${targets[@]}"
}
usage() {
    sed -n '2,9s/^# \{0,1\}//p' tests/one.sh >&2
    [ -z "$1" ] || echo "make t: there is no test \"$1\"" >&2
    exit 2
}

case $test in
golden | golden/*)
    file=${test#golden}
    file=${file#/}
    file=${file%.json}
    [ -z "$file" ] || [ -e "tests/golden/$file.json" ] || usage "$test"
    made golden || exit
    [ -n "$file" ] || exec "$build/golden" tests/golden
    folder=$(mktemp -d) # a golden run is of a folder
    trap 'rm -rf "$folder"' EXIT
    ln -s "$PWD/tests/golden/$file.json" "$folder"
    "$build/golden" "$folder"
    ;;
cli/*)
    script=tests/cli/test_${test#cli/}.sh
    [ -e "$script" ] || usage "$test"
    ${MAKE:-make} --no-print-directory -s "B=$build" tests && exec bash "$script" "$build" "$@"
    ;;
mpi/*)
    [ -e "tests/$test.c" ] || usage "$test"
    made "tests/$test" && exec timeout -k 5 900 "${MPIRUN:-mpirun}" -n "$ranks" "$build/tests/$test" "$@"
    ;;
mutant/*)
    grep -qs "^mutant ${test#mutant/}:" tests/mutants/*.txt || usage "$test"
    ${MAKE:-make} --no-print-directory -s "B=$build" tests && exec bash tests/mutants.sh "$build" "${test#mutant/}"
    ;;
launched/*)
    [ -e "tests/mpi/${test#launched/}.c" ] || usage "$test"
    made tests/launched/launch "tests/$test" &&
        exec "$build/tests/launched/launch" "$ranks" "$build/tests/$test" "$@"
    ;;
*/*)
    if grep -qs '^int main(' "tests/$test.c"; then
        made "tests/$test" && exec "$build/tests/$test" "$@"
    elif grep -qE "^Test\(${test%%/*}, ${test#*/}" tests/unit/test_*.c; then
        made unit && exec "$build/unit" --filter "$test*" "$@"
    else
        usage "$test"
    fi
    ;;
*) usage "$test" ;;
esac
