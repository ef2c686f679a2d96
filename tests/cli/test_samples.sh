#!/usr/bin/env bash
# lierne balance: what it prints of the golden assignments, in the order of its file, whatever order that
# has; and what is wrong is rejected with the reason. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
lierne=$(cd "${1:?usage: test_samples.sh BUILD}" && pwd)/lierne
cd "$(dirname "$0")/../.." || exit 2

python3 - "$lierne" tests/golden/samples.json >"$work/out" 2>&1 <<'END'
import json, subprocess, sys

lierne, golden = sys.argv[1:]
options = {"tolerance": "--tolerance={}", "max_items": "--max-items={}", "max_rows": "--max-rows={}",
           "min_items": "--min-items={}", "equal_items": "--equal-items"}
compared = 0
for case in json.load(open(golden))["cases"][::7]:
    if "formula" in case or "nodes" in case:
        continue
    home = [rank for rank, n in enumerate(case["home_items"]) for _ in range(n)]
    order = sorted(range(len(home)), key=lambda i: (i - home.index(home[i]), -home[i]))
    text = "rank cost rows\n# of another order\n" + "".join(
        f"{home[i]}, {case['cost'][i]}\t{case['rows'][i]}\n" for i in order)
    command = [lierne, "balance", "-", f"--ranks={case['ranks']}", "--format=json"]
    command += [text.format(case[name]) for name, text in options.items() if name in case]
    table = subprocess.run(command, input=text, capture_output=True, text=True)
    found = {row["mode"]: row for row in json.loads(table.stdout)}
    for mode, expected in case["expect"]["modes"].items():
        if mode == "caller":
            continue
        assert (mode in found) == ("error" not in expected), (case["id"], mode, table)
        if mode in found:
            for name in set(expected) & set(found[mode]):
                assert found[mode][name] == expected[name], (case["id"], mode, name, found[mode], expected)
            ranks = json.loads(subprocess.run([*command, "--mode", mode], input=text, capture_output=True,
                                              text=True).stdout)
            assert ranks == [expected["assignment"][i] for i in order], (case["id"], mode, ranks)
            compared += 1
assert compared > 40, compared
drawn = 0
for case in json.load(open(golden))["cases"]:  # as JSON, of formulas too
    names = ("ranks", "formula") if "formula" in case else ("ranks", "home_items", "cost", "rows")
    if case["ranks"] * case.get("formula", {"items": 0})["items"] > 200000 or "nodes" in case or \
            max(case.get("cost", []), default=0) > 2 ** 53:
        continue
    command = [lierne, "balance", "-", "--format=json"]
    command += [text.format(case[name]) for name, text in options.items() if name in case]
    found = {row["mode"]: row for row in json.loads(subprocess.run(
        command, input=json.dumps({name: case[name] for name in names}), capture_output=True, text=True).stdout)}
    for mode, expected in case["expect"]["modes"].items():
        if mode in found:
            for name in set(expected) & set(found[mode]):
                assert found[mode][name] == expected[name], (case["id"], mode, name, found[mode], expected)
            drawn += "formula" in case
assert drawn > 10, drawn
END
verdict $? "golden assignments: $(tail -n 1 "$work/out")"

printf '0,5\n1,4\n' >"$work/two"
"$lierne" balance --ranks 2 "$work/two" >"$work/out" && [ "$(wc -l <"$work/out")" = 5 ] &&
    grep -qE '^shed +1\.0000 +0 +0 +0\.00 % +0 +0 +0 ' "$work/out"
verdict $? "as text: $(cat "$work/out")"

rejects() { # rejects NAME STATUS TEXT ARGUMENT...
    local name=$1 wanted=$2 text=$3 status
    shift 3
    timeout 60 "$lierne" balance "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status = "$wanted" ] && grep -qF -- "$text" "$work/err"
    verdict $? "$name: exit status $status, wanted $wanted: $(cat "$work/err")"
}
"$lierne" balance --format=svg --ranks 2 "$work/two" >"$work/out" &&
    python3 -c 'import sys, xml.dom.minidom as x; d = x.parse(sys.argv[1]); print(len(d.getElementsByTagName("rect")))' \
        "$work/out" >"$work/count" && [ "$(cat "$work/count")" -gt 8 ] && grep -q 'bound 5' "$work/out"
verdict $? "a picture: $(cat "$work/count")"
echo '{"ranks": 300, "formula": {"lengths": "octave", "items": 3000}}' >"$work/many"
"$lierne" balance --format=svg --mode=lpt "$work/many" >"$work/out" && grep -q 'highest of each run' "$work/out"
verdict $? "a picture of many ranks"
grep -q 'A cell is 8 x 8 ranks' "$work/out"
verdict $? "a matrix of many ranks"

# The matrix says what the assignment says: rows of items whose rank is not their home.
printf '0 90 7\n0 90 5\n0 4 2\n1 3 9\n2 4 1\n' >"$work/three"
"$lierne" balance --mode=lpt --format=svg --node-ranks=1 "$work/three" |
    sed -n 's/<text[^>]*>//; s/<.text>//p' >"$work/out"
grep -qxF '16 rows in 3 messages; the most from one rank to another: 9' "$work/out" &&
    grep -qxF '16 rows between nodes, 0 within them; thick lines: nodes' "$work/out" &&
    [[ $(tr '\n' ' ' <"$work/out") == *" nodes 5 2 7 0 9 9 5 0 11 "* ]] # each row, what it sends, its column's sum
verdict $? "a matrix: $(cat "$work/out")"

simulate() { # simulate TEXT ARGUMENT...: every row is right
    local text=$1
    shift
    timeout 60 "$lierne" balance --simulate "$@" >"$work/out" 2>&1 && grep -qF -- "$text" "$work/out"
    verdict $? "--simulate $*: $(cat "$work/out")"
}
echo '{"ranks": 24, "formula": {"lengths": "bimodal", "items": 200, "home": "front"}}' >"$work/mixed"
echo '{"ranks": 5, "home_items": [2, 0, 3, 0, 0], "cost": [9, 1, 4, 4, 0], "rows": [0, 3, 5, 1, 2]}' >"$work/few"
for mode in shed lpt kk contiguous; do
    simulate "$mode: 200 items on 24 ranks" --mode=$mode "$work/mixed"
    simulate '"forward":{"checked":11,"wrong":0},"adjoint":{"checked":11,"wrong":0}' --mode=$mode --format=json "$work/few"
done

printf 'rank\n0 5\n3 x\n' >"$work/words"
printf '0 5 6 7\n' >"$work/long"
printf '0 -5\n' >"$work/negative"
printf '99999999 5\n' >"$work/far"
printf '0 99999999999999999999\n' >"$work/huge"
rejects "a word" 2 "$work/words:3: must be a rank below 16777216, a cost and maybe rows" "$work/words"
for file in long negative far huge; do
    rejects "a $file line" 2 "$work/$file:1: must be a rank" "$work/$file"
done
rejects "no file" 2 "cannot read $work/none: No such file" "$work/none"
rejects "a folder" 2 "cannot read $work: Is a directory" "$work"
rejects "few ranks" 2 "has an item of rank 1, and there are 1 ranks" --ranks=1 "$work/two"
rejects "many ranks" 2 "there are 99999999 ranks, must be at most 16777216" --ranks=99999999 "$work/two"
rejects "no number" 2 "--max-rows is '5x', must be a number" --max-rows=5x "$work/two"
rejects "a simulated picture" 2 "--simulate prints text or json" --simulate --format=svg "$work/two"
rejects "a simulation of no assignment" 1 "lpt: there are 2 items, and min_items is 2" --simulate --mode=lpt --min-items=2 "$work/two"
rejects "no mode" 2 "--mode is 'best', must be shed, lpt, kk or contiguous" --mode=best "$work/two"
rejects "tolerance" 1 "tolerance is 1025, must be 0 to 1024" --tolerance=2000 "$work/two"
rejects "caps" 1 "shed: item 0 of rank 0 has 5 rows, and max_rows is 4" --max-rows=4 "$work/two"
rejects "caps of one mode" 1 "lpt: there are 2 items, and min_items is 2" --mode=lpt --min-items=2 "$work/two"
json() { # json STATUS TEXT JSON: one that is rejected
    echo "$3" >"$work/json"
    rejects "JSON $3" "$1" "$2" "$work/json"
}
json 2 "it must be valid JSON" '{"ranks": 2'
json 2 "its keys must be ranks and formula" '{"ranks": 2, "costs": [1]}'
json 2 "its keys must be ranks and formula" '{"ranks": 2, "formula": {"lengths": "bell", "items": 1}, "cost": [1]}'
json 2 "ranks must be a number from 1" '{"formula": {"items": 1}}'
json 2 "lengths must be bell, bimodal" '{"ranks": 2, "formula": {"lengths": "flat", "items": 1}}'
json 2 "cost must be rows, square or mixed" '{"ranks": 2, "formula": {"cost": 3, "items": 1}}'
json 2 "home must be even or front" '{"ranks": 2, "formula": {"home": "back", "items": 1}}'
json 2 "items must be a number from 0" '{"ranks": 2, "formula": {"items": 1.5}}'
json 2 "seed must be a number from 0" '{"ranks": 2, "formula": {"items": 1, "seed": -1}}'
json 2 "must be lists" '{"home_items": [1], "cost": 5}'
json 2 "cost and rows must be whole numbers" '{"home_items": [1], "cost": [-5]}'
json 2 "home_items must be numbers of items" '{"home_items": [-1], "cost": [5]}'
json 2 "of as many items each" '{"home_items": [1], "cost": [5, 6]}'
json 2 "of as many items each" '{"home_items": [1, 1], "cost": [5]}'
json 2 "of as many items each" '{"home_items": [1], "cost": [5], "rows": [1, 2]}'
json 2 "of as many items each" '{"home_items": [1, 0, 2], "cost": [5]}'
json 2 "has an item of rank 1, and there are 1 ranks" '{"ranks": 1, "home_items": [0, 1], "cost": [5]}'
printf '\357\273\2770,5\n1,4\n' >"$work/marked"
simulate "2 items on 2 ranks, 9 rows" "$work/marked"
printf '.5,5\n' >"$work/fraction"
rejects "a fraction in the first line" 2 "fraction:1: must be a rank" "$work/fraction"
(ulimit -v 200000 && exec timeout 20 "$lierne" balance /dev/zero) 2>"$work/err"
[ $? = 2 ] && grep -q 'cannot read /dev/zero: Cannot allocate memory' "$work/err"
verdict $? "a file without an end: $(cat "$work/err")"
: >"$work/empty"
simulate "0 items on 1 ranks, 0 rows" "$work/empty"
"$lierne" balance "$work/empty" >"$work/out" && [ "$(wc -l <"$work/out")" = 5 ]
verdict $? "no items: $(cat "$work/out")"
verdicts
