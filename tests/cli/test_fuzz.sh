#!/usr/bin/env bash
# 21 seconds of fuzzing, three per target; "make fuzz SECONDS=n" runs longer.
set -u
exec bash "$(dirname "$0")/../fuzz.sh" "${1:?usage: test_fuzz.sh BUILD}" 21
