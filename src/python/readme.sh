#!/bin/sh
# The README as a package index shows it: without pictures and links into this tree, which lead nowhere there.
# Usage: readme.sh README.md
sed -e '/^!\[[^]]*](docs\//d' -e 's/\[\([^]]*\)\]([^):]*)/\1/g' "${1:?usage: readme.sh README.md}"
