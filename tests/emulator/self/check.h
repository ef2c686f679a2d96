/* What the programs that test the emulated device itself count. */
#ifndef LIERNE_EMULATOR_CHECK_H
#define LIERNE_EMULATOR_CHECK_H

#include <stdbool.h>
#include <stdio.h>

static int passed, failed;

static void check(bool good, const char *what) {
    passed += good;
    failed += !good;
    if (!good) {
        printf("FAIL %s\n", what);
    }
}

#endif
