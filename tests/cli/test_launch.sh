#!/usr/bin/env bash
# lierne run --launch: ranks that the command starts itself, without MPI. It names a rank that died and
# ends the rest, hands signals on, and leaves no process behind.
# $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:?usage: test_launch.sh BUILD}
cd "$(dirname "$0")/../.." || exit 2
cp "$build/lierne" "$work/lierne" # no lierne-run beside it
file=grids/megatron-cp-fanin-8.json
bridge=encoder_to_llm

ends() { # ends NAME STATUS ARGUMENT...: lierne run ARGUMENT... ends with STATUS
    local name=$1 wanted=$2 status
    shift 2
    timeout -k 5 300 "$work/lierne" run "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$wanted" ]
    verdict $? "$name: exit status $status, must be $wanted: $(head -n 3 "$work/err")"
}
says() { # says NAME FILE TEXT
    grep -qF -- "$3" "$2"
    verdict $? "$1: '$3' is not in: $(head -n 5 "$2")"
}

ends run 0 $file -b $bridge --launch 8
says run "$work/out" "bridge $bridge on 8 ranks"
says run "$work/out" "forward and adjoint are right"
ends json 0 $file -b $bridge --launch=8 -a direct --format json
says json "$work/out" '"world":8,"algorithms":{"direct":{"right":true,"forward":{"checked":'
ends "4 ranks" 2 $file -b $bridge -l 4
says "4 ranks" "$work/err" "world_size of $file is 8, but 4 ranks started; use --launch 8"
[ "$(wc -l <"$work/err")" = 1 ]
verdict $? "4 ranks: more than one line: $(cat "$work/err")"
ends "no number" 2 $file -b $bridge --launch eight
says "no number" "$work/err" "--launch is 'eight', must be a whole number from 1 to"
ends "no bridge" 2 $file -b none --launch 8
ends "no MPI" 2 $file -b $bridge
says "no MPI" "$work/err" "--launch N does without"

# begin: a run that takes minutes, in the background, whose ranks have begun.
begin() {
    local deadline=$((SECONDS + 60))
    timeout -k 5 300 "$work/lierne" run $file -b $bridge --launch 8 -n 100000 >"$work/out" 2>"$work/err" &
    launcher=
    until [ "$(wc -w <<<"${ranks:=}")" = 8 ]; do
        [ $SECONDS -gt $deadline ] && break
        sleep 0.1
        launcher=$(pgrep -P $! -f "$work/lierne")
        [ -n "$launcher" ] && ranks=$(pgrep -P "$launcher" | tr '\n' ' ')
    done
    sleep 0.5
}
# gone NAME: no rank is left, within a minute.
gone() {
    local deadline=$((SECONDS + 60)) rank left=1
    until [ -z "$left" ] || [ $SECONDS -gt $deadline ]; do
        left=
        for rank in $ranks; do
            [ -e "/proc/$rank" ] && left="$left $rank"
        done
        sleep 0.1
    done
    verdict "$([ -z "$left" ] && echo 0 || echo 1)" "$1: ranks are left: $left"
}

ranks=
begin
victim=$(cut -d' ' -f3 <<<"$ranks")
kill -KILL "$victim"
wait
gone "a rank is killed"
says "a rank is killed" "$work/err" "died: Killed (signal 9)"
[ "$(grep -c died "$work/err")" = 1 ]
verdict $? "a rank is killed: $(cat "$work/err")"

for signal in INT TERM KILL; do
    ranks=
    begin
    kill -$signal "$launcher"
    wait $! 2>/dev/null
    status=$?
    gone "SIG$signal"
    case $signal in INT) wanted=130 ;; TERM) wanted=143 ;; KILL) wanted=137 ;; esac
    [ $status = $wanted ]
    verdict $? "SIG$signal: exit status $status, must be $wanted"
done

verdicts
