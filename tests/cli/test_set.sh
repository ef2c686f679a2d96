#!/usr/bin/env bash
# lierne plan --set and simulate --set: bytes of a set by another computation, every element of it,
# safetensors files, and every error of a file. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: test_set.sh BUILD}" && pwd)
lierne=$build/lierne
export MALLOC_PERTURB_=165 # memory that was not written is not zero

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
 "src": {"dims": {"fsdp": 2}, "rank_offset": 0},
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
printf '{"world_size": 3, "src": {"dims": {"fsdp": 3}}, "dst": {"dims": {"tp": 3}}, %s, %s}' \
    '"tensors": [{"name": "a", "dtype": "f32", "shape": [3, 3]}]' \
    '"layouts": [{"names": "a", "src": {"fsdp": 0}, "dst": {"tp": 1}}]' >odd.json
ends "simulated by 3 ranks" 0 "$lierne" simulate --set odd.json
grep -q '^forward  9 elements checked, 0 wrong' out && grep -q '^adjoint  9 elements checked, 0 wrong' out
verdict $? "a set simulated by 3 ranks: $(cat out)"
printf '{"world_size": 5, "src": {"dims": {"fsdp": 2}}, "dst": {"dims": {"tp": 3}, "rank_offset": 2}, %s, %s}' \
    '"tensors": [{"name": "a", "dtype": "f32", "shape": [36, 4]}]' \
    '"layouts": [{"names": "a", "src": {"fsdp": 0}, "dst": {"tp": 0}}]' >sixths.json
ends "an axis cut into 2 and 3 parts" 0 "$lierne" simulate --set sixths.json # has 18 indices, and the other one 3
grep -q '^forward  54 elements checked, 0 wrong' out && grep -q '^adjoint  54 elements checked, 0 wrong' out
verdict $? "an axis cut into 2 and 3 parts: $(cat out)"
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
lies = json.dumps({"norm": {**header["norm"], "data_offsets": [0, 119]}}).encode()
open("offsets.safetensors", "wb").write(struct.pack("<Q", len(lies)) + lies + bytes(119))
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
       "no_dtype": {"tensors": [{"name": "x", "shape": [1]}]},
       "more": {"tensors": [{"name": "x", "dtype": "f32", "shape": [1], "layout": {}}]},
       "rule_list": {"layouts": [{"names": "*", "src": [1]}]}, "rule_number": {"layouts": [{"names": "*", "dst": 3}]},
       "one_path": {"safetensors": "m.safetensors"}, "twice": {"tensors": [*s["tensors"], s["tensors"][2]]},
       "offsets": {"safetensors": ["offsets.safetensors"]},
       "box_key": {"dst_tensors": s["tensors"], "boxes": [{"src dst": 1}]},
       "no_file": {"tensors": "nowhere.json"}, "names": {"layouts": [{"src": {}}]}}
for name, change in bad.items():
    json.dump({**s, **change}, open(name + ".json", "w"))
json.dump(s["tensors"], open("tensors.json", "w"))
open("text.json", "w").write("{")
large = [{"name": n, "dtype": "i8", "shape": [1 << 53, 64]} for n in "xy"]
json.dump({**s, "tensors": large, "dst_tensors": large, "layouts": [{"names": "*"}],
           "boxes": [{"src": n, "dst": n} for n in "xy"]}, open("large.json", "w"))
END
ends "safetensors" 0 "$lierne" plan --set safe.json --format json
python3 -c 'import json; g = json.load(open("out")); assert (g["tensors"], g["bytes"]) == (4, 64*32*2 + 128*32*2 + 121), g
assert g["everything"]["sent_bytes"] == 64*32*2 + 128*32*2 + 2 * 121, g'
verdict $? "bytes of a safetensors file"
ends "tensors in a file of their own" 0 "$lierne" plan --set listed.json --format json
python3 -c 'import json; g = json.load(open("out")); assert (g["tensors"], g["bytes"]) == (3, 64*32*2 + 128*32*2 + 120), g'
verdict $? "bytes of a listed set"
python3 -c 'text = open("listed.json").read(); open("4097.json", "w").write(" " * (4097 - len(text)) + text)'
ends "a file that ends with the first byte of a block" 0 "$lierne" plan --set 4097.json
printf '{"world_size":1,"src":{"dims":{}},"dst":{"dims":{}},"layouts":[{"names":"a"},{"names":2}]}' >compact.json
ends "too large to be simulated" 2 "$lierne" simulate --set large.json
grep -q 'no memory for the elements' err
verdict $? "too large to be simulated: $(cat err)"
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
key|1|key.json:1:1: it must be an object with world_size, src, dst
world|1|world_size must be a number from 1
dims|1|src must be of at most 16 dims, each with its size
beyond|1|dst:
rule|1|no names of layouts fit 'norm'
dim|1|'a.o_proj.weight': src.tp must be a dim of the grid
axis|1|'norm': src:
dtype|1|'x': dtype is 'bf17'
no_dtype|1|'x': must have a name, a dtype and a shape
more|1|'x': must have a name, a dtype and a shape, and no layout
rule_list|1|rule_list.json:1:
compact|1|compact.json:1:78: layouts must be
rule_number|1|layouts must be a list of objects with names, and src and dst, which are objects
one_path|1|safetensors must be a list of paths
twice|1|'norm' is the name of two tensors
offsets|1|'norm': data_offsets must be of the 120 bytes of its shape
box_key|1|boxes[0] must be an object with src, dst
shape|1|'x': shape must be of 1 to 4 sizes
none|1|tensors and safetensors must be lists with a tensor at least
names|1|layouts must be a list of objects with names
text|1|it must be valid JSON
END

# Boxes: q, k and v into an interleaved tensor by 2 groups, a transposed one, an expert of two, and an embedding that is
# stored twice. 8 columns: q has 4 heads of 2 rows, k and v 2.
python3 - <<'STOP'
import json
s = {"world_size": 6, "src": {"dims": {"fsdp": 4}}, "dst": {"dims": {"tp": 2}, "rank_offset": 4},
     "tensors": [{"name": n, "dtype": "bf16", "shape": shape} for n, shape in
                 [("q", [8, 8]), ("k", [4, 8]), ("v", [4, 8]), ("down", [8, 6]), ("e0", [4, 8]), ("e1", [4, 8])]] +
                [{"name": "norm", "dtype": "f32", "shape": [8]}],
     "dst_tensors": [{"name": "qkv", "dtype": "bf16", "shape": [16, 8]}, {"name": "turned", "dtype": "bf16", "shape": [6, 8]},
                     {"name": "experts", "dtype": "bf16", "shape": [2, 4, 8]}, {"name": "norm", "dtype": "f32", "shape": [8]}],
     "layouts": [{"names": "norm"}, {"names": "*", "src": {"fsdp": 0}, "dst": {"tp": 0}}],
     "boxes": [{"src": n, "dst": "qkv", "src_start": [g * rows, 0], "dst_start": [8 * g + at, 0], "sizes": [rows, 8]}
               for g in range(2) for n, rows, at in (("q", 4, 0), ("k", 2, 4), ("v", 2, 6))] +
              [{"src": "down", "dst": "turned", "axes": [1, 0]}] +
              [{"src": f"e{e}", "dst": "experts", "dst_start": [e, 0, 0], "sizes": [1, 4, 8], "axes": [-1, 0, 1]} for e in range(2)] +
              [{"src": "norm", "dst": "norm"}]}
json.dump(s, open("boxes.json", "w"))
tied = json.loads(json.dumps(s))
tied["dst_tensors"].append({"name": "tied", "dtype": "f32", "shape": [8]})
tied["boxes"].append({"src": "norm", "dst": "tied"})
json.dump(tied, open("tied.json", "w"))
unused = json.loads(json.dumps(s))
unused["tensors"] += [{"name": "rope", "dtype": "bf16", "shape": [4, 4]}, {"name": "count", "dtype": "i64", "shape": [4]}]
json.dump(unused, open("unused.json", "w"))
bad = {"twice": lambda b: b.append({"src": "norm", "dst": "norm"}), "uncovered": lambda b: b.pop(8),
       "outside": lambda b: b[1].update(src_start=[3, 0]), "unknown": lambda b: b[2].update(src="w"),
       "dst_unknown": lambda b: b[2].update(dst="q"), "mixed": lambda b: b[9].update(src="q"),
       "box_key": lambda b: b[0].update(size=[1]), "sizes": lambda b: b[0].update(sizes=[1]),
       "axes": lambda b: b[6].update(axes=[1, 1]), "no_axes": lambda b: b[7].pop("axes"),
       "start": lambda b: b[0].update(dst_start=[-1, 0])}
for name, change in bad.items():
    wrong = json.loads(json.dumps(s))
    change(wrong["boxes"])
    json.dump(wrong, open(name + ".json", "w"), indent=1)
for name, keys in {"no_boxes": ["boxes"], "no_dst": ["dst_tensors"]}.items():
    json.dump({k: v for k, v in s.items() if k not in keys}, open(name + ".json", "w"))
STOP
ends "boxes" 0 "$lierne" plan --set boxes.json --format json
python3 - <<'STOP'
import json
got = json.load(open("out"))
# Every element goes to one rank, but norm, which each engine rank gets from one of 4.
assert got["tensors"] == 4 and got["bytes"] == 2 * (128 + 48 + 64) + 32, got
assert got["everything"]["sent_bytes"] == 2 * (128 + 48 + 64) + 2 * 32, got
STOP
verdict $? "bytes of boxes"
ends "simulated boxes" 0 "$lierne" simulate --set boxes.json --format json
python3 -c 'import json; g = json.load(open("out")); n = 128 + 48 + 64
assert g == {"world": 6, "tensors": 4, "forward": {"checked": n + 2 * 8, "wrong": 0}, "adjoint": {"checked": n + 4 * 8, "wrong": 0}}, g'
verdict $? "every element of boxes, and back: $(cat out)"
ends "a tensor twice" 0 "$lierne" simulate --set tied.json
grep -q '^forward  264 elements checked, 0 wrong' out && grep -q '^adjoint  240 elements checked, 0 wrong' out &&
    grep -q '^  a dtype whose boxes share an element of a source has no adjoint' out
verdict $? "a tensor twice: $(cat out)"
ends "a tensor twice, as JSON" 0 "$lierne" simulate --set tied.json --format json
grep -q '"shared": true' out
verdict $? "a tensor twice, as JSON: $(cat out)"
ends "a tensor in no box" 0 "$lierne" simulate --set unused.json
grep -q '^adjoint  288 elements checked, 0 wrong' out
verdict $? "a tensor in no box: $(cat out)"
# The line and column of each box are those of its brace in the text.
while IFS='|' read -r file box words; do
    ends "$file" 1 "$lierne" plan --set "$file.json"
    place=$(python3 - "$file.json" "$box" <<'STOP'
import json, re, sys
text, box = open(sys.argv[1]).read(), int(sys.argv[2])
at = text.index('"boxes": ') + len('"boxes": ')
for _ in range(box + 1):
    at = text.index("{", at + 1)
print(f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}")
STOP
    )
    grep -qF -- "$file.json:$place: " err && grep -qF -- "$words" err
    verdict $? "$file: '$file.json:$place: ... $words' is not in: $(cat err)"
done <<'STOP'
twice|10|'norm': [0:8] is in boxes[9] and boxes[10]
outside|1|boxes[1]: on axis 0 of 'k' 2 indices from 3 on
unknown|2|boxes[2].src is 'w', must be the name of a tensor of tensors
dst_unknown|2|boxes[2].dst is 'q', must be the name of a tensor of dst_tensors
mixed|9|boxes[9]: 'q' is bf16, 'norm' is f32
box_key|0|boxes[0] must be an object with src, dst
sizes|0|boxes[0].sizes must be a list of 2 numbers
axes|6|axis 1 of 'turned' is axis 1 of 'down'
no_axes|7|boxes[7] has no axes; 'e0' has 2, 'experts' has 3
start|0|boxes[0].dst_start must be a list of 2 numbers of at least 0
STOP
ends "uncovered" 1 "$lierne" plan --set uncovered.json
grep -q "uncovered.json:[0-9]*:[0-9]*: 'experts': \[1:2, 0:4, 0:8\] is in no box" err
verdict $? "uncovered: $(cat err)"
for file in no_boxes no_dst; do
    ends "$file" 1 "$lierne" plan --set $file.json
    grep -q "boxes must be a list, and dst_tensors list a tensor at least" err
    verdict $? "$file: $(cat err)"
done
ends "no number" 2 "$lierne" plan --set set.json --changed 2x
ends "too many changes" 2 "$lierne" plan --set set.json --changed 101
ends "changes without a set" 2 "$lierne" plan --src tp2 --dst tp2 --tensor b2,h2 --dtype f32 --changed 1
ends "a set and a file" 2 "$lierne" plan --set set.json set.json
ends "a set and a rank" 2 "$lierne" plan --set set.json --rank 1
ends "a simulated set and a file" 2 "$lierne" simulate --set set.json set.json
ends "a simulated set with errors" 1 "$lierne" simulate --set world.json
verdicts
