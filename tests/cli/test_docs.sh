#!/usr/bin/env bash
# The documents match the program: docs/errors.md is made from the tables, docs/grid-format.md names
# files that exist and every bad file. Commands shown with their output are run again, no link is
# broken, and every page is on the site. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:-build}" && pwd)
lierne=$build/lierne

"$build/tests/errors_md" | diff -u docs/errors.md -
verdict $? "docs/errors.md is up to date (make docs/errors.md)"

grep -o '(\.\./grids/[^)]*)' docs/grid-format.md | tr -d '()' | sort -u >"$work/links"
[ -s "$work/links" ]
verdict $? "docs/grid-format.md has links"
while read -r link; do
    [ -e "docs/$link" ]
    verdict $? "docs/grid-format.md links to $link"
done <"$work/links"
for file in grids/bad/*.json; do
    grep -qF "(../$file)" docs/grid-format.md
    verdict $? "docs/grid-format.md has a rule for $file"
done

# The examples of the format are valid files.
awk -v out="$work/example" '/^```json$/ { n++; inside = 1; next } /^```$/ { inside = 0 }
    inside { print >(out n ".json") }' docs/grid-format.md
examples=("$work"/example*.json)
[ ${#examples[@]} -ge 2 ] && "$lierne" check --strict --quiet "${examples[@]}"
verdict $? "the examples in docs/grid-format.md are valid"

# The first steps of docs/start-megatron.md work as they stand.
block() { # block LANGUAGE NUMBER: a block of the page
    awk -v "head=\`\`\`$1" -v "n=$2" '$0 == head { inside = ++k == n; next } /^```$/ { inside = 0 } inside' docs/start-megatron.md
}
mkdir "$work/first"
block sh 1 >"$work/first/1.sh"
block sh 2 >"$work/first/2.sh"
block json 1 >"$work/first/bridges"
(cd "$work/first" && echo 'pretrain_gpt.py --tensor-model-parallel-size 4' >train.sh && export PATH="$build:$PATH" &&
    sh -e 1.sh && { sed '$d' job.json | sed '$s/$/,/' && cat bridges && echo '}'; } >whole && mv whole job.json &&
    sh -e 2.sh) >"$work/out" 2>&1 && grep -q 'forward and adjoint are right' "$work/out"
verdict $? "the first steps of docs/start-megatron.md: $(tail -n 5 "$work/out")"

# A console block holds commands, each behind "$ ", and below each all that it prints. Those of the
# build folder and of the tests are run again.
replay() { # replay FILE: a verdict per command
    local file=$1 line command= same inside=0 shown=$work/shown got=$work/got
    while IFS= read -r line; do
        if [ -n "$command" ] && { [[ $line == '$ '* ]] || [ "$line" = '```' ]; }; then
            command=${command//build\/lierne/$build/lierne}
            bash -c "${command/% build/ $build}" >"$got" 2>&1 </dev/null
            sed -i -e :a -e '/^\n*$/{$d;N;ba' -e '}' "$got" # blank lines at its end do not count
            diff -u "$shown" "$got" >"$work/diff"
            same=$?
            verdict $same "$file: $command: $(head -n 12 "$work/diff")"
            command=
        fi
        case $line in
        '```console') inside=1 ;;
        '```'*) inside=0 ;;
        '$ build/lierne '* | '$ bash tests/'*)
            [ $inside = 0 ] || command=${line#'$ '}
            : >"$shown"
            ;;
        *) printf '%s\n' "$line" >>"$shown" ;;
        esac
    done <"$file"
}
before=$passed
for file in README.md docs/*.md; do
    replay "$file"
done
[ $((passed - before)) -ge 15 ]
verdict $? "the documents show commands"
printf '```console\n$ build/lierne --version\nlierne 0\n```\n' >"$work/stale.md"
wrong=$(replay "$work/stale.md")
[[ $wrong == FAIL* ]]
verdict $? "output that is not that of the command is found"

# Links lead to files that the site has (docs/site.sh), and no document names a path outside of it.
links() { # links FILE...: those that lead nowhere
    local file link
    grep -oH '](\([^)#]*\)' "$@" | grep -v -e '](https\{0,1\}:' -e ']($' | while IFS= read -r link; do
        file=${link%%:*}
        link=${link#*:](}
        case $(realpath -m "$(dirname "$file")/$link") in
        "$PWD"/*.md | "$PWD"/docs/* | "$PWD"/examples/* | "$PWD"/grids/* | "$PWD"/include/* | "$PWD"/tests/structures/*)
            [ -f "$(dirname "$file")/$link" ] || echo "$file: $link is no file" ;;
        "$PWD"/*) echo "$file: $link is not on the site" ;;
        *) echo "$file: $link is outside" ;;
        esac
    done
}
outside() { # outside FILE...: paths of somebody's machine
    grep -nE '(^|[^[:alnum:]_./-])(~|/(home|root|tmp|work|opt|usr|etc|mnt|var|srv|Users))/' "$@"
}
pages=(README.md docs/*.md examples/*.md)
bad=$(links "${pages[@]}")
[ -z "$bad" ]
verdict $? "links: $bad"
bad=$(outside "${pages[@]}")
[ -z "$bad" ]
verdict $? "paths outside the repository: $bad"
printf '[a](none.md) [b](../../../etc/passwd) [c](../src/base/base.h) `/home/me/x`\n' >"docs/.links.$$.md"
found=$(links "docs/.links.$$.md" | wc -l)
outside "docs/.links.$$.md" >/dev/null
[ $? = 0 ] && [ "$found" = 3 ]
verdict $? "bad links and paths are found"
rm -f "docs/.links.$$.md"

# docs/testing.md names every test, and no test that does not exist.
for file in tests/unit/test_*.c $(grep -l '^int main(' tests/mpi/*.c) tests/golden/*.json; do
    grep -qF "\`$file\`" docs/testing.md
    verdict $? "docs/testing.md names $file"
done
for file in tests/cli/test_*.sh; do
    grep -qF "| \`${file##*/}\` |" docs/testing.md
    verdict $? "docs/testing.md names $file"
done
grep -o '`[a-z_]*/[a-z0-9_]*`' docs/testing.md | tr -d '`' | grep -v '^tests/' | sort -u >"$work/tests"
[ "$(wc -l <"$work/tests")" -ge 20 ]
verdict $? "docs/testing.md names unit tests"
while IFS=/ read -r suite name; do
    case $suite in build | docs | grids) continue ;; esac
    grep -q "^Test($suite, ${name}[_0-9]*[,)]" tests/unit/*.c
    verdict $? "docs/testing.md: there is a unit test $suite/$name"
done <"$work/tests"
grep -o '`\(tests/[a-z0-9_/.]*\|test_[a-z]*\.sh\)`' docs/testing.md | tr -d '`' | sort -u >"$work/files"
while read -r file; do
    [ -e "$file" ] || [ -e "tests/cli/$file" ]
    verdict $? "docs/testing.md: $file is there"
done <"$work/files"

version=$(sed -n 's/^#define LIERNE_VERSION_STRING "\(.*\)"$/\1/p' include/lierne/status.h)
[[ $(head -n 1 debian/changelog) == "lierne ($version) "* ]]
verdict $? "debian/changelog begins with version $version"

# Every page is in the navigation of the site, and the README leads to it.
for page in docs/*.md CONTRIBUTING.md CHANGELOG.md examples/README.md; do
    grep -q ": $page\$" docs/mkdocs.yml
    verdict $? "docs/mkdocs.yml has $page"
    grep -qF "($page)" README.md
    verdict $? "README.md links to $page"
done

# The reference of the site has all that the library exports and all that the package lists; its links lead somewhere.
mkdir "$work/site"
python3 docs/reference.py "$work/site" "$work/site/mkdocs.yml"
verdict $? "docs/reference.py"
nm -D --defined-only "$build/liblierne.so" | sed -n 's/.* T \(lierne_[a-z0-9_]*\)@@LIERNE_[0-9].*/\1/p' >"$work/exported"
bad=$(python3 - "$work/site" "$work/exported" <<'END'
import ast, glob, os, re, sys
pages = {os.path.basename(p): open(p).read() for p in glob.glob(sys.argv[1] + "/reference/*.md")}
anchors = {(page, a) for page, text in pages.items() for a in re.findall(r'<a id="(\w+)">', text)}
exported = open(sys.argv[2]).read().split()
c, titles = " ".join(a for _, a in anchors).split(), re.findall(r"^## `(\w+)`", pages["lierne.md"], re.M)
listed = next(n.value for n in ast.parse(open("src/python/lierne/__init__.py").read()).body
              if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
modules = {"errors", "hangs", "schedules", "Error"}
print(*(set(exported) - set(c)), *(set(ast.literal_eval(listed)) - set(titles) - modules))
named = set(re.findall(r"\blierne\.torch\.[a-z_]+", "".join(open(p).read() for p in glob.glob("docs/*.md"))))
print(*(m for m in named if os.path.exists(f"src/python/{m.replace('.', '/')}.py") and m + ".md" not in pages))
print(*{(p, a) for text in pages.values() for p, a in re.findall(r"\]\(([\w.]+\.md)#(\w+)\)", text)} - anchors)
print(*(f for text in pages.values() for f in re.findall(r"\]\(\.\./(docs/[\w-]+\.md)\)", text) if not os.path.exists(f)))
print(*(page for page in pages if f"reference/{page}\n" not in open(sys.argv[1] + "/mkdocs.yml").read()))
print("" if len(exported) > 150 and len(pages) > 40 else f"{len(exported)} functions on {len(pages)} pages")
END
)
[ -z "${bad//[[:space:]]/}" ]
verdict $? "the reference lacks or has wrong links: $bad"

# The README stays short.
lines=$(wc -l <README.md)
[ "$lines" -ge 80 ] && [ "$lines" -le 120 ]
verdict $? "README.md has $lines lines, must have 80 to 120"

# Each block of C is the body of a function that compiles.
if command -v "${MPICC:-mpicc}" >/dev/null 2>&1; then
    awk -v out="$work/shown-" '
        /^```c$/ { inside = ++n; line = 0; next }
        /^```$/ { inside = 0 }
        inside { print >(out n ".in"); if (line++ == 0) print FILENAME ":" FNR >(out n ".place") }' README.md docs/*.md
    blocks=("$work"/shown-*.in)
    [ ${#blocks[@]} -ge 10 ]
    verdict $? "README.md and docs/ have blocks of C"
    for shown in "${blocks[@]}"; do
        {
            echo '#include "cli/shown.h"'
            grep '^#include' "$shown"
            echo 'void shown(void);'
            echo 'void shown(void) {'
            grep -v '^#include' "$shown"
            echo '}'
        } >"${shown%.in}.c"
        "${MPICC:-mpicc}" -std=c11 -Wall -Wextra -Wno-unused -Werror -Iinclude -Itests -fsyntax-only "${shown%.in}.c"
        verdict $? "the C at $(cat "${shown%.in}.place") compiles"
    done
fi

# A term has one line in the glossary.
bad=$(sed -n 's/^| \([^|]*\) |.*/\1/p' docs/glossary.md | grep -vx -e term | tr ',' '\n' | sed 's/^ *//' | sort | uniq -d)
[ -z "$bad" ]
verdict $? "docs/glossary.md has these terms twice: $bad"

verdicts
