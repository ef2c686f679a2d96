#!/usr/bin/env bash
# The commands check and groups: exit statuses, streams, several files, standard input, options.
# test_bad.sh has the diagnostics of each bad file. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:-build}
lierne=$build/lierne
good=grids/encoder-llm-8.json
bad=grids/bad/size-zero.json
warned=grids/bad/warning-empty-dp-ranks.json

verdict() { # verdict STATUS NAME
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $2"
        sed 's/^/  out: /' "$work/out" | head -n 5
        sed 's/^/  err: /' "$work/err" | head -n 5
    fi
}
run() { # run WANTED ARGUMENT...: exit status, and on 2 something on stderr
    local wanted=$1 status
    shift
    "$lierne" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$wanted" ] && { [ "$wanted" != 2 ] || [ -s "$work/err" ]; }
    verdict $? "lierne $*: exit status $status, wanted $wanted"
}
out_is() { # out_is TEXT: all of standard output
    printf '%s\n' "$1" >"$work/wanted"
    cmp -s "$work/wanted" "$work/out"
    verdict $? "output is '$1'"
}
out_has() {
    grep -qF -- "$1" "$work/out"
    verdict $? "output has '$1'"
}
err_has() {
    grep -qF -- "$1" "$work/err"
    verdict $? "standard error has '$1'"
}
out_is_empty() {
    [ ! -s "$work/out" ]
    verdict $? "output is empty"
}

# The command itself.
run 2
run 2 frobnicate
err_has "there is no command 'frobnicate'"
run 0 --version
out_is "lierne 0.1.0"
run 0 info --help extra
for help in --help "check --help" "groups --help" "groups -h"; do
    run 0 $help
    out_has "Usage: lierne"
    ! awk 'length > 79 { found = 1 } END { exit !found }' "$work/out"
    verdict $? "lierne $help is under 80 columns"
done

# check: usage.
run 2 check
err_has "no file given"
run 2 check --colour $good
err_has "Try 'lierne check --help'."
run 2 check --format xml $good
run 2 check --format
run 2 check --color=sometimes $good
run 2 check "$work/none.json"
err_has "$work/none.json: No such file or directory"
run 2 check .
err_has "Is a directory"

# check: diagnostics, files, streams.
# check: the nearest word, what other tools call it, the candidates; no guess where none is near.
run 1 check grids/bad/bridge-unknown-grids.json
out_has "there is no grid 'LLM'; did you mean 'llm'? grids: vision, llm"
out_has "there is no grid 'encoder'; grids: vision, llm"
run 1 check grids/bad/dtype-unknown.json
out_has "which is not known; write 'f32'; one of: f64, f32, bf16"
run 1 check grids/bad/owner-unknown.json
out_has "did you mean 'zigzag'? one of: partial"
run 1 check grids/bad/bridge-view-unknown.json
out_has "its views, base for its own dims: base"

# check: formats for CI services, the line with a caret, warnings left out.
run 1 check --color always grids/bad/bridge-unknown-grids.json
out_has '    12 |       "dst": "LLM",'
grep -qxF '       |              ^' "$work/out"
verdict $? "a caret below the column"
run 1 check --color always grids/bad/text-after-value.json
grep -qxF '       | ^' "$work/out"
verdict $? "a caret below the first column"
"$lierne" check --color always - <grids/bad/bridge-unknown-grids.json >"$work/out" 2>"$work/err"
[ $? = 1 ] && ! grep -q '^ *12 |' "$work/out"
verdict $? "standard input has no line to show: $(cat "$work/out" "$work/err")"
run 1 check --format github grids/bad/dtype-unknown.json
out_has "::error file=grids/bad/dtype-unknown.json,line=13,col=89,title=lierne LG026::'dtype' is 'float32'"
cp grids/bad/dtype-unknown.json "$work/a,b:c%d.json"
run 1 check --format github "$work/a,b:c%d.json"
out_has "a%2Cb%3Ac%25d.json,line=13"
run 1 check --format sarif grids/bad/dtype-unknown.json $good grids/bad/warning-default-owner.json
python3 - "$work/out" <<'END'
import json, sys
run = json.load(open(sys.argv[1]))["runs"][0]
assert [(r["ruleId"], r["level"]) for r in run["results"]] == [("LG026", "error"), ("LG108", "warning")]
place = run["results"][0]["locations"][0]["physicalLocation"]
assert place["artifactLocation"]["uri"] == "grids/bad/dtype-unknown.json"
assert place["region"] == {"startLine": 13, "startColumn": 89}
assert {r["ruleId"] for r in run["results"]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
END
verdict $? "sarif: codes, levels, places, rules"
run 1 check --format junit grids/bad/bridge-name-empty.json $good
python3 - "$work/out" <<'END'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
cases = suite.findall("testcase")
assert suite.get("tests") == "2" and [len(c.findall("failure")) for c in cases] == [1, 0]
assert "[LG025] name '' is empty" in cases[0].find("failure").text
END
verdict $? "junit: a case per file"
run 1 check --strict grids/bad/warning-default-owner.json
run 0 check --strict --ignore LG103,LG108 grids/bad/warning-default-owner.json
out_is "grids/bad/warning-default-owner.json: valid: 2 grids, 1 bridge"
run 2 check --ignore LG026 $good
run 2 check --ignore LG108, $good
err_has "must be codes of warnings"

run 0 check $good
out_is "$good: valid: 2 grids, 1 bridge"
run 1 check $bad
out_is "$bad:5:55: error: [LG024] 'tp' is 0, must be at least 1"
run 1 check $good $bad
out_has "$good: valid"
out_has "$bad:5:55: error:"
run 1 check $bad $good
run 2 check "$work/none.json" $bad
out_has "[LG024]"
run 2 check $bad "$work/none.json"
run 0 check $warned
out_has "warning: [LG101]"
out_has "$warned: valid"
run 1 check --strict $warned
run 1 check -s $warned
run 0 check --strict $good
run 0 check --quiet $good
out_is_empty
run 1 check --quiet $bad
out_is_empty
run 1 check -qs $warned
out_is_empty
run 1 check --quiet --format json $bad
out_is_empty
run 2 check --quiet "$work/none.json"
run 1 check grids/bad/truncated.json
run 1 check grids/bad/empty-file.json
run 2 check -- --strict
run 0 check grids/*.json

# check: what is unusual and meant gives no warning. Those that are given are in grids/bad.
clean() { # clean WORLD GRIDS [MORE]
    printf '{"world_size":%s,"grids":{%s}%s}' "$1" "$2" "${3-}" >"$work/clean.json"
    run 0 check --strict "$work/clean.json"
}
of_tp_dp() { # of_tp_dp NAME TP DP OFFSET
    printf '"%s":{"order":["tp","dp"],"shape":{"tp":%s,"dp":%s},"rank_offset":%s}' "$@"
}
eight="$(of_tp_dp a 2 4 0),$(of_tp_dp b 4 2 0)"
clean 16 "$eight" ',"cover_world":false'
clean 8 "$eight" ',"cover_world":true'
clean 8 "$(of_tp_dp a 2 2 0),$(of_tp_dp b 4 1 0),$(of_tp_dp c 2 2 4),$(of_tp_dp d 4 1 4)"
clean 8 "$(of_tp_dp a 2 2 0),$(of_tp_dp b 4 1 0),$(of_tp_dp c 8 1 0)"
clean 8 "$(of_tp_dp a 2 3 0),$(of_tp_dp b 2 3 2)"
clean 8 '"a":{"order":["cp","dp","tp"],"shape":{"cp":2,"dp":2,"tp":2}}'
clean 8 '"a":{"order":["tp","cp","ep","pp","dp"],"shape":{"cp":2,"dp":1,"tp":1,"pp":2,"ep":2}}'
clean 8 '"a":{"order":["pp","dp","cp","tp"],"shape":{"cp":1,"dp":1,"tp":1,"pp":8}}'
clean 8 '"a":{"order":["dp","etp","tp"],"shape":{"dp":2,"etp":2,"tp":2}}'
"$lierne" check grids/*.json >"$work/out" 2>"$work/err"
! grep -q 'LG10[567]' "$work/out"
verdict $? "published configurations have no warning of order, idle ranks or offset"

# check: zigzag over one rank cuts nothing, so it takes any size.
printf '{"world_size":2,"grids":{%s},"bridges":[{"name":"x","src":"a","dst":"b","tensor":{"axes":
["b","s","h"],"shape":{"b":2,"s":7,"h":3},"dtype":"i8"},"batch":"b","sequence":"s","gradient":
{"owner":"zigzag"},"placements":{"src":{"tp":{"zigzag":"h"}}}}]}' \
    '"a":{"order":["tp","dp"],"shape":{"tp":1,"dp":2}},
"b":{"order":["tp","cp","dp"],"shape":{"tp":2,"cp":1,"dp":1}}' >"$work/one.json"
run 0 check --strict "$work/one.json"
run 0 simulate --full "$work/one.json" --bridge x

# check: standard input.
"$lierne" check - <$good >"$work/out" 2>"$work/err"
verdict $? "a valid file on standard input"
out_is "-: valid: 2 grids, 1 bridge"
cat $bad | "$lierne" check - >"$work/out" 2>"$work/err"
[ $? = 1 ]
verdict $? "a bad file through a pipe"
out_has "-:5:55: error: [LG024]"

# check: colours. Not asked for, they are for terminals only.
run 1 check $bad
! grep -q $'\033' "$work/out"
verdict $? "no colour into a file"
run 1 check --color=always $bad
out_has $'\033[1;31merror:\033[0m'
run 0 check --color=always $warned
out_has $'\033[1;35mwarning:\033[0m'
run 1 check --color=never $bad
! grep -q $'\033' "$work/out"
verdict $? "no colour with --color=never"

# check: JSON.
run 1 check --format=json $good $bad
out_has '{"files":['
out_has "{\"file\":\"$good\",\"valid\":true,\"findings\":[]},"
out_has "{\"file\":\"$bad\",\"valid\":false,\"findings\":["
out_has " {\"severity\":\"error\",\"code\":\"LG024\",\"line\":5,\"column\":55,\"pointer\":\"/grids/vision/shape/tp\",\"message\":\"'tp' is 0, must be at least 1\",\"hint\":\"\"}]}]}"
run 2 check --format=json "$work/none.json"
out_is '{"files":[]}'
printf '{"a\\"\\\\\\u0001\xc3\xa9": 1, "world_size": 1, "grids": {"g": {"order": [], "shape": {}}}}' >"$work/"$'odd"\xff.json'
run 1 check --format=json "$work/"$'odd"\xff.json'
out_has 'odd\"\uFFFD.json"'
out_has '"pointer":"/a\"\\\u0001'$'\xc3\xa9"'
run 1 check "$work/"$'odd"\xff.json'
out_has "key 'a\"\\\\u0001é' is not known"
if [ -e /dev/full ]; then
    "$lierne" check $good >/dev/full 2>"$work/err"
    [ $? = 2 ]
    verdict $? "a full disk is not success"
fi

# Control characters in names and paths are escaped (U+009B begins a sequence, as ESC [ does), and so
# are bidirectional marks and line separators. JSON has the same names as escapes.
escaped() { # escaped NAME: the output of the last command has none of them
    ! cat "$work/out" "$work/err" | LC_ALL=C grep -qP \
        '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]'
    verdict $? "$1 has no control characters"
}
wild=$'g\xc2\x9b31m\xe2\x80\xae\xe2\x81\xa9\xe2\x80\xa8\xd8\x9c\xc2\xa0'
shown='g\u009B31m\u202E\u2069\u2028\u061C'$'\xc2\xa0'
path="$work/"$'p\033[31m\xc2\x9b\n\xff.json'
wild_file() { # wild_file GRID: a bridge to this grid
    sed "s/W/$wild/g" >"$path" <<EOF
{"world_size": 2, "grids": {"W": {"order": ["tp", "Wd", "dp"], "shape": {"tp": 1, "Wd": 1, "dp": 2},
"views": {"Wv": {"order": ["tp", "dp"], "shape": {"tp": 1, "dp": 2}}}}}, "bridges": [{"name": "Wb",
"src": "W", "dst": "$1", "tensor": {"axes": ["b", "h"], "shape": {"b": 2, "h": 2}, "dtype": "f32"},
"src_view": "Wv", "batch": "b"}]}
EOF
}
wild_file noneW
run 1 check "$path"
escaped "check of wild names"
out_has 'p\u001B[31m\u009B\u000A\xFF.json:'
out_has "there is no grid 'none$shown'"
run 1 check --format json "$path"
escaped "JSON of wild names"
out_has "there is no grid 'none$shown'"
if command -v python3 >/dev/null; then
    python3 -m json.tool "$work/out" >"$work/json" 2>"$work/err"
    verdict $? "JSON of wild names is JSON"
fi
wild_file W
run 0 check "$path"
escaped "a valid file of wild names"
run 0 plan "$path" --bridge "${wild}b"
escaped "a plan with wild names"
out_has "bridge ${shown}b: $shown -> $shown,"
out_has "view ${shown}v: tp 1,"
out_has "dp of $shown (2 ranks)"
run 0 simulate "$path" --bridge "${wild}b"
escaped "a simulation with wild names"
out_has "bridge ${shown}b on 2"
run 2 plan "$path" --bridge "$wild"
escaped "an unknown bridge"
err_has "there is no bridge '$shown' in "
run 2 groups "$path" --grid "$wild" --dims "x$wild"
escaped "an unknown dim"
run 2 check "--$wild"
escaped "an unknown option"
run 2 "$wild"
escaped "an unknown command"
run 2 check "$path.none"
escaped "a path that is not there"

# Numbers are digits.
run 2 plan "$good" --bridge vision_to_llm --rank ' 1'
err_has "--rank is ' 1', must be a whole number from 0 to 7, in digits"
run 2 plan "$good" --bridge vision_to_llm --rank +1
run 2 plan "$good" --bridge vision_to_llm --rank ''

# groups. The wanted groups are worked out by hand: rank = tp + 2 cp + 4 dp.
run 2 groups
run 2 groups $good
err_has "--grid is missing; $good has: vision, llm"
run 2 groups $good --grid llm
err_has "--dims is missing"
run 2 groups $good $good --grid llm --dims tp
run 2 groups $good --grid lm --dims tp
err_has "there is no grid 'lm' in $good, which has: vision, llm"
run 2 groups $good --grid llm --dims tp,ep
err_has "ep"
run 2 groups $good --grid llm --view experts --dims ep
err_has "experts"
run 2 groups $good --grid llm --dims tp,tp
run 2 groups $good --grid llm --dims a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q
run 1 groups $bad --grid llm --dims tp
err_has "$bad:5:55: error: [LG024]"
out_is_empty
run 0 groups $good --grid llm --dims tp
out_is $'0 1\n2 3\n4 5\n6 7'
run 0 groups $good --grid llm --dims dp
out_is $'0 4\n1 5\n2 6\n3 7'
run 0 groups --dims=dp,tp --grid=llm $good
out_is $'0 1 4 5\n2 3 6 7'
run 0 groups $good -g llm -d tp,dp
out_is $'0 1 4 5\n2 3 6 7'
run 0 groups $good --grid llm --dims ''
out_is $'0\n1\n2\n3\n4\n5\n6\n7'
run 0 groups $good --grid llm --view expert --dims ep
out_is "0 1 2 3 4 5 6 7"
run 0 groups $good --grid llm --dims dp,tp --format json
out_is '{"grid":"llm","view":"base","dims":["dp","tp"],"groups":[[0,1,4,5],[2,3,6,7]]}'
run 0 groups $good --grid llm --view expert --dims '' --format json
out_is '{"grid":"llm","view":"expert","dims":[],"groups":[[0],[1],[2],[3],[4],[5],[6],[7]]}'
run 0 groups grids/mimo-colocated-fanout-offset-8.json --grid images --dims tp
out_is $'4 5\n6 7'
"$lierne" groups - --grid llm --dims cp <$good >"$work/out" 2>"$work/err"
verdict $? "groups of standard input"
out_is $'0 2\n1 3\n4 6\n5 7'

verdicts
