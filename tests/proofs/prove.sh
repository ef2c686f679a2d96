#!/usr/bin/env bash
# prove.sh [NAME...]: proves with CBMC what tests/proofs/NAME.c claims in its first lines, for all
# inputs up to the bounds that stand there: no overflow, no access out of bounds, and results equal to
# a naive definition. A line `cbmc: ARGUMENT...` is a run; each has 300 seconds and 8 GB.
# Last line: N passed, N failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
[ $# -gt 0 ] || set -- $(cd tests/proofs && basename -s .c *.c)
if ! command -v cbmc >/dev/null; then
    echo "skipped, because there is no cbmc (Debian 11 and 13 have it; for others: github.com/diffblue/cbmc): $*"
    echo "0 passed, 0 failed"
    exit 0
fi
. tests/verdict.sh
checks="--bounds-check --pointer-check --pointer-overflow-check --signed-overflow-check --conversion-check
    --div-by-zero-check --undefined-shift-check --unwinding-assertions --slice-formula"

# prove NAME ARGUMENT...
prove() {
    local name=$1 begun=$SECONDS status
    shift
    # shellcheck disable=SC2086
    (ulimit -v 8000000 && cd "$root" && timeout 300 cbmc "tests/proofs/$name.c" "$@" $checks --c11 -D_GNU_SOURCE \
        -Iinclude -Isrc -Itests) >"$work/log" 2>&1
    status=$?
    case $status in
    0) echo "$name $*: proven in $((SECONDS - begun)) s" ;;
    10) echo "$name $*: $(grep -m3 ': FAILURE$' "$work/log")" ;;
    esac
    verdict $status "$name $*: status $status: $(tail -n 2 "$work/log")"
}
root=$PWD
for name; do
    [ -e "tests/proofs/$name.c" ] || { echo "there is no proof $name" >&2; exit 2; }
    runs=$(sed -n 's|^ \* cbmc: \(.*\)$|\1|p' "tests/proofs/$name.c" | sed 's| \*/$||')
    [ -n "$runs" ]
    verdict $? "$name: no line says how to run it"
    while read -ra run; do
        prove "$name" "${run[@]}"
    done <<<"$runs"
done
verdicts
