#!/usr/bin/env bash
# lierne hang: output and exit status; seeded hangs of simulated worlds, in each of which it must name
# the culprit (build/tests/hang/sim). $1: the build folder.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/verdict.sh
build=${1:-build}

ends() { # ends STATUS TEXT ARGUMENT...: the exit status, and a text that is in the output
    local wanted=$1 text=$2
    shift 2
    "$build/lierne" hang "$@" >"$work/out" 2>&1
    [ $? = "$wanted" ] && grep -qF -- "$text" "$work/out"
    verdict $? "hang $* ends with $wanted and says: $text: $(head -n 3 "$work/out")"
}

mkdir "$work/dumps" "$work/empty"
LIERNE_DUMP_DIR=$work/dumps "$build/lierne" simulate grids/encoder-llm-8.json --bridge vision_to_llm >/dev/null
ends 0 "no rank hangs: 8 dumps" "$work/dumps"
ends 0 '{"kind":"none","rank":-1,' --format json "$work/dumps"
printf 'LIERNEFR' >"$work/dumps/short.lierne"
ends 0 "damaged files, left out: 1" "$work/dumps"
ends 2 "has no dumps" "$work/empty"
ends 2 "No such file" "$work/none"
ends 2 "must be 1" "$work/dumps" "$work/empty"

LIERNE_DUMP_DIR=$work/none "$build/lierne" simulate grids/encoder-llm-8.json --bridge vision_to_llm >"$work/out" 2>&1
verdict $? "a simulated world without a folder for its dumps records nothing: $(cat "$work/out")"

# A trace of a run: the calls of all ranks, and both ends of every arrow.
trace=$work/trace.json
bridge="--src tp2,dp2 --dst tp2,cp2,dp1 --tensor b4,s16,h8 --dtype f32 --launch 4 -a direct"
timeout -k 5 300 "$build/lierne" run $bridge --trace "$trace" >"$work/out" 2>&1 </dev/null
verdict $? "run --trace: $(tail -n 3 "$work/out")"
python3 - "$trace" <<'END'
import collections, json, sys
events = json.load(open(sys.argv[1]))
ends = collections.defaultdict(list)
for e in events:
    if e["ph"] in "sf":
        ends[e["id"]].append(e)
assert {e["pid"] for e in events} == set(range(4))
assert sum(e["ph"] == "X" and e["cat"] == "call" for e in events) >= 4 * 2 * 16
call = {(e["pid"], *map(e["args"].get, ("plan", "what", "number"))): e["args"]["bytes"]
        for e in events if e["ph"] == "X" and e["cat"] == "call"}
stages = collections.Counter()
for e in events:
    if e["ph"] == "X" and e["cat"] == "stage":
        stages[(e["pid"], *map(e["args"].get, ("plan", "what", "number")))] += e["args"]["bytes"]
assert all(call[key] == stages[key] for key in call) and max(call.values()) > 0
assert len(ends) > 60
# The ring may have the last calls of one rank and not those of another.
both = [sorted(pair, key=lambda e: e["ph"], reverse=True) for pair in ends.values() if len(pair) == 2]
assert len(both) > len(ends) * 0.9 and max(map(len, ends.values())) == 2
for send, receive in both:
    assert (send["ph"], receive["ph"]) == ("s", "f") and send["pid"] != receive["pid"]
    assert send["ts"] < receive["ts"]
END
verdict $? "the trace of a run"
python3 tests/cli/trace.py "$trace" >"$work/out" 2>&1
verdict $? "bars of one track nest, and arrows lie in them: $(tail -n 3 "$work/out")"
"$build/lierne" run $bridge --trace "$work/none/trace.json" >"$work/out" 2>&1 </dev/null
[ $? = 2 ] && grep -q "trace.json: No such file" "$work/out"
verdict $? "a trace that cannot be written: $(tail -n 3 "$work/out")"

count=$("$build/tests/hang/sim" 0 48 | tee "$work/log" | tail -n 1)
echo "seeded hangs: $count"
[ "$count" = "48 passed, 0 failed" ]
verdict $? "seeded hangs: $(head -n 5 "$work/log")"
verdicts
