/* What a call of the library must return, and what its error must say. Include after criterion. */
#ifndef EXPECT_H
#define EXPECT_H

#include "lierne/status.h"

#include <string.h>

#define assert_ok(call) cr_assert_eq(call, LIERNE_OK, "%s: %s", #call, lierne_last_error())
#define expect_ok(call) cr_expect_eq(call, LIERNE_OK, "%s: %s", #call, lierne_last_error())
#define assert_says(words)                                                                         \
    cr_assert(strstr(lierne_last_error(), words), "'%s' is not in '%s'", words, lierne_last_error())
#define expect_says(words)                                                                         \
    cr_expect(strstr(lierne_last_error(), words), "'%s' is not in '%s'", words, lierne_last_error())
#define assert_error(call, status, words)                                                          \
    do {                                                                                           \
        cr_assert_eq(call, status, "%s: %s", #call, lierne_last_error());                          \
        assert_says(words);                                                                        \
    } while (0)

#endif
