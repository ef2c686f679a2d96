# For tests/fuzz.sh and build.sh, which source it: the targets, and how they are built.
targets="config plan dump schedule files route sockets"

objects_of() { # objects_of TARGET: what it needs beside the library
    local tool
    case $1 in
    config | schedule) echo tests/fuzz/change_json.o ;;
    plan) echo tests/fuzz/change_json.o tests/support/rank_threads.o ;;
    route) echo tests/{unit/random_case,support/{bridge_plan,bridge_model,mesh,numbers,route_executor}}.o ;;
    files)
        tool=(src/tool/*.c src/tool/{import,run,draw}/*.c)
        tool=("${tool[@]/#src\/tool\/main.c/}") # its main is the target's
        echo "${tool[@]/%.c/.o}"
        ;;
    esac
}

make_in() { # make_in FOLDER CC CFLAGS: the library and the objects of the targets
    local target objects=(liblierne.a tests/fuzz/replay.o)
    for target in $targets; do
        # shellcheck disable=SC2207
        objects+=("tests/fuzz/$target.o" $(objects_of "$target"))
    done
    make -s -j2 DEPS=0 B="$1" CC="$2" CFLAGS="$3" "${objects[@]/#/$1/}"
}

link() { # link FOLDER PROGRAM COMPILER FLAG... OBJECT...: a program of the name of its target
    local folder=$1 program=$2 target compiler=$3 objects
    target=$(basename "$program")
    # shellcheck disable=SC2207
    objects=($(objects_of "$target"))
    shift 3
    "$compiler" "$@" -o "$program" "$folder/tests/fuzz/$target.o" "${objects[@]/#/$folder/}" \
        "$folder/liblierne.a" $(pkg-config --libs libcjson 2>/dev/null || echo -lcjson) -lm -pthread
}

record() { # record TARGET LOG: adds a run of libFuzzer to the totals in the file CAMPAIGN
    local before=$CAMPAIGN.before
    mv "$CAMPAIGN" "$before"
    awk -F, -v OFS=, -v target="$1" '
        FILENAME == ARGV[1] && $1 == target { known = $3 }
        FILENAME == ARGV[2] && /^#[0-9]+.* cov: [0-9]/ {
            split($0, word, /[# \t]+|cov:/)
            edges = $0
            sub(/.* cov: /, "", edges)
            if (edges + 0 > known) { known = edges + 0; last = word[2]; found = 1 }
        }
        FILENAME == ARGV[2] && sub(/^stat::number_of_executed_units: /, "") { ran = $0 }
        FILENAME == ARGV[3] && $1 == target {
            $4 = found ? ran - last : $4 + ran
            $2 += ran
            $3 = known
        }
        FILENAME == ARGV[3] { print }' "$before" "$2" - <"$before" >"$CAMPAIGN"
    rm "$before"
}
