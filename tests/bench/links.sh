#!/usr/bin/env bash
# links.sh BUILD [RATE] [OUT]: bridges over links that are really slow. Network namespaces of this machine
# stand for nodes; each has one link to a switch, RATE Mbit/s in each direction (tbf; 100), and MPI goes
# over TCP between them. links.py runs the bridges and prints what was measured, counted and predicted;
# OUT gets the table as CSV. A second network, without a limit, has what mpirun itself sends.
# Needs root, namespaces and tbf; skips where they are not permitted. Last line: N passed, N failed.
set -u
build=${1:?usage: links.sh BUILD [RATE] [OUT]}
rate=${2:-100}
here=$(cd "$(dirname "$0")" && pwd)
nodes=4
id=ln$$
work=$(mktemp -d)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

remove() {
    for ((i = 0; i < nodes; i++)); do
        ip netns del "$id-$i"
    done 2>/dev/null
    ip link del "${id}m" 2>/dev/null
    ip link del "${id}d" 2>/dev/null
    rm -rf "$work"
}
trap remove EXIT
trap 'exit 1' INT TERM

# Addresses of this run alone: two runs at once do not meet.
net=$((16 + $$ % 200))
switch() { # switch NAME: a bridge
    ip link add "$1" type bridge && ip link set "$1" up
}

plug() { # plug NODE SWITCH INSIDE ADDRESS: a link between a node and a switch, INSIDE at the node
    ip link add "$2$1" type veth peer name "$3" netns "$id-$1" &&
        ip link set "$2$1" master "$2" up &&
        ip -n "$id-$1" address add "$4/24" dev "$3" &&
        ip -n "$id-$1" link set "$3" up
}

limit() { # limit NODE: packets as on a wire, and the rate at both ends of its link
    local tbf="root tbf rate ${rate}mbit burst 32kb latency 50ms"
    ip -n "$id-$1" link set data gso_max_segs 1 gso_max_size 1514 &&
        tc -n "$id-$1" qdisc add dev data $tbf &&
        tc qdisc add dev "${id}d$1" $tbf
}

create() {
    switch "${id}m" && switch "${id}d" && ip address add 10.$net.1.254/24 dev "${id}m" || return 1
    for ((i = 0; i < nodes; i++)); do
        ip netns add "$id-$i" && ip -n "$id-$i" link set lo up &&
            plug $i "${id}m" control 10.$net.1.$((i + 1)) &&
            plug $i "${id}d" data 10.$net.2.$((i + 1)) && limit $i || return 1
    done
}

# What mpirun calls in place of ssh: its first argument is an address of the control network.
cat >"$work/agent" <<END
#!/bin/sh
node=\$((\${1##*.} - 1))
shift
exec ip netns exec $id-\$node unshare --uts sh -c "hostname $id-\$node; \$*"
END
chmod +x "$work/agent"

if ! command -v "${MPIRUN:-mpirun}" >/dev/null || ! "${MPIRUN:-mpirun}" --version 2>&1 | grep -q 'Open MPI'; then
    echo "skipped: no mpirun of Open MPI"
    exit 0
fi
if ! reason=$(create 2>&1); then
    echo "skipped: no network namespaces with limited links: ${reason%%$'\n'*}"
    exit 0
fi
PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" "$here/links.py" "$build" "$id" "$net" "$rate" "$work" ${3:+"$3"}
