# What check.sh prints and adds up, to be sourced: logs of suites in $logs. A suite ends with a line
# "N passed, N failed" (Criterion: its synthesis); one without it counts as one failure, and so does one
# that ran nothing, unless what it needs is not among the packages that make check installs.
passed=0
failed=0
skipped=
failures=
optional=" clang cuda format lammps mpich petsc torch "

# skip NAME REASON: a suite that is not run.
skip() {
    skipped="$skipped${skipped:+; }$1 ($2)"
}

log_of() { # log_of NAME
    echo "$logs/${1//[^a-z0-9]/_}.log"
}

# counts LOG: sets p and f.
counts() {
    local line
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$1" | tail -n 1)
    if [ -n "$line" ]; then
        p=${line%% *}
        f=${line#*, }
        f=${f%% *}
    elif line=$(sed 's/\x1b\[[0-9;]*m//g' "$1" | grep -E 'Synthesis: Tested:' | tail -n 1) && [ -n "$line" ]; then
        p=$(sed -E 's/.*Passing: ([0-9]+).*/\1/' <<<"$line")
        f=$(sed -E 's/.*Tested: ([0-9]+).*/\1/' <<<"$line")
        f=$((f - p))
    else
        p=0
        f=1
    fi
}

# report NAME: shows one line, and the log of a suite that failed.
report() {
    local log rc seconds p f reason
    log=$(log_of "$1")
    read -r rc seconds <"$log.rc"
    counts "$log"
    [ "$rc" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    reason=$(sed -n 's/^skipped: //p' "$log" | head -n 1)
    if [ "$p" = 0 ] && [ "$f" = 0 ]; then
        if [[ $optional == *" $1 "* ]]; then
            skip "$1" "${reason:-no reason given}"
        else
            f=1
            echo "FAIL $1 ran no test, and make check installs what it needs: ${reason:-no reason given}" >>"$log"
        fi
    fi
    passed=$((passed + p))
    failed=$((failed + f))
    printf '%-28s %5d passed %4d failed  %3d s\n' "$1" "$p" "$f" "$seconds"
    [ "$p" = 0 ] || grep -aE '^skipped: |left out$' "$log" | sed 's/^/  /'
    if [ "$f" -ne 0 ]; then
        failures+=$(failures_of "$1" "$log")$'\n'
        grep -aE '^ *(FAIL|tests/[^ ]*:[0-9]+: )|, [1-9][0-9]* failed' "$log" | head -n 10
        echo "--- last lines of $log (exit $rc)"
        tail -n 25 "$log"
        echo "---"
    fi
}

failures_of() { # failures_of NAME LOG: its first lines that say what failed
    local lines
    lines=$(sed 's/\x1b\[[0-9;]*m//g' "$2" |
        grep -aE '^ *(FAIL|\[(FAIL|CRASH)|tests/[^ ]*:[0-9]+: )|^\[----\] .*:[0-9]+: |exit status|runtime error|ERROR: ' | head -n 5)
    printf '%s\n' "${lines:-its last line is: $(tail -n 1 "$2")}" | cut -c 1-300 | sed "s|^|FAILED $1: |"
}

# What failed once more, since readers of a long output see its end; the last two lines; the status of all.
close_report() {
    printf '%s' "$failures"
    echo "skipped: ${skipped:-nothing}"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
