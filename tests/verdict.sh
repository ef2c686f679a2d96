# What the scripts of the tests share, to be sourced: MPI's settings, a folder of their own in $work,
# and the count of what passed.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# verdict STATUS NAME: counts, and names what failed. The status comes first: once a command is run for
# the name, $? is that command's.
verdict() {
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $2"
    fi
}

# The last line of a script, and its status.
verdicts() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
