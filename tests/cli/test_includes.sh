#!/usr/bin/env bash
# Dependence goes one way. Fails on an include that points upward, on a header of MPI or CUDA where
# it does not belong, and on a library function that ends or talks to the process.
set -u
build=${1:?usage: test_includes.sh BUILD}
passed=0
failed=0
ok() { passed=$((passed + 1)); }
no() {
    failed=$((failed + 1))
    echo "$*"
}

# Each room may include itself and what stands before it.
rooms="base json grid layout route pack transport group plan build schedule config"
rank() {
    local i=0 room
    for room in $rooms; do
        [ "$room" = "$1" ] && echo $i && return
        i=$((i + 1))
    done
    echo -1
}
# check_rooms DIR: prints every arrow upward below DIR/src.
check_rooms() {
    local file room line target
    grep -rnE '^[[:space:]]*#[[:space:]]*include "' "$1"/src --include='*.c' --include='*.h' |
        while IFS= read -r line; do
            file=${line%%:*}
            room=${file#"$1"/src/}
            room=${room%%/*}
            target=$(sed -E 's/.*include "([^"]+)".*/\1/' <<<"$line")
            case $target in
            lierne.h | lierne/*)
                continue
                ;;
            */*)
                if [ "$room" = tool ]; then
                    case $target in tool/*) ;; *) echo "$line: the command uses public headers only" ;; esac
                elif [ "$(rank "${target%%/*}")" -lt 0 ] || [ "$(rank "$room")" -lt "$(rank "${target%%/*}")" ]; then
                    echo "$line: $room may not include ${target%%/*}"
                fi
                ;;
            *)
                [ "$room" = tool ] || echo "$line: name the room"
                ;;
            esac
        done
}

arrows=$(check_rooms .)
if [ -z "$arrows" ]; then ok; else no "$arrows"; fi

# The check itself must be able to fail.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/src/base" "$dir/src/tool"
echo '#include "grid/grid.h"' >"$dir/src/base/x.c"
echo '#include "base/base.h"' >"$dir/src/tool/y.c"
if [ "$(check_rooms "$dir" | wc -l)" -eq 2 ]; then ok; else no "an arrow upward is not found"; fi

# Public headers include public headers only.
bad=$(grep -rnE '#include "' include | grep -vE '#include "lierne/[a-z_]+\.h"')
if [ -z "$bad" ]; then ok; else no "$bad"; fi

bad=$(grep -rnE '#include <mpi\.h>' include src | grep -vE '^(include/lierne/mpi\.h|src/transport/mpi/)')
if [ -z "$bad" ]; then ok; else no "$bad"; fi
bad=$(grep -rnE '#include <(cuda|nccl)' include src kernels 2>/dev/null | grep -vE '^(include/lierne/(cuda|nccl)\.h|src/transport/cuda/|src/pack/|kernels/)')
if [ -z "$bad" ]; then ok; else no "$bad"; fi

# No symbol that aborts, exits, prints or names the world.
bad=$(nm -u "$build/liblierne.a" 2>/dev/null | awk '{print $NF}' | sort -u | grep -xE 'abort|exit|_exit|_Exit|printf|puts|putchar|perror|stdout|stderr|fprintf|vprintf|__printf_chk|__fprintf_chk|__assert_fail')
if [ -z "$bad" ]; then ok; else no "liblierne uses: $bad"; fi
if [ -f "$build/liblierne_mpi.a" ]; then
    bad=$(nm -u "$build/liblierne_mpi.a" | awk '{print $NF}' | sort -u | grep -xE 'abort|exit|printf|puts|stderr|fprintf|MPI_Abort|ompi_mpi_comm_world')
    if [ -z "$bad" ]; then ok; else no "liblierne_mpi uses: $bad"; fi
fi

# No builder includes another.
bad=$(for b in bridge graph halo window; do
    for o in bridge graph halo window; do
        [ $b = $o ] || grep -nE "include \"build/$o" src/build/"$b"*.c 2>/dev/null
    done
done)
if [ -z "$bad" ]; then ok; else no "$bad"; fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
