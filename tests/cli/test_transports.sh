#!/usr/bin/env bash
# Every golden case and thousands of random ones, over several transports at once (one that exposes, one without
# match ids, and sim, each for some pairs of ranks), on streams, and on streams with the arithmetic of
# the CUDA kernels, on a device that is played, whose messages go through host memory; rows also over a transport that
# connects both ends of its messages. $1: the build folder; "long" as $2 adds golden cases over the latter, and over
# several transports on streams, and random bridges on streams,
# which take minutes, a thread per rank and world, and takes all of those that are here a quarter.
set -u
build=${1:?usage: test_transports.sh BUILD [long]}
. "$(dirname "$0")/../verdict.sh"
seeds=1000
[ "${2:-}" != long ] || seeds=20000
rows='@(halo|graph|references|brick)/*'
segments='@(samples|packed|packed_bridge|few_peers)/*'
golden LIERNE_TEST_TRANSPORTS=mixed
unit "$rows" LIERNE_TEST_TRANSPORTS=mixed
unit "$segments" LIERNE_TEST_TRANSPORTS=mixed
unit 'bridge_general/random*' LIERNE_TEST_TRANSPORTS=mixed LIERNE_SEEDS=$seeds
unit "$rows" LIERNE_TEST_TRANSPORTS=connected
golden LIERNE_TEST_EXECUTOR=device
unit "$rows" LIERNE_TEST_EXECUTOR=device
unit "$segments" LIERNE_TEST_EXECUTOR=device
unit '@(collective|coalesced|redistribute)/*' LIERNE_TEST_EXECUTOR=device
if [ "${2:-}" = long ]; then
    unit 'bridge_general/*' LIERNE_TEST_EXECUTOR=device
    golden LIERNE_TEST_TRANSPORTS=connected
    golden LIERNE_TEST_TRANSPORTS=mixed LIERNE_TEST_EXECUTOR=device
fi
verdicts && [ "$passed" -gt 0 ]
