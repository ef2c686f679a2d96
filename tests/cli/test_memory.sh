#!/usr/bin/env bash
# Memory that runs out: each place of the command that allocates fails once (fail_alloc.c). The command then says so
# and ends with a status that is not 0, or prints what it prints otherwise; it never crashes, and frees all that it has
# allocated. Not for info, which loads libraries of others. $1: the build folder.
set -u
build=$(cd "${1:?usage: test_memory.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
. tests/verdict.sh
${CC:-gcc} -O2 -D_GNU_SOURCE -shared -fPIC -o "$work/fail_alloc.so" tests/cli/fail_alloc.c
verdict $? "fail_alloc.c is compiled"

# Reads a file without another process.
slurp() { # slurp FILE: into $text
    IFS= read -r -d '' text <"$1"
}
run() { # run PLACE ARGUMENT...: $status, $out and $err
    local place=$1 count blocks at
    shift
    : >"$work/places"
    LIERNE_TEST_PLACE=$place LIERNE_TEST_PLACES=$work/places LD_PRELOAD=$work/fail_alloc.so \
        "$build/lierne" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    slurp "$work/out"
    out=${text//[0-9].[0-9][0-9][0-9] s/} # without times
    slurp "$work/err"
    err=$text
    [ "$1" != run ] || out=${out//[0-9]/} # of it in JSON
    places=0 left=0
    while read -r count blocks at; do # of each process
        places=$((count > places ? count : places)) left=$((left + blocks))
        [ "$blocks" = 0 ] || from=$at
    done <"$work/places"
}

lacks() { # lacks ARGUMENT...: the command, once for each place
    local all place wanted printed wrong=
    run 0 "$@"
    all=$places wanted=$status printed=$out
    [ "$left" = 0 ] || wrong="; $left blocks are left, one of them from $from"
    for ((place = 1; place <= all; place++)); do
        run $place "$@"
        [ "$status $out" = "$wanted $printed" ] || [[ "$status $err" = [12]\ *memory* ]] ||
            wrong="$wrong; place $place: status $status, ${#out} of ${#printed} bytes: ${err:0:80}"
        [ "$left" = 0 ] || wrong="$wrong; place $place: $left blocks are left, one of them from $from"
    done
    [ -n "$printed" ] && [ "$all" -gt 5 ] && [ -z "$wrong" ]
    verdict $? "lierne $* without memory: $all places$wrong"
}

cat >"$work/packed.json" <<'END'
{"world_size": 4, "grids": {"v": {"order": ["dp"], "shape": {"dp": 2}}, "l": {"order": ["cp", "dp"],
  "shape": {"cp": 2, "dp": 2}}}, "packed_bridges": [{"name": "b", "src": "v", "dst": "l",
   "tensor": {"axes": ["s", "h"], "shape": {"h": 4}, "dtype": "bf16"}, "segments": {"cu_seqlens": [0, 8, 16, 24, 32]},
   "packing": {"src": {"owner": [0, 1, 0, 1]}, "dst": {"owner": [0, 0, 1, 1], "row_order": "sequence"}},
   "placements": {"src": {"dp": {"shard_segments": "s"}}, "dst": {"dp": {"shard_segments": "s"},
    "cp": {"segment_zigzag": "s"}}}}]}
END
moves=tests/cli/printed/moves.json
pair="grids/encoder-llm-8.json -b vision_to_llm"
rows="grids/qwen2.5-vl-7b-packed-8.json -b images_to_tokens"
printf '%s\n' 0,3,4 1,2,2 1,5,7 3,1,1 0,9,9 >"$work/items"
cat >"$work/set.json" <<'END'
{"world_size": 4, "src": {"dims": {"fsdp": 2}}, "dst": {"dims": {"tp": 2}, "rank_offset": 2},
 "tensors": [{"name": "a", "dtype": "bf16", "shape": [8, 4]}, {"name": "b", "dtype": "f32", "shape": [6]}],
 "layouts": [{"names": "a", "src": {"fsdp": 0}, "dst": {"tp": 1}}, {"names": "*", "src": {"fsdp": {"at": 1}}}]}
END
lacks check --format sarif grids/bad/dtype-unknown.json
lacks groups grids/encoder-llm-8.json --grid llm --dims tp,dp
lacks plan --src tp2,dp4 --dst tp2,cp2,dp2 --tensor b8,s8,h8 --dtype bf16 -r 1 --format json
lacks plan $moves -b padded
lacks plan grids/glm-4.5v-128.json -b vision_all_to_llm --routing balanced -r 0
lacks plan --set "$work/set.json"
LIERNE_TEST_TIME=9 lacks plan --set "$work/set.json" # in the middle of its text
lacks simulate $pair
lacks simulate $moves -b margins
lacks simulate --set "$work/set.json"
lacks simulate "$work/packed.json" -b b
lacks run --src tp1,dp2 --dst tp2,dp1 --tensor b2,h8 --launch 2 -n 1 --format json
lacks draw mesh grids/encoder-llm-8.json --format dot
lacks draw ranks grids/encoder-llm-8.json
lacks draw matrix $pair
lacks draw matrix $pair --format text
lacks draw rows $moves -b padded --rank 1
lacks draw rows $rows
LIERNE_TEST_TIME=200 lacks draw rows grids/diffusion-2x2.json -b two_steps --rank 0 # in a box of the source
lacks draw stages grids/nvlm-d-72b-sft-64.json -b vision_to_llm
lacks draw timeline docs/pictures/messages-8.json
lacks place $pair
LIERNE_TEST_TIME=600 lacks place $pair # in the second order of the dims
lacks balance --format svg "$work/items"
lacks balance --format json "$work/items"
lacks balance --simulate -m lpt "$work/items"
lacks import devicemesh -w 8 dp=4,tp=2
lacks schedule --isolate=ep --split examples/moe-layer.json
verdicts
