/* Memory of a context, over shared memory: blocks that overlap, are not zeroed, or stay after an
 * error; more than the system gives. */
#include "mpi/common.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static void memory_that_is_refused(lierne_context *context) {
    struct rlimit limit, low;
    void *out = &limit;
    CHECK(lierne_context_alloc(&out, context, SIZE_MAX / 2) == LIERNE_ERR_NO_MEMORY && !out,
          "half of the address space");
    getrlimit(RLIMIT_FSIZE, &limit);
    low = limit;
    low.rlim_cur = 2 << 20;
    setrlimit(RLIMIT_FSIZE, &low);
    CHECK(lierne_context_alloc(&out, context, 32 << 20) == LIERNE_ERR_NO_MEMORY && !out,
          "more than the system gives");
    CHECK(strstr(lierne_last_error(), "33554432 bytes"), "'%s'", lierne_last_error());
    setrlimit(RLIMIT_FSIZE, &limit);
    lierne_mem_fail_at(1);
    CHECK(lierne_context_alloc(&out, context, 100) == LIERNE_ERR_NO_MEMORY && !out,
          "without memory");
    lierne_mem_fail_at(0);
}

static void memory_of_a_context(void) {
    lierne_context *context = test_context(PATIENT);
    char *memory[40];
    size_t before = lierne_mem_live(), sum = 0;
    CHECK(lierne_context_alloc(NULL, context, 1) == LIERNE_ERR_INVALID, "out is NULL");
    CHECK(lierne_context_alloc((void **)&memory[0], NULL, 1) == LIERNE_ERR_INVALID && !memory[0],
          "context is NULL");
    memory_that_is_refused(context);
    for (int i = 0; i < 40; i++) {
        size_t bytes = (size_t)(i * i * 997);
        CHECK_OK(lierne_context_alloc((void **)&memory[i], context, bytes));
        CHECK((uintptr_t)memory[i] % 4096 == 0, "%p", (void *)memory[i]);
        for (size_t b = 0; b < bytes; b += 61) {
            CHECK(memory[i][b] == 0, "byte %zu is %d", b, memory[i][b]);
        }
        memset(memory[i], i + 1, bytes);
        if (i % 3 == 2) {
            CHECK_OK(lierne_context_dealloc(context, memory[i - 1]));
            CHECK(lierne_context_dealloc(context, memory[i - 1]) == LIERNE_ERR_INVALID,
                  "freed twice");
            memory[i - 1] = NULL;
        }
    }
    CHECK(lierne_context_dealloc(context, memory[3] + 1) == LIERNE_ERR_INVALID, "inside of it");
    CHECK(lierne_context_destroy(context) == LIERNE_ERR_INVALID, "destroyed with memory alive");
    CHECK(lierne_context_dealloc(NULL, memory[3]) == LIERNE_ERR_INVALID, "context is NULL");
    for (int i = 0; i < 40; i++) {
        for (size_t b = 0; memory[i] && b < (size_t)(i * i * 997); b += 61) {
            CHECK(memory[i][b] == i + 1, "memory overlaps");
        }
        CHECK_OK(lierne_context_dealloc(context, memory[i]));
    }
    CHECK(lierne_mem_live() == before, "leaked");
    CHECK_OK(lierne_context_alloc((void **)&memory[0], context, 1 << 20));
    for (size_t b = 0; b < 1 << 20; b++) {
        sum += memory[0][b] != 0;
    }
    CHECK(sum == 0, "%zu bytes of memory that is used again are not zero", sum);
    CHECK_OK(lierne_context_dealloc(context, memory[0]));
    CHECK_OK(lierne_context_destroy(context));
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    if (test_world == 1) {
        setenv("LIERNE_TRANSPORTS", "shm", 1); /* or a rank without others has none */
    }
    memory_of_a_context();
    return test_finish();
}
