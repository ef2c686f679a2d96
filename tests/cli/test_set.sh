#!/usr/bin/env bash
# lierne plan --set and simulate --set: bytes of a set by another computation, every element of it,
# safetensors files, and every error of a file. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: test_set.sh BUILD}" && pwd)
lierne=$build/lierne

# ends NAME STATUS COMMAND...: runs a command that must end with this status.
ends() {
    local name=$1 want=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    local got=$?
    [ $got = "$want" ]
    verdict $? "$name: status $got, not $want: $(head -n 1 "$work/err")"
}

# The trainer's 2 ranks have halves of the rows; 2 engine ranks have halves of what a rule cuts, and
# all of the rest.
cat >"$work/set.json" <<'END'
{"world_size": 4,
 "src": {"dims": {"fsdp": 2}},
 "dst": {"dims": {"tp": 2}, "rank_offset": 2},
 "tensors": [{"name": "a.o_proj.weight", "dtype": "bf16", "shape": [64, 32]},
             {"name": "a.q_proj.weight", "dtype": "bf16", "shape": [128, 32]},
             {"name": "norm", "dtype": "f32", "shape": [30]}],
 "layouts": [{"names": "*.o_proj.*", "src": {"fsdp": 0}, "dst": {"tp": 1}},
             {"names": "*.q_proj.*", "src": {"fsdp": 0}, "dst": {"tp": 0}},
             {"names": "*", "src": {"fsdp": {"at": 1}}}]}
END
cd "$work" || exit 2
ends "a set" 0 "$lierne" plan --set set.json --format json
python3 - "$work/out" <<'END'
import json, math, sys
got = json.load(open(sys.argv[1]))
a, q, norm = 64 * 32 * 2, 128 * 32 * 2, 30 * 4
assert got["tensors"] == 3 and got["bytes"] == a + q + norm, got
assert got["everything"]["sent_bytes"] == a + q + 2 * norm, got
sender, receiver = got["everything"]["busiest_sender"], got["everything"]["busiest_receiver"]
assert (sender["rank"], sender["bytes"]) == (1, (a + q) // 2 + 2 * norm), got
assert receiver["bytes"] == (a + q) // 2 + norm, got
p = 0.02  # a gap of a geometric distribution, in 5 bits and a unary number
bits = {n: 8 * n + 5 + sum((1 - p) ** (32 * i) for i in range(1000)) for n in (2, 4)}
changes = p * ((a + q) / 2 * bits[2] + 2 * norm / 4 * bits[4]) / 8
assert got["changes"]["percent"] == 2 and abs(got["changes"]["sent_bytes"] - changes) <= 1, (got, changes)
assert got["changes"]["busiest_sender"]["rank"] == 1 and got["planning_seconds"] > 0, got
END
verdict $? "bytes of a set"
ends "text" 0 "$lierne" plan --set set.json --changed 0
grep -q 'rank 1 sends most' out && grep -q '^changes of 0 %: 0 B sent' out
verdict $? "text of a set: $(cat out)"
ends "everything changes" 0 "$lierne" plan --set set.json --changed 100 --format json
python3 -c 'import json; g = json.load(open("out")); assert g["changes"]["sent_bytes"] == g["everything"]["sent_bytes"], g'
verdict $? "a change of everything is no longer than everything"

# Where both sides cut an axis into 2 parts at most it has 6 indices; 30 are cut by at most one dim.
ends "simulated" 0 "$lierne" simulate --set set.json --format json
python3 - <<'END'
import json
got = json.load(open("out"))
o, q, norm = 6 * 6, 6 * 3, 3
want = {"world": 4, "tensors": 3, "forward": {"checked": o + q + 2 * norm, "wrong": 0},
        "adjoint": {"checked": o + q + norm, "wrong": 0}}
assert got == want, (got, want)
END
verdict $? "a simulated set"
ends "simulated in full" 0 "$lierne" simulate --set set.json --full
grep -q '^forward  6204 elements checked, 0 wrong' out && grep -q '^adjoint  6174 elements checked, 0 wrong' out
verdict $? "a set simulated in full: $(cat out)"

# The same tensors in a safetensors file, and one without axes.
python3 - <<'END'
import json, struct
header = {"__metadata__": {"format": "pt"}, "norm": {"dtype": "F32", "shape": [30], "data_offsets": [0, 120]},
          "a.o_proj.weight": {"dtype": "BF16", "shape": [64, 32], "data_offsets": [120, 4216]},
          "a.q_proj.weight": {"dtype": "BF16", "shape": [128, 32], "data_offsets": [4216, 12408]},
          "scale": {"dtype": "F8_E4M3", "shape": [], "data_offsets": [12408, 12409]}}
text = json.dumps(header).encode()
open("m.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(12409))
open("short.safetensors", "wb").write(struct.pack("<Q", len(text)) + text[:-9])
open("long.safetensors", "wb").write(struct.pack("<Q", 1 << 40) + text)
s = json.load(open("set.json"))
for name, change in {"safe": {"safetensors": ["m.safetensors"]}, "short": {"safetensors": ["short.safetensors"]},
                     "long": {"safetensors": ["long.safetensors"]}, "absent": {"safetensors": ["none"]}}.items():
    json.dump({**{k: v for k, v in s.items() if k != "tensors"}, **change}, open(name + ".json", "w"))
bad = {"key": {"tensor": []}, "world": {"world_size": 0}, "dims": {"src": {"dims": {"fsdp": 0}}},
       "beyond": {"dst": {"dims": {"tp": 2}, "rank_offset": 3}}, "rule": {"layouts": s["layouts"][:2]},
       "dim": {"layouts": [{"names": "*", "src": {"tp": 0}}]}, "axis": {"layouts": [{"names": "*", "src": {"fsdp": 1}}]},
       "dtype": {"tensors": [{"name": "x", "dtype": "bf17", "shape": [1]}]},
       "shape": {"tensors": [{"name": "x", "dtype": "f32", "shape": [1, 1, 1, 1, 1]}]},
       "none": {"tensors": []}, "listed": {"tensors": "tensors.json"}, "no_list": {"tensors": "set.json"},
       "no_file": {"tensors": "nowhere.json"}, "names": {"layouts": [{"src": {}}]}}
for name, change in bad.items():
    json.dump({**s, **change}, open(name + ".json", "w"))
json.dump(s["tensors"], open("tensors.json", "w"))
open("text.json", "w").write("{")
END
ends "safetensors" 0 "$lierne" plan --set safe.json --format json
python3 -c 'import json; g = json.load(open("out")); assert (g["tensors"], g["bytes"]) == (4, 64*32*2 + 128*32*2 + 121), g
assert g["everything"]["sent_bytes"] == 64*32*2 + 128*32*2 + 2 * 121, g'
verdict $? "bytes of a safetensors file"
ends "tensors in a file of their own" 0 "$lierne" plan --set listed.json --format json
python3 -c 'import json; g = json.load(open("out")); assert (g["tensors"], g["bytes"]) == (3, 64*32*2 + 128*32*2 + 120), g'
verdict $? "bytes of a listed set"
while IFS='|' read -r file status words; do
    ends "$file" "$status" "$lierne" plan --set "$file.json"
    grep -qF -- "$words" err
    verdict $? "$file: '$words' is not in: $(cat err)"
done <<'END'
short|1|short.safetensors: is no safetensors file
long|1|long.safetensors: is no safetensors file
absent|2|cannot read none
no_list|1|set.json must be a list of tensors
no_file|2|cannot read nowhere.json
key|1|key.json: it must be an object with world_size, src, dst
world|1|world_size must be a number from 1
dims|1|src must be of at most 16 dims, each with its size
beyond|1|dst:
rule|1|no names of layouts fit 'norm'
dim|1|'a.o_proj.weight': src.tp must be a dim of the grid
axis|1|'norm': src:
dtype|1|'x': must have a name, a dtype and a shape
shape|1|'x': shape must be of 1 to 4 sizes
none|1|tensors and safetensors must be lists with a tensor at least
names|1|layouts must be a list of objects with names
text|1|it must be valid JSON
END
ends "no number" 2 "$lierne" plan --set set.json --changed 2x
ends "too many changes" 2 "$lierne" plan --set set.json --changed 101
ends "changes without a set" 2 "$lierne" plan --src tp2 --dst tp2 --tensor b2,h2 --dtype f32 --changed 1
ends "a set and a file" 2 "$lierne" plan --set set.json set.json
ends "a set and a rank" 2 "$lierne" plan --set set.json --rank 1
ends "a simulated set and a file" 2 "$lierne" simulate --set set.json set.json
ends "a simulated set with errors" 1 "$lierne" simulate --set world.json
verdicts
