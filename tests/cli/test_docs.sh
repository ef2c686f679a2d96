#!/usr/bin/env bash
# What the documents say is what the program does: docs/errors.md is made from the tables,
# docs/grid-format.md names files that are there and every bad file, and docs/grid.schema.json takes
# and refuses the same files as the program as far as a schema can. $1: the build folder.
set -u
build=${1:-build}
lierne=$build/lierne
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

verdict() { # verdict NAME STATUS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1"
    fi
}

"$build/tests/errors_md" | diff -u docs/errors.md -
verdict "docs/errors.md is up to date (make docs/errors.md)" $?

grep -o '(\.\./grids/[^)]*)' docs/grid-format.md | tr -d '()' | sort -u >"$work/links"
[ -s "$work/links" ]
verdict "docs/grid-format.md has links" $?
while read -r link; do
    [ -e "docs/$link" ]
    verdict "docs/grid-format.md links to $link" $?
done <"$work/links"
for file in grids/bad/*.json; do
    grep -qF "(../$file)" docs/grid-format.md
    verdict "docs/grid-format.md has a rule for $file" $?
done

# The example of the format is a valid file.
sed -n '/^```json$/,/^```$/p' docs/grid-format.md | grep -v '^```' >"$work/example.json"
"$lierne" check --strict --quiet "$work/example.json"
verdict "the example in docs/grid-format.md is valid" $?

# A schema cannot see duplicate keys or count ranks: it must take every valid file, and refuse those
# with findings of the structure.
if python3 -c 'import jsonschema' 2>/dev/null; then
    cat >"$work/schema.py" <<'PY'
import glob, json, sys
import jsonschema
schema = json.load(open("docs/grid.schema.json"))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
structure = {"LG020", "LG021", "LG022", "LG023", "LG024", "LG025", "LG026"}
codes = {}
for line in open("grids/bad/expected.txt"):
    if not line.startswith("#"):
        name, _, code = line.split()[:3]
        codes.setdefault(name, set()).add(code)
good = glob.glob("grids/*.json") + glob.glob("grids/bad/warning-*.json")
bad = ["grids/bad/" + name for name in codes if codes[name] & structure]
# To a schema 8e0 is an integer, and the sizes of a tensor are not tied to its axes.
beyond = ("world-size-exponent.json", "tensor-size-of-no-axis.json")
bad = [path for path in bad if not path.endswith(beyond)]
passed = failed = 0
for path in good + bad:
    ok = validator.is_valid(json.load(open(path)))
    if ok == (path in good):
        passed += 1
    else:
        failed += 1
        print("FAIL schema:", path, "is", "accepted" if ok else "refused")
print(passed, failed)
PY
    python3 "$work/schema.py" >"$work/schema"
    grep FAIL "$work/schema"
    counts=$(tail -n 1 "$work/schema")
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
else
    echo "no python3 jsonschema: the schema was not compared"
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
