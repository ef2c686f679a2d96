#!/usr/bin/env bash
# The training oracle can fail: each mistake that tests/mpi/train can make must give wrong encoder
# gradients in every case of every pair of layouts where it matters, and in no other (a sum over cp
# cannot be lost where cp is 1). $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:-build}
train=$build/tests/mpi/train

matters() { # matters FAULT SRC_TP SRC_DP DST_TP DST_CP DST_DP
    case $1 in
    none) false ;;
    loss_dp_only | drop_cp_sum) [ "$5" -gt 1 ] ;;
    sum_dp_cp) [ "$6" -gt 1 ] ;;
    swap_shares) [ "$3" != "$6" ] ;;
    scale_tp) [ "$2" -gt 1 ] ;;
    reverse_chunks) true ;;
    esac
}

check_run() { # check_run FAULT RANKS
    local fault=$1 n=$2 pairs=0 shown=0 line tp dp arrow dtp x1 cp x2 ddp order cases wrong rest
    local -a env=()
    [ "$fault" = none ] || env=("LIERNE_TRAIN_FAULT=$fault")
    env "${env[@]}" timeout -k 5 1100 "${MPIRUN:-mpirun}" -n "$n" "$train" >"$work/out" 2>"$work/err" </dev/null
    while read -r tp x1 dp arrow dtp x1 cp x2 ddp order cases rest wrong rest; do
        [ "$arrow" = '->' ] || continue
        pairs=$((pairs + 1))
        local wanted=0
        if matters "$fault" "$tp" "$dp" "$dtp" "$cp" "$ddp"; then
            wanted=$cases
            shown=1
        fi
        [ "$cases" -gt 0 ] && [ "$wrong" = "$wanted" ]
        verdict $? "$fault on $n: $tp x $dp -> $dtp x $cp x $ddp ${order%:}: $wrong of $cases wrong, wanted $wanted"
    done <"$work/out"
    [ "$pairs" -ge 9 ]
    verdict $? "$fault on $n: $pairs pairs of layouts"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/out")
    if [ "$fault" = none ]; then
        [ "${line#*, }" = '0 failed' ]
    else
        [ "$shown" = 1 ] && [ -n "$line" ] && [ "${line#*, }" != '0 failed' ] &&
            grep -q 'encoder gradient (mean) is not that of equal dp' "$work/err"
    fi
    verdict $? "$fault on $n: the program says '$line'"
}

if ! command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 || [ ! -x "$train" ]; then
    echo "skipped: there is no MPI, or the programs of tests/mpi are not built"
    echo "0 passed, 0 failed"
    exit 0
fi
for fault in none loss_dp_only drop_cp_sum sum_dp_cp swap_shares scale_tp reverse_chunks; do
    for n in 4 8; do
        check_run $fault $n
    done
done

# A mistake that it does not know must not pass for one that it made, nor for none.
LIERNE_TRAIN_FAULT=typo timeout -k 5 1100 "${MPIRUN:-mpirun}" -n 4 "$train" >"$work/out" 2>"$work/err" </dev/null
[ $? = 2 ] && ! grep -q passed "$work/out"
verdict $? "a mistake that is not known is rejected"

verdicts
