#!/usr/bin/env bash
# What simulate, balance and run say of results that are wrong, and of calls that fail: tests/cli/wrong.c stands
# between the command and the library and makes the faults. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
wrong=$(realpath "${1:?usage: test_wrong.sh BUILD}")/tests/cli/wrong
cd "$(dirname "$0")/../.." || exit 2
pair="grids/encoder-llm-8.json -b vision_to_llm"
packed="grids/qwen2.5-vl-7b-packed-8.json -b images_to_tokens"
printf '%s\n' 0,3,4 1,2,2 1,5,7 3,1,1 >"$work/items"
cat >"$work/set.json" <<'END'
{"world_size": 4, "src": {"dims": {"fsdp": 2}}, "dst": {"dims": {"tp": 2}, "rank_offset": 2},
 "tensors": [{"name": "a", "dtype": "bf16", "shape": [8, 4]}, {"name": "b", "dtype": "f32", "shape": [6]}],
 "layouts": [{"names": "a", "src": {"fsdp": 0}, "dst": {"tp": 1}}, {"names": "*", "src": {"fsdp": {"at": 1}}}]}
END

ends() { # ends STATUS FAULTS ARGUMENT...: the command with these faults
    local wanted=$1 status
    faults=$2 command=${*:3}
    LIERNE_TEST_WRONG=$faults timeout -k 5 300 "$wrong" "${@:3}" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$wanted" ]
    verdict $? "$command, $faults: exit status $status, must be $wanted: $(head -n 3 "$work/err")"
}
says() { # says PATTERN...: lines of the output, extended regular expressions
    local line
    for line; do
        grep -qxE -- "$line" "$work/out"
        verdict $? "$command, $faults: '$line' is not in: $(cat "$work/out")"
    done
}
fails() { # fails FAULTS MESSAGE ARGUMENT...: an error, and nothing else
    ends 1 "$1" "${@:3}"
    [ "$(cat "$work/err")" = "$2" ] && ! [ -s "$work/out" ]
    verdict $? "$command, $faults: $(cat "$work/err" "$work/out")"
}
# The sides of the dot test, which one fault changes, and which not.
sides() { # sides SAME FAULT ARGUMENT...: lhs or rhs is what it is without the fault, the other one is not
    local right
    ends 0 "" "${@:3}" --format json
    right=$(grep -oE '"lhs":-?[0-9]+' "$work/out" | cut -d: -f2)
    ends 1 "$2" "${@:3}" --format json
    grep -q "\"$1\":$right[,}]" "$work/out" && [ "$(grep -oE ":$right[,}]" "$work/out" | wc -l)" = 1 ]
    verdict $? "$command, $faults: $1 must be $right, and the other one not: $(cat "$work/out")"
}

# --- bridges ------------------------------------------------------------------------------------

ends 0 "" simulate $pair
says 'forward and adjoint are right'
ends 1 forward:3:out:5 simulate $pair
says 'forward  512 elements checked, 1 wrong' '  first: rank 3, output 5: expected -?[0-9]+, got -?[0-9.]+' \
    'adjoint  256 elements checked, 0 wrong' WRONG
[ "$(grep -c first "$work/out")" = 1 ]
verdict $? "one direction is right: $(cat "$work/out")"
ends 1 "adjoint:5:out:1 adjoint:2:out:31 adjoint:2:out:0" simulate $pair
says 'forward  512 elements checked, 0 wrong' 'adjoint  256 elements checked, 3 wrong' \
    '  first: rank 2, output 0: expected -?[0-9]+, got -?[0-9.]+' WRONG
ends 1 forward:3:out:64 simulate $pair
says '  first: rank 3, byte past the output 0: expected 127, got 126'
ends 1 adjoint:7:in:3 simulate $pair
says 'adjoint  256 elements checked, 1 wrong' '  first: rank 7, input 3: expected -?[0-9]+, got -?[0-9.]+'
sides rhs forward:0:zero:0 simulate $pair
sides lhs adjoint:0:zero:0 simulate $pair
for direction in forward adjoint; do
    fails $direction:1:fail:0 "lierne simulate: rank 1 fails" simulate $pair
done
# A zero is right in padding, and nowhere else.
ends 1 adjoint:1:zero:3 simulate $packed
says 'adjoint  4973 elements checked, 1 wrong' '  first: rank 1, output 3: expected [1-9][0-9]*, got 0' \
    'dot test .*: not equal'

# --- rows of an assignment ----------------------------------------------------------------------

balance="balance --simulate -m lpt $work/items"
ends 1 forward:0:out:1 $balance
says 'forward  14 elements checked, 1 wrong' '  first: rank 0, output 1: expected 7, got 6' 'dot test .*: not equal'
sides rhs forward:0:out:1 $balance
sides lhs adjoint:0:out:1 $balance
for direction in forward adjoint; do
    fails $direction:2:fail:0 "lierne balance: rank 2 fails" $balance
done
ends 1 "forward:0:out:7 adjoint:0:out:4" $balance
says 'forward  14 elements checked, 1 wrong' '  first: rank 0, byte past the output 56: .*' \
    'adjoint  14 elements checked, 1 wrong' '  first: rank 0, byte past the output 32: .*'

# --- sets ---------------------------------------------------------------------------------------

ends 0 "" simulate --set "$work/set.json"
ends 1 forward:3:out:1 simulate --set "$work/set.json"
says 'forward  30 elements checked, 2 wrong' '  the first: rank 3, tensor "b", element 1' \
    'adjoint  27 elements checked, 0 wrong'
ends 1 "adjoint:1:out:1 adjoint:0:out:2" simulate --set "$work/set.json" --format json
says '.*"forward": \{"checked": 30, "wrong": 0\}, "adjoint": \{"checked": 27, "wrong": 3\}\}'
for direction in forward adjoint; do
    fails $direction:1:fail:0 "lierne simulate: rank 1 fails" simulate --set "$work/set.json"
done

# --- ranks of a node ----------------------------------------------------------------------------

run="run $pair --launch 8 -n 1 --minbytes 1K -a direct"
several="forward:1:out:3 forward:4:out:0 adjoint:3:out:1"
ends 1 "$several" $run
says '.* 8192 +bf16 +direct +- +- +- +2 +- +- +- +1' 'forward  32768 elements checked, 2 wrong' \
    '  first: rank 1, output 3: .*' 'adjoint  16384 elements checked, 1 wrong' '  first: rank 3, output 1: .*' '# WRONG'
ends 1 "$several" $run --format json
says '.*"direct":\{"right":false,"forward":\{"checked":32768,"wrong":2\},"adjoint":\{"checked":16384,"wrong":1\},.*'
ends 1 "$several" $run --format csv
says '16384,8192,bf16,direct,forward,.*,2' '16384,8192,bf16,direct,adjoint,.*,1'
fails forward:3:fail:0 "lierne run: rank 3: rank 3 fails" $run

# Without lierne-run beside it; the path is not what happened to be in memory.
ends 2 "" run $pair
grep -qF "lierne run: cannot execute ${wrong%/*}/lierne-run: No such file" "$work/err"
verdict $? "the program for mpirun: $(cat "$work/err")"
verdicts
