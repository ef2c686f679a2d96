#!/bin/sh
# Builds the site from the files that git knows, so that links between documents, sources and
# configurations work there as they do here. README.md is the front page; reference.py adds the reference. Warnings are errors: a page
# that is missing from the navigation, a link that leads nowhere. $1: the folder, made anew.
set -eu
cd "$(dirname "$0")/.."
folder=${1:?usage: site.sh FOLDER}
rm -rf "$folder"
mkdir -p "$folder/pages"
git ls-files -z --cached --others --exclude-standard '*.md' docs examples grids include tests/structures tests/mutants/README.md |
    xargs -0 cp --parents -t "$folder/pages"
rm -f "$folder/pages/docs/mkdocs.yml" "$folder/pages/docs/site.sh" "$folder/pages/docs/reference.py"
mv "$folder/pages/README.md" "$folder/pages/index.md"
cp docs/mkdocs.yml "$folder"
python3 docs/reference.py "$folder/pages" "$folder/mkdocs.yml"
(cd "$folder" && mkdocs build --quiet --strict --config-file mkdocs.yml)
bad=$(grep -rlE '<(script|link|img)[^>]* (src|href)="(https?:)?//' "$folder/html" --include='*.html' | head -n 3)
[ -z "$bad" ] || { echo "make site: pages load something from elsewhere:" $bad >&2; exit 1; }
echo "built $folder/html/index.html"
