/* The parts of shared memory below the transport: walking over blocks, segments between processes,
 * the bell. tests/mpi/shm.c has the transport. */
#include "backend/shm/bell.h"
#include "backend/shm/pull.h"
#include "backend/shm/shm_message.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "runtime/execute/shared_output.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 3

static int draw(int n) {
    return rand() % n;
}

/* A block of up to three loops, or of rows of a list; its elements are within `elements`. */
static lierne_block random_block(int64_t *rows, int elements) {
    lierne_block b = {.ndims = 1 + draw(3), .offset = draw(elements / 2)};
    int64_t left = elements / 2 - 1;
    for (int d = 0; d < b.ndims; d++) {
        b.count[d] = draw(5);
        b.stride[d] = d == b.ndims - 1 ? 1 : draw((int)left / 12 + 1);
    }
    if (draw(3) == 0) {
        b.ndims = 2;
        b.count[1] = 1 + draw(4);
        b.stride[0] = 5;
        b.stride[1] = 1;
        b.rows = rows;
        for (int i = 0; i < b.count[0]; i++) {
            rows[i] = draw(9);
        }
    }
    return b;
}

/* Bytes of blocks one by one, by the definition of a block. */
static size_t list_bytes(const lierne_part *p, char *to) {
    size_t n = 0;
    for (size_t k = 0; k < p->nblocks; k++) {
        const lierne_block *b = &p->blocks[k];
        for (int64_t i = 0; i < lierne_block_elements(b); i++) {
            int64_t at = b->offset, left = i;
            for (int d = b->ndims - 1; d >= 0; d--) {
                int64_t index = left % b->count[d];
                at += (d == 0 && b->rows ? b->rows[index] : index) * b->stride[d];
                left /= b->count[d];
            }
            memcpy(to + n, (const char *)p->base + at * (int64_t)p->size, p->size);
            n += p->size;
        }
    }
    return n;
}

Test(shm, a_cursor_walks_over_every_byte_in_order) {
    enum { elements = 128 };
    char data[elements * 8], wanted[8192], got[8192];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (char)(i * 37 % 251);
    }
    srand(7);
    for (int round = 0; round < 20000; round++) {
        int64_t rows[BLOCKS][8];
        lierne_block blocks[BLOCKS];
        lierne_part part = {.base = data,
                            .size = (size_t)1 << draw(4),
                            .blocks = blocks,
                            .nblocks = BLOCKS};
        for (int k = 0; k < BLOCKS; k++) {
            blocks[k] = random_block(rows[k], elements);
        }
        size_t bytes = list_bytes(&part, wanted), used = 0, n, most = 1 + (size_t)draw(40);
        cr_assert_eq(lierne_parts_bytes(&part, 1), bytes);
        lierne_cursor cursor = lierne_cursor_at(&part, 1);
        for (char *at; (n = lierne_cursor_next(&cursor, &at, most)) > 0; used += n) {
            cr_assert(n <= most && used + n <= bytes, "round %d", round);
            memcpy(got + used, at, n);
        }
        cr_assert_eq(used, bytes, "round %d: %zu of %zu bytes", round, used, bytes);
        cr_assert_eq(memcmp(got, wanted, bytes), 0, "round %d", round);
    }
}

/* Runs in another process; its exit status says which check failed. */
static int use_segment(lierne_segment_name name, uint64_t offset, const char *private) {
    lierne_segment other;
    char *there, copy[6];
    lierne_block block = lierne_block_range(0, sizeof copy);
    lierne_part to = {.base = copy, .size = 1, .blocks = &block, .nblocks = 1};
    lierne_part from = {.base = private, .size = 1, .blocks = &block, .nblocks = 1};
    if (lierne_segment_attach(&other, name) != LIERNE_OK) {
        return 1;
    }
    there = lierne_segment_address(&other, offset, 100);
    if (!there || strcmp(there, "shared") != 0) {
        return 2;
    }
    strcpy(there + 50, "answer");
    if (lierne_segment_address(&other, (uint64_t)1 << 50, 1)) {
        return 3;
    }
    int code = lierne_pull((pid_t)name.process, &to, 1, &from, 1);
    if (code != 0 && code != EPERM && code != ENOSYS) {
        return 4;
    }
    from.base = (const void *)1;
    if (code == 0 && (memcmp(copy, "secret", 6) != 0 ||
                      lierne_pull((pid_t)name.process, &to, 1, &from, 1) != EFAULT)) {
        return 5;
    }
    lierne_segment_close(&other);
    name.token++; /* what a process finds that took over another one's number */
    return lierne_segment_attach(&other, name) == LIERNE_ERR_UNSUPPORTED ? 0 : 6;
}

Test(shm, another_process_maps_a_segment_only_by_its_token) {
    static const char private[] = "secret";
    lierne_segment own;
    uint64_t offset;
    void *memory;
    int status;
    assert_ok(lierne_segment_open(&own));
    assert_ok(lierne_segment_alloc(&memory, NULL, &own, 3 << 20));
    assert_ok(lierne_segment_alloc(&memory, &offset, &own, 100));
    strcpy(memory, "shared");
    pid_t child = fork();
    if (child == 0) {
        _exit(use_segment(own.name, offset, private));
    }
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d",
              WEXITSTATUS(status));
    cr_assert_str_eq((char *)memory + 50, "answer");
    lierne_segment_close(&own);
}

Test(shm, a_file_that_is_shorter_than_a_head_is_refused) {
    int file = memfd_create("short", MFD_CLOEXEC);
    const lierne_segment_name name = {(uint64_t)getpid(), (uint64_t)file, 0};
    lierne_segment other;
    assert_error(lierne_segment_attach(&other, name), LIERNE_ERR_UNSUPPORTED,
                 "refuses to map the shared memory of process");
    close(file);
}

/* Of a process without standard input. */
Test(shm, a_segment_may_have_descriptor_0) {
    lierne_segment s;
    close(STDIN_FILENO);
    assert_ok(lierne_segment_open(&s));
    cr_expect_eq(s.name.descriptor, 0);
    lierne_segment_close(&s);
}

Test(shm, areas_are_whole_cache_lines_and_go_with_their_batch) {
    enum { BYTES = 10001 }; /* one is all of an arena, but for less than another one */
    lierne_shm shm = {0};
    lierne_shm_areas areas = {0};
    uint64_t offset;
    char *at;
    assert_ok(lierne_segment_open(&shm.own));
    for (int i = 0; i < 4; i++) {
        assert_ok(lierne_shm_take_area(&shm, &areas, BYTES, &at, &offset));
        assert_ok(lierne_shm_take_area(&shm, &areas, (size_t)i + 1, &at, &offset));
        cr_expect_eq((uintptr_t)at % LIERNE_CACHE_LINE, 0);
        cr_expect_eq(lierne_segment_address(&shm.own, offset, 1), at);
    }
    cr_expect_eq(shm.own.used.count, 4);
    lierne_shm_drop_areas(&shm, &areas);
    cr_expect_eq(shm.own.used.count, 0);
    lierne_segment_close(&shm.own);
}

/* How far apart its runs lie, not where they begin, and in whole cache lines. */
Test(shm, a_slot_is_sized_by_the_runs_of_its_message) {
    enum { RUN = 256, LINES = 2 * LIERNE_CACHE_LINE };
    const lierne_shm shm = {0};
    size_t at;
    lierne_shm_message message = {.nparts = 1, .at = &at, .bytes = 2 * RUN};
    lierne_block block = {.ndims = 2, .offset = 1 << 20, .count = {2, RUN}, .stride = {2 * RUN, 1}};
    const lierne_part part = {.size = 1, .blocks = &block, .nblocks = 1};
    lierne_shm_size_slot(&shm, &message, &part);
    cr_expect_not(message.apart);
    block.stride[0] = 2 * LIERNE_FAR_APART;
    lierne_shm_size_slot(&shm, &message, &part);
    cr_expect(message.apart);
    message.bytes = LINES;
    block = lierne_block_range(0, LINES);
    lierne_shm_size_slot(&shm, &message, &part);
    cr_expect_eq(message.slot_bytes, LINES);
}

Test(shm, a_wait_sleeps_only_after_it_said_so) {
    lierne_bell bell = {.spins = 3};
    lierne_segment own;
    assert_ok(lierne_segment_open(&own));
    for (int i = 0; i < 3; i++) {
        cr_expect_not(lierne_bell_wait(&bell, own.head));
    }
    while (!lierne_bell_wait(&bell, own.head)) {
    }
    cr_expect_eq(own.head->asleep, 1);
    lierne_segment_close(&own);
}

/* Answers every round of the other process; both sleep whenever they wait. */
static void play(lierne_segment_head *own, lierne_segment_head *other, atomic_uint *mine,
                 const atomic_uint *theirs, unsigned rounds, bool first) {
    lierne_bell bell = {0};
    for (unsigned round = 1; round <= rounds; round++) {
        if (first) {
            atomic_store_explicit(mine, round, memory_order_release);
            lierne_bell_fence();
            lierne_bell_wake(other);
        }
        while (atomic_load_explicit(theirs, memory_order_acquire) < round) {
            lierne_bell_wait(&bell, own);
        }
        lierne_bell_reset(&bell, own);
        if (!first) {
            atomic_store_explicit(mine, round, memory_order_release);
            lierne_bell_fence();
            lierne_bell_wake(other);
        }
    }
}

Test(shm, the_bell_wakes_who_waits) {
    lierne_segment a, b;
    void *memory;
    int status;
    assert_ok(lierne_segment_open(&a));
    assert_ok(lierne_segment_open(&b));
    assert_ok(lierne_segment_alloc(&memory, NULL, &a, 4096));
    atomic_uint *flags = memory;
    pid_t child = fork();
    if (child == 0) {
        play(b.head, a.head, &flags[16], &flags[0], 3000, false);
        _exit(0);
    }
    play(a.head, b.head, &flags[0], &flags[16], 3000, true);
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(flags[0], 3000);
    lierne_segment_close(&a);
    lierne_segment_close(&b);
}

Test(shm, a_full_segment_is_no_memory_and_keeps_nothing) {
    lierne_segment s;
    void *memory;
    size_t before = lierne_mem_live();
    lierne_mem_fail_at(1);
    cr_assert_eq(lierne_segment_open(&s), LIERNE_ERR_NO_MEMORY);
    lierne_mem_fail_at(0);
    cr_assert_eq(lierne_mem_live(), before);
    assert_ok(lierne_segment_open(&s));
    size_t opened = lierne_mem_live();
    assert_error(lierne_segment_alloc(&memory, NULL, &s, SIZE_MAX), LIERNE_ERR_NO_MEMORY,
                 "memory of the machine");
    cr_assert_not(lierne_segment_free(&s, &s));
    cr_assert_eq(lierne_mem_live(), opened);
    lierne_segment_close(&s);
    cr_assert_eq(lierne_mem_live(), before);
}

/* Where there is no shm, it is ordinary memory. */
static void use_memory(lierne_context *context) {
    char *memory[3];
    for (int i = 0; i < 3; i++) {
        size_t bytes = (size_t)i * 5000;
        assert_ok(lierne_context_alloc((void **)&memory[i], context, bytes));
        cr_assert_eq((uintptr_t)memory[i] % LIERNE_PAGE, 0);
        for (size_t b = 0; b < bytes; b++) {
            cr_assert_eq(memory[i][b], 0);
        }
        memset(memory[i], 0xee, bytes);
    }
    for (int i = 0; i < 3; i++) {
        assert_ok(lierne_context_dealloc(context, memory[i]));
        cr_assert_eq(lierne_context_dealloc(context, memory[i]), LIERNE_ERR_INVALID);
    }
    assert_ok(lierne_context_dealloc(context, NULL));
    cr_assert_eq(lierne_context_alloc((void **)&memory[0], context, SIZE_MAX),
                 LIERNE_ERR_NO_MEMORY);
    cr_assert_null(memory[0]);
}

Test(shm, memory_of_a_context_without_shm) {
    lierne_context *self;
    lierne_sim *sim;
    void *memory, *more;
    size_t before = lierne_mem_live();
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_ok(lierne_sim_create(&sim, 2, NULL));
    use_memory(self);
    use_memory(lierne_sim_get_context(sim, 1));
    assert_ok(lierne_context_alloc(&memory, self, 1));
    assert_ok(lierne_context_alloc(&more, self, 1));
    assert_error(lierne_context_destroy(self), LIERNE_ERR_INVALID,
                 "lierne_context_destroy: 2 buffers");
    assert_ok(lierne_context_destroy_all(self));
    assert_ok(lierne_context_alloc(&memory, lierne_sim_get_context(sim, 1), 1));
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_ERR_INVALID);
    assert_ok(lierne_sim_destroy_all(sim));
    cr_assert_eq(lierne_mem_live(), before);
}

/* An output of a rank alone, or where no memory is shared. */
Test(shm, an_output_without_memory_says_how_much_it_needs) {
    enum { BYTES = 12345 };
    const int rank = 0;
    char said[64];
    bool found = false;
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    lierne_context *self;
    snprintf(said, sizeof said, "no memory for %d items of 1 bytes", BYTES);
    assert_ok(lierne_context_create_self(&self, NULL));
    size_t live = lierne_mem_live();
    for (size_t k = 1; status != LIERNE_OK; k++) {
        lierne_shared_output *output = NULL;
        lierne_mem_fail_at(k);
        status = lierne_shared_output_create(&output, self, BYTES, &rank, 1);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY);
        found |= status != LIERNE_OK && strcmp(lierne_error_text(), said) == 0;
        lierne_shared_output_destroy(output, true);
        cr_assert_eq(lierne_mem_live(), live);
    }
    cr_expect(found);
    assert_ok(lierne_context_destroy(self));
}
