#!/usr/bin/env bash
# Units, golden files and lierne run under the address and undefined behaviour sanitizers; "make
# sanitize" does more.
set -u
exec bash "$(dirname "$0")/../sanitize.sh" "${1:?usage: test_sanitize.sh BUILD}" short
