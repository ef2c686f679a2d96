#!/usr/bin/env bash
# byte_table.sh BUILD: prints the byte table of docs/how-it-works.md. Every number is one that
# "lierne plan --format json" gives for the bridges of grids/byte-table.json, divided by the bytes
# of a sample.
set -u
build=${1:-build}
file=grids/byte-table.json
unit=8192 # 64 x 64 bf16, a sample of that file

report() { # report BRIDGE ALGORITHM: forward total, most on a rank; adjoint total, most on a rank
    "$build/lierne" plan $file --bridge "$1" --algorithm "$2" --format json |
        sed -n 's/.*"forward":{"bytes":\([0-9]*\),"max_rank_bytes":\([0-9]*\),.*"adjoint":{"bytes":\([0-9]*\),"max_rank_bytes":\([0-9]*\),.*/\1 \2 \3 \4/p'
}

groups() { # groups BRIDGE: how many gather groups
    "$build/lierne" plan $file --bridge "$1" --format json |
        sed 's/.*"gather_groups":\[\(.*\)\],"cp_groups".*/\1/' | tr -cd '[' | wc -c
}

echo '                         forward      adjoint of the gradient of the output       collective  gather'
echo 'layouts                               collective  direct,partial   direct,owned  / owned     groups'
sed -n 's/.*"name": "\([0-9x]*-[0-9x]*\)".*/\1/p' $file | while read -r name; do
    echo "${name/-/ -> } $(report "$name" collective) $(report "$name" direct) $(report "$name-owned" direct) $(groups "$name")"
done | awk -v unit=$unit 'function units(most, total) {
    return sprintf("%g (%g)", most / unit, total / unit)
}
NF == 16 {
    printf "%-18s %13s %15s %15s %14s %10.3g %7d\n", $1 " " $2 " " $3, units($9, $8), units($7, $6),
        units($11, $10), units($15, $14), $6 / $14, $16
}'
