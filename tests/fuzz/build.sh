#!/usr/bin/env bash
# build.sh: builds the fuzz targets as OSS-Fuzz wants them: with its CC, CXX, CFLAGS, CXXFLAGS and
# LIB_FUZZING_ENGINE, in its OUT, each with its dictionary and its inputs as TARGET_seed_corpus.zip. Needs libcjson-dev,
# make and python3. Anywhere else: OUT=$PWD/build/fuzzers bash tests/fuzz/build.sh, which takes clang and libFuzzer.
set -eu
out=${OUT:?usage: OUT=FOLDER build.sh}
cd "$(dirname "$0")/../.."
. tests/fuzz/targets.sh
flags="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
inputs=$(mktemp -d)
trap 'rm -rf "$inputs"' EXIT
tar -xzf tests/fuzz/inputs.tar.gz -C "$inputs"
mkdir -p "$out"
make_in build/oss-fuzz "${CC:-clang}" "${CFLAGS:-${flags/address/fuzzer-no-link,address}}"
for target in $targets; do
    # shellcheck disable=SC2086
    link build/oss-fuzz "$out/$target" "${CXX:-clang++}" ${CXXFLAGS:-$flags} ${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}
    [ ! -e "tests/fuzz/$target.dict" ] || cp "tests/fuzz/$target.dict" "$out"
    (cd "$inputs/$target" && python3 -m zipfile -c "$out/${target}_seed_corpus.zip" ./*)
    echo "built $out/$target"
done
