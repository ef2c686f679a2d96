#!/usr/bin/env bash
# link.sh PROGRAM FOLDER: makes FOLDER/PROGRAM of tests/sanitize/PROGRAM.c and FOLDER/liblierne.a, with
# the flags in CFLAGS. A fence, which the thread sanitizer ignores, is no error: the flags that it
# orders carry the data too.
program=${1:?usage: link.sh PROGRAM FOLDER}
folder=${2:?usage: link.sh PROGRAM FOLDER}
more=
[ "$program" = windows ] && more="tests/support/oob_ranks.c -Wl,--wrap=mmap,--wrap=munmap,--wrap=process_vm_readv"
# shellcheck disable=SC2086
exec ${CC:-gcc} -std=c11 -D_GNU_SOURCE $CFLAGS -pthread -Iinclude -Isrc -Itests -Itests/support -o "$folder/$program" \
    "tests/sanitize/$program.c" $more "$folder/liblierne.a" -lcjson -lm
