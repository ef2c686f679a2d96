/* Statuses, messages, counted memory, text. */
#include "base/base.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>

Test(base, every_status_has_a_name_and_a_paragraph) {
#define CHECK(name, number, text)                                                                  \
    cr_assert_str_eq(lierne_status_name(number), #name);                                           \
    cr_assert_gt(strlen(lierne_status_text(number)), 15);
    LIERNE_STATUS_TABLE(CHECK)
    cr_assert_str_eq(lierne_status_name(-999), "unknown status");
    cr_assert_eq(LIERNE_OK, 0);
    cr_assert_eq(LIERNE_ERR_MISMATCH, -60, "numbers are pinned");
    cr_assert_str_eq(lierne_version(), LIERNE_VERSION_STRING);
}

static void *fail_elsewhere(void *arg) {
    (void)arg;
    (void)LIERNE_FAIL(LIERNE_ERR_INVALID, "elsewhere");
    cr_assert_str_eq(lierne_last_error(), "elsewhere", "no public function on this thread");
    return NULL;
}

static void inner_call(void) {
    LIERNE_PUBLIC_CALL();
    (void)LIERNE_FAIL(LIERNE_ERR_INVALID, "value %d, bound %d", 3, 2);
}

/* Fails in another public function, and while another thread fails outside of any. */
static void outer_call(void) {
    pthread_t thread;
    LIERNE_PUBLIC_CALL();
    inner_call();
    cr_assert_str_eq(lierne_last_error(), "outer_call: value 3, bound 2");
    cr_assert_str_eq(lierne_error_text(), "value 3, bound 2");
    pthread_create(&thread, NULL, fail_elsewhere, NULL);
    pthread_join(thread, NULL);
    cr_assert_str_eq(lierne_last_error(), "outer_call: value 3, bound 2");
    lierne_set_error("text of another rank");
    cr_assert_str_eq(lierne_last_error(), "outer_call: text of another rank");
}

Test(base, the_message_is_of_this_thread_and_never_too_long) {
    char text[4000];
    outer_call();
    inner_call();
    cr_assert_str_eq(lierne_last_error(), "inner_call: value 3, bound 2");
    cr_assert_eq(LIERNE_FAIL(LIERNE_ERR_INVALID, "outside"), LIERNE_ERR_INVALID);
    cr_assert_str_eq(lierne_last_error(), "outside");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    (void)LIERNE_FAIL(LIERNE_ERR_INVALID, "%s", text);
    cr_assert_lt(strlen(lierne_last_error()), LIERNE_MESSAGE_SIZE);
    /* The message may quote the message before. */
    (void)LIERNE_FAIL(LIERNE_ERR_INVALID, "one");
    (void)LIERNE_FAIL(LIERNE_ERR_INVALID, "two after %s", lierne_last_error());
    cr_assert_str_eq(lierne_last_error(), "two after one");
}

Test(base, memory_is_counted_and_fails_on_request) {
    size_t before = lierne_mem_live();
    int *a = NULL;
    LIERNE_VEC(int) v = {0};
    assert_ok(lierne_alloc(&a, 10, sizeof *a));
    cr_assert_eq(a[9], 0);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(LIERNE_VEC_PUSH(&v, i), LIERNE_OK);
    }
    cr_assert_eq(v.at[99], 99);
    cr_assert_eq(lierne_mem_live(), before + 2);
    lierne_mem_fail_at(2);
    int *b = NULL, *c = a;
    assert_ok(lierne_alloc(&b, 1, 1));
    cr_assert_eq(lierne_alloc(&c, 1, 1), LIERNE_ERR_NO_MEMORY);
    cr_assert_null(c);
    lierne_mem_free(a), lierne_mem_free(b), lierne_mem_free(v.at), lierne_mem_free(NULL);
    cr_assert_eq(lierne_mem_live(), before);
    cr_assert_eq(lierne_alloc(&a, SIZE_MAX / 2, 4), LIERNE_ERR_NO_MEMORY);
}

Test(base, a_copy_of_a_text_is_as_long_as_it) {
    char *text;
    lierne_mem_fail_at(1);
    assert_error(lierne_strdup(&text, "abc"), LIERNE_ERR_NO_MEMORY,
                 "no memory for 4 items of 1 bytes");
    assert_ok(lierne_strdup(&text, "abc"));
    cr_assert_str_eq(text, "abc");
    lierne_mem_free(text);
}

Test(base, memory_that_is_freed_is_the_systems_again) {
    struct mallinfo2 before = mallinfo2();
    char *a;
    assert_ok(lierne_alloc(&a, 16 << 20, 1));
    lierne_mem_free(a);
    cr_assert_eq(mallinfo2().hblkhd, before.hblkhd);
    cr_assert_eq(mallinfo2().uordblks, before.uordblks);
}

/* All other fields are then newer than the program. */
Test(base, a_spec_may_have_its_size_alone) {
    struct {
        size_t size;
        int64_t newer;
    } given = {sizeof given.size, 7}, taken;
    assert_ok(lierne_spec_take(&taken, sizeof taken, &given, "spec"));
    cr_expect(taken.size == sizeof taken && taken.newer == 0);
}

Test(base, lists_without_a_capacity_grow_and_may_shrink) {
    struct {
        int *at;
        size_t count;
    } list = {0};
    size_t before = lierne_mem_live();
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(LIERNE_LIST_PUSH(&list, i), LIERNE_OK);
    }
    list.count = 3; /* the memory of 128 stays until a push at a power of two */
    for (int i = 3; i < 10; i++) {
        cr_assert_eq(LIERNE_LIST_PUSH(&list, -i), LIERNE_OK);
    }
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(list.at[i], i < 3 ? i : -i);
    }
    lierne_mem_free(list.at);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(base, text_grows_and_remembers_failure) {
    lierne_text text = {0};
    char *out;
    for (int i = 0; i < 1000; i++) {
        lierne_text_add(&text, "%d,", i);
    }
    assert_ok(lierne_text_take(&text, &out));
    cr_assert_eq(strlen(out), 10 * 2 + 90 * 3 + 900 * 4);
    lierne_mem_free(out);
    lierne_mem_fail_at(1);
    lierne_text_add(&text, "lost");
    lierne_mem_fail_at(0);
    cr_assert_eq(lierne_text_take(&text, &out), LIERNE_ERR_NO_MEMORY);
    cr_assert_null(out);
    assert_ok(lierne_text_take(&text, &out));
    cr_assert_str_eq(out, "");
    lierne_mem_free(out);
}

Test(base, arithmetic_is_checked) {
    size_t s;
    int64_t i;
    cr_assert(lierne_mul_size(1u << 31, 2, &s) && s == (size_t)1 << 32);
    cr_assert(!lierne_mul_size(SIZE_MAX, 2, &s));
    cr_assert(!lierne_mul_i64(INT64_MAX, 2, &i));
    cr_assert(!lierne_add_i64(INT64_MAX, 1, &i));
    cr_assert(lierne_add_i64(INT64_MAX - 1, 1, &i) && i == INT64_MAX);
}

Test(base, a_time_after_another_has_less_than_a_second_of_nanoseconds) {
    const struct timespec now = {.tv_sec = 7, .tv_nsec = 990000000};
    struct timespec then = lierne_time_after(now, 9999999);
    cr_expect(then.tv_sec == 7 && then.tv_nsec == 999999999);
    then = lierne_time_after(now, 10000000);
    cr_expect(then.tv_sec == 8 && then.tv_nsec == 0);
    then = lierne_time_after(now, 3020000000);
    cr_expect(then.tv_sec == 11 && then.tv_nsec == 10000000);
}

Test(base, a_deadline_passes_while_one_looks) {
    lierne_deadline d;
    lierne_deadline_start(&d, 10, 100);
    cr_assert(!lierne_deadline_passed(&d, 104));
    cr_assert(!lierne_deadline_passed(&d, 109.9));
    cr_assert(!lierne_deadline_passed(&d, 110));
    cr_assert(lierne_deadline_passed(&d, 110.1));
}

Test(base, a_process_that_was_stopped_may_look_again) {
    lierne_deadline d;
    lierne_deadline_start(&d, 10, 100);
    cr_assert(!lierne_deadline_passed(&d, 101));
    cr_assert(!lierne_deadline_passed(&d, 200), "it did not run for 99 seconds");
    cr_assert(!lierne_deadline_passed(&d, 204.9));
    cr_assert(lierne_deadline_passed(&d, 300), "only once");
}

Test(base, an_error_says_what_was_allocated) {
    void *memory = NULL;
    lierne_mem_fail_at(1);
    cr_expect_eq(lierne_alloc(&memory, 0, 64), LIERNE_ERR_NO_MEMORY);
    expect_says("no memory for 1 items of 64 bytes");
    lierne_mem_fail_at(1);
    cr_expect_eq(lierne_realloc(&memory, 0, 8), LIERNE_ERR_NO_MEMORY);
    expect_says("no memory for 1 items of 8 bytes");
    lierne_mem_fail_at(0);
}
