#!/usr/bin/env bash
# lierne plan, simulate and run: output and exit status. The expected numbers are Megatron-LM's mapping
# and byte counts computed from coordinates by hand, in units of one sample. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:-build}
lierne=$build/lierne

ends() { # ends NAME STATUS COMMAND...: its output goes to $work/out and $work/err
    local name=$1 wanted=$2 status
    shift 2
    timeout 1000 "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status = "$wanted" ]
    verdict $? "$name: exit status $status, wanted $wanted: $(head -n 3 "$work/err")"
}

has() { # has NAME TEXT...: $work/out holds each text, on one line
    local name=$1 text
    shift
    for text; do
        grep -qF -- "$text" "$work/out"
        verdict $? "$name: no '$text' in $(head -c 600 "$work/out")"
    done
}

# --- configurations ---------------------------------------------------------------------------

dims() { # dims tp=2,cp=1,dp=4: order and shape
    local dim order= shape=
    for dim in ${1//,/ }; do
        order=$order,\"${dim%=*}\"
        shape=$shape,\"${dim%=*}\":${dim#*=}
    done
    printf '"order":[%s],"shape":{%s}' "${order#,}" "${shape#,}"
}

grid() { # grid tp=2,cp=1,dp=4[+VIEW][@OFFSET]: dims in their order, and those of a view v
    local text=${1%@*} offset=0 views=
    case $1 in *@*) offset=${1#*@} ;; esac
    case $text in *+*) views=",\"views\":{\"v\":{$(dims "${text#*+}")}}" ;; esac
    printf '{%s,"rank_offset":%s%s}' "$(dims "${text%+*}")" "$offset" "$views"
}

# config WORLD SRC DST AXES SHAPE DTYPE GRADIENT [MORE [TENSOR_MORE]]: writes $work/config.json
config() {
    local axes= shape= i sequence=
    local -a names=(${4//,/ }) sizes=(${5//,/ })
    for i in "${!names[@]}"; do
        axes=$axes,\"${names[i]}\"
        shape=$shape,\"${names[i]}\":${sizes[i]}
        [ "${names[i]}" != s ] || sequence='"sequence":"s",'
    done
    printf '{"world_size":%s,"grids":{"e":%s,"l":%s},"bridges":[{"name":"e_to_l","src":"e","dst":"l",
"tensor":{"axes":[%s],"shape":{%s},"dtype":"%s"%s},"batch":"b",%s"gradient":{%s}%s}]}\n' \
        "$1" "$(grid "$2")" "$(grid "$3")" "${axes#,}" "${shape#,}" "$6" "${9-}" "$sequence" "$7" \
        "${8-}" >"$work/config.json"
}

partial='"owner":"partial"'
zigzag='"owner":"zigzag","storage":"full"'

row() { printf '  %-27s %24s %24s' "$@"; }

# --- plan: the two worked examples --------------------------------------------------------------

config 8 tp=2,cp=1,pp=1,dp=4 tp=2,cp=2,pp=1,dp=2 b,s,h 8,16,4 bf16 "$partial"
ends "plan fan-in" 0 "$lierne" plan "$work/config.json" --bridge e_to_l --format json
has "plan fan-in" '{"bridge":"e_to_l","direction":"fan_in","scale":2,"src_coords":{"0":{' \
    '"6":{"tp":0,"cp":0,"pp":0,"dp":3},"7":{"tp":1,"cp":0,"pp":0,"dp":3}},"dst_coords":{"0":{' \
    '"6":{"tp":0,"cp":1,"pp":0,"dp":1},"7":{"tp":1,"cp":1,"pp":0,"dp":1}},"gather_groups":' \
    '"gather_groups":[[0,2],[1,3],[4,6],[5,7]],"cp_groups":[[0,2],[1,3],[4,6],[5,7]],"slices":{' \
    '"1":{"start":0,"size":2},"2":{"start":2,"size":2},"3":{"start":2,"size":2},"4":{"start":0,' \
    '"report":{"algorithm":"direct","forward":{"bytes":' '"groups":0},"semantics":'
ends "plan fan-in, rank 2" 0 "$lierne" plan "$work/config.json" --bridge e_to_l --rank 2 \
    --format json
has "plan fan-in, rank 2" '"src_coords":{"2":{"tp":0,"cp":0,"pp":0,"dp":1}},"dst_coords":{"2":' \
    '"gather_groups":[[0,2]],"cp_groups":[[0,2]],"slices":{"2":{"start":2,"size":2}},"report":'
ends "plan fan-in, text" 0 "$lierne" plan "$work/config.json" --bridge e_to_l --all
has "plan fan-in, text" "direction fan_in, dp ratio 2" "[0,2] [1,3] [4,6] [5,7]" "2 to 4 of 4"
ends "plan fan-in, text, rank 2" 0 "$lierne" plan "$work/config.json" -b e_to_l -r 2
has "plan fan-in, text, rank 2" "forward route of rank 2" "adjoint route of rank 2" "send to 0,"

# On 7 ranks of 10 no group of the destination has rank 9.
config 10 tp=2,dp=4@0 tp=2,cp=2,dp=2@0 b,s,h 8,16,4 bf16 "$partial"
ends "plan of a rank in no group" 0 "$lierne" plan "$work/config.json" -b e_to_l -r 9
has "plan of a rank in no group" "  rank 9 is in none"

# One rank of a large world takes the memory of one rank, and one array of nodes.
config 131072 tp=2,dp=65536 tp=2,cp=4,dp=16384 b,s,h 65536,8,4 bf16 "$partial"
sed -i 's/^{/{"nodes":8,/' "$work/config.json"
ends "plan one rank of 131,072" 0 bash -c 'ulimit -v 1000000 && exec "$@"' - \
    "$lierne" plan "$work/config.json" -b e_to_l -r 131071
has "plan one rank of 131,072" "131071    1 65535  |    1    3 16383  |  " \
    "forward route of rank 131071"

config 8 tp=4,cp=1,pp=1,dp=2 tp=1,cp=2,pp=1,dp=4 b,s,h 8,16,4 bf16 "$partial"
ends "plan fan-out" 0 "$lierne" plan "$work/config.json" --bridge e_to_l --format json
has "plan fan-out" '"direction":"fan_out","scale":2,' '"slices":{"0":{"start":0,"size":2},' \
    '"gather_groups":[[0,2],[1,3],[4,6],[5,7]],"cp_groups":[[0,1],[2,3],[4,5],[6,7]],"slices":{' \
    '"1":{"start":0,"size":2},"2":{"start":2,"size":2},"3":{"start":2,"size":2},"4":{"start":0,'

# --- plan: bytes ------------------------------------------------------------------------------

# sample TP DP TP CP DP: a tensor with one sample per dp rank of the larger side, 256 bytes each
sample() { # sample TP DP TP CP DP GRADIENT
    local b=$2
    [ "$b" -ge "$5" ] || b=$5
    config 8 tp=$1,cp=1,pp=1,dp=$2 tp=$3,cp=$4,pp=1,dp=$5 b,s,h $b,32,4 bf16 "$6"
}

owned() { # owned TP DP TP CP DP FORWARD ADJOINT MOST: eighths of a sample
    sample $1 $2 $3 $4 $5 "$zigzag"
    ends "bytes $*" 0 "$lierne" plan "$work/config.json" -b e_to_l -a direct --format json
    has "bytes $*" "\"forward\":{\"bytes\":$(($6 * 32))," ",\"min_bytes\":$(($6 * 32)),\"messages" \
        "\"adjoint\":{\"bytes\":$(($7 * 32)),\"max_rank_bytes\":$(($8 * 32)),\"min_bytes\":$(($7 * 32)),"
}
owned 2 4 2 2 2 64 32 4
owned 1 8 1 2 4 64 32 4
owned 4 2 1 2 4 0 96 12
owned 8 1 1 4 2 0 112 14
owned 4 2 2 2 2 0 32 4

# One communicator for the gather group, where there is one, and one for the cp group.
summed() { # summed TP DP TP CP DP ADJOINT GROUPS: samples; the reference's all-reduce and gather
    sample $1 $2 $3 $4 $5 "$partial"
    ends "summed $*" 0 "$lierne" plan "$work/config.json" -b e_to_l -a collective --format json
    has "summed $*" '"algorithm":"collective"' "\"adjoint\":{\"bytes\":$(($6 * 256))," \
        "\"groups\":$((1 + ($7 > 0)))},"
    local groups
    groups=$(sed 's/.*"gather_groups":\[\(.*\)\],"cp_groups".*/\1/' "$work/out" | tr -cd '[' | wc -c)
    [ "$groups" = "$7" ]
    verdict $? "summed $*: $groups gather groups"
}
summed 2 4 2 2 2 16 4
summed 1 8 1 2 4 16 4
summed 4 2 1 2 4 16 4
summed 8 1 1 4 2 20 4
summed 4 2 2 2 2 8 0

# --- plan: what Megatron-LM rejects or gets wrong -----------------------------------------------

config 6 tp=2,dp=3 tp=3,dp=2 b,s,h 6,4,4 f32 "$partial"
ends "general" 0 "$lierne" plan "$work/config.json" -b e_to_l --format json
has "general" '"direction":"general","scale":0,' '"gather_groups":[],"cp_groups":[],"slices":{},'
ends "general, text" 0 "$lierne" plan "$work/config.json" -b e_to_l
has "general, text" "Megatron-LM's colocated bridge rejects this pair of grids"
ends "general, collective" 1 "$lierne" plan "$work/config.json" -b e_to_l -a collective
config 8 tp=2,dp=4 cp=2,dp=2,tp=2 b,s,h 8,4,4 f32 "$partial"
ends "misaligned" 0 "$lierne" plan "$work/config.json" -b e_to_l
has "misaligned" "the dp ranks are misaligned"

# --- plan: who sums what -------------------------------------------------------------------------

# Computed by hand from the definition of the bridge: equal over tp, summed or owned over cp, sharded over dp.
config 8 tp=2,cp=1,pp=1,dp=4 tp=2,cp=2,pp=1,dp=2 b,s,h 8,16,4 bf16 "$partial"
ends "semantics" 0 "$lierne" plan "$work/config.json" -b e_to_l --format json
has "semantics" '"semantics":{"input":{"tp":"I","cp":"I","pp":"V","dp":"S(b)"},' \
    '"output":{"tp":"I","cp":"R","pp":"V","dp":"S(b)"},' \
    '"output_gradient":{"tp":"I","cp":"P","pp":"V","dp":"S(b)"},' \
    '"input_gradient":{"tp":"I","cp":"I","pp":"V","dp":"S(b)"},"scaling":"none",' \
    '"tokens_summed_over":{"grid":"l","view":"base","dims":["dp","cp"],"ranks":4},' \
    '"source_gradients_summed_over":{"grid":"e","view":"base","dims":["dp"],"ranks":4}}}'
ends "semantics, text" 0 "$lierne" plan "$work/config.json" -b e_to_l
has "semantics, text" "  output             tp I, cp R, pp V, dp S(b)" \
    "  gradient of output tp I, cp P, pp V, dp S(b)" "over dp x cp of l (4 ranks)," \
    "dp of e (4 ranks) only."
config 8 tp=2,cp=2,dp=2 tp=2,cp=2,dp=2+tp=2,dp=2,cp=2 b,h 64,4 bf16 "$zigzag" \
    ',"output":"sharded","dst_view":"v","placements":{"src":{"tp":{"shard":"s"},"cp":{"zigzag":"s"}},
"dst":{"tp":{"shard":"h"}}}' ',"rows_per_sample":16'
ends "semantics of cuts" 0 "$lierne" plan "$work/config.json" -b e_to_l --format json
has "semantics of cuts" '"input":{"tp":"S(s)","cp":"V","dp":"S(b)"},' \
    '"output":{"tp":"S(h)","dp":"S(b)","cp":"V"},"output_gradient":{"tp":"S(h)","dp":"S(b)","cp":"V"},' \
    '"tokens_summed_over":{"grid":"l","view":"v","dims":["dp","cp"],"ranks":4},' \
    '"source_gradients_summed_over":{"grid":"e","view":"base","dims":["dp","cp"],"ranks":4}}}' \
    '"7":{"tp":1,"dp":1,"cp":1}},"gather_groups"'
ends "semantics of cuts, text" 0 "$lierne" plan "$work/config.json" -b e_to_l
has "semantics of cuts, text" "  l          view v: tp 2, dp 2, cp 2, ranks 0 to 7" \
    "  rows       16 of each sample, by sample" "  output     sharded: own rows, stored as the gradient"
config 4 tp=2,dp=2 cp=2,tp=1,dp=2 b,s,h 2,4,4 bf16 '"owner":"contiguous","storage":"compact"'
ends "semantics of shares" 0 "$lierne" plan "$work/config.json" -b e_to_l --format json
has "semantics of shares" '"output":{"cp":"R","tp":"I","dp":"S(b)"}' \
    '"output_gradient":{"cp":"S(s)","tp":"I","dp":"S(b)"}'

# --- plan: leaders ------------------------------------------------------------------------------

disjoint=grids/disjoint-8.json # 32,768 bytes, a dp rank of four has 8,192
leaders() { # leaders BRIDGE TEXT...: the plan of leaders has each text
    local bridge=$1
    shift
    ends "leaders $bridge" 0 "$lierne" plan $disjoint -b "$bridge" --format json
    has "leaders $bridge" "$@"
}
leaders equal '"leaders":{"src":[1,3],"dst":[4,6],"src_broadcast_groups":[[0,1],[2,3]],"dst_broad' \
    '"dst_broadcast_groups":[[4,5],[6,7]],"p2p_group":[1,3,4,6],"map":{"0":{"role":"member",' \
    '"1":{"role":"sender","send_to":[4],"recv_from":[]},"2":{"role":"member","send_to":[],"recv_' \
    '"6":{"role":"receiver","send_to":[],"recv_from":[3]},"7":{"role":"member",' \
    '"report":{"algorithm":"leader","forward":{"bytes":65536,"max_rank_bytes":16384,' \
    '"messages":4,"max_rank_sent_bytes":16384,"bound_rank_bytes":16384,"bound_rank_sent_bytes":8192},"adj' '"groups":2}'
leaders fan-in '"leaders":{"src":[0,1,2,3],"dst":[4],' '"dst_broadcast_groups":[[4,5,6,7]],' \
    '"p2p_group":[0,1,2,3,4],' '"4":{"role":"receiver","send_to":[],"recv_from":[0,1,2,3]},' \
    '"min_bytes":131072,"messages":7,"max_rank_sent_bytes":65536,"bound_rank_' \
    '"bound_rank_bytes":32768,"bound_rank_sent_bytes":16384},"adjoint":{"bytes":32768,'
leaders fan-out '"3":{"role":"sender","send_to":[4,5,6,7],"recv_from":[]},' '"src":[3],' \
    '"forward":{"bytes":32768,' '"adjoint":{"bytes":131072,'
ends "no leaders" 0 "$lierne" plan $disjoint -b equal -a direct --format json
has "no leaders" '"slices":{},"report":{"algorithm":"direct"' '"routing":"direct","groups":0}'
ends "balanced" 0 "$lierne" plan $disjoint -b equal -a direct --routing balanced --format json
has "balanced" '"max_rank_sent_bytes":8192,"bound_rank_bytes":16384,"bound_rank_sent_bytes":8192}' \
    '"routing":"balanced","groups":0}'
ends "nodes, rank 3" 0 "$lierne" plan grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language -r 3
has "nodes, rank 3" "$(row 'messages received' 32 0)" "$(row 'received from other nodes' '8.1 MiB' '0 B')" \
    "$(row 'received inside the node' '24.4 MiB' '0 B')" "$(row 'sent to other nodes' '0 B' '0 B')"
! grep -qE '(of|by) a (node|rank)' "$work/out"
verdict $? "nodes, rank 3: a number of all ranks: $(cat "$work/out")"
ends "links, latency" 0 "$lierne" plan grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language \
    --links 0,0,900000000,50000 --format json
has "links, latency" '"direct_ns":904194304,"balanced_ns":72' '"routing":"direct"'
ends "links, bandwidth" 0 "$lierne" plan grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language \
    --links 0,0,20000,50000 --format text
has "links, bandwidth" "direct, balanced" "$(printf '  %-27s %24s %24s' 'time by the links, direct' '4214.3 us' '1068.6 us')"
ends "links, node" 0 "$lierne" plan grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language \
    --links 0,0,20000,0,50000 --format json
has "links, node" '"direct_ns":4214304,'
for bad in 1,2,3 1,2,3,4, 1,2,3,4,5,6 1,2,3,4,-5 1,2,3,x 1,2,3,-4 1,2,3,1000000001; do
    ends "links $bad" 2 "$lierne" plan $disjoint -b equal --links $bad
    grep -qF -- "--links is '$bad', must be four whole numbers from 0 to 1000000000" "$work/err"
    verdict $? "links $bad: $(cat "$work/err")"
done
ends "few peers" 0 "$lierne" plan grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language --routing direct --max-peers 7 --format json
has "few peers" '"most_peers":7,"forwarded_bytes":' '"most_peers":2,"forwarded_bytes":0'
ends "few peers" 0 "$lierne" plan grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language --routing direct --max-peers 7
has "few peers" "$(printf '  %-27s %24s %24s' 'peers of a rank, at most' 7 2)" \
    "$(printf '  %-27s %24s %24s' 'received and sent on' '150 MiB' '0 B')"
ends "too few peers" 1 "$lierne" plan grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language --max-peers 2
grep -qF 'max_peers is 2, must be at least 7 for these 17 ranks' "$work/err"
verdict $? "too few peers: $(cat "$work/err")"
ends "bad peers" 2 "$lierne" plan $disjoint -b equal --max-peers -1
ends "bad routing" 2 "$lierne" plan $disjoint -b equal --routing fast
grep -qF "is 'fast', must be auto, direct or balanced" "$work/err"
verdict $? "bad routing: $(cat "$work/err")"
ends "leaders, text" 0 "$lierne" plan $disjoint -b equal --all
has "leaders, text" "broadcast groups of the source: 2 of 2 ranks" "  [4,5] [6,7]" \
    "leaders: [1,3,4,6]; forward" "  1 -> [4]" "  3 -> [6]" "algorithm leader" "groups of the plan: 2 on a rank"
ends "leaders, rank 6" 0 "$lierne" plan $disjoint -b equal -r 6
has "leaders, rank 6" "  3 -> [6]" "send to 7," "receive from 3,"
! grep -qF "1 -> [4]" "$work/out"
verdict $? "leaders, rank 6: another rank's crossing"
config 8 tp=2,dp=2@0 tp=2,dp=2@3 b,s,h 4,4,4 f32 "$partial"
ends "leaders, overlap" 1 "$lierne" plan "$work/config.json" -b e_to_l -a leader
grep -qF "source and destination grid share ranks 3 to 3, must share none" "$work/err"
verdict $? "leaders, overlap: $(cat "$work/err")"
ends "leaders, cp" 1 "$lierne" plan grids/megatron-cp-fanin-8.json -b encoder_to_llm -a leader
grep -qF "destination cp is 2, must be 1" "$work/err"
verdict $? "leaders, cp: $(cat "$work/err")"

# --- the summary, by hand: what four dp ranks have goes to the four tp ranks of one, of 8 KiB each ----

ends "summary" 0 "$lierne" plan $disjoint -b fan-in -a leader
[ "$(sed -n '7,15p' "$work/out")" = "One execution, all ranks together, algorithm leader
$(row 'bytes (bound)' forward adjoint)
$(row 'received by all ranks' '128 KiB (128 KiB)' '32 KiB (32 KiB)')
$(row 'most received by a rank' '32 KiB (32 KiB)' '8 KiB (8 KiB)')
$(row '  rank' 4 0)
$(row 'most sent by a rank' '64 KiB (16 KiB)' '32 KiB (8 KiB)')
$(row '  rank' 4 4)
$(row messages 7 4)
$(row stages 3 1)" ]
verdict $? "the summary comes first: $(cat "$work/out")"
! grep -qE '^(Coordinates on|gather groups|leaders)' "$work/out"
verdict $? "coordinates and groups without --all: $(cat "$work/out")"
list_bridges() { # list_bridges CONFIG: of worlds of up to 128 ranks
    python3 - "$1" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
print(*(b["name"] for b in d.get("bridges", []) + d.get("packed_bridges", []) if d["world_size"] <= 128))
END
}
for config in grids/*.json; do
    for bridge in $(list_bridges "$config"); do
        "$lierne" plan "$config" -b "$bridge" >"$work/out" 2>/dev/null
        [ -s "$work/out" ] && ! grep -qE '^.{81}' "$work/out"
        verdict $? "80 columns: $config $bridge: $(grep -E '^.{81}' "$work/out")"
    done
done

# --- usage --------------------------------------------------------------------------------------

file=grids/encoder-llm-8.json
for command in plan simulate; do
    ends "$command without bridge" 2 "$lierne" $command $file
    grep -qxF "lierne $command: --bridge is missing; $file has: vision_to_llm" "$work/err"
    verdict $? "$command without bridge: $(cat "$work/err")"
    ends "$command, no such bridge" 2 "$lierne" $command $file --bridge none
    ends "$command, no such file" 2 "$lierne" $command "$work/none.json" --bridge none
    ends "$command, algorithm" 2 "$lierne" $command $file -b vision_to_llm -a best
    ends "$command, format" 2 "$lierne" $command $file -b vision_to_llm --format xml
    ends "$command --help" 0 "$lierne" $command --help
    ends "$command, invalid file" 1 "$lierne" $command grids/bad/duplicate-key.json -b none
done
ends "rank past the world" 2 "$lierne" plan $file -b vision_to_llm --rank 8
ends "rank no number" 2 "$lierne" plan $file -b vision_to_llm --rank 1x

# --- simulate -----------------------------------------------------------------------------------

right() { # right NAME FILE BRIDGE [OPTION]...
    local name=$1 shape='{"world":[0-9]*,"forward":{"checked":\([0-9]*\),"wrong":0},'
    shape=$shape'"adjoint":{"checked":\([0-9]*\),"wrong":0},'
    shape=$shape'"dot":{"lhs":\(-\{0,1\}[0-9]*\),"rhs":\3}}'
    shift
    local path=$1 bridge=$2
    shift 2
    ends "simulate $name" 0 "$lierne" simulate "$path" --bridge "$bridge" --format json "$@"
    grep -q "^$shape\$" "$work/out"
    verdict $? "simulate $name: $(cat "$work/out")"
    grep -q '"checked":0,' "$work/out"
    verdict $((1 - $?)) "simulate $name: nothing was checked"
}

without=0
for path in grids/*.json; do
    bridges=$(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' "$path")
    if [ -z "$bridges" ]; then
        ! grep -q bridges "$path"
        verdict $? "$path has a bridge"
        without=$((without + 1))
    fi
    for bridge in $bridges; do
        right "$path $bridge" "$path" "$bridge"
    done
done
ends "simulate, text" 0 "$lierne" simulate $file -b vision_to_llm
has "simulate, text" "s 1024 -> 4: nothing cuts it" "h 1024 -> 4: nothing cuts it" \
    "forward and adjoint are right" "consistent over all ranks"

# Files without a bridge have grids to ask about: numbers of groups and first groups by hand, from
# the sizes of the dims and the products of those before them.
enumerates() { # enumerates FILE GRID VIEW DIMS NGROUPS FIRST STRIDE SIZE
    local groups
    ends "groups $1 $2" 0 "$lierne" groups "grids/$1.json" --grid "$2" --view "$3" --dims "$4"
    groups=$(wc -l <"$work/out")
    [ "$groups" = "$5" ]
    verdict $? "$1 $2 $4: $groups groups, not $5"
    [ "$(head -n 1 "$work/out")" = "$(seq -s ' ' "$6" "$7" $(($6 + $7 * ($8 - 1))))" ]
    verdict $? "$1 $2 $4: first group is $(head -n 1 "$work/out")"
    ends "check $1" 0 "$lierne" check "grids/$1.json"
    without=$((without - 1))
}
enumerates llama3-405b-8192 llm base dp 128 0 128 64
enumerates llama3-405b-1024 llm base dp,cp 64 0 8 16
enumerates kimi-k2-1024 llm expert ep 16 0 1 64
enumerates deepseek-v3-2048 llm expert expt_dp 1024 0 64 2
enumerates deepseek-v3-1024 llm expert pp 128 0 128 8
enumerates m2n-qwen235b-128 train expert ep 4 0 1 16
[ $without = 0 ]
verdict $? "$without more files without a bridge than are asked about"
enumerates m2n-qwen235b-128 generation base tp 8 64 1 8
enumerates llama3-405b-16384 llm-long base cp 1024 0 8 16

# --- packed bridges -----------------------------------------------------------------------------

packed=grids/qwen2.5-vl-7b-packed-8.json
ends "packed plan" 0 "$lierne" plan $packed -b images_to_tokens
has "packed plan" "8 images of 4973 rows" "6 segments of 7104 tokens, padded to 7112 rows" \
    "runs       9 bring 4973 of 7104 tokens their rows" "3584 elements of bf16 in a row"
[ ! -s "$work/err" ] && ! grep -qF 'more (--all)' "$work/out"
verdict $? "packed plan: no rank of 8 is left out: $(cat "$work/err")"
ends "packed plan, JSON" 0 "$lierne" plan $packed -b images_to_tokens --format json
has "packed plan, JSON" '"src":{"segments":8,"tokens":4973,"padded_rows":4973,"rows":[1369,384,256,900,576,144,1024,320]}' \
    '"dst":{"segments":6,"tokens":7104,"padded_rows":7112,"rows":[2176,2176,2176,2176,1380,1380,1380,1380]}' \
    '"forward":{"bytes":62770176,"max_rank_bytes":' '"min_bytes":62770176,' '"adjoint":{"bytes":27123712,'
ends "packed move" 0 "$lierne" plan $packed -b zigzag_to_contiguous --format json
has "packed move" '"delivered_tokens":7104,' '"forward":{"bytes":58576896,' '"most_peers":0'
ends "packed plan over few peers" 0 "$lierne" plan $packed -b images_to_tokens --max-peers 5
has "packed plan over few peers" "$(printf '  %-27s %24s' 'peers of a rank, at most' 4)" \
    "$(printf '  %-27s %24s' 'received and sent on' '17.6 MiB')"
ends "packed simulation" 0 "$lierne" simulate $packed -b images_to_tokens --max-peers 5
has "packed simulation" "h 3584 -> 1: every column moves as the others" "forward  14224 elements checked, 0 wrong" \
    "adjoint  4973 elements checked, 0 wrong" "forward and adjoint are right"
ends "packed run" 0 "$lierne" run $packed -b images_to_tokens --launch 8 --rounds 1 --minbytes 100K
has "packed run" "forward and adjoint are right"
ends "packed bridge and rank" 2 "$lierne" plan $packed -b images_to_tokens --rank 3
ends "packed bridge and algorithm" 2 "$lierne" plan $packed -b images_to_tokens --algorithm leader
grep -qF "is a packed bridge: without --routing and --algorithm" "$work/err"
verdict $? "packed bridge and algorithm: $(cat "$work/err")"
ends "no such packed bridge" 2 "$lierne" plan $packed -b none
grep -qF "which has: images_to_tokens, zigzag_to_contiguous" "$work/err"
verdict $? "no such packed bridge: $(cat "$work/err")"

# --- redistributions with halos -----------------------------------------------------------------

field=grids/diffusion-2x2.json
ends "halo plan" 0 "$lierne" plan $field -b margins
has "halo plan" "y 1 below, 1 above, periodic" "star, padded" "y 46, x 35 of f64" \
    "received by all ranks              2.5 KiB (2.5 KiB)" "most received by a rank                        656 B"
ends "halo plan, JSON" 0 "$lierne" plan $field -b margins --format json
has "halo plan, JSON" '"packed":false,"src":{"halos":0,"elements":[414,391,414,391]}' \
    '"dst":{"halos":2,"elements":[500,475,500,475]},"forward":{"bytes":2592,'
ends "halo simulation" 0 "$lierne" simulate $field -b margins
has "halo simulation" "forward  1950 elements checked, 0 wrong" "forward and adjoint are right"
ends "halo run" 0 "$lierne" run $field -b margins --launch 4 --rounds 1
has "halo run" "forward and adjoint are right"
ends "halo sweep" 2 "$lierne" run $field -b margins --launch 4 --minbytes 4K
ends "halo and rank" 2 "$lierne" plan $field -b margins --rank 1
grep -qF "is a redistribution: without --rank" "$work/err"
verdict $? "halo and rank: $(cat "$work/err")"
ends "no such redistribution" 2 "$lierne" plan $field -b none
grep -qF "which has: margins" "$work/err"
verdict $? "no such redistribution: $(cat "$work/err")"

# Windows of every kind, from and to any cut.
moves() { # moves NAME AXIS_A AXIS_B REST: halos of the destination, and more of the redistribution
    cat >"$work/halo.json" <<END
{"world_size": 6, "grids": {"s": {"order": ["p", "q"], "shape": {"p": 2, "q": 2}},
  "t": {"order": ["p", "q"], "shape": {"p": 3, "q": 2}}},
 "redistributions": [{"name": "b", "src": "s", "dst": "t", "tensor": {"axes": ["a", "b"],
   "shape": {"a": 12, "b": 8}, "dtype": "bf16"}, "halo": {"dst": {"axes": {$2${2:+${3:+, }}$3}$4}$5
END
    right "halo $1" "$work/halo.json" b
}
cuts='"placements": {"src": {"p": {"shard": "a"}, "q": {"shard": "b"}}, "dst": {"p": {"shard": "b"}, "q": {"zigzag": "a"}}}}]}'
for boundary in none zero keep periodic mirror symmetric replicate; do
    moves "$boundary" "\"a\": {\"lo\": 2, \"hi\": 1, \"boundary\": \"$boundary\"}" '"b": {"lo": 9, "hi": 3, "boundary": "symmetric"}' "" "}, $cuts"
done
moves "star" '"a": {"lo": 1, "hi": 1}' '"b": {"lo": 1, "hi": 2, "boundary": "zero"}' ', "stencil": "star"' "}, $cuts"
moves "margins" '"a": {"lo": 3, "hi": 1, "boundary": "periodic"}' '"b": {"lo": 1, "hi": 2, "boundary": "mirror"}' ', "storage": "margins"' "}, $cuts"
moves "margins of a star" '"a": {"lo": 3, "hi": 1}' '"b": {"lo": 1, "hi": 2, "boundary": "keep"}' ', "storage": "margins", "stencil": "star"' "}, $cuts"
moves "documents" '"a": {"lo": 4, "hi": 4, "boundary": "periodic", "segments": [0, 5, 5, 12]}' '"b": {"lo": 3, "segments": [0, 1, 8]}' "" "}, $cuts"
moves "outputs" '"a": {"lo": 1, "hi": 1, "boundary": "zero", "stride": 2, "outputs": 4}' '"b": {"lo": 2, "hi": -2, "boundary": "periodic"}' "" "}, $cuts"
moves "a source with a halo" '"a": {"lo": 1, "hi": 1}' "" "" ', "src": {"axes": {"b": {"lo": 2, "hi": 2, "boundary": "periodic"}}}}, '"$cuts"
moves "replicas" '"b": {"lo": 1, "hi": 1}' "" "" '}, "placements": {"src": {"p": {"shard": "a"}}, "dst": {"p": {"shard": "b"}, "q": {"at": 1}}}}]}'

# A row that 121 tokens get: its gradient is not exact, so that run and simulate cannot check it.
for repeats in 120 121; do
    python3 - $repeats >"$work/repeats-$repeats.json" <<'END'
import json, sys
print(json.dumps({"world_size": 2, "grids": {"e": {"order": ["dp"], "shape": {"dp": 2}}, "l": {"order": ["cp"],
    "shape": {"cp": 2}}}, "packed_bridges": [{"name": "b", "src": "e", "dst": "l",
    "tensor": {"axes": ["s", "h"], "shape": {"h": 2}, "dtype": "bf16"}, "segments": {"cu_seqlens": [0, 124]},
    "images": {"cu_seqlens": [0, 1]}, "allow_repeat": True, "runs": [[0, 0, 0, t, 1] for t in range(int(sys.argv[1]))],
    "packing": {"src": {"owner": [1]}, "dst": {"align": 4}},
    "placements": {"src": {"dp": {"shard_segments": "s"}}, "dst": {"cp": {"segment_zigzag": "s"}}}}]}))
END
done
right "most repeats" "$work/repeats-120.json" b
for command in simulate "run --launch 2"; do # words of their own
    ends "too many repeats, $command" 2 "$lierne" $command "$work/repeats-121.json" -b b
    [ "$(grep -c "a row gets more than 120 contributions" "$work/err")" = 1 ]
    verdict $? "too many repeats, $command: $(head -c 600 "$work/err")"
done

# Every way to pack: lead, order, unpadded rows, sequence-major rows, sequence parallelism, replicas
# whose gradients add up, rows that repeat or are left over, a packed axis that is the faster one.
packs() { # packs NAME KEYS
    cat >"$work/packed.json" <<END
{"world_size": 8, "grids": {"e": {"order": ["tp", "dp"], "shape": {"tp": 2, "dp": 3}, "rank_offset": 1},
  "l": {"order": ["tp", "cp", "dp"], "shape": {"tp": 2, "cp": 2, "dp": 2}}},
 "packed_bridges": [{"name": "b", "src": "e", "dst": "l", "segments": {"cu_seqlens": [0, 6, 9, 9, 16]}, $2}]}
END
    right "packed $1" "$work/packed.json" b
    right "packed $1, few peers" "$work/packed.json" b --max-peers 5
}
images='"images": {"cu_seqlens": [0, 3, 3, 5]}, "runs": [[0, 0, 0, 1, 3], [2, 0, 3, 3, 2]]'
some='"images": {"cu_seqlens": [0, 3, 3, 6]}, "runs": [[0, 0, 0, 1, 3], [2, 0, 3, 3, 2], [0, 1, 1, 0, 2], [2, 0, 3, 5, 2]], "allow_unused": true, "allow_repeat": true'
rows_first='"tensor": {"axes": ["s", "h"], "shape": {"h": 10}, "dtype": "bf16"}'
columns_first='"tensor": {"axes": ["h", "s"], "shape": {"h": 9}, "dtype": "i8"}'
whole='"dp": {"shard_segments": "s"}'
cut='"cp": {"segment_zigzag": "s"}'
packs "images" "$rows_first, $images, \"packing\": {\"src\": {\"owner\": [0, 1, 2]}, \"dst\": {\"align\": 4, \"owner\": [0, 1, 1, 1]}},
  \"placements\": {\"src\": {$whole}, \"dst\": {$whole, $cut}}"
packs "images, columns" "$columns_first, $images, \"packing\": {\"src\": {\"align\": 2, \"owner\": [2, 1, 0]}, \"dst\": {\"align\": 8, \"lead\": [1, 0, 3, 2], \"order\": [3, 1, 0, 2], \"owner\": [0, 0, 0, 0]}},
  \"placements\": {\"src\": {$whole, \"tp\": {\"shard\": \"h\"}}, \"dst\": {$whole, $cut, \"tp\": {\"shard\": \"s\"}}}"
packs "partial" "$rows_first, $images, \"partial\": [\"cp\", \"dp\"], \"packing\": {\"dst\": {\"store\": \"unpadded\", \"align\": 5}},
  \"placements\": {\"src\": {\"dp\": {\"shard\": \"s\"}}}"
packs "repeats" "${rows_first/bf16/f16}, $some, \"packing\": {\"dst\": {\"align\": 4}}, \"placements\": {\"src\": {\"tp\": {\"segment_shard\": \"s\"}}, \"dst\": {$cut}}"
packs "rows of one element" "\"tensor\": {\"axes\": [\"s\"], \"dtype\": \"f32\"}, $images, \"packing\": {\"dst\": {\"align\": 4}}, \"placements\": {\"src\": {\"dp\": {\"shard\": \"s\"}}, \"dst\": {$cut}}"
packs "sequence-major" "$rows_first, \"packing\": {\"src\": {\"row_order\": \"sequence\", \"cu_seqlens_padded\": [0, 8, 16, 24, 32]}, \"dst\": {\"padding\": \"keep\"}},
  \"placements\": {\"src\": {\"dp\": {\"shard\": \"s\"}}, \"dst\": {\"cp\": {\"zigzag\": \"s\"}}}"

config 8 tp=2,cp=1,pp=1,dp=4 tp=2,cp=2,pp=1,dp=2 b,h 2048,7 bf16 "$zigzag" "" ',"rows_per_sample":64'
ends "simulate, reduced rows" 0 "$lierne" simulate "$work/config.json" -b e_to_l
has "simulate, reduced rows" "b 2048 -> 64: samples and rows of each, with the same remainders" \
    "h 7 -> 4: nothing cuts it" "forward  1024 elements checked"
config 8 tp=2,dp=4 tp=2,cp=2,dp=2 b,s,h 32,62,7 bf16 "$partial" \
    ',"placements":{"src":{"tp":{"shard":"s"}},"dst":{"tp":{"shard":"h"}}}'
ends "simulate, reduced cuts" 0 "$lierne" simulate "$work/config.json" -b e_to_l
has "simulate, reduced cuts" "s 62 -> 4: same remainders by what cuts it" \
    "h 7 -> 5: same remainders by what cuts it"

# A simulation that takes much memory says so before it takes it: here it may not have so much. Each
# of 8 ranks has 2 x 2^32 elements of 2 bytes in each of four buffers.
config 8 tp=2,dp=4 tp=2,dp=4 b,s,h 8,65536,65536 bf16 "$partial"
ends "simulate much" 2 bash -c 'ulimit -v 2000000 && exec "$@"' - \
    "$lierne" simulate "$work/config.json" -b e_to_l --full
[ "$(head -n 1 "$work/err")" = "lierne simulate: needs about 549.8 GB of memory for 8 ranks" ] &&
    grep -qF "no memory for the buffers of rank 0" "$work/err"
verdict $? "simulate much: $(cat "$work/err")"
# Nor may it have the places of margins that nobody can store.
sed -e '0,/"dst": {$/s//"src": {"axes": {"x": {"lo": 1099511627776, "boundary": "keep"}}},\n        &/' \
    "$field" >"$work/wide.json"
ends "simulate wide margins" 2 bash -c 'ulimit -v 2000000 && exec "$@"' - \
    "$lierne" simulate "$work/wide.json" -b margins --full
grep -qF "no memory for the buffers of rank 0" "$work/err"
verdict $? "simulate wide margins: $(cat "$work/err")"

# How far it is, on a terminal only.
config 8 tp=2,dp=4 tp=4,dp=2 b,s,h 8,4,4 bf16 "$partial"
ends "simulate in silence" 0 "$lierne" simulate "$work/config.json" -b e_to_l --full
[ ! -s "$work/err" ]
verdict $? "simulate in silence: $(cat "$work/err")"
if command -v script >/dev/null; then
    ends "simulate on a terminal" 0 \
        script -qec "$lierne simulate $work/config.json -b e_to_l --full" /dev/null
    has "simulate on a terminal" "lierne simulate: planning, rank 0 of 8" \
        "lierne simulate: checking adjoint, rank 0 of 8" "forward and adjoint are right"
fi

describe() { # describe NAME CONFIG...: a configuration of its own, in both algorithms if defined
    local name=$1
    shift
    config "$@"
    right "$name" "$work/config.json" e_to_l --full
    right "$name, reduced" "$work/config.json" e_to_l
    if "$lierne" plan "$work/config.json" -b e_to_l -a collective >"$work/out" 2>&1; then
        right "$name, collective" "$work/config.json" e_to_l --full -a collective
    fi
    if "$lierne" plan "$work/config.json" -b e_to_l -a leader >"$work/out" 2>&1; then
        right "$name, leader" "$work/config.json" e_to_l --full -a leader
        leader=$((leader + 1))
    fi
}

leader=0
in=tp=2,cp=1,pp=1,dp=4
out=tp=2,cp=2,pp=1,dp=2
for dtype in f64 f32 bf16 f16 i64 i32 i8 u8; do
    describe "$dtype" 8 tp=1,dp=8 tp=1,cp=4,dp=2 b,s,h 8,16,6 $dtype "$partial"
done
for owner in zigzag contiguous; do
    for storage in full compact; do
        gradient="\"owner\":\"$owner\",\"storage\":\"$storage\""
        for axes in b,s,h s,b,h h,s,b; do
            describe "$owner $storage $axes" 8 $in $out $axes 8,8,8 f32 "$gradient"
        done
        describe "$owner $storage fan-out" 8 tp=4,dp=2 tp=1,cp=2,dp=4 b,s,h 8,16,6 bf16 "$gradient"
    done
done
describe "contiguous, uneven" 8 $in tp=1,cp=4,dp=2 b,s,h 8,11,3 f32 '"owner":"contiguous"'
rows='0,1,1,0,1,0,0,0,1,1,1,1,0,0,0,1,0,1,1,1,0,0,1,0'
for storage in full compact; do
    gradient="\"owner\":\"rows\",\"storage\":\"$storage\",\"rows\":[$rows]"
    describe "rows $storage" 8 $in $out b,s,h 4,6,3 i32 "$gradient"
    describe "rows $storage s,b" 8 $in $out s,b,h 6,4,3 i32 "$gradient"
done
placed() { # placed SOURCE [DESTINATION]: placements
    printf ',"placements":{"src":{%s},"dst":{%s}}' "$1" "${2-}"
}
tp='"tp":{"shard":"s"}'
describe "sequence-parallel source" 8 $in $out s,b,h 7,8,3 bf16 "$partial" "$(placed "$tp")"
describe "source cp" 8 tp=2,cp=2,dp=2 tp=1,cp=4,dp=2 b,s,h 4,16,3 bf16 "$zigzag" \
    "$(placed '"cp":{"zigzag":"s"}')"
for order in tp=2,cp=2,dp=2 cp=2,tp=2,dp=2; do
    describe "zigzag and shards, $order" 8 $order $out b,s,h 4,16,3 bf16 "$partial" \
        "$(placed "$tp,\"cp\":{\"zigzag\":\"s\"}")"
    for owner in zigzag contiguous; do
        for storage in full compact; do
            describe "own rows and shards, $order, $owner $storage" 8 $in $order b,s,h 4,16,3 i32 \
                "\"owner\":\"$owner\",\"storage\":\"$storage\"" ",\"output\":\"sharded\"$(placed "" "$tp")"
        done
    done
done
describe "hidden cut on both sides" 8 tp=4,dp=2 tp=2,cp=2,dp=2 b,s,h 4,3,7 f32 "$partial" \
    "$(placed '"tp":{"shard":"h"}' '"tp":{"shard":"h"}')"
describe "hidden in zigzag" 8 tp=2,dp=4 tp=4,dp=2 b,s,h 4,3,8 f32 "$partial" \
    "$(placed '"tp":{"zigzag":"h"}' '"tp":{"zigzag":"h"}')"
for storage in full compact; do
    gradient="\"owner\":\"rows\",\"storage\":\"$storage\",\"rows\":[$rows]"
    describe "rows of shards, $storage" 8 $in $out b,s,h 4,6,3 i32 "$gradient" "$(placed "" "$tp")"
    describe "own rows of shards, $storage" 8 $in $out s,b,h 6,4,3 i32 "$gradient" \
        ",\"output\":\"sharded\"$(placed "$tp" "$tp")"
    describe "rows of samples, owned, $storage" 8 $in $out h,b 3,24 i32 "$gradient" \
        ',"output":"sharded"' ',"rows_per_sample":6,"row_order":"sequence"'
    gradient="\"owner\":\"rows\",\"storage\":\"$storage\",\"rows\":[0,0,0,0,0,0,0,0]"
    describe "rows of cp 1, $storage" 4 tp=2,dp=2 cp=1,tp=2,dp=2 s,b,h 2,4,3 i32 "$gradient" ',"output":"sharded"'
    describe "rows without cp, $storage" 4 tp=2,dp=2 tp=2,dp=2 s,b,h 2,4,3 i32 "$gradient" ',"output":"sharded"'
done
for order in sample sequence; do
    more=",\"rows_per_sample\":8,\"row_order\":\"$order\""
    describe "rows of samples by $order" 8 $in $out b,h 64,5 bf16 "$partial" "" "$more"
    describe "rows of samples by $order, cut" 8 $in $out b,h 56,6 bf16 "$zigzag" \
        "$(placed "$tp" '"tp":{"shard":"h"}')" "$more"
    describe "rows of samples by $order, counted" 8 $in $out h,b 5,72 bf16 \
        '"owner":"contiguous","storage":"compact"' \
        ',"output":"sharded","counts":{"src":[0,5,1,3],"dst":[7,2]}' "$more"
done
describe "views" 8 ep=8+dp=2,tp=4 gtp=2,cp=2,dp=2+tp=1,cp=2,dp=4 b,s,h 8,4,3 f32 "$zigzag" \
    ',"src_view":"v","dst_view":"v"'
ends "views, the map" 0 "$lierne" plan "$work/config.json" -b e_to_l --format json
has "views, the map" '"src_coords":{"0":{"dp":0,"tp":0},"1":{"dp":1,"tp":0},' '"direction":"fan_out","scale":2,'
describe "stages and cuts" 8 tp=2,pp=2,dp=2 tp=2,cp=2,pp=2,dp=1 b,s,h 4,8,2 f32 "$zigzag" \
    ",\"output\":\"sharded\"$(placed "$tp" "$tp")"
describe "batch in the middle" 8 $in $out s,b,h 6,8,5 f32 "$partial"
describe "two axes" 8 $in $out b,h 8,5 f16 "$partial"
describe "uneven data-parallel sizes" 6 tp=2,dp=3 tp=3,dp=2 b,s,h 7,3,2 f32 "$partial"
describe "empty dp ranks" 8 tp=1,dp=8 tp=2,cp=2,dp=2 b,s,h 3,3,2 f32 "$partial"
describe "counts" 8 $in $out b,s,h 9,3,2 f32 "$partial" ',"counts":{"src":[0,5,1,3],"dst":[7,2]}'
describe "stages" 8 tp=2,pp=2,dp=2 tp=2,cp=2,pp=2,dp=1 b,s,h 4,3,2 f32 "$partial"
describe "misaligned" 8 tp=2,dp=4 cp=2,dp=2,tp=2 b,s,h 8,3,2 f32 "$partial"
describe "disjoint" 8 tp=2,dp=2@0 tp=1,cp=2,dp=2@4 b,s,h 4,4,3 bf16 "$zigzag"
describe "disjoint, leaders" 8 tp=2,dp=2@0 tp=4,dp=1@4 b,s,h 4,4,3 f64 "$partial"
describe "disjoint, fan-out, stages" 8 tp=1,pp=2,dp=1@6 tp=2,dp=2@1 s,b,h 3,6,2 bf16 "$partial"
describe "disjoint, batch last" 8 tp=1,dp=4@4 tp=2,dp=2@0 h,s,b 3,2,4 i32 "$partial"
describe "overlapping" 8 tp=2,dp=3@0 tp=1,cp=2,dp=3@2 b,s,h 6,4,3 bf16 "$partial"
describe "counts of the source alone" 8 $in $out b,s,h 40,3,2 f32 "$partial" ',"counts":{"src":[0,30,1,9]}'
describe "other dims" 8 tp=2,ep=2,dp=2 ep=2,cp=2,tp=1,dp=2 b,s,h 4,4,3 f32 "$partial"
describe "large batch" 8 $in $out b,s,h 401,4,2 i8 "$partial"
[ "$leader" = 3 ]
verdict $? "leader is defined for 3 of these, not $leader"
config 1024 tp=2,dp=512 tp=8,cp=4,dp=32 b,s,h 1024,8192,16384 bf16 "$zigzag"
right "1,024 ranks" "$work/config.json" e_to_l

# --- run ----------------------------------------------------------------------------------------

if [ -x "$build/lierne-run" ]; then
    small=grids/megatron-cp-fanin-8.json
    ends "run" 0 mpirun --oversubscribe -n 8 "$lierne" run $small --bridge encoder_to_llm
    has "run" "bridge encoder_to_llm on 8 ranks" "forward and adjoint are right" \
        "256 KiB       131072   bf16      direct" "256 KiB       131072   bf16  collective" "20 rounds"
    ends "run, json" 0 mpirun --oversubscribe -n 8 "$lierne" run $small -b encoder_to_llm \
        -a direct --rounds 16 --format json
    has "run, json" '"world":8,"algorithms":{"direct":{"right":true,"forward":{"checked":' \
        '"rounds":16,"times":{"forward":{"median_us":'
    ends "run, not defined" 0 mpirun --oversubscribe -n 8 "$lierne" run \
        grids/megatron-cp-zigzag-fanin-8.json -b encoder_to_llm
    has "run, not defined" "collective does not apply: rank 0: plan 'encoder_to_llm': COLLECTIVE needs" \
        "leader does not apply: rank 0: plan 'encoder_to_llm': LEADER: source and destination grid share ranks 0 to 7"
    ends "run, leader" 0 mpirun --oversubscribe -n 8 "$lierne" run $disjoint -b fan-in --format json
    has "run, leader" '"leader":{"right":true,"forward":{"checked":' '"direct":{"right":true,'
    times=$(grep -oE '"(median|low|high)_us":[0-9.]+' "$work/out" | wc -l)
    zeros=$(grep -cE '"(median|low|high)_us":0.000' "$work/out")
    [ "$times" = 12 ] && [ "$zeros" = 0 ]
    verdict $? "run, leader: $times times, must be 12, none of them 0"
    ends "run on 4 ranks" 2 mpirun --oversubscribe -n 4 "$lierne" run $small -b encoder_to_llm
    times=$(grep -c "world_size of $small is 8, but 4 ranks started" "$work/err")
    [ "$times" = 1 ]
    verdict $? "run on 4 ranks: said $times times"
    ends "run, no such bridge" 2 mpirun --oversubscribe -n 2 "$lierne" run $small -b none
    ends "run, too few rounds" 2 mpirun --oversubscribe -n 2 "$lierne" run $small -b none -n 0
fi
cp "$lierne" "$work/lierne"
ends "run without lierne-run" 2 "$work/lierne" run $file -b vision_to_llm

# Warnings of other bridges are not this one's; errors are.
python3 - grids/qwen3-vl-235b-a22b-256.json "$work/two.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
config["bridges"] = [dict(config["bridges"][0], name=name) for name in ("one", "other")]
json.dump(config, open(sys.argv[2], "w"))
END
for bridge in one other; do
    ends "a bridge of two" 0 "$lierne" plan "$work/two.json" -b $bridge
    [ "$(grep -c "LG103" "$work/err")" = 1 ]
    verdict $? "plan says the warnings of its bridge alone: $(cat "$work/err")"
done
"$lierne" check "$work/two.json" >"$work/out"
[ "$(grep -c "LG103" "$work/out")" = 2 ]
verdict $? "check says the warnings of all: $(cat "$work/out")"
sed 's/"src": "[a-z]*"/"src": "none"/2' "$work/two.json" >"$work/wrong.json"
ends "an error of another bridge" 1 "$lierne" plan "$work/wrong.json" -b one
verdicts
