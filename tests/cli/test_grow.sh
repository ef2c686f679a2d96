#!/usr/bin/env bash
# Programs compiled against headers whose structs are larger or smaller than the library's: what
# upgrading one of the two does. grow.c uses every public struct that begins with its size.
# $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: test_grow.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2

# The last fields that a smaller struct lacks: enough of them that its size is another one.
fewer="convolution:1 context:1 grid:2 view:1 group:1 layout:4 segments:1 packing:1 segments_update:1 packed_bridge:1 segments_exchange:1 own_segments:1 gathered_segments:1 items:1 balance:1 assignment_report:2 delta_report:1 samples:1 samples_lists:1 redistribute:4 recreate:1 bridge:2 megatron:1 graph:1
references:1 halo:2 brick:2 report:1 lists:1 all_gather:2 reduce_scatter:2 all_reduce:3 broadcast:2
all_to_all:2 barrier:2 oob:1 node:1 schedule_group:2 schedule_group:2 operation:2 isolation:1 schedule_order:2
run:1 run_event:1 hang:1 digest:1 digest_check:1
set:1 node_bound:1 window:1 retyped:1 fetch_and_add:1 migration:1"

# All declarations as one file, one field a line, without comments.
printf '%s\n' '#include <stdbool.h>' '#include <stdio.h>' '#include <string.h>' \
    '#include <lierne.h>' '#include <lierne/node.h>' '#include <lierne/oob.h>' '#include <lierne/sim.h>' |
    cc -E -P -dD -Iinclude - >"$work/same.h"
verdict $? "the headers are preprocessed"

# change larger|smaller|same: prints the declarations with other structs.
change() {
    awk -v how="$1" -v fewer="$fewer" '
        BEGIN {
            n = split(fewer, pairs, /[ \n]+/)
            for (i = 1; i <= n; i++) { split(pairs[i], p, ":"); drop[p[1]] = p[2] }
        }
        /^typedef struct lierne_[a-z_]* *{/ { held = 0; inside = 1 }
        inside { line[++held] = $0 }
        !inside { print }
        inside && /^} lierne_[a-z_]*;/ {
            inside = 0
            name = $2; gsub(/^lierne_|;$|_spec;$/, "", name); sub(/^graph_lists$/, "lists", name)
            sized = 0
            for (i = 1; i < held; i++) if (line[i] ~ /^ *size_t size;/) sized = 1
            last = held - 1
            if (sized && how == "smaller") last -= (name in drop) ? drop[name] : 1000
            for (i = 1; i <= last; i++) print line[i]
            if (sized && how == "larger") print "    long long grown[3];"
            print line[held]
            if (sized) print name >"/dev/stderr"
        }'
}

for how in same larger smaller; do
    mkdir "$work/$how"
    change $how <"$work/same.h" >"$work/$how/all.h" 2>"$work/$how/names"
    verdict $? "$how headers"
    cmp -s <(sort "$work/$how/names") <(tr ' ' '\n' <<<"$fewer" | sed 's/:.*//' | sort)
    verdict $? "$how: the structs with a size are those that grow.c uses"
    ${CC:-cc} -std=gnu11 -w -D"$(tr a-z A-Z <<<"$how")" -I"$work/$how" tests/cli/grow.c \
        "$(ls "$build"/liblierne.so.*.*.*)" -Wl,-rpath,"$build" -o "$work/$how/grow"
    verdict $? "$how: grow.c compiles"
    "$work/$how/grow" >"$work/out"
    adds $? "$work/out"
done

verdicts
