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
[ "$(grep -cE '^ *256 KiB +131072 +bf16 +(direct|collective)(( +[0-9.]+){3} +0){2}$' "$work/out")" = 2 ]
verdict $? "run: times of two algorithms: $(cat "$work/out")"
ends json 0 $file -b $bridge --launch=8 -a direct --format json
says json "$work/out" '"world":8,"algorithms":{"direct":{"right":true,"forward":{"checked":'
! grep -qF '"checked":0' "$work/out"
verdict $? "json: nothing was checked: $(cat "$work/out")"
ends "4 ranks" 2 $file -b $bridge -l 4
says "4 ranks" "$work/err" "world_size of $file is 8, but 4 ranks started; use --launch 8"
[ "$(wc -l <"$work/err")" = 1 ]
verdict $? "4 ranks: more than one line: $(cat "$work/err")"
ends "1 rank" 2 $file -b $bridge --launch 1
says "1 rank" "$work/err" "world_size of $file is 8, but 1 rank started; use --launch 8"
ends "no number" 2 $file -b $bridge --launch eight
says "no number" "$work/err" "--launch is 'eight', must be a whole number from 1 to"
ends "no value" 2 $file -b $bridge --launch
says "no value" "$work/err" "--launch is '', must be a whole number from 1 to"
ends "no bridge" 2 $file -b none --launch 8
ends "no MPI" 2 $file -b $bridge
says "no MPI" "$work/err" "--launch N does without"
(sleep 1 && exec timeout 100 "$work/lierne" run $file -b $bridge --launch 8 -n 1 --minbytes 1K 2>"$work/err") | : # gone by then
[ "${PIPESTATUS[0]}" = 141 ] && ! [ -s "$work/err" ]
verdict $? "a reader that has enough is no error: $(cat "$work/err")"

# Sizes, as nccl-tests has them. A unit of this tensor is 1 KiB.
ends sizes 0 $file -b $bridge --launch 8 --minbytes 1K -e 16k -f 4 -n 3 -w 0
[ "$(grep -v '^#' "$work/out" | awk '{ print $1, $2, $3, $4, $5, $9, $13 }' | xargs)" = "$(for size in 1 4 16; do
    for algorithm in direct collective; do echo "$size KiB $((size * 512)) bf16 $algorithm 0 0"; done
done | xargs)" ]
verdict $? "sizes: $(cat "$work/out")"
says sizes "$work/out" "on 8 ranks, 3 rounds after 0 of warm-up"
says sizes "$work/out" "# forward and adjoint are right"
ends "sizes of one unit" 0 $file --bridge $bridge --launch 8 --minbytes 1 -e 1400 -n 1 -a direct
[ "$(grep -cv '^#' "$work/out")" = 1 ] && grep -q '1 KiB          512   bf16 ' "$work/out"
verdict $? "sizes of one unit: $(cat "$work/out")"
ends "no other axis" 0 --src tp1,dp2 --dst tp1,dp2 --tensor b4,s8 --dtype f32 --launch 2 -n 1 -a direct
grep -q '^ *128 B           32    f32 ' "$work/out"
verdict $? "no other axis: $(cat "$work/out")"
ends csv 0 $file -b $bridge --launch 8 --format csv --minbytes 4K -e 8K -n 2
awk -F, 'NR == 1 { exit !/^size,count,type,algorithm,direction,time_us,low_us,high_us,algbw_gbs,busbw_gbs,wrong$/ }' "$work/out"
verdict $? "csv: $(head -n 1 "$work/out")"
# 8 dp ranks of the source, 4 of the destination: a rank receives or sends a quarter of the tensor, in
# the collective adjoint twice as much.
awk -F, 'function off(a, b) { return a < b - 0.0002 || a > b + 0.0002 }
    NR > 1 && (off($9, $1 / $6 / 1000) || off($10, $1 / $6 / ($4 $5 == "collectiveadjoint" ? 2000 : 4000)) ||
        $1 != 2 * $2 || $3 != "bf16" || $11 != 0 || $7 <= 0 || $7 > $6 || $6 > $8) { print; bad = 1 }
    END { exit bad || NR != 9 }' "$work/out" >"$work/wrong"
verdict $? "csv: $(cat "$work/wrong" "$work/out")"
ends "sizes, json" 0 $file -b $bridge --launch 8 --format json --minbytes 4K -e 8K -n 1 -a direct
says "sizes, json" "$work/out" '"world":8,"sizes":[{"bytes":4096,"count":2048,"dtype":"bf16","algorithms":{"direct":{"right":true,'
says "sizes, json" "$work/out" '"busiest_rank_bytes":1024}}}}},{"bytes":8192,"count":4096,"dtype":"bf16",'
ends "no size" 2 $file -b $bridge --launch 8 -e eight
says "no size" "$work/err" "--maxbytes is 'eight', must be bytes in digits, as 4096, 512K, 8M or 1G"
[ "$(wc -l <"$work/err")" = 2 ]
verdict $? "no size: said by more than one rank: $(cat "$work/err")"
ends "a size past the largest" 2 $file --bridge $bridge --launch 8 --minbytes 99999999999999999999
says "a size past the largest" "$work/err" "--minbytes is '99999999999999999999', must be from 1 to 8388607G"
ends "size 0" 2 $file --bridge $bridge --launch 8 --minbytes 0
ends "largest below smallest" 2 $file --bridge $bridge --launch 8 --minbytes 8K -e 4K
says "largest below smallest" "$work/err" "--maxbytes is 4096, must be at least the smallest size, 8192"
ends "-b is the bridge alone" 2 $file -b $bridge --launch 8 -b 1K
says "-b is the bridge alone" "$work/err" "there is no bridge '1K'"
ends "factor 1" 2 $file --bridge $bridge --launch 8 -e 1M -f 1
ends "only batch and sequence" 2 --src tp1,dp2 --dst tp1,dp1 --tensor b4,s8 --launch 2 -e 1M
says "only batch and sequence" "$work/err" "another one is needed to change the size"

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

# Ranks that have failed leave the others time to end: here rank 0, whose message nobody reads yet.
mkfifo "$work/fifo"
exec 3<>"$work/fifo"
dd if=/dev/zero of="$work/fifo" bs=4096 count=1000 oflag=nonblock 2>/dev/null # as much as there is room for
LIERNE_TRANSPORTS=none timeout -k 5 60 "$work/lierne" run $file -b $bridge --launch 8 >"$work/out" 2>&3 &
deadline=$((SECONDS + 30)) alone=0
until [ $alone = 3 ] || [ $SECONDS -gt $deadline ] || ! kill -0 $! 2>/dev/null; do
    sleep 0.02
    launcher=$(pgrep -P $!)
    [ "$(pgrep -c -P "${launcher:-1}")" = 1 ] && alone=$((alone + 1)) || alone=0
done
exec 4<"$work/fifo" 3>&-
tr -d '\0' <&4 >"$work/err"
exec 4<&-
wait $!
status=$?
[ $status = 1 ] && [ $alone = 3 ]
verdict $? "the last rank ends by itself: status $status, $alone times alone"
says "the last rank ends by itself" "$work/err" "rank 0: "

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
