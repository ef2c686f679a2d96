#!/usr/bin/env bash
# docs/performance.md: its table of ratios and its plot are what tests/bench/ratios.py makes of the CSV
# files, each of which has a header and the command that made it, and is linked. The benchmark prints
# such files. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:?usage: test_performance.sh BUILD}
cd "$(dirname "$0")/../.." || exit 2
page=docs/performance.md
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3"
    verdicts
    exit
fi

python3 tests/bench/ratios.py docs/performance table >"$work/table"
verdict $? "the table is made"
[ "$(wc -l <"$work/table")" -ge 20 ]
verdict $? "the table has rows: $(cat "$work/table")"
sed -n '/^| lierne | |/,/^$/p' $page | sed '/^$/d' | diff -u "$work/table" - >"$work/diff"
verdict $? "$page has the table of the CSV files: $(head -n 12 "$work/diff")"
python3 tests/bench/ratios.py docs/performance svg >"$work/ratios.svg" && cmp "$work/ratios.svg" docs/pictures/ratios.svg
verdict $? "docs/pictures/ratios.svg is that of the CSV files (make pictures)"
[ "$(python3 tests/cli/pictures.py docs/pictures/ratios.svg)" = 1 ]
verdict $? "the plot: $(python3 tests/cli/pictures.py docs/pictures/ratios.svg)"

# A changed ratio is another table and another plot.
cp -r docs/performance "$work/changed"
sed -i 's/"MPI",\(.*\),[^,]*,[^,]*,[^,]*$/"MPI",\1,9,9,9/' "$work/changed/collectives.csv"
python3 tests/bench/ratios.py "$work/changed" table >"$work/other"
cmp -s "$work/other" "$work/table"
[ $? = 1 ]
verdict $? "a changed ratio changes the table"
python3 tests/bench/ratios.py "$work/changed" svg >"$work/other"
cmp -s "$work/other" "$work/ratios.svg"
[ $? = 1 ]
verdict $? "a changed ratio changes the plot"

for file in docs/performance/*.csv; do
    [[ $(head -n 1 "$file") == '# '*[a-z]* ]] && [[ $(grep -v '^#' "$file" | head -n 1) == *,* ]]
    verdict $? "$file begins with its command and a header: $(head -n 2 "$file")"
    [ "$(grep -v '^#' "$file" | python3 -c 'import csv, sys
print(len({len(row) for row in csv.reader(sys.stdin)}))')" = 1 ]
    verdict $? "$file: all rows have as many columns as the header"
    grep -qF "](${file#docs/})" $page
    verdict $? "$page links $file"
done

if command -v mpirun >/dev/null && [ -x "$build/tests/bench/bridge" ]; then
    bash tests/bench/run.sh "$build" --csv '2 ranks' 'c fan-in' 'small f32' 'axis 0, hot' >"$work/out" 2>"$work/err"
    verdict $? "--csv: $(tail -n 3 "$work/err")"
    [[ $(head -n 1 "$work/out") == "# make bench BENCH_ARGS="* ]] &&
        [ "$(sed -n 2p "$work/out")" = "$(grep -v '^#' docs/performance/bridges-small-f32.csv | head -n 1)" ]
    verdict $? "--csv: command and header: $(head -n 2 "$work/out")"
    [ "$(grep -c '^"2 ranks, c fan-in cp2, small f32, batch axis 0, hot",milliseconds,"' "$work/out")" = $(($(wc -l <"$work/out") - 2)) ] &&
        grep -q '"lierne DIRECT",[0-9.e-]*,.*,1.000$' "$work/out" && grep -q '"naive MPI",' "$work/out"
    verdict $? "--csv: a row per method: $(cat "$work/out")"
    [ "$(grep -v '^#' "$work/out" | python3 -c 'import csv, sys
rows = list(csv.DictReader(sys.stdin))
print(sum(abs(float(row[way]) / float(rows[0][way]) - float(row[way + "_ratio"])) > 0.002
          for row in rows for way in ("forward", "adjoint", "both")))')" = 0 ]
    verdict $? "--csv: the ratios are those of the times: $(cat "$work/out")"
fi
verdicts
