#!/usr/bin/env bash
# long.sh BUILD: what takes too long for make check: all random cases on streams, all device programs on the
# emulated device, collectives 10,000 times, 1,200 hangs, 2,000 deaths of ranks,
# 100,000 steps of samples, 20,000 pairs of layouts, 2,000 tensor sets, 4,000 with boxes, 10,000 steps of deltas with faults,
# 100,000 dense halos, 20,000 packings and packed bridges, 2,000 sequences of 20 updates, and a long run: 1,000 contexts,
# 10,000 plans and 10 million calls that leave nothing. MPIRUN: empty where there is no MPI. Ends with the first that fails.
set -eu
build=${1:?usage: long.sh BUILD}
mpirun=${MPIRUN-mpirun}
bash tests/cli/test_transports.sh "$build" long
bash tests/cli/test_emulator.sh "$build" long
"$build/tests/hang/sim" 0 1000
"$build/tests/node/shrink" 0 1000
[ -z "$mpirun" ] || bash tests/cli/test_death.sh "$build" 1000
LIERNE_SEEDS=5000 "$build/unit" --filter 'samples/random_steps'
LIERNE_SEEDS=20000 "$build/unit" --filter 'bridge_general/random_*'
LIERNE_TEST_PEERS=1 LIERNE_SEEDS=6000 "$build/unit" --filter 'bridge_general/random_*'
LIERNE_SEEDS=2000 "$build/unit" --filter 'set/random_*'
LIERNE_SEEDS=4000 "$build/unit" --filter 'set_boxes/random_*'
LIERNE_SEEDS=260 "$build/unit" --filter 'delta_faults/*' # 40 steps each
LIERNE_SEEDS=2000 "$build/unit" --filter 'fetch_and_add/*'
LIERNE_SEEDS=1000 "$build/unit" --filter 'migration/random_*'
LIERNE_SEEDS=20000 "$build/unit" --filter 'packed/random_*'
LIERNE_SEEDS=100000 "$build/unit" --filter 'dense_halo/random_*'
LIERNE_SEEDS=20000 "$build/unit" --filter 'packed_bridge/random_*'
for n in 4 8; do
    for program in golden bridge; do
        LIERNE_TEST_EXECUTOR=ipc "$build/tests/launched/launch" $n "$build/tests/launched/$program"
    done
done
LIERNE_SEEDS=3000 bash tests/cli/test_balance.sh "$build"
bash tests/fuzz.sh "$build" 120
[ -n "$mpirun" ] || exit 0
$mpirun -n 2 "$build/tests/mpi/soak" 1000 10000 10000000
for n in 2 4 8; do
    $mpirun -n $n "$build/tests/mpi/windows" 10000
done
$mpirun -n 8 "$build/tests/mpi/soak"
$mpirun -n 4 "$build/tests/mpi/hangs" 0 100
LIERNE_TRANSPORTS=mpi $mpirun -n 4 "$build/tests/mpi/hangs" 100 100
