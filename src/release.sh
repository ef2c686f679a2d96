#!/usr/bin/env bash
# Makes a release of the commit that is checked out, in BUILD/release: the sources, their changes, the ABI
# baseline and the checksums of all three. First every file that names the version must name that of
# include/lierne/status.h, the change log must have a dated section of it, the baseline must be that of the
# headers, and nothing may be uncommitted. Usage: release.sh BUILD; PYTHON: any Python 3.
set -u
build=${1:?usage: release.sh BUILD}
out=$build/release
python=${PYTHON:-python3}
cd "$(dirname "$0")/.." || exit 2
version=$(sed -n 's/^#define LIERNE_VERSION_STRING "\(.*\)"$/\1/p' include/lierne/status.h)
wrong=
needs() { # needs FILE TEXT: what FILE must have, or the release has a defect
    grep -qF -- "$2" "$1" || wrong="$wrong
make release: $1 lacks \"$2\""
}
numbers=$(sed -nE 's/^#define LIERNE_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$/\2/p' include/lierne/status.h | paste -sd.)
[ "$numbers" = "$version" ] || wrong="$wrong
make release: include/lierne/status.h has $numbers and $version"
for map in src/*.map; do
    needs "$map" "LIERNE_${version%.*}"
done
needs src/liblierne.map "LIERNE_PRIVATE_$version "
needs docs/lierne.1 "\"lierne $version\""
needs debian/changelog "lierne ($version)"
needs CITATION.cff "version: $version"
needs examples/ci/layouts.yml "lierne==$version"
section() { # the part of CHANGELOG.md that is this version's
    awk -v head="## $version " 'index($0, head) == 1 { inside = 1; print; next } /^## / { inside = 0 } inside' CHANGELOG.md
}
grep -qE "^## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)\$" CHANGELOG.md && [ "$(section | wc -l)" -gt 2 ] || wrong="$wrong
make release: CHANGELOG.md has no section \"## $version (YYYY-MM-DD)\": write the date of the release"
"$python" tests/cli/abi.py include tests/abi.txt >/dev/null || wrong="$wrong
make release: tests/abi.txt is not that of the headers: make abi"
[ -z "$(git status --porcelain)" ] || wrong="$wrong
make release: files are not committed: $(git status --porcelain | head -n 3 | xargs)"
[ -z "$wrong" ] || { echo "${wrong#?}" >&2 && exit 1; }

rm -rf "$out"
mkdir -p "$out"
name=lierne-$version
git archive --format=tar --prefix="$name/" HEAD | gzip -9n >"$out/$name.tar.gz" || exit 1
section >"$out/$name.changes.md"
cp tests/abi.txt "$out/$name.abi.txt"
(cd "$out" && sha256sum "$name".* >SHA256SUMS)
echo "made $(cd "$out" && echo *) in $out; to publish: git tag v$version, sign SHA256SUMS"
