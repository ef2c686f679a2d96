/* What the proofs share. CBMC gives nondet_* any value, and checks an assertion for all values that
 * the assumptions before it leave. */
#ifndef LIERNE_TEST_PROOFS_H
#define LIERNE_TEST_PROOFS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

int nondet_int(void);
int64_t nondet_int64(void);
bool nondet_bool(void);

void __CPROVER_assume(bool holds);

#define ASSUME(holds) __CPROVER_assume(holds)

static inline int any_int(int from, int to) {
    int i = nondet_int();
    ASSUME(from <= i && i <= to);
    return i;
}

static inline int64_t any_int64(int64_t from, int64_t to) {
    int64_t i = nondet_int64();
    ASSUME(from <= i && i <= to);
    return i;
}

#endif
