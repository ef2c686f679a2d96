#!/usr/bin/env bash
# Units and golden files under the address and undefined behaviour sanitizers; "make sanitize" does
# more.
set -u
exec bash "$(dirname "$0")/../sanitize.sh" "${1:?usage: test_sanitize.sh BUILD}" short
