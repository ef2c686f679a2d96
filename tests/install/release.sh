#!/usr/bin/env bash
# make release in a repository of its own: it makes the same archive twice, whose checksums fit, and rejects
# whatever is not ready: an undated change log, another version anywhere, an old ABI baseline, loose files.
set -u
. "$(dirname "$0")/../verdict.sh"
cd "$(dirname "$0")/../.." || exit 2
if ! git rev-parse --git-dir >/dev/null 2>&1; then
    echo "skipped: this is no git repository"
    echo "0 passed, 0 failed"
    exit 0
fi
version=$(sed -n 's/^#define LIERNE_VERSION_STRING "\(.*\)"$/\1/p' include/lierne/status.h)
tree=$work/tree
mkdir "$tree"
git ls-files -co --exclude-standard | tar -cf - -T - | tar -xf - -C "$tree"
sed -i "s/^## $version (.*)\$/## $version (2026-01-31)/" "$tree/CHANGELOG.md"
commit() {
    git -C "$tree" add -A && git -C "$tree" -c user.name=t -c user.email=t@example.org commit -q -m "tests: a tree"
}
git -C "$tree" init -q && commit
release() { # release: in the tree; what it says is in $got
    got=$(cd "$tree" && make -s release "B=$work/build" 2>&1)
}
release
verdict $? "make release: $got"
made=$work/build/release
[ "$(cd "$made" && echo *)" = "SHA256SUMS lierne-$version.abi.txt lierne-$version.changes.md lierne-$version.tar.gz" ]
verdict $? "what a release has: $(cd "$made" && echo *)"
(cd "$made" && sha256sum -c --quiet SHA256SUMS)
verdict $? "the checksums"
cmp -s "$made/lierne-$version.abi.txt" tests/abi.txt && head -n 1 "$made/lierne-$version.changes.md" | grep -q "^## $version (" &&
    [ "$(grep -c '^## ' "$made/lierne-$version.changes.md")" = 1 ]
verdict $? "the baseline and the changes of this version alone"
[ "$(tar -tzf "$made/lierne-$version.tar.gz" | grep -v '/$' | sed "s|^lierne-$version/||" | LC_ALL=C sort)" = \
    "$(git -C "$tree" ls-files | LC_ALL=C sort)" ]
verdict $? "the archive has all files and no other"
cp "$made/SHA256SUMS" "$work/first"
touch "$tree"/src/*/*.c
release
cmp "$work/first" "$made/SHA256SUMS"
verdict $? "a second release has the same bits"

rejects() { # rejects NAME TEXT: the tree as it is; afterwards it is whole again
    ! release && [[ $got == *"make release: "*"$2"* ]]
    verdict $? "$1: $got"
    git -C "$tree" reset -q --hard "$(git -C "$tree" rev-list --max-parents=0 HEAD)" && git -C "$tree" clean -qfd
}
spoils() { # spoils FILE SED: a commit with a change
    sed -i "$2" "$tree/$1" && commit
    rejects "$1 with $2" "$1"
}
spoils CHANGELOG.md "s/^## $version (.*/## $version (unreleased)/"
spoils docs/lierne.1 "s/lierne $version/lierne 9.8.7/"
spoils debian/changelog "s/($version)/(9.8.7)/"
spoils CITATION.cff "s/$version/9.8.7/"
spoils examples/ci/layouts.yml "s/$version/9.8.7/"
spoils src/liblierne.map "s/PRIVATE_$version/PRIVATE_9.8.7/"
spoils include/lierne/status.h 's/\(VERSION_PATCH *\)[0-9]*/\177/'
spoils tests/abi.txt '$s/$/ lierne_function_that_is_gone/'
echo >"$tree/loose"
rejects "a loose file" loose
release
verdict $? "the whole tree again: $got"

python3 - CITATION.cff <<'END'
import sys
try:
    import yaml
except ImportError:
    sys.exit(print("python3 has no yaml: CITATION.cff was left out"))
found = yaml.safe_load(open(sys.argv[1]))
assert found["cff-version"] == "1.2.0" and found["authors"] and found["title"] and found["message"], found
END
verdict $? "CITATION.cff has what its format requires"
verdicts
