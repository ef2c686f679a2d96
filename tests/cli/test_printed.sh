#!/usr/bin/env bash
# What the command prints and draws, whole: tests/cli/printed/transcript.txt has commands, each behind "$ ",
# and what they print; of pictures, their checksum. Errors are shown, warnings are not. $1: the build folder.
# "test_printed.sh BUILD write" writes the transcript anew: read what "git diff" says of it.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(realpath "${1:?usage: test_printed.sh BUILD [write]}")
export MALLOC_PERTURB_=165 # memory that was not written is not zero
cd "$(dirname "$0")/printed" || exit 2
lierne() {
    "$build/lierne" "$@" 2>"$work/err" || cat "$work/err"
}

while IFS= read -r line; do
    case $line in '$ '*)
        printf '%s\n' "$line"
        eval "${line#'$ '}" </dev/null
        ;;
    esac
done <transcript.txt >"$work/got"
[ "${2-}" != write ] || cp "$work/got" transcript.txt
[ -s transcript.txt ]
verdict $? "there is a transcript"
diff -U 100000 transcript.txt "$work/got" >"$work/diff"
verdict $? "what is printed: $(awk '/^.\$ / { command = $0 } /^[-+]/ { if (command) print command; command = ""; print }' \
    "$work/diff" | head -n 20)"
verdicts
