#!/usr/bin/env bash
# Builds the packages from the files that git knows, in a folder of their own, and lets lintian judge
# them. $1: the folder, made anew. The last line is "lintian: clean" or the script fails.
set -eu
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:?usage: build.sh FOLDER}")
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
rm -rf "$folder"
mkdir -p "$folder/lierne-$version"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder/lierne-$version"
unset MAKEFLAGS MAKELEVEL MFLAGS
echo "building the packages, which takes minutes; the log is $folder/log"
(cd "$folder/lierne-$version" && dpkg-buildpackage -us -uc -b) >"$folder/log" 2>&1 ||
    { tail -n 40 "$folder/log" && exit 1; }
ls "$folder"/*.deb
lintian --allow-root --fail-on error,warning "$folder"/*.changes
echo "lintian: clean"
