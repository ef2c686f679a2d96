#!/usr/bin/env bash
# fuzz.sh BUILD [SECONDS [TARGET...]]: fuzzes all that reads texts, files and messages, a target each (the first
# comment of tests/fuzz/TARGET.c says what), from the folder TARGET of tests/fuzz/inputs.tar.gz and, for
# config, the files of grids/. The targets share the time; libFuzzer with the address and undefined behaviour
# sanitizers runs them, and BUILD/fuzz/corpus-TARGET keeps what it finds for the next run. Without a clang with
# libFuzzer, a plain program replays the same inputs once, and a line says so; with SECONDS 0 everywhere, by
# the objects of tests/sanitize.sh.
# QUICK=1 fuzzes without sanitizers, optimised: three times as many inputs a second. The next run without it begins
# with all inputs that were kept, under the sanitizers.
# CAMPAIGN=tests/fuzz/campaign.csv adds what ran to the campaign's totals.
# Inputs that fail are in BUILD/fuzz/found. Last line: N passed, N failed.
set -u
. "$(dirname "$0")/verdict.sh"
build=${1:?usage: fuzz.sh BUILD [SECONDS]}
seconds=${2:-60}
cd "$(dirname "$0")/.." || exit 2
dir=$build/fuzz
log=$dir/log
. tests/fuzz/targets.sh
[ $# -le 2 ] || targets=${*:3}
share=$(($(wc -w <<<"$targets") - 1 + seconds))
share=$((share / $(wc -w <<<"$targets")))
flags="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all" # of sanitize.sh
# Counts in texts of plans ask for any memory, and filling it takes time: more than this is none, in any
# way of asking.
export ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=32${ASAN_OPTIONS:+:$ASAN_OPTIONS}
rm -rf "$dir/found" "$dir/inputs"
mkdir -p "$dir/found" "$dir/inputs"
tar -xzf tests/fuzz/inputs.tar.gz -C "$dir/inputs" || exit 2
shopt -s nullglob

inputs_of() { # inputs_of TARGET: into inputs
    inputs=("$dir/inputs/$1"/*)
    [ "$1" != config ] || inputs+=(grids/*.json grids/bad/*.json)
}

# A clang that can link a fuzz target: its runtime is a package of its own.
find_clang() {
    local clang
    for clang in ${CLANG:-} clang $(compgen -c clang- | grep -xE 'clang-[0-9]+' | sort -rV -t- -k2 -u); do
        printf '%s\n' '#include <stddef.h>' \
            'int LLVMFuzzerTestOneInput(const char *data, size_t size);' \
            'int LLVMFuzzerTestOneInput(const char *data, size_t size) { return data && size ? 0 : 0; }' |
            "$clang" -fsanitize=fuzzer,address -x c -o "$dir/probe" - >/dev/null 2>&1 &&
            echo "$clang" && return
    done
    return 1
}

engine() { # engine PART: the flags of the compiler, with that part of libFuzzer
    if [ "${QUICK:-}" ]; then echo "-O2 -g1 -fsanitize=$1"; else echo "${flags/address/$1,address}"; fi
}

fuzz() { # fuzz TARGET
    local corpus=$dir/corpus-$1 seeds=$dir/seeds-$1
    # shellcheck disable=SC2046
    link "$fuzzers" "$fuzzers/$1" "$clang" $(engine fuzzer)
    verdict $? "building $1 with $clang"
    inputs_of "$1"
    rm -rf "$seeds" && mkdir -p "$corpus" "$seeds"
    cp "${inputs[@]}" "$seeds"
    local words=(tests/fuzz/"$1".dic[t])
    "$fuzzers/$1" "$corpus" "$seeds" "${words[@]/#/-dict=}" -timeout=60 -max_len=4096 -entropic=0 \
        -max_total_time="$share" -print_final_stats=1 \
        -artifact_prefix="$dir/found/$1-" >"$log.$1" 2>&1
    verdict $? "fuzzing $1, see $log.$1 and $dir/found"
    [ ! "${CAMPAIGN:-}" ] || record "$1${QUICK:+ quick}" "$log.$1"
    grep -ahE '^Done |^stat::(number_of_executed|peak_rss)' "$log.$1"
}

replay() { # replay TARGET
    # shellcheck disable=SC2086
    link "$build/address" "$dir/$1" "${CC:-cc}" $flags "$build/address/tests/fuzz/replay.o"
    verdict $? "building $1"
    inputs_of "$1"
    timeout -k 5 3000 "$dir/$1" "${inputs[@]}" >"$log.$1" 2>&1
    verdict $? "replaying $1, see $log.$1"
}

if [ "$seconds" != 0 ] && clang=$(find_clang); then
    way=fuzz fuzzers=$dir/${QUICK:+quick-}clang
    make_in "$fuzzers" "$clang" "$(engine fuzzer-no-link)" >"$log" 2>&1 || tail -n 20 "$log"
else
    way=replay
    [ "$seconds" = 0 ] || echo "no clang with libFuzzer: the inputs are replayed, nothing is fuzzed"
    make_in "$build/address" "${CC:-cc}" "$flags" >"$log" 2>&1 || tail -n 20 "$log"
fi
broken=
for target in $targets; do
    before=$failed
    $way "$target"
    slow=$(grep '^slow: ' "$log.$target" | sort -u)
    [ -z "$slow" ]
    verdict $? "$target: inputs that took more than a second: $(head -n 5 <<<"$slow" | tr '\n' ' ')"
    [ "$failed" = "$before" ] || broken="$broken $target"
done
for target in $broken; do
    echo "--- the end of $log.$target"
    tail -n 15 "$log.$target"
done
verdicts
