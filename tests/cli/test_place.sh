#!/usr/bin/env bash
# lierne place: the best order is that of brute force over all orders with lierne plan's bytes, on
# published configurations, on random small ones and on one whose best is known by hand; the bound is
# that of all orders of ranks; what is wrong is rejected with the reason. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
lierne=$(cd "${1:?usage: test_place.sh BUILD}" && pwd)/lierne
cd "$(dirname "$0")/../.." || exit 2
export PYTHONDONTWRITEBYTECODE=1

rejects() { # rejects NAME STATUS TEXT ARGUMENT...
    local name=$1 wanted=$2 text=$3 status
    shift 3
    timeout 60 "$lierne" place "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status = "$wanted" ] && [ ! -s "$work/out" ] && grep -qF -- "$text" "$work/err"
    verdict $? "$name: exit status $status, wanted $wanted: $(cat "$work/err")"
}

published=()
for name in encoder-llm-8 mimo-colocated-fanin-8 megatron-cp-zigzag-fanin-8 uneven-dp-6 disjoint-8 \
    llava-mimo-vlm-cp2 qwen3.5-vl-27b-mimo-17 qwen2.5-vl-72b-32 internvl2.5-78b-sft-32 nvlm-d-72b-pretrain-16; do
    published+=("grids/$name.json")
done
timeout 120 python3 tests/cli/place.py "$lierne" "${published[@]}" >"$work/out" 2>&1
verdict $? "against brute force: $(cat "$work/out")"

file=grids/mimo-colocated-fanin-8.json
"$lierne" place $file -b images_to_language >"$work/out" &&
    grep -qx "best of 2 orders: that of today" "$work/out" && tail -n 1 "$work/out" | grep -q "^no order of the source's ranks"
verdict $? "as text: $(cat "$work/out")"
python3 - "$file" "$work/large.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
names = ["tp", "dp", *"abcdef"]
config["world_size"] = 256
config["grids"]["images"] = {"order": names, "shape": {name: 2 for name in names}}
json.dump(config, open(sys.argv[2], "w"))
END
rejects "too many dims" 1 "has 8 dims larger than 1, must be at most 7" "$work/large.json" -b images_to_language
rejects "no bridge" 2 "--bridge is missing" $file
rejects "another bridge" 2 "there is no bridge 'x' in $file" $file -b x
rejects "another side" 2 "--side is 'up', must be src or dst" $file -b images_to_language --side up
rejects "another routing" 2 "--routing is 'x', must be auto, direct or balanced" $file -b images_to_language --routing x
rejects "another format" 2 "--format is 'xml', must be text or json" $file -b images_to_language --format xml
rejects "two files" 2 "2 files given, must be 1" $file $file -b images_to_language
verdicts
