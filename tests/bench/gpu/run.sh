#!/usr/bin/env bash
# run.sh BUILD: all benchmarks of this machine's GPUs, one after another. What cannot be measured says why.
set -u
bench=${1:?usage: run.sh BUILD}/tests/bench/gpu
launch=$1/tests/launched/launch
devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
status=0
"$bench/gpu" || status=1
timeout -k 5 900 "$launch" 8 "$bench/processes" || status=1
if [ "$devices" -ge 8 ]; then
    timeout -k 5 900 "$launch" 8 "$bench/processes" nccl || status=1
else
    echo "8 processes over NCCL were not measured: $devices devices, and it needs one for each"
fi
ranks=2
while [ $((2 * ranks)) -le "$devices" ] && [ $ranks -lt 16 ]; do
    ranks=$((2 * ranks))
done
timeout -k 5 900 "$launch" $ranks "$bench/reshard" || status=1
exit $status
