#!/usr/bin/env bash
# What a job leaves for those who watch it, on 4 processes: LIERNE_SUMMARY and LIERNE_METRICS, whose files
# promtool checks where it is installed. $1: the build folder.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/verdict.sh
build=${1:-build}
bridge="--src tp2,dp2 --dst tp2,cp2,dp1 --tensor b4,s16,h8 --dtype f32 --launch 4 -a direct -n 3 -w 1"
run() { # run VARIABLE...: the bridge, with these in the environment
    env "$@" timeout -k 5 100 "$build/lierne" run $bridge >"$work/out" 2>"$work/all" </dev/null
    verdict $? "run with $*: $(tail -n 3 "$work/all")"
    grep -v 'warning: \[LG108\]' "$work/all" >"$work/err"
}

run LIERNE_LOG=off
[ ! -s "$work/err" ]
verdict $? "nothing is written where nobody asks: $(head -n 3 "$work/err")"

run LIERNE_SUMMARY=1
[ "$(grep -c '^lierne 0' "$work/err")" = 1 ] && grep -q ': 4 ranks, ' "$work/err" &&
    grep -qE '^\S* ?\(bridge\) +forward +[1-9][0-9]* +[0-9.e-]+ +[0-9.e-]+ +[0-9.e-]+ +[0-9.]+ +[0-9]+%$' "$work/err"
verdict $? "the lowest rank writes the summary of all: $(cat "$work/err")"
[ "$(awk 'length > 80' "$work/err" | wc -l)" = 0 ]
verdict $? "a summary has 80 columns"

mkdir "$work/metrics"
run LIERNE_METRICS="$work/metrics"
[ "$(ls "$work/metrics" | grep -cE '^lierne-rank[0-3]-[0-9]+-0\.prom$')" = 4 ] &&
    [ "$(ls "$work/metrics" | wc -l)" = 4 ]
verdict $? "each rank has a file of metrics: $(ls "$work/metrics")"
[ "$(grep -h '^lierne_calls_total{.*collective="forward",kind="bridge"}' "$work"/metrics/* | awk '$NF > 0' | wc -l)" = 4 ]
verdict $? "each rank counts its calls: $(grep -h '^lierne_calls_total' "$work"/metrics/*)"

mkdir "$work/trace"
run LIERNE_TRACE="$work/trace"
sed '$s/,$/]/' "$work"/trace/calls-*.json >"$work/trace.json"
python3 tests/cli/trace.py "$work/trace.json" >"$work/out" 2>&1
verdict $? "bars of one track nest, and arrows lie in them: $(tail -n 3 "$work/out")"
python3 - "$work/trace.json" <<'END'
import collections, json, sys
events = json.load(open(sys.argv[1]))
calls = collections.Counter((e["pid"], e["args"]["what"]) for e in events if e.get("cat") == "call")
assert len(calls) == 8 and len(set(calls.values())) == 1 and min(calls.values()) >= 4, calls
ends = collections.Counter((e["id"], e["ph"]) for e in events if e["ph"] in "sf")
assert ends and all(ends[i, "s"] == ends[i, "f"] == 1 for i, _ in ends)
END
verdict $? "a folder for traces gets every call of each rank, and both ends of every arrow"

mkdir "$work/dumps"
run LIERNE_DUMP_DIR="$work/dumps"
"$build/lierne" hang --format prometheus "$work/dumps" >"$work/none.prom" && grep -qx 'lierne_hang_dumps 4' "$work/none.prom" &&
    ! grep -q '^lierne_hang_seconds' "$work/none.prom"
verdict $? "no rank hangs, as metrics: $(cat "$work/none.prom")"

# Rank 2 is stopped: while the others wait for it, their metrics and the report of the hang say so.
mkdir "$work/stopped"
LIERNE_TIMEOUT_MS=20000 LIERNE_DUMP_DIR=$work/stopped LIERNE_METRICS=$work/stopped timeout -k 5 100 \
    "$build/lierne" run ${bridge/s16,h8/s256,h256} -n 100000 >/dev/null 2>&1 </dev/null &
job=$!
await() { # await SECONDS COMMAND: until it succeeds
    local i
    for ((i = 0; i < 20 * $1; i++)); do
        "${@:2}" && return
        sleep 0.05
    done
    return 1
}
waits() { grep -qsE '^lierne_waits_for_seconds\{.*,rank="[013]",.*,peer="2"\} ' "$work"/stopped/lierne-rank*; }
counts() { grep -qsE '^lierne_calls_total\{.*\} [1-9]' "$work"/stopped/lierne-rank2-*; }
await 15 counts
verdict $? "metrics are written while a job runs"
pid=$(basename "$work"/stopped/rank2-*-0.lierne -0.lierne)
pid=${pid#rank2-}
hangs() {
    "$build/lierne" hang --format prometheus "$work/stopped" >"$work/hang.prom" 2>/dev/null
    [ $? = 1 ]
}
# Between rounds, where the others wait for it in no call, it is let go again. Busy machines take longer
# until the others wait.
for try in {1..200}; do
    kill -STOP "$pid"
    sleep "0.$((1 + try % 3))"
    hangs && break
    kill -CONT "$pid"
    sleep 0.01
done
grep -qE '^lierne_hang_seconds\{kind="[a-z]+",rank="2",.*\} [0-9.]+$' "$work/hang.prom"
verdict $? "the stopped rank, as metrics: $(cat "$work/hang.prom")"
await 5 waits
verdict $? "who waits for the stopped rank: $(grep -h '^lierne_waits' "$work"/stopped/*.prom)"
kill -KILL "$pid"
wait "$job"

if command -v promtool >/dev/null 2>&1; then
    for file in "$work"/metrics/* "$work"/stopped/*.prom "$work"/*.prom; do
        promtool check metrics <"$file" >"$work/out" 2>&1 && [ ! -s "$work/out" ]
        verdict $? "promtool: ${file##*/}: $(head -n 3 "$work/out")"
    done
else
    echo "there is no promtool: its check of metrics is left out"
fi
verdicts
