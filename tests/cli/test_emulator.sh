#!/usr/bin/env bash
# The device programs on an emulated device (tests/emulator), with every access of their kernels
# checked. Kernels are translated from what nvcc writes: those in tests/emulator/sm_100.inc, and, where
# there is nvcc, fresh ones for three devices. $1: the build folder. $2: long, for all programs and all
# replays, other numbers of hardware queues, and broken kernels, which some program must notice (make
# check-long).
set -u
build=$(cd "${1:?usage: test_emulator.sh BUILD [long]}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
. tests/verdict.sh
long=${2:-}
emulated=$build/emulated

# run NAME SECONDS COMMAND...: the command passes tests, and its last line says so.
run() {
    local name=$1 seconds=$2
    shift 2
    timeout -k 5 "$seconds" "$@" >"$work/log" 2>&1 </dev/null && tail -n 1 "$work/log" | grep -qE '^[1-9][0-9]* passed, 0 failed$'
    verdict $? "$name: $(head -n 20 "$work/log"; tail -n 1 "$work/log")"
}

# The emulator itself. What it does not know is an error.
run "known kernels" 100 env EMULATOR_KERNELS="$emulated/known.so" "$emulated/tests/emulator/known"
# translate STATEMENT: a kernel of one statement, into C, and that into an object.
translate() {
    printf '.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\t.reg .b32 %%r<3>;\n\t%s\n\tret;\n}\n' "$1" >"$work/k.ptx"
    python3 tests/emulator/ptx2c.py "$work/k.ptx" >"$work/k.inc" 2>"$work/why" &&
        gcc -std=c11 -D_GNU_SOURCE -Itests/emulator -Werror=implicit-function-declaration -DKERNELS="\"$work/k.inc\"" \
            -c -o "$work/k.o" tests/emulator/kernels.c 2>"$work/why"
}
translate 'add.s32 %r1, %r2, 1;'
verdict $? "a known instruction is translated: $(cat "$work/why")"
for statement in 'add.cc.s32 %r1, %r2, 1;' 'popc.b32 %r1, %r2;' 'bar.sync 1;' '@%p1 bar.sync 0;' 'bar.arrive 0, 64;' \
    'add.s32 %r1, %clock, 1;' 'atom.shared.add.u32 %r1, [%r2], 1;' 'setp.lt.s32 %r1|%r2, %r1, 1;'; do
    ! translate "$statement"
    verdict $? "an unknown instruction is rejected: $statement"
done
diff <(grep -o 'lierne_run_[a-z0-9]*}\{0\}' tests/emulator/addresses.c | grep -vE '_(step|find|make)$') \
    <(sed -n '/lierne_task_kernels\[/,/};/p' kernels/launch.cu | grep -o 'lierne_run_[a-z0-9]*')
verdict $? "kernels are in the order of kernels/launch.cu"

# Kernels: those of the repository, and what nvcc makes now.
kernels=("")
for sm in 80 90 100; do
    [ ! -e "$emulated/sm_$sm.so" ] || kernels+=("$sm")
done
if [ ${#kernels[@]} = 1 ]; then
    echo "skipped: no nvcc, so that kernels were not translated afresh"
elif [ "$(sed -n 2p tests/emulator/sm_100.inc)" = "$(sed -n 2p "$emulated/sm_100.inc")" ]; then
    cmp tests/emulator/sm_100.inc "$emulated/sm_100.inc"
    verdict $? "tests/emulator/sm_100.inc is what nvcc makes of kernels/: cp $emulated/sm_100.inc tests/emulator"
else
    echo "skipped: tests/emulator/sm_100.inc is of another nvcc, so that it was not compared"
fi

# What ptxas makes of the kernels of tasks and of deltas: nothing is spilled or on a stack, and 64 registers leave space
# for half of the 2,048 threads of a processor, in blocks of 256.
ptxas=$(dirname "$(sh tests/find_cuda.sh nvcc)")/ptxas
# fills FILE SM COUNT: of a file of COUNT kernels.
fills() {
    "$ptxas" -v -arch="sm_$2" -o "$work/kernels" "$emulated/$1.$2.ptx" >"$work/ptxas" 2>&1 &&
        [ "$(grep -c 'Compiling entry function .lierne_run' "$work/ptxas")" = "$3" ] &&
        [ "$(grep -c 'stack frame' "$work/ptxas")" = "$(grep -c ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$work/ptxas")" ] &&
        [ "$(grep -oE 'Used [0-9]+ registers' "$work/ptxas" | sort -k 2n | tail -n 1 | grep -oE '[0-9]+')" -le 64 ]
    verdict $? "$1 kernels of sm_$2 spill nothing, and fill half of a processor: $(grep -E 'Compiling|stack|Used' "$work/ptxas")"
}
for sm in "${kernels[@]:1}"; do
    fills launch "$sm" 9
    fills changes "$sm" 2
done

# on SM COMMAND...: with the kernels of a device.
on() {
    local sm=$1
    shift
    if [ -n "$sm" ]; then
        env EMULATOR_SM="$sm" EMULATOR_KERNELS="$emulated/sm_$sm.so" "$@"
    else
        "$@"
    fi
}
export -f on
export emulated
for sm in "${kernels[@]}"; do
    run "loads and stores, sm_${sm:-100}" 100 bash -c 'on "$0" "$@"' "$sm" "$emulated/tests/emulator/counts"
    run "memory, sm_${sm:-100}" 300 env EMULATOR_DEVICES=2 bash -c 'on "$0" "$@"' "$sm" "$emulated/tests/gpu/memory"
done
run "streams, captures and devices" 100 "$emulated/tests/emulator/fences"
run "runs and what the caller has" 100 "$emulated/tests/emulator/runs"
run "segments that change" 100 env EMULATOR_DEVICES=2 "$emulated/tests/emulator/segments"
run "windows by descriptors" 100 "$emulated/tests/emulator/vmm"
run "ranks of one process" 100 "$emulated/tests/emulator/ranks"
run "ranks of one process, one hardware queue" 100 env CUDA_DEVICE_MAX_CONNECTIONS=1 "$emulated/tests/emulator/ranks" queue
if [ -e "$(dirname "$(sh tests/find_cuda.sh nvcc)")/../include/nvtx3/nvToolsExt.h" ]; then
    run "ranges of a profiler" 100 "$emulated/tests/emulator/ranges"
else
    echo "skipped: no headers of NVTX, so that profilers see no ranges"
fi
run threads 300 "$emulated/tests/gpu/threads"
run virtual 300 "$emulated/tests/gpu/virtual"
run replays 300 "$emulated/tests/gpu/replays" 300
run "captures on 2 ranks" 300 "$build/tests/launched/launch" 2 "$emulated/tests/gpu/ranks/captures" 100
run "deltas on 3 ranks" 100 "$build/tests/launched/launch" 3 "$emulated/tests/gpu/ranks/deltas"
LIERNE_TEST_EXECUTOR=cuda run "a rank that does not call" 100 "$build/tests/launched/launch" 2 "$emulated/tests/gpu/ranks/hang"
run "schedules on 8 ranks" 300 "$build/tests/launched/launch" 8 "$emulated/tests/gpu/ranks/schedule"
run "a schedule that is not isolated" 300 "$build/tests/launched/launch" 4 "$emulated/tests/gpu/ranks/schedule" shut
for program in golden layers; do
    LIERNE_TEST_EXECUTOR=cuda run "$program on 2 ranks" 300 "$build/tests/launched/launch" 2 "$emulated/tests/gpu/launched/$program"
done
if [ "$long" = long ]; then
    run "memory, without pools" 300 env EMULATOR_POOLS=0 "$emulated/tests/gpu/memory"
    run "captures by handles of CUDA IPC" 300 env EMULATOR_DESCRIPTORS=0 "$build/tests/launched/launch" 2 "$emulated/tests/gpu/ranks/captures" 100
    run "all replays" 1000 "$emulated/tests/gpu/replays"
    run "a device of one hardware queue" 300 env CUDA_DEVICE_MAX_CONNECTIONS=1 "$emulated/tests/gpu/replays" 300
    for sm in "${kernels[@]:1}"; do
        run "virtual, sm_$sm" 300 bash -c 'on "$0" "$@"' "$sm" "$emulated/tests/gpu/virtual"
    done
    bash tests/gpu/launched/run.sh "$build" "$emulated/tests/gpu" >"$work/all" 2>&1
    verdict $? "programs of tests/launched: $(cat "$work/all")"
    grep skipped "$work/all"
    python3 tests/emulator/mutants.py "$build" >"$work/mutants"
    verdict $? "broken kernels: $(cat "$work/mutants")"
fi
verdicts
