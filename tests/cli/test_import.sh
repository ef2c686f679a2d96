#!/usr/bin/env bash
# lierne import and export: the command lines and files of other tools as they publish them give the
# configurations that grids/ has of them, what is exported reads back as the same grid, and what is
# ambiguous or contradictory is rejected with the reason. A bridge on the command line is the one of a
# file. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
lierne=$(cd "${1:?usage: test_import.sh BUILD}" && pwd)/lierne
cd "$(dirname "$0")/../.." || exit 2

# same_grids NAME FILE GRIDS: grids of $work/out are those of FILE.
same_grids() {
    python3 - "$work/out" "$2" "$3" <<'END'
import json
import sys

made, published = (json.load(open(path)) for path in sys.argv[1:3])
assert made["world_size"] == published["world_size"], made["world_size"]
for name in sys.argv[3].split(","):
    one, other = made["grids"][name], published["grids"][name]
    for key in ("order", "shape", "views"):
        assert one.get(key) == other.get(key), (name, key, one.get(key), other.get(key))
    assert one.get("rank_offset", 0) == other.get("rank_offset", 0), name
END
    verdict $? "$1: the grids are those of $2"
}
imports() { # imports NAME ARGUMENT...: standard input is the file
    local name=$1
    shift
    "$lierne" import "$@" >"$work/out" 2>"$work/err"
    verdict $? "import $name: $(cat "$work/err")"
    "$lierne" check --strict --quiet "$work/out"
    verdict $? "import $name: a configuration without warnings"
}
rejects() { # rejects NAME STATUS TEXT ARGUMENT...
    local name=$1 wanted=$2 text=$3 status
    shift 3
    "$lierne" import "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status = "$wanted" ] && [ ! -s "$work/out" ] && grep -qF -- "$text" "$work/err"
    verdict $? "import $name: exit status $status, wanted $wanted: $(cat "$work/err")"
}

# Megatron-Bridge, qwen35-vl-non-colocated-sft.md
imports component component -- --component language=tp=4,pp=2,dp=2,rank_offset=0 \
    --component images=tp=1,dp=1,rank_offset=16
same_grids component grids/qwen3.5-vl-27b-mimo-17.json language,images
imports "one component" component -- --component=llm=dp=2,tp=2

# NCCL, qwen235b-TP2CP2PP4EP16-128gpus, but for its dp_size
train='"tp_size": 2, "cp_size": 2, "ep_size": 16, "pp_size": 4'
generation='"generation": {"num_gpus": 64, "tp_size": 8}'
echo "{\"train\": {\"num_gpus\": 64, $train, \"dp_size\": 4}, $generation}" >"$work/m2n.json"
imports m2n m2n "$work/m2n.json"
python3 - "$work/out" <<'END'
import json, sys
made = json.load(open(sys.argv[1]))
generation = made["grids"]["generation"]
assert (generation["shape"], generation["rank_offset"]) == ({"tp": 8, "cp": 1, "dp": 8, "pp": 1}, 64)
END
verdict $? "m2n: generation behind training"
same_grids m2n grids/m2n-qwen235b-128.json train
echo "{\"train\": {\"num_gpus\": 64, ${train/16/2}}, $generation}" >"$work/m2n.json"
imports "m2n of two expert ranks" m2n "$work/m2n.json"
grep -qF '"shape": {"expt_tp": 1, "ep": 2, "expt_dp": 8, "pp": 4}' "$work/out"
verdict $? "m2n: two expert ranks have a view: $(cat "$work/out")"
echo "{\"train\": {\"num_gpus\": 64, $train, \"dp_size\": 1}, $generation}" >"$work/m2n.json"
rejects "m2n with another dp" 1 "write dp_size 4, or leave it out" m2n "$work/m2n.json"
echo "{\"train\": {$train}, $generation}" >"$work/m2n.json"
rejects "m2n without GPUs" 1 "train has no num_gpus" m2n "$work/m2n.json"
echo "{\"train\": {\"num_gpus\": 8, \"dp_size\": 2, \"fsdp_size\": 4}, $generation}" >"$work/m2n.json"
rejects "m2n, both dp" 1 "which is inner is not said" m2n "$work/m2n.json"
echo "{\"train\": {\"num_gpus\": 8.5}, $generation}" >"$work/m2n.json"
rejects "m2n, half a GPU" 1 "num_gpus of train must be" m2n "$work/m2n.json"
echo "{\"train\": {\"num_gpus\": 1e300}, $generation}" >"$work/m2n.json"
rejects "m2n, a size of 300 digits" 1 "num_gpus of train must be" m2n "$work/m2n.json"
echo "{\"train\": {\"num_gpus\": 8, \"num_gpus\": 8}, $generation}" >"$work/m2n.json"
rejects "m2n, a key twice" 1 "must be there once" m2n "$work/m2n.json"
echo "no JSON" >"$work/m2n.json"
rejects "m2n, no JSON" 1 "is not JSON" m2n "$work/m2n.json"

# Megatron-LM, as in a script.
cat >"$work/train.sh" <<'END'
torchrun --nproc-per-node 8 pretrain_gpt.py \
    --tensor-model-parallel-size 2 --context-parallel-size=2 \
    --pipeline-model-parallel-size 4 --num-layers 94 --expert-model-parallel-size 16 \
    --expert-tensor-parallel-size 1 --micro-batch-size 1
END
imports megatron megatron "$work/train.sh" -w 64 --name train
cp "$work/out" "$work/megatron.json"
python3 - "$work/out" grids/m2n-qwen235b-128.json <<'END'
import json, sys
one, other = (json.load(open(path))["grids"]["train"] for path in sys.argv[1:])
assert one == {key: other[key] for key in one}, one
END
verdict $? "megatron: the published grid"
# shellcheck disable=SC2046 # words
imports "the flags exported" megatron -w 64 --name train -- \
    $("$lierne" export "$work/megatron.json" -g train -t megatron | tr -d '\\')
cmp -s "$work/out" "$work/megatron.json"
verdict $? "megatron: what is exported reads back"
imports "the mapping with dp last" megatron -w 16 -- --use-tp-pp-dp-mapping \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4
grep -qF '"order": ["tp", "cp", "pp", "dp"]' "$work/out"
verdict $? "megatron: dp is slowest"
"$lierne" export "$work/out" -g llm -t megatron | grep -qF -- --use-tp-pp-dp-mapping
verdict $? "megatron: and is exported so"
imports "the default order" megatron -w 16 -- --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 2 --context-parallel-size 2
grep -qF '"order": ["tp", "cp", "dp", "pp"]' "$work/out"
verdict $? "megatron: the default order is Megatron-LM's"
# shellcheck disable=SC2016 # variables of the script
printf '%s\n' 'torchrun pretrain.py --tensor-model-parallel-size $TP_SIZE \' \
    '  --pipeline-model-parallel-size "${PP}" --num-attention-heads 64' >"$work/variables.sh"
TP_SIZE=8 PP=2 imports "variables of the environment" megatron "$work/variables.sh" -w 32
grep -qF '"shape": {"tp": 8, "cp": 1, "dp": 2, "pp": 2}' "$work/out" && grep -qF '"heads": 64' "$work/out"
verdict $? "megatron: variables and heads: $(cat "$work/out")"
PP=16 imports "variables of --set" megatron "$work/variables.sh" -w 32 --set TP_SIZE=4,PP=2
grep -qF '"shape": {"tp": 4, "cp": 1, "dp": 4, "pp": 2}' "$work/out"
verdict $? "megatron: --set comes first: $(cat "$work/out")"
TP_SIZE=8 rejects "megatron, a variable that is not set" 2 \
    "is '\${PP}', which is not set: set it in the environment, or give --set PP=8" megatron "$work/variables.sh" -w 32
TP_SIZE=x PP=2 rejects "megatron, a variable that is no number" 2 "is 'x', must be a whole number" \
    megatron "$work/variables.sh" -w 32
# shellcheck disable=SC2016 # an expression of the shell
rejects "megatron, an expression" 2 'must be a whole number in digits, $NAME or ${NAME}' megatron -w 8 -- \
    --tensor-model-parallel-size '${TP:-2}'
rejects "megatron, heads that tp does not divide" 1 "25 heads are not divisible by tp 2" megatron -w 8 -- \
    --tensor-model-parallel-size 2 --num-attention-heads 25
rejects "megatron without a world" 1 "give --world-size" megatron "$work/train.sh"
rejects "megatron, 60 ranks" 1 "60 ranks are not a multiple of 16" megatron "$work/train.sh" -w 60
rejects "megatron, no file" 2 "cannot read" megatron "$work/none.sh" -w 64
rejects "megatron, tp of 0" 2 "is '0', must be a whole number" megatron -w 8 -- --tensor-model-parallel-size 0
rejects "megatron, a flag twice" 1 "is there twice" megatron -w 8 -- --tensor-model-parallel-size 2 \
    --tensor-model-parallel-size 4
rejects "megatron, an encoder" 1 "import it as a component" megatron -w 8 -- \
    --encoder-tensor-model-parallel-size 2

# The slowest dim first.
imports devicemesh devicemesh pp=2,dp=4,tp=2
cp "$work/out" "$work/mesh.json"
grep -qF '"order": ["tp", "dp", "pp"]' "$work/out"
verdict $? "devicemesh: turned round"
"$lierne" export "$work/mesh.json" -g llm -t devicemesh | tail -n 1 >"$work/line"
grep -qxF 'mesh = init_device_mesh("cuda", (2, 4, 2), mesh_dim_names=("pp", "dp", "tp"))' "$work/line"
verdict $? "devicemesh: exported as it was: $(cat "$work/line")"
rejects "devicemesh, no size" 2 "'tp' is not NAME=SIZE" devicemesh dp=2,tp
rejects "devicemesh, a dim twice" 2 "'tp' is there twice" devicemesh tp=2,tp=2
printf '[parallelism]\ndata_parallel_replicate_degree = 2 # dp\ntensor_parallel_degree=4\npipeline_parallel_degree = 2\n' >"$work/titan.toml"
imports torchtitan torchtitan "$work/titan.toml" -w 32
grep -qF '"shape": {"tp": 4, "cp": 1, "dp_shard": 2, "dp_replicate": 2, "pp": 2}' "$work/out"
verdict $? "torchtitan: the rest is dp_shard"
rejects "torchtitan, 24 ranks" 1 "24 ranks are not a multiple of 16" torchtitan "$work/titan.toml" -w 24
echo 'data_parallel_shard_degree = 4' >>"$work/titan.toml"
rejects "torchtitan, another rest" 1 "but 32 ranks leave 2" torchtitan "$work/titan.toml" -w 32
echo 'expert_parallel_degree = 4' >>"$work/titan.toml"
rejects "torchtitan, experts" 1 "write the view by hand" torchtitan "$work/titan.toml" -w 32
printf '[parallelism]\n\0tensor_parallel_degree = 4\n' >"$work/nul.toml"
rejects "torchtitan, a byte 0" 2 "nul.toml is no text: byte 15 is 0" torchtitan "$work/nul.toml" -w 8
echo '{"tp": 4}' >"$work/other"
for format in torchtitan megatron; do
    "$lierne" import $format "$work/other" -w 8 2>"$work/err" >"$work/out"
    grep -q "^lierne import: warning: $work/other has none of .*: every size is 1, and dp the world's$" "$work/err"
    verdict $? "import $format of another file: $(cat "$work/err")"
done
rejects "component without dp" 1 "component images has no dp" component -- images=tp=2,rank_offset=0
rejects "components without offsets" 1 "has no rank_offset" component -- a=dp=2 b=dp=2
rejects "component with experts" 2 "how its ranks fold is not known" component -- a=dp=2,ep=2
rejects "no format" 2 "there is no format 'yaml'" yaml x

"$lierne" export grids/qwen3.5-vl-27b-mimo-17.json -g images -t devicemesh | tail -n 2 >"$work/out"
printf '%s\n' 'ranks = torch.arange(16, 17)' \
    'mesh = DeviceMesh("cuda", ranks.reshape((1, 1, 1, 1)), mesh_dim_names=("pp", "dp", "cp", "tp"))' |
    cmp -s - "$work/out"
verdict $? "devicemesh of some ranks: $(cat "$work/out")"
"$lierne" export grids/qwen3.5-vl-27b-mimo-17.json -g language -t megatron >"$work/out" 2>"$work/err"
[ $? = 1 ] && grep -qF "it is not on all ranks" "$work/err"
verdict $? "what Megatron-LM's flags cannot say: $(cat "$work/err")"
printf '{"world_size": 4, "nodes": 2, "grids": {"g": {"order": ["dp"], "shape": {"dp": 4}}}}' >"$work/nodes.json"
"$lierne" export "$work/nodes.json" -g g -t rankfile >"$work/out"
printf 'rank %d=+n%d slot=%d\n' 0 0 0 1 0 1 2 1 0 3 1 1 | cmp -s - "$work/out"
verdict $? "rankfile: $(cat "$work/out")"

# A bridge on the command line.
for command in plan simulate; do
    "$lierne" $command --src tp2,dp4 --dst tp2,cp2,dp2 --tensor b8,s16,h8 --dtype f32 >"$work/out" 2>"$work/err"
    verdict $? "$command --src --dst: $(cat "$work/err")"
done
"$lierne" plan --src tp2,dp2 --dst tp1,dp4@4 --tensor b8,h8 --format json >"$work/out" 2>"$work/err" &&
    grep -qF '"7":{"tp":0,"dp":3}' "$work/out"
verdict $? "plan with an offset: $(head -c 300 "$work/out")"
for word in tp 4; do
    "$lierne" plan --src tp2,dp4 --dst $word --tensor b8,h8 >"$work/out" 2>"$work/err"
    [ $? = 2 ] && grep -qF "'$word' is not a name with its size" "$work/err"
    verdict $? "a dim without a size: $(cat "$work/err")"
done
"$lierne" plan --src tp2,dp4 --dst tp2,dp4 --tensor b8,h8 -b x grids/encoder-llm-8.json >"$work/out" 2>"$work/err"
[ $? = 2 ] && grep -qF "in place of FILE" "$work/err"
verdict $? "both a file and sizes: $(cat "$work/err")"
"$lierne" plan --src tp2,dp4 --dst tp3,dp4@20 --tensor b8,q8 >"$work/out" 2>"$work/err"
[ $? = 1 ] && grep -qF "LG" "$work/err"
verdict $? "what the validator finds: $(cat "$work/err")"
verdicts
