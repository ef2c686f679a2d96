#!/usr/bin/env bash
# The examples print the expected output, and each has a line in examples/README.md. The expected
# numbers are computed by hand: in groups rank = tp + 2 cp + 4 dp; for the graph a sum over all edges; a
# brick of 4 points along each axis has 10^3 - 4^3 ghosts, from 448 other points, in 2 swaps per axis or
# from 7 peers.
# $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:-build}

prints() { # prints NAME COMMAND...: ends with 0, and prints what stands on standard input
    local name=$1
    shift
    cat >"$work/wanted"
    timeout -k 5 600 "$@" >"$work/out" 2>"$work/err" </dev/null
    verdict $? "$name ends well"
    diff -u "$work/wanted" "$work/out"
    verdict $? "$name prints what it must"
}

prints 01_grid "$build/examples/01_grid" <<'END'
tp             [0,1] [2,3] [4,5] [6,7]
cp             [0,2] [1,3] [4,6] [5,7]
dp-cp          [0,2,4,6] [1,3,5,7]
view:expert:ep [0,1,2,3,4,5,6,7]
pp             [0] [1] [2] [3] [4] [5] [6] [7]
LIERNE_ERR_UNKNOWN_DIM: lierne_grid_get_groups: dim 'ep' is not in view 'base', which has: tp, cp, pp, dp
END
prints 06_node "$build/examples/06_node" <<'END'
4 of 4 ranks have the whole vector
END
prints 20_survive "$build/examples/20_survive" <<'END'
rank 3 has died: elements 9 to 11 are lost
rank 3 has joined and loads elements 9 to 11
4 of 4 ranks have the whole vector again
END
if command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 && [ -f "$build/liblierne_mpi.a" ]; then
    prints 02_bridge "${MPIRUN:-mpirun}" -n 8 "$build/examples/02_bridge" <<'END'
tp2 dp4 -> tp2 cp2 dp2: 0 wrong elements
END
    for n in 1 3 8; do
        prints 03_graph "${MPIRUN:-mpirun}" -n $n "$build/examples/03_graph" <<'END'
64 nodes, 192 edges: 0 wrong values
<F x, y> = 22676, <x, F* y> = 22676
END
    done
    prints 04_halo "${MPIRUN:-mpirun}" -n 8 "$build/examples/04_halo" <<'END'
512 points in 2 x 2 x 2 bricks, 7488 ghosts: 0 wrong values
swaps: 59904 bytes in 48 messages, stages: 6
flattened: 28672 bytes in 56 messages, stages: 1
END
    prints 05_pipeline "${MPIRUN:-mpirun}" -n 8 "$build/examples/05_pipeline" <<'END'
tp2 dp4 -> tp2 pp2 dp2, 4 microbatches: 0 wrong elements
END
    prints 09_schedule env LIERNE_TRACE="$work/appended.json" "${MPIRUN:-mpirun}" -n 8 "$build/examples/09_schedule" grids/encoder-llm-8.json "$work/trace.json" <<'END'
as recorded: all-gather and all-to-all in one queue, 0 wrong elements
isolated: all-gather and all-to-all in two queues, 0 wrong elements
END
    python3 - "$work/trace.json" "$work/appended.json" <<'END'
import collections, json, sys
bars = collections.defaultdict(list)
for event in json.load(open(sys.argv[1])):
    if event["ph"] == "X":
        bars[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
assert len({rank for rank, _ in bars}) == 8 and sum(map(len, bars.values())) == 8 * 2 * 5
appended = json.loads(open(sys.argv[2]).read().rstrip(",\n") + "]")
assert appended.pop(0)["name"] == "job_begin"
names = [event for event in appended if event["name"] == "process_name"]
assert {name["pid"]: name["args"]["name"] for name in names} == {r: f"rank {r}" for r in range(8)}
appended = [event for event in appended if event not in names]
text = [sorted(map(str, events)) for events in (appended, json.load(open(sys.argv[1])))]
assert text[0] == text[1]
END
    verdict $? "the trace of 09_schedule"
    python3 tests/cli/trace.py "$work/trace.json" >"$work/out" 2>&1
    verdict $? "operations of one queue of 09_schedule do not overlap: $(tail -n 3 "$work/out")"
    prints 10_tensor_set "${MPIRUN:-mpirun}" -n 4 "$build/examples/10_tensor_set" <<'END'
wq, wo and norm: 108 elements trained, 204 served, all digests equal
END
    for n in 1 3 4; do
        prints 07_all_gather "${MPIRUN:-mpirun}" -n $n "$build/examples/07_all_gather" <<'END'
all-gather of 64 elements per rank: 0 wrong
all-gather of 0, 32 or 64 elements per rank: 0 wrong
END
        prints 08_reduce_scatter "${MPIRUN:-mpirun}" -n $n "$build/examples/08_reduce_scatter" <<'END'
lierne_plan_adjoint: rank 0: the plan has no adjoint: its reduction is LIERNE_REDUCTION_MAX, and only LIERNE_REDUCTION_SUM and LIERNE_REDUCTION_AVG have one
reduce-scatter, 64 sums per rank: 0 wrong
all-reduce, averages: 0 wrong
END
        prints 11_window_all_gather "${MPIRUN:-mpirun}" -n $n "$build/examples/11_window_all_gather" <<END
1000 all-gathers in a window of $n ranks: 0 wrong
END
        prints 12_window_reduce_scatter "${MPIRUN:-mpirun}" -n $n "$build/examples/12_window_reduce_scatter" <<'END'
a reduce-scatter in rounds of 64 elements, 1000 sums per rank: 0 wrong
END
    done
    prints 14_packed_bridge "${MPIRUN:-mpirun}" -n 2 "$build/examples/14_packed_bridge" <<'END'
first: rank 0: . 10 . . . . . . . .; 3 of 3 gradients back
first: rank 1: 11 12 . . . . . 20 21 .; 2 of 2 gradients back
next: rank 0: . . . 20 . .; 0 of 0 gradients back
next: rank 1: . . 21 . 22 23; 4 of 4 gradients back
END
    prints 13_unequal_samples "${MPIRUN:-mpirun}" -n 4 "$build/examples/13_unequal_samples" <<'END'
32 samples: the busiest rank computes 2890 rows, not 6192; at least 2841 must
4016 of 11364 rows moved, 0 elements wrong
END
    prints 15_samples_in_steps "${MPIRUN:-mpirun}" -n 4 "$build/examples/15_samples_in_steps" <<'END'
step 0: the busiest rank has 424 rows, not 944; 600 moved, 0 results wrong
step 1: the busiest rank has 440 rows, not 1008; 764 moved, 0 results wrong
step 2: the busiest rank has 400 rows, not 864; 676 moved, 0 results wrong
END
    prints 16_three_fields "${MPIRUN:-mpirun}" -n 4 "$build/examples/16_three_fields" <<'END'
0 of 48 elements of ghosts are wrong
rank 0 sends 1 message with three fields, positions are 48 bytes of it
END
    prints 17_few_peers "${MPIRUN:-mpirun}" -n 9 "$build/examples/17_few_peers" <<'END'
9 ranks, at most 4 peers each, 2 stages
48 tokens took two steps, 0 are wrong
END
    prints 18_diffusion "${MPIRUN:-mpirun}" -n 4 "$build/examples/18_diffusion" <<'END'
2 x 2 ranks, 100 steps: 0 of 1610 values differ from one rank's
rank 0 receives 82 elements in 2 messages per step
END
    prints 18_diffusion "${MPIRUN:-mpirun}" -n 3 "$build/examples/18_diffusion" <<'END'
3 x 1 ranks, 100 steps: 0 of 1610 values differ from one rank's
rank 0 receives 70 elements in 2 messages per step
END
    prints 19_migration "${MPIRUN:-mpirun}" -n 4 "$build/examples/19_migration" <<'END'
50 steps: 357 atoms changed their rank, 0 are wrong
the last step back: 0 are wrong
END
else
    echo "no MPI: the examples that need it were not run"
fi

# An example that nobody runs or introduces is not one.
for source in examples/*.c; do
    name=$(basename "$source" .c)
    grep -q "^ *prints $name " "$0"
    verdict $? "$name is run by this test"
    grep -q "^| \[$name\.c\]($name\.c) | .* | .*\`.*build/examples/$name\` |\$" examples/README.md
    verdict $? "$name has a line in examples/README.md"
done

verdicts
