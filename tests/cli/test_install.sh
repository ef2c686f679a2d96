#!/usr/bin/env bash
# Installs into a prefix and into a DESTDIR, and uses the result as a user would: through pkg-config,
# shared and static, from C and C++, without and with MPI. The shared libraries export
# the functions of the headers and nothing else. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=$(cd "${1:?usage: test_install.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
# A make above this one must not hand its options down.
unset MAKEFLAGS MAKELEVEL MFLAGS
mpicc=${MPICC:-mpicc}
mpirun=${MPIRUN:-mpirun}

same() { # same NAME EXPECTED ACTUAL
    [ "$2" = "$3" ]
    verdict $? "$1"
    [ "$2" = "$3" ] || diff <(echo "$2") <(echo "$3")
}
has_mpi() {
    [ -x "$build/lierne-run" ]
}
has() { # has cuda|nccl: whether the build has the library
    [ -e "$build/liblierne_$1.so" ]
}
targets() { # targets TARGET VARIABLE=VALUE...
    make -s "B=$build" "$@" >"$work/make.log" 2>&1 || { cat "$work/make.log" && false; }
}
version=$(sed -n 's/^#define LIERNE_VERSION_STRING "\(.*\)"$/\1/p' include/lierne/status.h)

# expected LIBDIR: what must be installed, below the prefix.
expected() {
    local name
    echo bin/lierne
    has_mpi && echo bin/lierne-run
    for name in lierne $(has_mpi && echo lierne_mpi); do
        printf '%s\n' "$1/lib$name".{a,so,so.0,"so.$version"} "$1/pkgconfig/$name.pc"
    done
    printf '%s\n' "$1"/cmake/lierne/lierne-config{,-version}.cmake
    for name in $(has cuda && echo lierne_cuda) $(has nccl && echo lierne_nccl); do
        printf '%s\n' "$1/lib$name".{so,so.0,"so.$version"} "$1/pkgconfig/$name.pc"
    done
    echo include/lierne.h
    for name in $(ls include/lierne); do
        case $name in
        mpi.h) has_mpi ;;
        cuda.h | nccl.h) has "${name%.h}" ;;
        torch.h) [ -e "$build/liblierne_torch.so" ] && echo "$1/liblierne_torch.so" ;;
        esac && echo "include/lierne/$name"
    done
    (cd grids && ls -- *.json) | sed 's|^|share/lierne/grids/|'
    printf '%s\n' share/bash-completion/completions/lierne share/lierne/grid.schema.json share/man/man1/lierne.1 \
        share/zsh/site-functions/_lierne
}
installed() { # installed FOLDER: every file and link in it
    (cd "$1" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort)
}

prefix=$work/prefix
targets install "PREFIX=$prefix"
verdict $? "make install PREFIX="
same "files below PREFIX" "$(expected lib | LC_ALL=C sort)" "$(installed "$prefix")"

# Editors complete by the schema that a file names: it must be there, in the source tree too.
lost=$(for file in grids/*.json "$prefix"/share/lierne/grids/*.json; do
    schema=$(sed -n 's/^ *"$schema": "\(.*\)",$/\1/p' "$file")
    [ -n "$schema" ] && [ -f "$(dirname "$file")/$schema" ] || echo "$file: ${schema:-none}"
done)
same "files name a schema that is there" "" "$lost"

# As a packager does it: staged, with a libdir of its own.
staged=(PREFIX=/opt/lierne libdir=/opt/lierne/lib/triplet "DESTDIR=$work/stage")
targets install "${staged[@]}"
verdict $? "make install DESTDIR="
same "files below DESTDIR" "$(expected lib/triplet | LC_ALL=C sort)" "$(installed "$work/stage/opt/lierne")"
grep -rlF "$work" "$work/stage/opt/lierne/lib/triplet/pkgconfig"
verdict $((1 - $?)) "no .pc file names DESTDIR"
same "a staged tree is found through a sysroot" "-I$work/stage/opt/lierne/include -L$work/stage/opt/lierne/lib/triplet -llierne" \
    "$(PKG_CONFIG_SYSROOT_DIR=$work/stage PKG_CONFIG_PATH=$work/stage/opt/lierne/lib/triplet/pkgconfig \
        pkg-config --cflags --libs lierne | xargs)"

# What the libraries are and export.
dynamic() { # dynamic LIBRARY TAG: values of a tag of the dynamic section
    readelf -d "$prefix/lib/$1" | sed -n "s/.*($2).*\[\(.*\)\]/\1/p"
}
exports() { # exports LIBRARY VERSION: names that it defines under a symbol version
    nm -D --defined-only --with-symbol-versions "$prefix/lib/$1" | sed -n "s/.* [TDBR] \(.*\)@@$2\$/\1/p" | LC_ALL=C sort
}
declared() { # declared HEADER: functions that a header and those that it includes declare
    local mpi=
    [ "$1" = lierne/mpi.h ] && mpi=$($mpicc -show | grep -oE -- '-I[^ ]+')
    echo "#include <$1>" | cc -E -P -I"$prefix/include" $mpi - | grep -oE '\blierne_[a-z0-9_]+ *\(' | tr -d ' (' | LC_ALL=C sort -u
}
same "soname" liblierne.so.0 "$(dynamic liblierne.so SONAME)"
same "liblierne needs no MPI" "" "$(dynamic liblierne.so NEEDED | grep -iE 'mpi|open-')"
[ "$(declared lierne.h | wc -l)" -gt 50 ]
verdict $? "the headers declare functions"
same "liblierne exports the functions of all headers but mpi.h" \
    "$(for name in .h /node.h /oob.h /sim.h; do declared "lierne$name"; done | LC_ALL=C sort -u)" "$(exports liblierne.so LIERNE_0.1)"
same "symbols have one of two versions" "" "$(nm -D --defined-only --with-symbol-versions "$prefix/lib/liblierne.so" |
    grep -vE "@@LIERNE_(0\.1|PRIVATE_$version)\$| A LIERNE_(0\.1|PRIVATE_$version)(@@.*)?\$")"
if has_mpi; then
    same "soname of liblierne_mpi" liblierne_mpi.so.0 "$(dynamic liblierne_mpi.so SONAME)"
    same "liblierne_mpi exports the functions of lierne/mpi.h" "$(declared lierne/mpi.h | comm -13 <(declared lierne.h) -)" \
        "$(exports liblierne_mpi.so 'LIERNE_[^@]*')"
fi
for name in cuda nccl; do
    has $name || continue
    same "soname of liblierne_$name" liblierne_$name.so.0 "$(dynamic liblierne_$name.so SONAME)"
    same "liblierne_$name exports the functions of lierne/$name.h" \
        "$(declared lierne/$name.h | comm -13 <(declared lierne.h) -)" "$(exports liblierne_$name.so LIERNE_0.1)"
done
# What a library that was not built calls is exported, too: then nothing can be said of the rest.
if has_mpi && has nccl; then
    same "liblierne and liblierne_cuda let the other libraries call what they call and no more" \
        "$(nm -D -u --with-symbol-versions "$prefix"/lib/liblierne_{mpi,cuda,nccl}.so | sed -n "s/.* \(lierne_.*\)@LIERNE_PRIVATE_$version\$/\1/p" | LC_ALL=C sort -u)" \
        "$(for name in '' _cuda; do exports liblierne$name.so "LIERNE_PRIVATE_$version"; done | LC_ALL=C sort)"
fi
# Hardened, by what the linker recorded and the compiler calls (src/flags.mk).
for file in "$prefix"/lib/liblierne{,_mpi,_cuda,_nccl}.so "$prefix/bin/lierne"; do
    [ -e "$file" ] || continue
    wrong=
    readelf -lW "$file" | grep -q GNU_RELRO && readelf -dW "$file" | grep -qE 'BIND_NOW|FLAGS_1.* NOW' || wrong="$wrong relro"
    readelf -lW "$file" | grep 'GNU_STACK' | grep -q RWE && wrong="$wrong stack"
    [[ $file == *_cuda.so || $file == *_nccl.so ]] || nm -D -u "$file" | grep -q __stack_chk_fail || wrong="$wrong protector"
    readelf -hW "$file" | grep -q 'Type: *DYN' || wrong="$wrong pie"
    same "${file##*/} lacks no hardening" "" "$wrong"
done
nm -D -u "$prefix/lib/liblierne.so" | grep -qE '__(memcpy|snprintf|vsnprintf)_chk'
verdict $? "liblierne has glibc's checks of sizes"
same "every global name of the static libraries begins with lierne_" "" \
    "$(nm -g --defined-only "$prefix"/lib/*.a | awk 'NF == 3 { print $3 }' | grep -v '^lierne_')"

# Consumers. The static ones see a folder that has no shared library.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
mkdir "$work/static"
cp "$prefix"/lib/*.a "$work/static"
same "pkg-config --modversion" "$version" "$(pkg-config --modversion lierne)"
consume() { # consume NAME COMPILER... : compiles tests/cli/consumer.c and runs it, both ways
    local name=$1
    shift
    "$@" -Wall -Wextra -Werror tests/cli/consumer.c $(pkg-config --cflags lierne) -x none $(pkg-config --libs lierne) -o "$work/shared_$name" &&
        LD_LIBRARY_PATH=$prefix/lib timeout 600 "$work/shared_$name" >"$work/out" && grep -qx '0 wrong' "$work/out"
    verdict $? "$name consumer, shared"
    readelf -d "$work/shared_$name" | grep -q 'NEEDED.*\[liblierne\.so\.0\]'
    verdict $? "$name consumer, shared: needs liblierne.so.0"
    "$@" -Wall -Wextra -Werror tests/cli/consumer.c $(pkg-config --cflags lierne) -x none \
        $(pkg-config --static --define-variable="libdir=$work/static" --libs lierne) -o "$work/static_$name" &&
        timeout 600 "$work/static_$name" >"$work/out" && grep -qx '0 wrong' "$work/out"
    verdict $? "$name consumer, static"
    readelf -d "$work/static_$name" | grep -q 'NEEDED.*liblierne'
    verdict $((1 - $?)) "$name consumer, static: needs no liblierne"
}
consume C cc -std=c11 -x c
if command -v g++ >/dev/null; then
    consume C++ g++ -std=c++17 -x c++
else
    echo "no g++: the C++ consumer was left out"
fi
if has_mpi; then
    $mpicc tests/cli/consumer_mpi.c $(pkg-config --cflags --libs lierne_mpi) -o "$work/mpi" &&
        LD_LIBRARY_PATH=$prefix/lib timeout 600 $mpirun -n 2 "$work/mpi" >"$work/out"
    same "MPI consumer on 2 ranks, shared" "2 ranks, 0 wrong 2 ranks, 0 wrong" "$(xargs <"$work/out")"
    $mpicc tests/cli/consumer_mpi.c $(pkg-config --cflags lierne_mpi) \
        $(pkg-config --static --define-variable="libdir=$work/static" --libs lierne_mpi | sed "s|$prefix/lib|$work/static|") \
        -o "$work/mpi" && timeout 600 $mpirun -n 2 "$work/mpi" >"$work/out"
    same "MPI consumer on 2 ranks, static" "2 ranks, 0 wrong 2 ranks, 0 wrong" "$(xargs <"$work/out")"
fi

# CMake's way to find the library, in a tree that was moved after it was installed.
if command -v cmake >/dev/null && command -v g++ >/dev/null; then
    cp -R "$prefix" "$work/moved"
    with_mpi=-DWITH_MPI=$(has_mpi && echo ON || echo OFF)
    consumers() { # consumers FOLDER OPTION...: makes those of tests/cli/cmake
        cmake -S tests/cli/cmake -B "$work/$1" "-DCMAKE_PREFIX_PATH=$work/moved" "${@:2}" >"$work/log" 2>&1 &&
            cmake --build "$work/$1" >>"$work/log" 2>&1 && return
        tail -n 20 "$work/log"
        return 1
    }
    consumers cmake "$with_mpi"
    verdict $? "CMake finds the installed library"
    consumers cxx "$with_mpi" -DLANGUAGES=CXX
    verdict $? "CMake finds it for a project in C++ alone"
    has_mpi && mv "$work"/moved/lib/liblierne_mpi.so.* "$work"
    ! consumers no_mpi -DWITH_MPI=ON >/dev/null && grep -q 'lierne has no component mpi here' "$work/log"
    verdict $? "CMake says that there is no liblierne_mpi: $(cat "$work/log")"
    has_mpi && mv "$work"/liblierne_mpi.so.* "$work/moved/lib"
    ! consumers unknown "$with_mpi" -DMORE=mpl >/dev/null && grep -q 'lierne has no component mpl (components: mpi, cuda' "$work/log"
    verdict $? "CMake rejects an unknown component: $(cat "$work/log")"
    more=static$(has cuda && echo ';cuda')$(has nccl && echo ';nccl')
    consumers more -DWITH_MPI=OFF "-DMORE=$more"
    verdict $? "CMake has the components $more"
    for name in ${more//;/ }; do
        same "CMake consumer of lierne::$name" "0 wrong" "$(timeout 600 "$work/more/consumer_$name" | tail -n 1)"
    done
    ! readelf -d "$work/more/consumer_static" | grep -q 'NEEDED.*liblierne'
    verdict $? "CMake consumer of lierne::static needs no liblierne"
    if has_mpi; then # the manual's lines as they stand
        mkdir "$work/manual"
        sed -n '/^```cmake$/,/^```$/{/^```/d;p}' docs/install.md >"$work/manual/CMakeLists.txt"
        cp tests/cli/consumer_mpi.c "$work/manual/program.c"
        ln -s moved "$work/opt"
        (HOME=$work && eval "$(grep '^export PATH=$HOME/opt/bin:' docs/install.md)" &&
            cmake -S "$work/manual" -B "$work/manual/build" && cmake --build "$work/manual/build") >"$work/log" 2>&1
        verdict $? "the CMake lines of docs/install.md: $(tail -n 5 "$work/log")"
    fi
    for name in c cxx; do
        same "CMake consumer in $name" "0 wrong" "$(timeout 600 "$work/cmake/consumer_$name" | tail -n 1)"
    done
    readelf -d "$work/cmake/consumer_c" | grep -q "$work/moved/lib"
    verdict $? "CMake links the moved tree"
    if has_mpi; then
        same "CMake consumer on 2 ranks" "2 ranks, 0 wrong 2 ranks, 0 wrong" \
            "$(timeout 600 $mpirun -n 2 "$work/cmake/consumer_mpi" | xargs)"
    fi
    cp -R tests/cli "$work/other"
    for other in 0.0 0.2; do
        sed "s/find_package(lierne 0.1/find_package(lierne $other/" tests/cli/cmake/CMakeLists.txt >"$work/other/cmake/CMakeLists.txt"
        cmake -S "$work/other/cmake" -B "$work/$other" "-DCMAKE_PREFIX_PATH=$work/moved" >"$work/log" 2>&1
        grep -q 'considered but not accepted' "$work/log"
        verdict $? "CMake rejects the library for a program of version $other"
    done
else
    echo "no cmake: its consumers were left out"
fi

# The command, and its manual.
same "the installed command" "lierne $version" "$("$prefix/bin/lierne" --version)"
"$prefix/bin/lierne" check --quiet "$prefix"/share/lierne/grids/*.json
verdict $? "the installed configurations are valid"
if has_mpi; then
    timeout 1000 $mpirun -n 6 "$prefix/bin/lierne" run "$prefix/share/lierne/grids/uneven-dp-6.json" --bridge vision_to_llm >"$work/out" 2>&1
    verdict $? "lierne run from the installed tree"
fi
sed 's/\\//g' "$prefix/share/man/man1/lierne.1" >"$work/man"
options() {
    grep -oE -- '--[a-z][a-z-]*' | LC_ALL=C sort -u
}
commands=$("$prefix/bin/lierne" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p')
same "the manual has every command" "$(sort <<<"$commands")" \
    "$(sed -n '/^\.SH COMMANDS/,/^\.SH OPTIONS/s/^\.B \([a-z]*\)$/\1/p' "$work/man" | grep -vx lierne | sort)"
same "the synopsis of the manual has every command" "$(sort <<<"$commands")" \
    "$(sed -n 's/^\.B lierne \([a-z]*\)$/\1/p' "$work/man" | sort -u)"
same "the manual has every option and no other" \
    "$(for command in "" $commands; do "$prefix/bin/lierne" $command --help; done | options)" \
    "$(options <"$work/man")"
grep -q "^\.TH LIERNE 1 .*\"lierne $version\"" "$work/man"
verdict $? "the manual is that of this version"

targets uninstall "PREFIX=$prefix"
verdict $? "make uninstall PREFIX="
same "nothing is left below PREFIX" "" "$(installed "$prefix")$(find "$prefix" -name 'lierne*')"
targets uninstall "${staged[@]}"
same "nothing is left below DESTDIR" "" "$(installed "$work/stage")$(find "$work/stage/opt/lierne" -mindepth 1 -name 'lierne*')"

verdicts
