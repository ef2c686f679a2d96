#!/usr/bin/env bash
# A minute of fuzzing configurations and texts of plans; "make fuzz SECONDS=n" runs longer.
set -u
exec bash "$(dirname "$0")/../fuzz.sh" "${1:?usage: test_fuzz.sh BUILD}" 60
