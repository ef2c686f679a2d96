# shellcheck shell=bash
# For tests of oracles that run under mpirun; sourced. run_oracle NAME PROGRAM: at 1, 2, 3, 4 and 8 ranks,
# each launch with a timeout; one that hangs, crashes or prints no count is one more failure. Ends with
# the line "N passed, N failed" and the matching status.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0

run_oracle() {
    local n status count bad passed=0 failed=0 log
    log=$(mktemp)
    for n in 1 2 3 4 8; do
        timeout -k 5 600 "${MPIRUN:-mpirun}" -n $n "$2" >"$log" 2>&1 </dev/null
        status=$?
        count=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
        if [ -z "$count" ] || { [ $status -ne 0 ] && [ "${count#*, }" = '0 failed' ]; }; then
            count="0 passed, 1 failed (exit status $status)"
        fi
        bad=$(echo "$count" | cut -d' ' -f3)
        echo "$1 on $n: $count"
        passed=$((passed + ${count%% *}))
        failed=$((failed + bad))
        [ "$bad" = 0 ] || head -n 30 "$log"
    done
    rm -f "$log"
    echo "$passed passed, $failed failed"
    [ $failed = 0 ]
}
