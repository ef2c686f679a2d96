#!/usr/bin/env bash
# fuzz.sh BUILD [SECONDS]: fuzzes reading configurations with libFuzzer, from tests/fuzz/corpus and
# the files of grids/, with the address and undefined behaviour sanitizers. Where there is no clang
# with libFuzzer, the same inputs are replayed once by a plain program, and a line says so.
# What was found is in BUILD/fuzz/found. Last line: N passed, N failed.
set -u
build=${1:?usage: fuzz.sh BUILD [SECONDS]}
seconds=${2:-60}
cd "$(dirname "$0")/.." || exit 2
work=$build/fuzz
log=$work/log
flags="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
mkdir -p "$work/found" "$work/corpus"
rm -f "$work/found"/*
shopt -s nullglob
inputs=(tests/fuzz/corpus/* grids/*.json grids/bad/*.json)
passed=0
failed=0

verdict() { # verdict NAME STATUS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1"
    fi
}

# A clang that can link a fuzz target: its runtime is a package of its own.
find_clang() {
    local clang
    for clang in ${CLANG:-} clang $(compgen -c clang- | grep -xE 'clang-[0-9]+' | sort -rV -t- -k2 -u); do
        printf '%s\n' '#include <stddef.h>' \
            'int LLVMFuzzerTestOneInput(const char *data, size_t size);' \
            'int LLVMFuzzerTestOneInput(const char *data, size_t size) { return data && size ? 0 : 0; }' |
            "$clang" -fsanitize=fuzzer,address -x c -o "$work/probe" - >/dev/null 2>&1 &&
            echo "$clang" && return
    done
    return 1
}

make_in() { # make_in FOLDER CC CFLAGS: the library and the target
    make -s -j2 B="$1" CC="$2" CFLAGS="$3" "$1/liblierne.a" "$1/tests/fuzz/config.o" \
        "$1/tests/fuzz/replay.o" >"$log" 2>&1 || tail -n 20 "$log"
}

link() { # link FOLDER CC FLAG... OBJECT...
    local folder=$1 cc=$2
    shift 2
    "$cc" "$@" -o "$folder/config" "$folder/tests/fuzz/config.o" "$folder/liblierne.a" \
        $(pkg-config --libs libcjson 2>/dev/null || echo -lcjson) -lm -pthread
}

if clang=$(find_clang); then
    make_in "$work/clang" "$clang" "${flags/address/fuzzer-no-link,address}"
    # shellcheck disable=SC2086
    link "$work/clang" "$clang" ${flags/address/fuzzer,address}
    verdict "building with $clang" $?
    rm -rf "$work/seeds" && mkdir -p "$work/seeds"
    cp "${inputs[@]}" "$work/seeds"
    "$work/clang/config" "$work/corpus" "$work/seeds" -dict=tests/fuzz/config.dict -timeout=1 \
        -max_len=4096 -max_total_time="$seconds" -print_final_stats=1 \
        -artifact_prefix="$work/found/" >"$log" 2>&1
    verdict "fuzzing, see $log and $work/found" $?
    grep -hE '^Done |^stat::(number_of_executed|peak_rss)' "$log"
else
    echo "no clang with libFuzzer: ${#inputs[@]} inputs are replayed, nothing is fuzzed"
    # shellcheck disable=SC2086
    make_in "$work/gcc" "${CC:-gcc}" "$flags"
    # shellcheck disable=SC2086
    link "$work/gcc" "${CC:-gcc}" $flags "$work/gcc/tests/fuzz/replay.o"
    verdict "building" $?
    timeout -k 5 300 "$work/gcc/config" "${inputs[@]}" >"$log" 2>&1
    verdict "replaying, see $log" $?
fi
[ "$failed" = 0 ] || tail -n 30 "$log"
slow=$(grep -c '^slow: ' "$log")
[ "$slow" = 0 ]
verdict "$slow inputs took more than 100 ms: $(grep '^slow: ' "$log" | sort -u | head -n 5 | tr '\n' ' ')" $?
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
