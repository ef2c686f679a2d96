#!/usr/bin/env bash
# The inputs that fuzzing found, once more, under the sanitizers; "make fuzz SECONDS=n" fuzzes.
set -u
exec bash "$(dirname "$0")/../fuzz.sh" "${1:?usage: test_fuzz.sh BUILD}" 0
