#!/usr/bin/env bash
# Modules depend on earlier modules only. Fails on an include of a later module, on files that need
# each other, on a header of MPI or CUDA where it does not belong, and on a library function that ends
# the process or prints.
set -u
build=${1:?usage: test_includes.sh BUILD}
. "$(dirname "$0")/../verdict.sh"
ok() { verdict 0; }
no() { verdict 1 "$*"; }

# Each module may include itself and what stands before it. Back ends and planners do not include their
# neighbours, but for the pairs in `neighbours`; the table in docs/architecture.md has the same.
modules="base json grid layout route runtime/control runtime/recorder runtime/memory runtime/transport runtime/context
runtime/execute runtime/group runtime/window backend plan diagnose step config"
neighbours="nccl:cuda nccl:oob node:oob oob:shm mpi:shm bridge:redistribute megatron:redistribute"
rank() { # rank FOLDER: sets place to that of its module, or to -1. No process per include.
    local module
    place=0
    for module in $modules; do
        case $1 in "$module" | "$module"/*) return ;; esac
        place=$((place + 1))
    done
    place=-1
}
# may FROM TARGET: whether a file of folder FROM may include TARGET/..., both below src.
may() {
    local from=$1 target=$2 pair
    [ "$from" = "$target" ] && return 0
    case $from:$target in backend:backend/*) return 0 ;; esac # the list of back ends
    case $from in backend/* | plan/*)
        case $target in "${from%%/*}"/*)
            for pair in $neighbours; do
                [ "$pair" = "${from##*/}:${target##*/}" ] && return 0
            done
            return 1
            ;;
        "${from%%/*}") return 0 ;;
        esac
        ;;
    esac
    case $target in backend/*) return 1 ;; esac
    local below
    rank "$target"
    below=$place
    rank "$from"
    [ "$below" -ge 0 ] && [ "$place" -gt "$below" ]
}
# check_modules DIR: prints every include below DIR/src that points upward or sideways.
check_modules() {
    local file folder line target
    grep -rnE '^[[:space:]]*#[[:space:]]*include "' "$1"/src --include='*.c' --include='*.h' |
        while IFS= read -r line; do
            file=${line%%:*}
            folder=${file#"$1"/src/}
            folder=${folder%/*}
            target=${line#*include \"}
            target=${target%%\"*}
            case $target in
            lierne.h | lierne/*) continue ;;
            esac
            if [ "${folder%%/*}" = tool ]; then
                case $target in
                tool/* | [!/]*.h) ;;
                esac
                case ${target%/*} in
                tool | "$target") ;;
                *) echo "$line: the command uses public headers only" ;;
                esac
            elif [ "${target%/*}" = "$target" ]; then
                echo "$line: name the module"
            elif ! may "$folder" "${target%/*}"; then
                echo "$line: $folder may not include ${target%/*}"
            fi
        done
}

upward=$(check_modules .)
if [ -z "$upward" ]; then ok; else no "$upward"; fi

# The check itself must be able to fail.
dir=$work
mkdir -p "$dir"/src/{base,tool,plan/halo,runtime/context,backend/sim}
echo '#include "grid/grid.h"' >"$dir/src/base/x.c"
echo '#include "base/base.h"' >"$dir/src/tool/y.c"
echo '#include "plan/sparse/star_forest.h"' >"$dir/src/plan/halo/z.c"
echo '#include "backend/mpi/mpi_state.h"' >"$dir/src/runtime/context/w.c"
echo '#include "backend/shm/segment.h"' >"$dir/src/backend/sim/v.c"
echo '#include "runtime/group/group.h"' >"$dir/src/runtime/context/u.c"
if [ "$(check_modules "$dir" | wc -l)" -eq 6 ]; then ok; else no "not found: $(check_modules "$dir")"; fi

# named DIR: what names a back end outside of src/backend, below DIR/src. Comments may say why. "self" and
# "node" are words of C and of the core; the command and the package are above the back ends.
named() {
    local names
    names="$(find "$1"/src/backend -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | grep -vxE 'self|node')"
    names=$(printf '%s\n' "$names" ipc socket | paste -sd'|')
    find "$1"/src -name '*.[ch]' -not -path "$1/src/backend/*" -not -path "$1/src/tool/*" -not -path "$1/src/python/*" | sort |
        while IFS= read -r file; do
            sed -E -e ':a' -e 's#/\*([^*]|\*+[^*/])*\*+/##g' -e '/\/\*/{N;ba' -e '}' "$file" |
                sed 's/__CUDA_ARCH__//; s/<sys\/socket.h>//; s/ socket(//; s/SOL_SOCKET//' | grep -iE "(^|[^a-z])($names)([^a-z]|\$)" | sed "s#^#$file: #"
        done
}
bad=$(named .)
if [ -z "$bad" ]; then ok; else no "the core names a back end: $bad"; fi
printf '/* MPI\n * is slow */\nint x; /* of mpi */\n' >"$dir/src/runtime/context/quiet.c"
printf 'static bool owned_by_sim;\nconst char *text = "use MPI";\n' >"$dir/src/base/loud.c"
mkdir -p "$dir/src/backend/mpi"
if [ "$(named "$dir" | wc -l)" -eq 3 ]; then ok; else no "not found: $(named "$dir")"; fi

# needs DIR: "FILE NEEDED" for every object of a file below DIR/src that uses a symbol of another one.
needs() {
    find "$1/src" -name '*.o' | sort | while read -r object; do
        [ -f "${object#"$1"/}" ] || [ -f "$(sed 's/\.o$/.c/' <<<"${object#"$1"/}")" ] || continue
        nm "$object" | awk -v o="$object" '$2 ~ /^[TDRB]$/ { print "d", $3, o } $1 == "U" { print "u", $2, o }'
    done | awk '$1 == "d" { at[$2] = $3 } $1 == "u" { n++; symbol[n] = $2; user[n] = $3 }
        END { for (i = 1; i <= n; i++) if (symbol[i] in at && at[symbol[i]] != user[i]) print user[i], at[symbol[i]] }'
}
circles=$(needs "$build" | sort -u | tsort 2>&1 >/dev/null)
if [ -z "$circles" ]; then ok; else no "files that need each other: $circles"; fi
if printf 'a b\nb a\n' | tsort >/dev/null 2>&1; then no "tsort finds no circle"; else ok; fi

# lone DIR: words that alone are names of more than four static functions: a backtrace cannot be read.
lone() {
    grep -rhoE '^static [a-z_0-9 *]*\<[a-z]+\(' "$1/src" --include='*.c' | sed -E 's/.*[ *]([a-z]+)\($/\1/' |
        sort | uniq -c | awk '$1 > 4 { print $2 }'
}
bad=$(lone .)
if [ -z "$bad" ]; then ok; else no "static functions without an object: $bad"; fi
for module in base tool plan/halo runtime/context backend/sim; do echo 'static int *fill(void) {' >"$dir/src/$module/t.c"; done
if [ "$(lone "$dir")" = fill ]; then ok; else no "not found: fill"; fi

# again DIR: names of library files that another folder has, too. The command is a program of its own.
again() {
    find "$1/src" -name '*.[ch]' -not -path "$1/src/tool/*" -printf '%f\n' | sort | uniq -d
}
bad=$(again .)
if [ -z "$bad" ]; then ok; else no "files of one name in several folders: $bad"; fi
touch "$dir"/src/{base,backend/sim}/again.c
if again "$dir" | grep -qx again.c; then ok; else no "not found: again.c"; fi

# Public headers include public headers only.
bad=$(grep -rnE '#include "' include | grep -vE '#include "lierne/[a-z_]+\.h"')
if [ -z "$bad" ]; then ok; else no "$bad"; fi

bad=$(grep -rnE '#include <mpi\.h>' include src | grep -vE '^(include/lierne/mpi\.h|src/backend/mpi/|src/tool/mpi/)')
if [ -z "$bad" ]; then ok; else no "$bad"; fi
bad=$(grep -rnE '#include <(cuda|nccl)' include src kernels | grep -vE '^(src/backend/(cuda|nccl)/|kernels/)')
if [ -z "$bad" ]; then ok; else no "$bad"; fi
bad=$(grep -rnE '#include "' kernels | grep -vE '"backend/cuda/launch_[a-z]+\.h"')
if [ -z "$bad" ]; then ok; else no "$bad"; fi

# No symbol that aborts, exits, prints or names the world.
bad=$(nm -u "$build/liblierne.a" 2>/dev/null | awk '{print $NF}' | sort -u | grep -xE 'abort|exit|_exit|_Exit|printf|puts|putchar|perror|stdout|stderr|fprintf|vprintf|__printf_chk|__fprintf_chk|__assert_fail')
if [ -z "$bad" ]; then ok; else no "liblierne uses: $bad"; fi
if [ -f "$build/liblierne_mpi.a" ]; then
    bad=$(nm -u "$build/liblierne_mpi.a" | awk '{print $NF}' | sort -u | grep -xE 'abort|exit|printf|puts|stderr|fprintf|MPI_Abort|ompi_mpi_comm_world')
    if [ -z "$bad" ]; then ok; else no "liblierne_mpi uses: $bad"; fi
fi

verdicts
