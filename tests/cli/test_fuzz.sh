#!/usr/bin/env bash
# A quarter of a minute of fuzzing configurations, texts of plans and dumps; "make fuzz SECONDS=n" runs longer.
set -u
exec bash "$(dirname "$0")/../fuzz.sh" "${1:?usage: test_fuzz.sh BUILD}" 15
