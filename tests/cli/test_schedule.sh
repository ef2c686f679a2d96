#!/usr/bin/env bash
# lierne schedule: output and exit status. $1: the build folder.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/verdict.sh
lierne=${1:-build}/lierne

ends() { # ends STATUS TEXT ARGUMENT...: the exit status, and a text that is in the output
    local wanted=$1 text=$2
    shift 2
    "$lierne" schedule "$@" >"$work/out" 2>&1 <"$work/in"
    [ $? = "$wanted" ] && grep -qF -- "$text" "$work/out"
    verdict $? "schedule $* ends with $wanted and says: $text"
}

sed '0,/"count":256/s//"count":255/' examples/moe-layer.json >"$work/in"
ends 0 "4 ranks, 1 communicator, 0 of them to create" examples/moe-layer.json
ends 0 "isolated: ep@1, ranks [0,1,2,3]: 2 operations per rank" --isolate=ep examples/moe-layer.json
ends 0 "4 ranks, 3 communicators, 2 of them to create" --isolate=ep --split examples/moe-layer.json
ends 0 "over NCCL: at most 3 communicators on a rank" --isolate=ep --split examples/moe-layer.json
# many N: a rank with N groups, an operation on each
many() {
    python3 -c 'import json, sys
n = int(sys.argv[1])
group = [{"name": f"g{i}", "uid": i + 1, "ranks": [0, 1]} for i in range(n)]
operation = [{"kind": "barrier", "group": f"g{i}"} for i in range(n)]
print(json.dumps({"schedules": [{"rank": r, "groups": group, "operations": operation} for r in range(2)]}))' "$1" >"$work/in"
}
many 33
ends 0 "warning: more than 32; NCCL takes memory for each" -
many 32
ends 0 "over NCCL: at most 32 communicators on a rank" -
! grep -q warning "$work/out"
verdict $? "32 communicators are no warning"
sed '0,/"count":256/s//"count":255/' examples/moe-layer.json >"$work/in"
ends 0 "1 communicator, 0 of them" --isolate=cp examples/moe-layer.json
ends 1 "rank 1 launches all_to_all 0 of ep before all_gather 0 of fsdp" examples/two-orders.json
ends 1 "count is 256, expected 255 as on rank 0" -
ends 1 '"mismatch":"' --format json -
ends 2 "No such file" "$work/none.json"
ends 2 "Is a directory" "$work"
ends 2 "purpose is 'a b'" --isolate='a b' examples/moe-layer.json
ends 2 "must be 1" examples/moe-layer.json examples/two-orders.json
printf '{"schedules":[{"rank":0,\n"groups":[],"operations":[{"kind":"sum"}]}]}' >"$work/in"
ends 2 "2:35: kind 'sum' is not known" -

"$lierne" schedule --isolate=ep --format json examples/moe-layer.json >"$work/out"
python3 - "$work/out" <<'END'
import json, sys
found = json.load(open(sys.argv[1]))
assert found == {"ranks": 4, "mismatch": "", "communicators": 2, "communicators_per_rank": 2, "created": 1,
                 "safe_serialised": True,
                 "safe_concurrent": True, "cycle": "",
                 "isolated": [{"name": "ep@1", "source": 1, "ranks": [0, 1, 2, 3], "operations": 2}]}
END
verdict $? "the JSON of a schedule"
verdicts
