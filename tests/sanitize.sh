#!/usr/bin/env bash
# sanitize.sh BUILD [short]: the tests under the sanitizers and valgrind. short: address and
# undefined behaviour, units, golden files and lierne run only. Builds into BUILD/address and
# BUILD/thread.
#
# What counts is the report, not the exit status: Criterion calls a test passed whose process found
# a leak at its end. Last line: N passed, N failed, a step each. A tool that is not there is named.
set -u
build=${1:?usage: sanitize.sh BUILD [short]}
short=${2:-}
cd "$(dirname "$0")/.." || exit 2
logs=$build/logs/sanitize
rm -rf "$logs"
mkdir -p "$logs"
passed=0
failed=0
mpirun=${MPIRUN:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0

address="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
thread="-O1 -g -fsanitize=thread"
# A test asks for more memory than there is; modules of MPI unwind badly by frame pointers.
asan=allocator_may_return_null=1:detect_stack_use_after_return=1
asan_mpi=$asan:verify_asan_link_order=0:fast_unwind_on_malloc=0
lsan=suppressions=tests/sanitize/leaks.supp:print_suppressions=0

make_in() { # make_in FOLDER CFLAGS TARGET...: builds targets of the Makefile with these flags
    local folder=$1 flags=$2
    shift 2
    make -s -j2 B="$folder" CFLAGS="$flags" "${@/#/$folder/}" >"$logs/make.log" 2>&1 && return
    tail -n 20 "$logs/make.log"
    echo "cannot build $*"
    failed=$((failed + 1))
    return 1
}

# Lines that are a report of a sanitizer or of valgrind.
reports() {
    grep -hE '(ERROR: (Address|Leak)|WARNING: Thread|FATAL: Thread)Sanitizer|runtime error:|^==[0-9]+== (Invalid|Conditional|Use of|Syscall|Mismatched|[0-9,]+ .*definitely lost)' "$@"
}

# Whether all tests passed and all reports are leaks of Criterion's runner: it rarely leaves 48 bytes.
is_criterions() {
    grep -q 'Failing: 0 | Crashing: 0' "$1" && reports "$1" | grep -q LeakSanitizer &&
        ! reports "$1" | grep -qv LeakSanitizer &&
        ! grep -E '^ +#[0-9]+ ' "$1" | grep -qv -e libsanitizer -e '/libcriterion\.so'
}

step() { # step NAME COMMAND...: a run that must end well and without a report
    local name=$1 log=$logs/${1//[^a-z0-9]/_}.log start=$SECONDS status
    shift
    timeout -k 5 3000 "$@" >"$log" 2>&1 </dev/null
    status=$?
    if [ $status = 0 ] && ! reports "$log" >/dev/null; then
        passed=$((passed + 1))
        echo "$name: clean, $((SECONDS - start)) s"
    elif is_criterions "$log"; then
        passed=$((passed + 1))
        echo "$name: clean but for a leak of Criterion's own, $((SECONDS - start)) s"
    else
        failed=$((failed + 1))
        echo "$name: exit status $status, $(reports "$log" | wc -l) reports, $log"
        reports "$log" | sort | uniq -c | head -n 20
        tail -n 30 "$log"
    fi
}

must_report() { # must_report NAME COMMAND...: what is wrong on purpose shows
    local name=$1 log=$logs/${1//[^a-z0-9]/_}.log
    shift
    timeout -k 5 1200 "$@" >"$log" 2>&1 </dev/null
    if reports "$log" >/dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$name: not found, $log"
    fi
}

finish() {
    echo "$passed passed, $failed failed"
    exit $((failed > 0))
}

units() {
    local filter='*/*' fewer=()
    # What takes minutes: thousands of ranks or operations, random cases by the thousand, all of larger worlds.
    if [ "$short" = short ]; then
        filter='!(bridge_general)/!(all_pairs_[57]*|gradient_and_output_over_cp_*|chunks_of_sums_*|busiest_*|ten_thousand_*|four_thousand_*)'
        fewer=(LIERNE_SEEDS=50)
    fi
    make_in "$build/address" "$address" unit golden || return
    step "address units" env "${fewer[@]}" ASAN_OPTIONS=$asan "$build/address/unit" --filter "$filter"
    step "address golden" env ASAN_OPTIONS=$asan "$build/address/golden" tests/golden
}

threads() {
    make_in "$build/thread" "$thread" liblierne.a || return
    # Without address randomisation: the sanitizer of older compilers knows few memory maps.
    CFLAGS=$thread bash tests/sanitize/link.sh threads "$build/thread" || failed=$((failed + 1))
    step "thread sim" setarch -R "$build/thread/threads"
    CFLAGS=$thread bash tests/sanitize/link.sh windows "$build/thread" || failed=$((failed + 1))
    step "thread windows" setarch -R "$build/thread/windows"
}

# Programs of tests/mpi: peers kills its own processes, and soak watches how much memory is
# resident, which here is mostly the sanitizer's.
programs=$(grep -l '^int main(' tests/mpi/*.c | xargs basename -a -s .c | grep -vxE 'peers|soak')
ranks_of() {
    case $1 in
    train | members | hangs) echo 4 ;;
    *) echo 2 ;;
    esac
}

# On ranks: keep.so holds on to libraries that MPI unloads, whose leaks would have no names.
on_ranks() { # on_ranks N COMMAND...: a command that runs it on N ranks goes to $how
    how=($mpirun -n "$1" env "LD_PRELOAD=$PWD/$logs/keep.so" "ASAN_OPTIONS=$asan_mpi"
        "LSAN_OPTIONS=$lsan" "${@:2}")
}

# The command on ranks, on a pair for which two of three algorithms are defined.
run_command() {
    make_in "$build/address" "$address" lierne lierne-run || return
    ${CC:-gcc} -shared -fPIC -o "$logs/keep.so" tests/sanitize/keep.c
    on_ranks 2 "$build/address/lierne" run tests/sanitize/disjoint.json --bridge pair
    step "address run" "${how[@]}"
}

address_mpi() {
    local p
    # shellcheck disable=SC2086
    make_in "$build/address" "$address" $(printf 'tests/mpi/%s ' $programs) || return
    # shellcheck disable=SC2086
    ${MPICC:-mpicc} -std=c11 -D_GNU_SOURCE $address -pthread -Iinclude -Isrc \
        -o "$build/address/leak" tests/sanitize/leak.c "$build/address/liblierne_mpi.a" \
        "$build/address/liblierne.a" -lm
    on_ranks 2 "$build/address/leak"
    must_report "address mpi leak" "${how[@]}"
    for p in $programs; do
        on_ranks "$(ranks_of "$p")" "$build/address/tests/mpi/$p"
        step "address mpi $p" "${how[@]}"
    done
}

# Ranks of a node, without MPI: over shared memory, and over sockets; and processes of their own.
address_node() {
    local name ranks transport
    local names
    mapfile -t names < <(find "$build/tests/launched" -maxdepth 1 -type f -executable -printf '%f\n' | grep -vx launch | sort)
    if [ ${#names[@]} = 0 ]; then
        echo "there are no programs in $build/tests/launched: make tests"
        failed=$((failed + 1))
    fi
    make_in "$build/address" "$address" "${names[@]/#/tests/launched/}" tests/launched/launch tests/node/{jobs,refusals,rounds} ||
        return
    for name in "${names[@]}"; do
        case $name in
        members | known_answer) ranks=4 ;;
        *) ranks=3 ;;
        esac
        for transport in shm socket; do
            step "address node $name, $transport" env "ASAN_OPTIONS=$asan" "LIERNE_TRANSPORTS=$transport" \
                "$build/address/tests/launched/launch" $ranks "$build/address/tests/launched/$name"
        done
    done
    for name in jobs refusals rounds; do
        step "address node $name" env "ASAN_OPTIONS=$asan" "$build/address/tests/node/$name"
    done
}

# NCCL and devices that are played, with ranks as threads. What a stream that hangs may still use is left on purpose.
address_played() {
    local name
    [ -e "$build/tests/nccl/domains" ] || return
    make_in "$build/address" "$address" tests/nccl/{domains,ranks,replays,schedule,windows} tests/ipc/groups || return
    for name in nccl/{domains,ranks,replays,schedule,windows} ipc/groups; do
        step "address played $name" env "ASAN_OPTIONS=$asan:detect_leaks=0" "$build/address/tests/$name"
    done
}

memcheck() {
    local how=(valgrind -q --trace-children=yes --error-exitcode=9 --leak-check=full
        --errors-for-leak-kinds=definite --suppressions=tests/sanitize/valgrind.supp)
    # What takes long is left out: all pairs, all patterns, ranks as threads, megabytes of text.
    step "memcheck units" "${how[@]}" "$build/unit" \
        --filter '@(base|layout|layout_cuts|route|plan|megatron_map|grid|chunk|serialize|compose|halo_report|field)/*' --timeout 300
    command -v $mpirun >/dev/null 2>&1 || return
    ${MPICC:-mpicc} -std=c11 -D_GNU_SOURCE -g -pthread -Iinclude -Isrc -o "$build/leak" \
        tests/sanitize/leak.c "$build/liblierne_mpi.a" "$build/liblierne.a" -lm
    must_report "memcheck mpi leak" $mpirun -n 2 "${how[@]}" "$build/leak"
    for p in known_answer transport; do
        step "memcheck mpi $p" $mpirun -n 2 "${how[@]}" "$build/tests/mpi/$p"
    done
}

units
if command -v $mpirun >/dev/null 2>&1; then
    run_command
else
    echo "no MPI: lierne run was left out"
fi
[ "$short" = short ] && finish
threads
address_node
address_played
if command -v $mpirun >/dev/null 2>&1; then
    address_mpi
else
    echo "no MPI: its programs were left out"
fi
if command -v valgrind >/dev/null 2>&1; then
    memcheck
else
    echo "no valgrind: memcheck was left out"
fi
finish
