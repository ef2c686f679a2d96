#!/usr/bin/env bash
# lierne draw: the pictures of the documents are what it draws, byte by byte; every picture is XML,
# inside of its frame, without texts on each other, at 8 ranks and at thousands; what it shows adds up
# to what lierne plan says. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:?usage: test_draw.sh BUILD}
cd "$(dirname "$0")/../.." || exit 2
lierne=$build/lierne
file=grids/encoder-llm-8.json
bridge=vision_to_llm

ends() { # ends NAME STATUS ARGUMENT...: lierne draw ARGUMENT... ends with STATUS
    local name=$1 wanted=$2 status
    shift 2
    timeout 300 "$lierne" draw "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$wanted" ]
    verdict $? "$name: exit status $status, must be $wanted: $(head -n 3 "$work/err")"
}
has() { # has NAME FILE TEXT...
    local name=$1 in=$2 text
    shift 2
    for text; do
        grep -qF -- "$text" "$in"
        verdict $? "$name: '$text' is not in: $(head -n 12 "$in")"
    done
}

mkdir "$work/again"
sh docs/pictures/make.sh "$build" "$work/again"
verdict $? "the pictures are made"
diff -rq --exclude=make.sh --exclude='*.json' --exclude=training.svg --exclude=ratios.svg docs/pictures "$work/again"
verdict $? "docs/pictures is what lierne draw draws (make pictures)"
for picture in docs/pictures/*.svg; do
    grep -qF "pictures/${picture##*/}" README.md docs/*.md
    verdict $? "$picture is shown in a document"
done

# A world of 4,096 ranks on nodes of 4, and names that XML, DOT and terminals must not understand.
cat >"$work/large.json" <<'JSON'
{"world_size": 4096, "nodes": 4, "grids": {
 "e": {"order": ["tp", "dp"], "shape": {"tp": 1, "dp": 4096}},
 "l": {"order": ["ep", "tp", "cp", "dp", "pp"], "shape": {"ep": 2, "tp": 8, "cp": 4, "dp": 32, "pp": 2}}},
 "bridges": [{"name": "e_to_l", "src": "e", "dst": "l", "batch": "b",
 "tensor": {"axes": ["b", "h"], "shape": {"b": 4096, "h": 8}, "dtype": "f32"}, "gradient": {"owner": "partial"}}]}
JSON
printf '%s\n' '{"world_size": 3, "grids": {
 "<b>&\"\\x": {"order": ["tp", "dp"], "shape": {"tp": 1, "dp": 3}}, "l": {"order": ["tp", "dp"], "shape": {"tp": 1, "dp": 2}}},
 "bridges": [{"name": "<&>", "src": "<b>&\"\\x", "dst": "l", "batch": "b",
 "tensor": {"axes": ["b", "h"], "shape": {"b": 5, "h": 8}, "dtype": "f32"}, "gradient": {"owner": "partial"}}]}' >"$work/odd.json"
cp "$work/odd.json" "$work/<&>"$'\033'.json
# Packed bridges: what the bars say, in words; what moves, as of any other.
packed=grids/qwen2.5-vl-7b-packed-8.json
ends "packed rows, text" 0 rows $packed -b images_to_tokens --format text
has "packed rows, text" "$work/out" "source rank 3: image 3[0:900]" \
    "destination rank 6: image 3[494:900] 7 text image 4[0:576] 7 text image 5[0:32] image 7[77:160] 3 text image 7[160:258] 168 text" \
    "64 text image 6[0:433] 497 text"
ends "packed move, text" 0 rows $packed -b zigzag_to_contiguous --format text
has "packed move, text" "$work/out" "destination rank 0: segment 0[0:1616] segment 1[0:560]"
ends "packed stages, text" 0 stages $packed -b zigzag_to_contiguous --max-peers 4 --format text
has "packed stages, text" "$work/out" "rank 0               -> rank 2               8.1 MiB, 3 messages"
for picture in mesh matrix stages; do
    ends "$picture, packed" 0 $picture $packed -b images_to_tokens
done
ends "the axis of a timeline for another picture" 2 mesh grids/encoder-llm-8.json --until 3
ends "ranks, packed" 2 ranks $packed -b images_to_tokens
has "ranks, packed" "$work/err" "is a packed bridge, which this does not take"
ends "packed rows in DOT" 2 rows $packed -b images_to_tokens --format dot

n=0
for picture in mesh ranks matrix rows stages; do
    ends "$picture, 4096 ranks" 0 $picture "$work/large.json" -b e_to_l --routing direct
    mv "$work/out" "$work/large-$picture.svg"
    ends "$picture, odd names" 0 $picture "$work/odd.json" -b '<&>'
    mv "$work/out" "$work/odd-$picture.svg"
    ends "$picture, 17 ranks" 0 $picture grids/qwen3.5-vl-27b-mimo-17.json -b images_to_language --routing balanced --adjoint
    mv "$work/out" "$work/uneven-$picture.svg"
    n=$((n + 3))
done
ends "odd path" 0 mesh "$work/<&>"$'\033'.json
mv "$work/out" "$work/odd-path.svg"
ends "mesh of grids" 0 mesh grids/kimi-k2-1024.json
mv "$work/out" "$work/grids.svg"
if command -v python3 >/dev/null; then
    python3 tests/cli/pictures.py "$work"/*.svg "$work"/again/*.svg >"$work/faults"
    [ "$(tail -n 1 "$work/faults")" = $((n + 2 + $(ls "$work/again" | wc -l))) ]
    verdict $? "pictures: $(head -n 20 "$work/faults")"
    printf '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="90"><rect width="9" height="90" fill="#ffffff"/><text x="1" y="20" font-size="11">abc</text><text x="1" y="22" font-size="11">abc</text></svg>' >"$work/bad.svg"
    [ "$(python3 tests/cli/pictures.py "$work/bad.svg" | wc -l)" = 4 ]
    verdict $? "texts outside and on each other are found"
else
    echo "no python3: the pictures were not read"
fi
has "odd names" "$work/odd-rows.svg" '<title>&lt;&amp;&gt;</title>' '&lt;b&gt;&amp;&quot;\x dp 0'
has "odd path" "$work/odd-path.svg" '/&lt;&amp;&gt;\u001B.json, 3 ranks<' 

# What the pictures say is what the plan says, by bytes and messages.
ends rows 0 rows $file -b $bridge --format text
has rows "$work/out" "vision dp 1          -> llm dp 0             8 MiB, 2 messages; 8 MiB kept"
[ "$(grep -c -- ' -> ' "$work/out")" = 4 ]
verdict $? "rows: pairs that exchange nothing are left out: $(cat "$work/out")"
sed -e 's/"order": \["tp", "cp", "pp", "dp"\]/"order": ["dp", "tp", "cp", "pp"]/' \
    -e 's/"axes": \["b", "s", "h"\]/"axes": ["s", "b", "h"]/' $file >"$work/strided.json"
ends "rows of ranks with a stride" 0 rows "$work/strided.json" -b $bridge
has "rows of ranks with a stride" "$work/out" ">ranks 0 and 4<" ">ranks 1, 3 and 2 more<" ">8 MiB kept<"
ends matrix 0 matrix $file -b $bridge --format text
has matrix "$work/out" "received        4 MiB      4 MiB" "     32 MiB"
[ "$(grep -c ' 4 MiB .* 4 MiB' "$work/out")" = 9 ]
verdict $? "matrix: each rank sends 4 MiB: $(cat "$work/out")"
ends stages 0 stages $file -b $bridge --algorithm collective --adjoint --format text
has stages "$work/out" "Stage 0: " "; sums of " "Stage 1: "
for arguments in "$file -b $bridge" "$file -b $bridge -a collective" "grids/disjoint-8.json -b fan-in"; do
    shift=20 unit=MiB
    case $arguments in *disjoint*) shift=10 unit=KiB ;; esac
    for direction in forward adjoint; do
        "$lierne" plan $arguments --format json 2>/dev/null >"$work/plan"
        bytes=$(grep -oE "\"$direction\":\{\"bytes\":[0-9]+,\"max_rank_bytes\":[0-9]+,\"min_bytes\":[0-9]+,\"messages\":[0-9]+" "$work/plan" | grep -oE '[0-9]+' | sed -n '1p;4p' | xargs)
        ends "matrix of $arguments" 0 matrix $arguments $([ $direction = adjoint ] && echo --adjoint)
        wanted="$((${bytes% *} >> shift)) $unit in ${bytes#* } messages"
        has "matrix of $arguments, $direction" "$work/out" "$wanted"
    done
done
ends mesh 0 mesh grids/nvlm-d-72b-sft-64.json --format text
has mesh "$work/out" "node 1: 8 ranks from 8 |"
ends "mesh of nodes without a grid" 0 mesh grids/qwen3.5-vl-27b-mimo-17.json --format text
has "mesh of nodes without a grid" "$work/out" "node 2: 1 ranks from 16 | language - | images"
ends "mesh of a bridge" 0 mesh $file -b $bridge --format text
has "mesh of a bridge" "$work/out" "vision: tp 2 dp 4" "llm: tp 2 cp 2 dp 2" "block 0: 8 ranks from 0 | vision tp 0-1 dp 0-3 | llm tp 0-1 cp 0-1 dp 0-1"
ends ranks 0 ranks $file -b $bridge --format text
has ranks "$work/out" "dp 1         4     5     6     7"
for picture in mesh rows stages; do
    ends "$picture in DOT" 0 $picture "$work/odd.json" -b '<&>' --format dot
    has "$picture in DOT" "$work/out" "digraph lierne {" "subgraph cluster_0 {"
    if command -v dot >/dev/null; then
        dot -Tplain "$work/out" >/dev/null
        verdict $? "$picture: graphviz reads it"
    fi
done
ends "rows in DOT" 0 rows $file -b $bridge --format dot
has "rows in DOT" "$work/out" 'l0_1 -> r0_0 [label="8 MiB, 2 messages"];' 'l0_1 -> r0_0 [label="8 MiB", style=dashed];'

# A timeline: a trace that is not closed, with a queue of a long name, a bar too short for its name and
# one behind it, and numbers that are none.
cat >"$work/trace" <<'JSON'
[
{"name":"thread_name","ph":"M","pid":3,"tid":0,"args":{"name":"0 llm <&>"}},
{"name":"all-gather","cat":"none","ph":"X","pid":3,"tid":0,"ts":1000000.500,"dur":4000.000,"args":{}},
{"name":"all-to-all ep (held)","cat":"ep","ph":"X","pid":3,"tid":1,"ts":1000100.000,"dur":2.000},
{"name":"all-to-all ep","cat":"ep","ph":"X","pid":3,"tid":1,"ts":1000102.000,"dur":1.000},
{"name":"reduce","cat":"none","ph":"X","pid":1,"tid":0,"ts":1003000.000,"dur":1e300},
{"name":"reduce","cat":"none","ph":"X","pid":1e99,"tid":-7,"ts":1003000.000,"dur":-5},
JSON
ends timeline 0 timeline "$work/trace"
cp "$work/out" "$work/timeline.svg"
has timeline "$work/out" ">rank 3<" ">0 llm &lt;&amp;&gt;<" ">queue 1<" ">all-gather<" ">all-to-all ep<"
! grep -q '(held)' "$work/out"
verdict $? "timeline: a name that does not fit is written"
if command -v python3 >/dev/null; then
    [ "$(python3 tests/cli/pictures.py "$work/timeline.svg")" = 1 ]
    verdict $? "timeline: $(python3 tests/cli/pictures.py "$work/timeline.svg")"
fi
bars=$(grep -c '<rect.*height="20"' "$work/out")
"$lierne" draw timeline - <"$work/trace" | sed "s|>\(Timeline of \)*-<|>\\1$work/trace<|" | cmp -s - "$work/timeline.svg"
verdict $? "timeline of the standard input: another picture"
ends "timeline of rank 3" 0 timeline "$work/trace" --rank 3
! grep -q 'rank 1<' "$work/out" && [ "$bars" = 5 ] && [ "$(grep -c '<rect.*height="20"' "$work/out")" = 3 ]
verdict $? "timeline of rank 3: $bars bars of all ranks, must be 5"
ends "timeline without operations" 1 timeline "$work/trace" --rank 7

# Messages: ends of 100 messages with one number, in any order, then one of another number, which takes
# longest, one to a queue of its own rank, and ends without another one.
event() { # event PHASE NUMBER RANK TIME [QUEUE]
    echo "{\"name\":\"message\",\"ph\":\"$1\",\"id\":$2,\"pid\":$3,\"tid\":${5:-0},\"ts\":$4},"
}
{
    for lane in 0,\"tid\":0 1,\"tid\":0 1,\"tid\":1; do
        echo "{\"name\":\"work\",\"cat\":\"x\",\"ph\":\"X\",\"pid\":$lane,\"ts\":0,\"dur\":1000},"
    done
    for ((k = 0; k < 600; k += 6)); do event f 5 1 $((k + 5)); done
    for ((k = 594; k >= 0; k -= 6)); do event s 5 0 $k; done
    event s 4503599627370496 1 0 && event f 4503599627370496 0 1000
    event s 8 1 100 && event f 8 1 300 1
    event s 9 0 10 && event f 10 1 10 && event s 11 0 10 && event f 11 7 20
} >"$work/messages"
arrows() { # arrows FILE: those that it draws
    grep -c '^<path.*fill="none"' "$1"
}
ends "timeline with messages" 0 timeline "$work/messages"
cp "$work/out" "$work/messages.svg"
has "timeline with messages" "$work/out" ">arrows: the 64 of 102 messages that took longest, from the begin"
[ "$(arrows "$work/out")" = 64 ] && grep -q 'd="M150 [0-9]*L1010 [0-9]*" fill="none"' "$work/out"
verdict $? "timeline: $(arrows "$work/out") arrows, must be 64, the longest among them"
# The k-th send belongs to the k-th receive, 4 pixels further right.
[ "$(sed -n 's/^<path d="M\([0-9]*\) [0-9]*L\([0-9]*\) .*fill="none".*/\1 \2/p' "$work/out" |
    awk '$2 - $1 >= 4 && $2 - $1 <= 5' | wc -l)" = 62 ]
verdict $? "timeline: ends of one number are joined in their order"
head -n 30 "$work/messages" >"$work/few"
tail -n 8 "$work/messages" >>"$work/few"
ends "timeline with two messages" 0 timeline "$work/few"
has "timeline with two messages" "$work/out" ">arrows: messages, from the begin of a send to the end of its receive<"
[ "$(arrows "$work/out")" = 2 ]
verdict $? "timeline: $(arrows "$work/out") arrows, must be 2"
ends "messages of one rank" 0 timeline "$work/messages" --rank 0
! grep -q arrows "$work/out" && [ "$(arrows "$work/out")" = 0 ]
verdict $? "timeline: a message has an arrow where one end is not drawn"
if command -v python3 >/dev/null; then
    [ "$(python3 tests/cli/pictures.py "$work/messages.svg")" = 1 ]
    verdict $? "timeline: $(python3 tests/cli/pictures.py "$work/messages.svg")"
fi
ends "timeline of no file" 2 timeline "$work/none"
ends "timeline of a directory" 2 timeline "$work"
has "timeline of a directory" "$work/err" "Is a directory"
ends "timeline of no trace" 1 timeline README.md
ends "windows" 0 rows grids/diffusion-2x2.json -b two_steps --rank 0 --format text
has "windows" "$work/out" "margin of rank 0: y 23 to 24, x 33 to 34 from rank 3" \
    "core of rank 0: y 0 to 22, x 0 to 17 from rank 0" "margin of rank 0: y 0 to 22, x 18 to 19 from rank 1"
[ "$(grep -c rank "$work/out")" = 7 ]
verdict $? "windows: zeros have no sender: $(cat "$work/out")"
ends "windows of a star" 0 rows grids/diffusion-2x2.json -b margins --rank 3 --format text
[ "$(grep -c "^margin of rank 3" "$work/out")" = 4 ]
verdict $? "windows of a star: $(cat "$work/out")"
ends "windows of no rank" 2 rows grids/diffusion-2x2.json -b margins --rank 4
ends "rank of a mesh" 2 mesh $file --rank 3
has "rank of a mesh" "$work/err" "--rank is for timeline, and for rows of a redistribution"

ends "no picture" 2
has "no picture" "$work/err" "the picture is missing, must be mesh, ranks, matrix, rows, stages or timeline"
ends "another picture" 2 graph $file -b $bridge
ends "no bridge" 2 matrix $file
has "no bridge" "$work/err" "--bridge is missing"
ends "no such bridge" 2 rows $file -b none
ends "no DOT" 2 ranks $file -b $bridge --format dot
has "no DOT" "$work/err" "ranks has no form in DOT, only svg and text"
ends "another format" 2 ranks $file -b $bridge --format png
has "another format" "$work/err" "--format is 'png', must be svg, dot or text"
ends "a file with errors" 1 mesh grids/bad/size-zero.json
ends help 0 --help
has help "$work/out" "Usage: lierne draw PICTURE FILE"
# A sample has one colour on both sides, on every cp rank of the destination; an adjoint says what it adds.
for file in rows-8 rows-8-adjoint; do
    got=$(grep -oE 'height="18" fill="#[0-9a-f]{6}"' docs/pictures/$file.svg | sort | uniq -c | awk '{ print $1 }' | xargs)
    [ "$got" = "3 3 3 3 3 3 3 3" ]
    verdict $? "$file has each of 8 samples at the source and on 2 cp ranks: $got"
done
[ "$(grep -c '>the sum of cp 0 and 1<' docs/pictures/rows-8-adjoint.svg)" = 4 ] && ! grep -q 'of cp' docs/pictures/rows-8.svg
verdict $? "the adjoint adds over cp, and the forward does not"
# Arrows begin at the right edge of their boxes; pictures have colours for dark schemes; two timelines on one axis.
[ "$(grep -c '<path d="M216 [0-9]*H' docs/pictures/rows-8.svg)" = 8 ] && [ "$(grep -c 'x="16" .* width="200"' docs/pictures/rows-8.svg)" = 4 ]
verdict $? "arrows begin at their boxes: $(grep '<path d="M' docs/pictures/rows-8.svg | head -n 1)"
got=$(grep -L 'prefers-color-scheme: dark' docs/pictures/*.svg)
[ -z "$got" ]
verdict $? "pictures without a dark variant: $got"
ends "timeline until" 0 timeline docs/pictures/step-isolated.json --until 87
grep -q '>80</text>' "$work/out" && ! "$lierne" draw timeline docs/pictures/step-isolated.json | grep -q '>80</text>'
verdict $? "an axis of 87 ms"
ends "timeline until now" 2 timeline docs/pictures/step-isolated.json --until 0
verdicts
