/* The part of Criterion's interface that the unit tests use, for a machine that an emulator plays.
 * Criterion starts the program anew for each test, and the emulator translates all of it again: ten
 * seconds each. Here a test is a fork. */
#ifndef TESTS_INSTALL_AARCH64_CRITERION_H
#define TESTS_INSTALL_AARCH64_CRITERION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_options {
    void (*init)(void), (*fini)(void);
    double timeout; /* seconds, 0 for none */
    char ignored;
} test_options;

typedef struct test_entry {
    const char *suite, *name;
    void (*run)(void); /* NULL of a suite's own options */
    test_options options;
    struct test_entry *next;
} test_entry;

void test_add(test_entry *entry);

/* The test has failed, and ends if that is fatal. The texts behind are asked for only then. */
void test_fail(bool fatal, const char *text, const char *file, int line, ...);

#define ENTRY_(suite_, name_, run_, ...)                                                           \
    __attribute__((constructor)) static void suite_##_##name_##_add(void) {                        \
        static test_entry entry_ = {#suite_, #name_, run_, {__VA_ARGS__}, NULL};                   \
        test_add(&entry_);                                                                         \
    }
#define TEST_(suite_, name_, ...)                                                                  \
    static void suite_##_##name_##_run(void);                                                      \
    ENTRY_(suite_, name_, suite_##_##name_##_run, __VA_ARGS__)                                     \
    static void suite_##_##name_##_run(void)
#define Test(...)              TEST_(__VA_ARGS__, .ignored = 0)
#define TestSuite(suite_, ...) ENTRY_(suite_, all_of_it, NULL, __VA_ARGS__) struct test_entry

/* The text that follows is the caller's, if there is one; the last argument stands in for it. */
#define JUDGE_(fatal, holds, ...)                                                                  \
    ((holds) ? (void)0 : test_fail(fatal, #holds, __FILE__, __LINE__, __VA_ARGS__))
#define ONE_(fatal, not, a, ...)     JUDGE_(fatal, not(a), __VA_ARGS__)
#define TWO_(fatal, op, a, b, ...)   JUDGE_(fatal, (a)op(b), __VA_ARGS__)
#define TEXTS_(fatal, op, a, b, ...) JUDGE_(fatal, strcmp(a, b) op 0, __VA_ARGS__)
#define BYTES_(fatal, a, b, n, ...)  JUDGE_(fatal, memcmp(a, b, n) == 0, __VA_ARGS__)
#define EMPTY_(fatal, a, ...)        JUDGE_(fatal, *(a) == '\0', __VA_ARGS__)
#define NEAR_(fatal, a, b, most, ...)                                                              \
    JUDGE_(fatal, (a) - (b) <= (most) && (b) - (a) <= (most), __VA_ARGS__)

#define cr_assert(...)           ONE_(true, , __VA_ARGS__, NULL)
#define cr_assert_not(...)       ONE_(true, !, __VA_ARGS__, NULL)
#define cr_assert_null(...)      ONE_(true, NULL ==, __VA_ARGS__, NULL)
#define cr_assert_not_null(...)  ONE_(true, NULL !=, __VA_ARGS__, NULL)
#define cr_assert_eq(...)        TWO_(true, ==, __VA_ARGS__, NULL)
#define cr_assert_neq(...)       TWO_(true, !=, __VA_ARGS__, NULL)
#define cr_assert_lt(...)        TWO_(true, <, __VA_ARGS__, NULL)
#define cr_assert_leq(...)       TWO_(true, <=, __VA_ARGS__, NULL)
#define cr_assert_gt(...)        TWO_(true, >, __VA_ARGS__, NULL)
#define cr_assert_geq(...)       TWO_(true, >=, __VA_ARGS__, NULL)
#define cr_assert_str_eq(...)    TEXTS_(true, ==, __VA_ARGS__, NULL)
#define cr_assert_str_neq(...)   TEXTS_(true, !=, __VA_ARGS__, NULL)
#define cr_assert_str_empty(...) EMPTY_(true, __VA_ARGS__, NULL)
#define cr_assert_arr_eq(...)    BYTES_(true, __VA_ARGS__, NULL)
#define cr_expect(...)           ONE_(false, , __VA_ARGS__, NULL)
#define cr_expect_not(...)       ONE_(false, !, __VA_ARGS__, NULL)
#define cr_expect_null(...)      ONE_(false, NULL ==, __VA_ARGS__, NULL)
#define cr_expect_not_null(...)  ONE_(false, NULL !=, __VA_ARGS__, NULL)
#define cr_expect_eq(...)        TWO_(false, ==, __VA_ARGS__, NULL)
#define cr_expect_neq(...)       TWO_(false, !=, __VA_ARGS__, NULL)
#define cr_expect_lt(...)        TWO_(false, <, __VA_ARGS__, NULL)
#define cr_expect_leq(...)       TWO_(false, <=, __VA_ARGS__, NULL)
#define cr_expect_gt(...)        TWO_(false, >, __VA_ARGS__, NULL)
#define cr_expect_geq(...)       TWO_(false, >=, __VA_ARGS__, NULL)
#define cr_expect_str_eq(...)    TEXTS_(false, ==, __VA_ARGS__, NULL)
#define cr_expect_str_neq(...)   TEXTS_(false, !=, __VA_ARGS__, NULL)
#define cr_expect_str_empty(...) EMPTY_(false, __VA_ARGS__, NULL)
#define cr_expect_float_eq(...)  NEAR_(false, __VA_ARGS__, NULL)
#define cr_log_info(...)         ((void)fprintf(stderr, __VA_ARGS__), (void)fputc('\n', stderr))

#endif
