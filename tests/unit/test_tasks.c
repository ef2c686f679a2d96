/* Recorded work against the host's functions: every dtype and reduction, blocks of all forms,
 * misaligned addresses, rows that are mentioned twice; and what shares a launch. */
#include "runtime/memory/host.h"
#include "runtime/memory/memory.h"
#include "tasks.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST     18   /* sources; more than a tile has blocks */
#define ELEMENTS 3400 /* more than the largest block spans */

static unsigned state;
static unsigned draw(unsigned n) {
    state = state * 1103515245u + 12345u;
    return (state >> 16) % n;
}

/* Random bits, and of wide floats numbers near each other beside some NaNs. */
static void fill(lierne_dtype dtype, unsigned char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)draw(256);
    }
    for (size_t i = 0; dtype == LIERNE_DTYPE_F64 && i + 8 <= bytes; i += 8) {
        double x = draw(16) ? (double)draw(60000) / 7 - 4000 : -(double)NAN;
        memcpy(at + i, &x, 8);
    }
    for (size_t i = 0; dtype == LIERNE_DTYPE_F32 && i + 4 <= bytes; i += 4) {
        float x = draw(16) ? (float)draw(60000) / 7 - 4000 : -NAN;
        memcpy(at + i, &x, 4);
    }
}

/* Loops of 1 to 4 counts; the blocks of one piece of work all have them. */
typedef struct loops {
    int ndims;
    int64_t count[LIERNE_MAX_AXES];
} loops;

static loops draw_loops(void) {
    loops l = {.ndims = 1 + (int)draw(4)};
    for (int d = 0; d < l.ndims; d++) {
        l.count[d] = 1 + draw(d == l.ndims - 1 ? 20 : 3);
    }
    return l;
}

/* A block with these loops within elements of a buffer; with a list where rows is not NULL. */
static lierne_block draw_block(const loops *l, bool dense, int64_t *rows, bool twice) {
    lierne_block b = {.offset = dense ? draw(3) * 16 : draw(5), .ndims = l->ndims};
    int64_t stride = dense || draw(2) ? 1 : 2;
    for (int d = l->ndims - 1; d >= 0; d--) {
        b.count[d] = l->count[d];
        b.stride[d] = stride;
        stride *= l->count[d] + (dense ? 0 : draw(3));
    }
    if (rows && l->ndims == 2) {
        for (int64_t i = 0; i < l->count[0]; i++) {
            rows[i] = twice ? draw((unsigned)l->count[0]) : (i * 5 + 3) % (l->count[0] * 5);
        }
        b.rows = rows;
    }
    return b;
}

static void run_program(lierne_program *p, lierne_reduction reduction, unsigned char **buffers,
                        int n) {
    lierne_task_call call = {.reduction = (int32_t)reduction};
    for (int i = 0; i < n; i++) {
        call.bases[i] = (char *)buffers[i];
    }
    lierne_task_call_align(&call, (size_t)n);
    for (size_t i = 0; i < p->launches.count; i++) {
        cr_assert_eq(test_task_memory.launch(p, i, &call, NULL), LIERNE_OK);
    }
}

/* A device traps where a piece is not aligned to itself; this host does not. */
static void check_alignment(const lierne_program *p) {
    for (size_t i = 0; i < p->tasks.count; i++) {
        const lierne_task *t = &p->tasks.at[i];
        for (int64_t b = t->block; b <= t->block + t->nfrom; b++) {
            const lierne_task_block *block = &p->blocks.at[b];
            int64_t last = block->stride[t->ndims - 1];
            cr_assert_eq(block->offset % t->unit, 0);
            cr_assert(t->unit <= t->size ? last % t->unit == 0 : last == t->size);
            for (int d = 0; d < t->ndims - 1; d++) {
                cr_assert_eq(block->stride[d] % t->unit, 0, "pieces of %d bytes, stride %lld",
                             t->unit, (long long)block->stride[d]);
            }
        }
    }
}

typedef struct buffers {
    unsigned char *memory[MOST + 1];
    unsigned char *at[MOST + 1];
    unsigned char *expected;
    size_t bytes;
} buffers;

static buffers draw_buffers(lierne_dtype dtype) {
    buffers b = {.bytes = ELEMENTS * lierne_dtype_size(dtype)};
    for (int i = 0; i <= MOST; i++) {
        b.memory[i] = malloc(b.bytes + 64);
        b.at[i] = b.memory[i] + draw(3) * 8;
        fill(dtype, b.at[i], b.bytes);
    }
    b.expected = malloc(b.bytes);
    memcpy(b.expected, b.at[0], b.bytes);
    return b;
}

static void free_buffers(buffers *b) {
    for (int i = 0; i <= MOST; i++) {
        free(b->memory[i]);
    }
    free(b->expected);
}

/* One random piece of work, recorded and by the host's functions. */
static void compare(lierne_dtype dtype, unsigned seed) {
    state = seed * 2654435761u + (unsigned)dtype;
    int64_t rows[MOST + 1][8];
    lierne_block blocks[MOST + 1];
    lierne_operand from[MOST + 1];
    lierne_contribution contributions[MOST + 1];
    buffers b = draw_buffers(dtype);
    loops l = draw_loops();
    bool dense = draw(2), floats = dtype <= LIERNE_DTYPE_F16, accumulates = draw(2);
    size_t size = lierne_dtype_size(dtype),
           n = dtype >= LIERNE_DTYPE_BITS8 ? draw(2) : draw(draw(4) ? 6 : MOST + 1);
    for (size_t i = 0; i <= n; i++) {
        blocks[i] = draw_block(&l, dense, draw(2) ? rows[i] : NULL, i > 0);
        from[i] = (lierne_operand){(int)i, (int)i, 0, &blocks[i]};
        contributions[i] = (lierne_contribution){i ? b.at[i] : b.expected, &blocks[i]};
    }
    size_t first = accumulates && n > 0 && dtype < LIERNE_DTYPE_BITS8 ? 0 : 1, used = n + 1 - first;
    lierne_work work = {.kind = used == 0   ? LIERNE_TASK_ZERO
                                : used == 1 ? LIERNE_TASK_COPY
                                            : LIERNE_TASK_REDUCE,
                        .size = size,
                        .dtype = dtype,
                        .reduction = (lierne_reduction)draw(4),
                        .divisor = floats ? draw(4) : 1,
                        .to = from[0],
                        .from = from + first,
                        .nfrom = used};
    lierne_program p = {0};
    assert_ok(lierne_program_open(&p));
    assert_ok(lierne_program_add(&p, &work, true));
    check_alignment(&p);
    run_program(&p, LIERNE_REDUCTION_SUM, b.at, (int)n + 1);
    if (used > 1) {
        lierne_host_reduce(dtype, work.reduction, work.divisor, b.expected, &blocks[0],
                           contributions + first, used);
    } else if (used == 1) {
        lierne_host_copy(size, b.expected, &blocks[0], b.at[1], &blocks[1]);
    } else {
        lierne_host_zero(size, b.expected, &blocks[0]);
    }
    cr_assert_arr_eq(b.at[0], b.expected, b.bytes, "%s, seed %u", lierne_dtype_name(dtype), seed);
    lierne_program_destroy(&p);
    free_buffers(&b);
}

Test(tasks, random_work_has_the_bits_of_the_host) {
    size_t live = lierne_mem_live();
    for (int dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_BITS128; dtype++) {
        for (unsigned seed = 0; seed < 120; seed++) {
            compare((lierne_dtype)dtype, seed);
        }
    }
    cr_assert_eq(lierne_mem_live(), live);
}

/* Counts on both sides of those that are not divided, and numbers just below multiples of them. */
Test(tasks, positions_are_those_of_a_division) {
    const int64_t counts[] = {1,
                              2,
                              3,
                              1000,
                              16384,
                              LIERNE_SHORT_COUNT,
                              LIERNE_SHORT_COUNT + 1,
                              ((int64_t)1 << 31) - 1,
                              (int64_t)1 << 31,
                              ((int64_t)1 << 32) - 5,
                              ((int64_t)1 << 40) + 7};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (unsigned i = 0; i < 1000; i++) {
            uint32_t more = draw(16385);
            int64_t start =
                i % 2 ? counts[c] - 1 - draw(16384) % counts[c] : draw(60000) % counts[c];
            int64_t at = -1, whole = lierne_task_carry(&at, start, more, counts[c],
                                                       lierne_task_inverse(counts[c]));
            cr_assert_eq(whole, (start + more) / counts[c]);
            cr_assert_eq(at, (start + more) % counts[c]);
        }
    }
}

/* A list that mentions a row again: the host adds mention after mention. */
static void add_mentions(size_t nfrom, int64_t divisor) {
    const int64_t rows[6] = {2, 0, 2, 2, 1, 0};
    uint16_t to[12], expected[12], from[24];
    for (int i = 0; i < 24; i++) {
        from[i] = lierne_bf16_from_float(1.0f + (float)i / 128);
    }
    for (int i = 0; i < 12; i++) {
        to[i] = expected[i] = lierne_bf16_from_float(100.0f + (float)i);
    }
    lierne_block target = {.ndims = 2, .count = {6, 4}, .stride = {4, 1}, .rows = rows};
    lierne_block source = {.ndims = 2, .count = {6, 4}, .stride = {4, 1}};
    lierne_operand sources[3] = {{0, 0, 0, &target}, {1, 1, 0, &source}, {0, 0, 0, &target}};
    lierne_work work = {.kind = LIERNE_TASK_REDUCE,
                        .size = 2,
                        .dtype = LIERNE_DTYPE_BF16,
                        .divisor = divisor,
                        .to = sources[0],
                        .from = sources,
                        .nfrom = nfrom};
    lierne_program p = {0};
    assert_ok(lierne_program_open(&p));
    assert_ok(lierne_program_add(&p, &work, true));
    cr_assert_eq(p.tasks.at[0].elements, 12);
    unsigned char *bases[2] = {(unsigned char *)to, (unsigned char *)from};
    run_program(&p, LIERNE_REDUCTION_SUM, bases, 2);
    lierne_contribution c[3] = {{expected, &target}, {from, &source}, {expected, &target}};
    lierne_host_reduce(LIERNE_DTYPE_BF16, LIERNE_REDUCTION_SUM, divisor, expected, &target, c,
                       nfrom);
    cr_assert_arr_eq(to, expected, sizeof to);
    lierne_program_destroy(&p);
}

/* Also where the target is read again, and where each mention divides. */
Test(tasks, mentions_of_a_row_are_added_in_their_order) {
    add_mentions(2, 1);
    add_mentions(2, 3);
    add_mentions(3, 1);
}

static void add_range(lierne_program *p, int to, int64_t to_at, int from, int64_t from_at) {
    lierne_block a = lierne_block_range(to_at, 64), b = lierne_block_range(from_at, 64);
    lierne_operand target = {to, to, 0, &a}, source = {from, from, 0, &b};
    lierne_work work = {.kind = LIERNE_TASK_COPY,
                        .size = 4,
                        .dtype = LIERNE_DTYPE_F32,
                        .to = target,
                        .from = &source,
                        .nfrom = 1};
    assert_ok(lierne_program_add(p, &work, true));
}

/* Work that needs, or overwrites, what came before it begins a launch; other work does not. */
Test(tasks, work_that_depends_is_launched_later) {
    lierne_program p = {0};
    assert_ok(lierne_program_open(&p));
    add_range(&p, 1, 0, 0, 0);
    add_range(&p, 1, 64, 0, 64);
    cr_assert_eq(p.launches.count, 1u);
    add_range(&p, 2, 0, 1, 0); /* reads what was written */
    cr_assert_eq(p.launches.count, 2u);
    add_range(&p, 1, 0, 0, 0); /* overwrites what is read */
    cr_assert_eq(p.launches.count, 3u);
    add_range(&p, 1, 32, 0, 0); /* overwrites what was written */
    cr_assert_eq(p.launches.count, 4u);
    add_range(&p, 3, 0, 0, 0);
    cr_assert_eq(p.launches.count, 4u);
    cr_assert(p.launches.at[0].contiguous);
    cr_assert_eq(p.tasks.at[0].unit, 16);
    lierne_program_destroy(&p);
}

/* Pieces are as long as the blocks of their own work allow, also where the lists of a program that
 * was cleared have others behind them. */
Test(tasks, work_of_other_alignment_leaves_pieces_as_they_are) {
    lierne_program p = {0};
    assert_ok(lierne_program_open(&p));
    add_range(&p, 1, 0, 0, 0);
    add_range(&p, 1, 65, 0, 65);
    cr_assert_eq(p.tasks.at[1].unit, 4);
    lierne_program_clear(&p);
    assert_ok(lierne_program_open(&p));
    add_range(&p, 1, 0, 0, 0);
    cr_assert_eq(p.tasks.at[0].unit, 16);
    lierne_program_destroy(&p);
}

/* Tiles of several tasks of one launch, all longer than a tile. */
Test(tasks, long_tasks_share_a_launch) {
    enum { N = 40000 };
    uint32_t *memory = malloc(4 * N * sizeof *memory), *out = calloc(4 * N, sizeof *out);
    lierne_program p = {0};
    assert_ok(lierne_program_open(&p));
    for (uint32_t i = 0; i < 4 * N; i++) {
        memory[i] = i * 2654435761u + 1;
    }
    for (int i = 0; i < 4; i++) {
        lierne_block to = lierne_block_range((3 - i) * N, N), from = lierne_block_range(i * N, N);
        lierne_operand target = {0, 0, 0, &to}, source = {1, 1, 0, &from};
        lierne_work work = {
            .kind = LIERNE_TASK_COPY, .size = 4, .to = target, .from = &source, .nfrom = 1};
        assert_ok(lierne_program_add(&p, &work, false));
    }
    cr_assert_eq(p.launches.count, 1u);
    cr_assert_eq(p.launches.at[0].tiles, 4 * ((4 * N + LIERNE_TILE - 1) / LIERNE_TILE));
    unsigned char *bases[2] = {(unsigned char *)out, (unsigned char *)memory};
    run_program(&p, LIERNE_REDUCTION_SUM, bases, 2);
    for (int i = 0; i < 4 * N; i++) {
        cr_assert_eq(out[i], memory[(3 - i / N) * N + i % N]);
    }
    lierne_program_destroy(&p);
    free(memory);
    free(out);
}
