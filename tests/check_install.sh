#!/usr/bin/env bash
# check_install.sh BUILD: what a user meets who packs and installs lierne, and what takes too long for make
# check, as it builds all anew: tests/install/*.sh. Prints and adds up as check.sh does.
set -u
build=${1:?usage: check_install.sh BUILD}
cd "$(dirname "$0")/.." || exit 2
unset MAKEFLAGS MAKELEVEL MFLAGS # what tests build is not this make's
logs=$build/logs
mkdir -p "$logs"
. tests/report.sh
for script in tests/install/*.sh; do
    name=install_$(basename "$script" .sh)
    log=$(log_of "$name") start=$SECONDS
    timeout -k 5 3000 bash "$script" "$build" >"$log" 2>&1 </dev/null
    echo "$? $((SECONDS - start))" >"$log.rc"
    report "$name"
done
close_report
