# What the scripts of the tests share, to be sourced: MPI's settings, a folder of their own in $work,
# and the count of what passed.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # the same for Open MPI 5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# verdict STATUS NAME: counts, and names what failed. The status comes first: once a command is run for
# the name, $? is that command's. With LIERNE_TEST_FAIL_FAST the first failure ends the script.
verdict() {
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $2"
        [ -z "${LIERNE_TEST_FAIL_FAST:-}" ] || exit 1
    fi
}

# adds STATUS LOG: adds the counts in the last line of a program that says `N passed, N failed`, $count
# afterwards. One that says nothing, or ends with another status for no reason, has failed once.
adds() {
    local p f
    count=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$2" | tail -n 1)
    p=${count%% *} f=${count#*, }
    f=${f%% *}
    if [ -z "$count" ] || { [ "$1" != 0 ] && [ "$f" = 0 ]; }; then
        p=0 f=1 count="0 passed, 1 failed (exit status $1)"
    fi
    passed=$((passed + p))
    failed=$((failed + f))
    [ "$f" = 0 ] || head -n 30 "$2" | sed 's/^/    /'
}

# The golden files, and unit tests, of $build, under other settings.
golden() { # golden VARIABLE=VALUE...
    env "$@" timeout 1200 "$build/golden" tests/golden >"$work/log" 2>&1
    adds $? "$work/log"
}
unit() { # unit FILTER VARIABLE=VALUE...
    local filter=$1 status tested passing
    shift
    env "$@" timeout 1200 "$build/unit" --filter "$filter" >"$work/log" 2>&1
    status=$?
    read -r tested passing < <(sed 's/\x1b\[[0-9;]*m//g' "$work/log" |
        sed -nE 's/.*Synthesis: Tested: ([0-9]+).*Passing: ([0-9]+).*/\1 \2/p')
    echo "${passing:-0} passed, $((${tested:-1} - ${passing:-0})) failed" >>"$work/log"
    adds $status "$work/log"
}

# The last line of a script, and its status.
verdicts() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
