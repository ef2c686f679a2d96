#!/usr/bin/env bash
# mutants.sh BUILD [NAME...]: breaks the code, one mutation at a time, and runs tests until the first
# that fails. A mutation that no test catches is a failure: a test is missing.
#
# The mutations are in tests/mutants/*.txt (its README has the format). Each is made in a copy of the
# tree, where make rebuilds what it touches. Prints a line per mutant: its name and the test that
# caught it. Tests that caught any are then run on the unchanged code, where they must pass.
# Last line: N passed, N failed.
set -u
build=${1:?usage: mutants.sh BUILD [NAME...]}
[ -d "$build" ] || { echo "$build is no build folder: mutants.sh BUILD [NAME...]" >&2; exit 2; }
shift
cd "$(dirname "$0")/.." || exit 2
build=$(realpath "$build") # before leaving
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mpirun=${MPIRUN:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0
address="-O1 -g -fsanitize=address -fno-omit-frame-pointer"
thread="-O1 -g -fsanitize=thread"

# Splits tests/mutants/*.txt into a folder of three files a mutant: head, old, new.
split_mutants() {
    local name= line
    while IFS= read -r line; do
        case $line in
        mutant\ *)
            name=${line#mutant }
            name=${name%%:*}
            [ -d "$work/mutants/$name" ] && echo "mutant $name is there twice" && exit 2
            mkdir -p "$work/mutants/$name"
            : >"$work/mutants/$name/old"
            : >"$work/mutants/$name/new"
            echo "$name" >>"$work/names"
            ;;
        try\ *) echo "${line#try }" >"$work/mutants/$name/try" ;;
        '- '*) echo "${line#- }" >>"$work/mutants/$name/old" ;;
        '+ '*) echo "${line#+ }" >>"$work/mutants/$name/new" ;;
        '#'* | '') ;;
        *) echo "not a line of a mutant: $line" && exit 2 ;;
        esac
    done < <(cat tests/mutants/*.txt)
}

# apply NAME: finds the old lines, wherever they are and however they are indented, exactly once,
# and puts the new ones in their place, indented as the first old one. Prints the file.
apply() {
    perl -e '
        my ($old, $new, @files) = @ARGV;
        sub lines { open my $f, "<", $_[0] or die; my @l = <$f>; chomp @l; return @l }
        my @old = map { s/^\s+|\s+$//gr } lines($old);
        my @new = lines($new);
        my ($where, $at, $hits) = ("", 0, 0);
        for my $file (@files) {
            my @text = map { s/^\s+|\s+$//gr } lines($file);
            for my $i (0 .. $#text - $#old) {
                next if grep { $text[$i + $_] ne $old[$_] } 0 .. $#old;
                ($where, $at) = ($file, $i);
                $hits++;
            }
        }
        die "its lines are there $hits times, must be once\n" if $hits != 1 || !@old;
        my @text = lines($where);
        my ($indent) = $text[$at] =~ /^(\s*)/;
        splice @text, $at, scalar @old, map { "$indent$_" } @new;
        rename $where, "$where.whole" or die;
        open my $f, ">", $where or die;
        print $f "$_\n" for @text;
        print "$where\n";
    ' "$work/mutants/$1/old" "$work/mutants/$1/new" \
        $(find src tests/mpi tests/golden examples/python -name '*.[ch]' -o -name '*.cpp' -o -name '*.py' | sort) 2>&1
}

# make_here FOLDER TARGET: FOLDER is build, address or thread.
make_here() {
    case $1 in
    build) make -s B=build "$2" ;;
    address) make -s B=address CFLAGS="$address" "$2" ;;
    thread) make -s B=thread CFLAGS="$thread" "$2" ;;
    esac >make.log 2>&1
}

# catch TEST: runs one test program; succeeds, and prints where it failed, if it did.
#   unit [FILTER] | golden | cli SCRIPT | FOLDER/PROGRAM of tests/ | mpi PROGRAM RANKS [ARGUMENT] |
#   address PROGRAM RANKS | emulated PROGRAM [RANKS] | thread PROGRAM | torch RANKS PROGRAM [TEST...] |
#   library RANKS PROGRAM [TEST...] | proof NAME
catch() {
    local status name=$1
    case $1 in
    unit)
        make_here build build/unit || return 2
        timeout -k 5 600 build/unit --fail-fast --timeout 300 --filter "${2:-*/*}" >out 2>&1
        status=$?
        name="unit $(sed 's/\x1b\[[0-9;]*m//g' out | sed -nE 's/^\[(FAIL|CRASH)\] ([^ ]+): .*/\2/p' | head -n 1)"
        ;;
    golden)
        make_here build build/golden || return 2
        timeout -k 5 600 build/golden tests/golden >out 2>&1
        status=$?
        name="golden $(grep -m1 -oE '^[a-z0-9_]+\.json' <(grep ' [1-9][0-9]* failed' out))"
        ;;
    cli)
        make_here build all || return 2
        PYTHON=$python timeout -k 5 1000 bash "tests/cli/test_$2.sh" build >out 2>&1 </dev/null
        status=$?
        name="cli $2, $(grep -m1 '^FAIL' out)"
        ;;
    */*)
        make_here build "build/tests/$1" || return 2
        timeout -k 5 400 "build/tests/$1" >out 2>&1
        status=$?
        name="$1, $(grep -m1 -oE '[a-z]+\.c:[0-9]+|^FAIL.*' out)"
        ;;
    emulated)
        make_here build "build/emulated/tests/$2" && make_here build build/tests/launched/launch || return 2
        # shellcheck disable=SC2086
        LIERNE_TEST_EXECUTOR=cuda timeout -k 5 400 ${3:+build/tests/launched/launch $3} "build/emulated/tests/$2" >out 2>&1
        status=$?
        name="emulated $2, $(grep -m1 -oE '[a-z]+\.c:[0-9]+|^FAIL.*' out)"
        ;;
    mpi)
        make_here build "build/tests/mpi/$2" || return 2
        timeout -k 5 400 "$mpirun" -n "$3" "build/tests/mpi/$2" ${4:-} >out 2>&1 </dev/null
        status=$?
        name="mpi $2 on $3, $(grep -m1 -oE '[a-z]+\.c:[0-9]+|watchdog' out)"
        ;;
    address)
        make_here address "address/tests/mpi/$2" || return 2
        ASAN_OPTIONS=detect_leaks=0 timeout -k 5 400 "$mpirun" -n "$3" "address/tests/mpi/$2" \
            >out 2>&1 </dev/null
        status=$?
        name="address $2 on $3, $(grep -m1 -oE '[a-z]+\.c:[0-9]+|AddressSanitizer: [a-z-]+' out)"
        ;;
    thread)
        make_here thread thread/liblierne.a || return 2
        CFLAGS=$thread bash tests/sanitize/link.sh "$2" thread >make.log 2>&1 || return 2
        timeout -k 5 400 setarch -R "thread/$2" >out 2>&1
        status=$?
        name="thread $2, $(grep -m1 -oE 'ThreadSanitizer: [a-z ]+|[a-z]+\.c:[0-9]+' out)"
        ;;
    proof)
        bash tests/proofs/prove.sh "$2" >out 2>&1
        status=$((2 * $(grep -c ': FAILURE$' out))) # a proof without an end has caught nothing
        name="proof $2, $(grep -m1 -oE '\[[a-z_]+\.[a-z]+\.[0-9]+\].*' out)"
        ;;
    torch | library)
        make_here build all && PYTHON=$python sh src/python/stage.sh build >make.log 2>&1 || return 2
        local library=
        if [ "$1" = library ]; then
            PYTHON=$python sh src/torch/build.sh build tests/torch/deepmd.cpp >make.log 2>&1 || return 2
            library=$PWD/build/liblierne_torch.so
        fi
        LIERNE_TORCH_LIBRARY=$library PYTHONPATH=build/python:tests/python PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 timeout -k 5 300 \
            "$python" -m torch.distributed.run --standalone --nproc-per-node "$2" "tests/python/$3.py" \
            "${@:4}" >out 2>&1 </dev/null
        status=$?
        name="$1 $3 on $2, $(grep -m1 -oE 'FAIL [a-z_]+|[A-Za-z]*Error' out)"
        ;;
    esac
    [ "$status" = 124 ] && name="$name (no end)"
    [ "$status" != 0 ] && echo "$name"
}

# Every test that is worth its time here, the quick ones first.
every_test=("unit" "golden" "mpi known_answer 4" "mpi transport 2" "mpi arguments 2" "mpi failure 2"
    "mpi timeout 2" "mpi sparse_exchange 3" "mpi sparse 3" "mpi soak 2" "mpi general 4" "mpi late_rank 2"
    "mpi train 4")

# judge NAME: caught by what, or that it was not.
judge() {
    local name=$1 file test caught
    if ! file=$(apply "$name"); then
        echo "FAIL $name: does not apply: $file"
        return
    fi
    local tests=("${every_test[@]}")
    [ -f "$work/mutants/$name/try" ] && tests=("$(cat "$work/mutants/$name/try")" "${tests[@]}")
    local verdict="FAIL $name: survived"
    for test in "${tests[@]}"; do
        # shellcheck disable=SC2086
        caught=$(set -f; catch $test)
        case $? in
        0)
            verdict=$(printf '%-34s caught by %s' "$name" "$caught")
            echo "$test" >>"$work/caught_by"
            ;;
        2) verdict="FAIL $name: does not compile: $(grep -m1 error make.log)" ;;
        *) continue ;;
        esac
        break
    done
    echo "$verdict"
    cp "$file.whole" "$file" # a new time; the root may have changed meanwhile
}

# A test that fails on the code as it is catches nothing.
judge_tests() {
    local test caught
    cd "$work/1" || exit 2
    sort -u "$work/caught_by" | while read -r test; do
        # shellcheck disable=SC2086
        caught=$(set -f; catch $test </dev/null)
        [ $? != 1 ] && echo "FAIL test $test: it fails without a mutant: $caught"
    done
}

# worker N: takes mutants nobody has taken, in a copy of the tree of its own.
worker() {
    mkdir -p "$work/$1" && cd "$work/$1" || exit 2
    cp -a "$root"/{Makefile,LICENSE,README.md,docs,examples,include,kernels,src,tests,grids} .
    mkdir build
    cp -a "$build"/{src,kernels,tests,launched,unit,golden} "$build"/flags.* "$build"/*.a build/ 2>/dev/null
    while read -r name; do
        mkdir "$work/mutants/$name/taken" 2>/dev/null || continue
        judge "$name" | tee "$work/mutants/$name/result"
    done <"$work/chosen"
}

# leave_out TRIED NEED: leaves out the mutants of tests that need something that is not there.
leave_out() {
    grep -lE "$1" "$work"/mutants/*/try 2>/dev/null | sed 's|/try$||; s|.*/||' >"$work/left"
    echo "skipped: $(grep -cxFf "$work/left" "$work/chosen") mutants that need $2"
    grep -vxFf "$work/left" "$work/chosen" >"$work/rest"
    mv "$work/rest" "$work/chosen"
}

mkdir -p "$work/mutants"
split_mutants
if [ $# -gt 0 ]; then
    printf '%s\n' "$@" >"$work/chosen"
else
    cp "$work/names" "$work/chosen"
fi
missing=$(grep -vxFf "$work/names" "$work/chosen")
[ -z "$missing" ] || { echo "no mutant $missing"; exit 2; }
python=${PYTHON:-$build/venv/bin/python}
has() { # has MODULE: whether Python has it
    "$python" -c "import numpy, $1" 2>/dev/null
}
has cffi || leave_out '^cli python$' "cffi (make deps installs it)"
has torch || leave_out '^(torch|library) ' "torch (make check-torch installs it)"
command -v cbmc >/dev/null || leave_out '^proof ' "cbmc (tests/proofs/prove.sh)"
worker 1 &
worker 2 &
wait
touch "$work/caught_by"
unsound=$(judge_tests)
[ -z "$unsound" ] || echo "$unsound"
total=$(wc -l <"$work/chosen")
caught=$(cat "$work"/mutants/*/result 2>/dev/null | grep -c ' caught by ')
unsound=$(printf '%s' "$unsound" | grep -c '')
echo "$caught passed, $((total - caught + unsound)) failed"
[ "$caught" = "$total" ] && [ "$unsound" = 0 ] && [ "$total" -gt 0 ]
