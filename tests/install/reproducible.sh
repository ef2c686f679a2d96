#!/usr/bin/env bash
# The same sources, built in two folders at different times, give the same bits: libraries, command, CUDA's
# and MPI's libraries where they are built, and what make install puts anywhere. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
cd "$(dirname "$0")/../.." || exit 2
export CCACHE_DISABLE=1 # its objects would be those of the first folder
built() { # built FOLDER: a copy of the tree, built and installed there
    mkdir -p "$1" && cp -R Makefile LICENSE README.md include src kernels grids examples "$1" &&
        mkdir -p "$1/tests/emulator" "$1/docs" && cp tests/*.mk tests/find_cuda.sh "$1/tests" && cp docs/lierne.1 docs/grid.schema.json "$1/docs" &&
        cp tests/emulator/*.mk "$1/tests/emulator" &&
        (cd "$1" && PWD=$1 make -s -j"$(nproc)" DEPS=0 "DESTDIR=$1/tree" PREFIX=/usr install) >"$work/log" 2>&1
    verdict $? "make install in $1: $(tail -n 5 "$work/log")"
}
sums() { # sums FOLDER: of what was installed
    (cd "$1/tree" && find . -type f | LC_ALL=C sort | xargs sha256sum)
}
built "$work/one"
TZ=Pacific/Auckland LC_ALL=C built "$work/another/folder/deeper"
sums "$work/one" >"$work/sums"
[ "$(wc -l <"$work/sums")" -gt 60 ]
verdict $? "files were installed: $(wc -l <"$work/sums")"
got=$(diff "$work/sums" <(sums "$work/another/folder/deeper"))
[ -z "$got" ]
verdict $? "files with other bits: $(sed -n 's/^[<>] [0-9a-f]*  //p' <<<"$got" | sort -u | xargs)"
! grep -rlF -e "$work/one" "$work/one/tree"
verdict $? "no installed file names the folder in which it was built"
verdicts
