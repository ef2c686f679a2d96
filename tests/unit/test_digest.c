/* Digests: the same in every layout; every seeded fault found, with its tensor and rank; on threads
 * the same of lierne_digest_check. Values are computed from global indices by the boxes of public
 * layouts. */
#include "rank_threads.h"
#include "unit/expect.h"
#include "unit/redistribute_case.h"

#include "base/base.h"
#include "diagnose/digest.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 2000, FAULTS = 10000, WORLD = 8, TENSORS = 3 };

static uint64_t draw(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u;
    uint64_t x = (*seed ^ *seed >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* --- tensors ------------------------------------------------------------------------------------
 */

/* A tensor before and after it was moved, on all ranks. */
typedef struct moved {
    redistribute_case c;
    lierne_layout *layouts[2];
    unsigned char *data[2][WORLD];
} moved;

static bool has_partial(const redistribute_case *c) {
    bool any = false;
    for (int l = 0; l < 2; l++) {
        for (int d = 0; d < c->layouts[l].ndims; d++) {
            any |= c->layouts[l].placements[d].kind == LIERNE_PLACEMENT_PARTIAL;
        }
    }
    return any;
}

/* Byte b of the element at an index; of another step or tensor where salt differs. */
static unsigned char value_of(uint64_t salt, int64_t index, size_t b) {
    uint64_t seed = (salt * 1000003 + (uint64_t)index) * 2 + b / 8;
    return (unsigned char)(draw(&seed) >> b % 8 * 8);
}

static int64_t place(const moved *m, const int64_t *shape, const int64_t *at) {
    int64_t index = 0;
    for (int a = 0; a < m->c.naxes; a++) {
        index = index * shape[a] + at[a];
    }
    return index;
}

/* Writes a tensor into what a rank owns. Returns the number of elements. */
static int64_t fill(const moved *m, int side, int rank, uint64_t salt, unsigned char *data) {
    size_t count, size = lierne_dtype_size(m->c.dtype);
    int64_t shape[LIERNE_MAX_AXES], n = 0;
    assert_ok(lierne_layout_get_shape(shape, m->layouts[side], rank));
    assert_ok(lierne_layout_get_boxes(NULL, 0, &count, m->layouts[side], rank));
    lierne_box *boxes = calloc(count + 1, sizeof *boxes);
    lierne_layout_get_boxes(boxes, count, &count, m->layouts[side], rank);
    for (size_t i = 0; i < count; i++) {
        int64_t at[LIERNE_MAX_AXES] = {0}, total = 1;
        for (int a = 0; a < m->c.naxes; a++) {
            total *= boxes[i].size[a];
        }
        for (int64_t e = 0; e < total; e++, n++) {
            int64_t rest = e, global[LIERNE_MAX_AXES];
            for (int a = m->c.naxes - 1; a >= 0; a--) {
                at[a] = boxes[i].local[a] + rest % boxes[i].size[a];
                global[a] = boxes[i].start[a] + rest % boxes[i].size[a];
                rest /= boxes[i].size[a];
            }
            for (size_t b = 0; b < size; b++) {
                data[(size_t)place(m, shape, at) * size + b] =
                    value_of(salt, place(m, m->c.shape, global), b);
            }
        }
    }
    free(boxes);
    return n;
}

static void close_moved(moved *m) {
    for (int side = 0; side < 2; side++) {
        for (int r = 0; r < m->c.world; r++) {
            free(m->data[side][r]);
        }
        lierne_layout_destroy(m->layouts[side]);
    }
}

/* A random tensor without contributions; false where the seed has some. */
static bool open_moved(moved *m, uint64_t seed, uint64_t salt) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_U8, LIERNE_DTYPE_BF16, LIERNE_DTYPE_F32,
                                          LIERNE_DTYPE_I64, LIERNE_DTYPE_BITS128};
    *m = (moved){.layouts = {NULL}};
    random_redistribute(&m->c, seed, WORLD);
    if (has_partial(&m->c)) {
        return false;
    }
    m->c.dtype = dtypes[seed % 5];
    for (int side = 0; side < 2; side++) {
        m->layouts[side] = redistribute_layout(&m->c, side);
        for (int r = 0; r < m->c.world; r++) {
            int64_t stored;
            lierne_layout_get_elements(&stored, NULL, m->layouts[side], r);
            size_t bytes = (size_t)stored * lierne_dtype_size(m->c.dtype);
            m->data[side][r] = malloc(bytes + 1);
            memset(m->data[side][r], 0xa5, bytes + 1);
            fill(m, side, r, salt, m->data[side][r]);
        }
    }
    return true;
}

/* --- digests ------------------------------------------------------------------------------------
 */

static uint64_t digest_of(const moved *m, int side, int rank, int peer, uint64_t tensor,
                          int64_t *elements) {
    uint64_t digest = 1;
    const lierne_digest_spec spec = {.size = sizeof spec,
                                     .layout = m->layouts[side],
                                     .rank = rank,
                                     .peer_layout = peer < 0 ? NULL : m->layouts[!side],
                                     .peer = peer,
                                     .key = 77,
                                     .tensor = tensor};
    assert_ok(lierne_digest_compute(&digest, elements, &spec, m->data[side][rank]));
    return digest;
}

static bool compare_sides(uint64_t seed) {
    moved m;
    uint64_t sums[2] = {0};
    int64_t elements[2] = {0}, all = 1, n;
    if (!open_moved(&m, seed, 5)) {
        return false;
    }
    for (int a = 0; a < m.c.naxes; a++) {
        all *= m.c.shape[a];
    }
    for (int side = 0; side < 2; side++) {
        for (int r = 0; r < m.c.world; r++) {
            sums[side] += digest_of(&m, side, r, -1, 9, &n);
            elements[side] += n;
        }
    }
    cr_assert_eq(elements[0], all, "seed %llu: %lld elements of %lld", (unsigned long long)seed,
                 (long long)elements[0], (long long)all);
    cr_assert_eq(elements[1], all);
    cr_assert_eq(sums[0], sums[1], "seed %llu: %s", (unsigned long long)seed,
                 redistribute_text(&m.c));
    cr_assert(all == 0 || sums[0] != 0);
    for (int a = 0; a < m.c.world; a++) {
        for (int b = 0; b < m.c.world; b++) {
            int64_t theirs;
            uint64_t sent = digest_of(&m, 0, a, b, 9, &n), got = digest_of(&m, 1, b, a, 9, &theirs);
            cr_assert(n == theirs && sent == got, "seed %llu: %d -> %d", (unsigned long long)seed,
                      a, b);
        }
    }
    close_moved(&m);
    return all > 0;
}

/* Pieces below a block are summed word by word, whole blocks by loops or vectors. */
Test(digest, of_pieces_is_that_of_the_whole) {
    enum { BLOCK = 4 * LIERNE_DIGEST_WORDS, BLOCKS = 40 };
    static unsigned char data[BLOCKS * BLOCK];
    lierne_digest_factors factors;
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)draw(&seed);
    }
    for (uint64_t key = 0; key < 50; key++) {
        lierne_digest_factors_set(&factors, key, key / 7);
        uint64_t at = BLOCK * (draw(&seed) >> 20), pieces = 0;
        uint64_t whole = lierne_digest_bytes(&factors, data, at, sizeof data);
        for (size_t done = 0, n; done < sizeof data; done += n) {
            n = 1 + (size_t)(draw(&seed) % (BLOCK - 1));
            n = n < sizeof data - done ? n : sizeof data - done;
            pieces += lierne_digest_bytes(&factors, data + done, at + done, n);
        }
        cr_assert_eq(whole, pieces);
        cr_assert_eq(whole, lierne_digest_blocks(&factors, data, at / BLOCK, BLOCKS));
    }
}

Test(digest, does_not_depend_on_the_layout) {
    int compared = 0;
    size_t before = lierne_mem_live();
    for (uint64_t seed = 0; seed < CASES; seed++) {
        compared += compare_sides(seed);
    }
    cr_expect_gt(compared, CASES / 4);
    cr_expect_eq(lierne_mem_live(), before);
}

/* --- faults -------------------------------------------------------------------------------------
 */

enum { MISSING, DOUBLED, SWAPPED, STALE, WRONG_TENSOR, KINDS };
static const char *const kinds[] = {"missing", "doubled", "swapped", "stale", "of another tensor"};

/* Spoils rows of a rank's out: rows are along the last axis of the buffer. */
static void spoil(const moved *m, int rank, int kind, uint64_t *seed) {
    int64_t shape[LIERNE_MAX_AXES], rows = 1;
    unsigned char *data = m->data[1][rank];
    lierne_layout_get_shape(shape, m->layouts[1], rank);
    for (int a = 0; a + 1 < m->c.naxes; a++) {
        rows *= shape[a];
    }
    size_t bytes = (size_t)shape[m->c.naxes - 1] * lierne_dtype_size(m->c.dtype);
    unsigned char *other = malloc((size_t)rows * bytes + 1), *spare = malloc(bytes);
    memset(other, 0xa5, (size_t)rows * bytes);
    if (kind == STALE || kind == WRONG_TENSOR) {
        fill(m, 1, rank, kind == STALE ? 1005 : 6, other);
    }
    int64_t i = (int64_t)(draw(seed) % (uint64_t)rows), k = (int64_t)(draw(seed) % (uint64_t)rows);
    unsigned char *row = data + (size_t)i * bytes, *second = data + (size_t)k * bytes;
    memcpy(spare, row, bytes);
    if (kind == DOUBLED || kind == SWAPPED) {
        memmove(row, second, bytes);
        memcpy(kind == SWAPPED ? second : other, spare, bytes);
    } else {
        memcpy(row, other + (size_t)i * bytes, bytes);
    }
    free(other);
    free(spare);
}

/* Whether a rank's out is wrong by any of the digests that those of the source have for it. */
static bool is_found(const moved *m, int rank) {
    bool wrong = false;
    for (int a = 0; a < m->c.world; a++) {
        wrong |= digest_of(m, 0, a, rank, 9, NULL) != digest_of(m, 1, rank, a, 9, NULL);
    }
    return wrong;
}

/* One fault of a case; false where it changed nothing that the rank owns. */
static bool try_fault(const moved *m, int rank, int kind, uint64_t *seed) {
    int64_t stored, owned;
    lierne_layout_get_elements(&stored, &owned, m->layouts[1], rank);
    if (owned == 0) {
        return false;
    }
    size_t bytes = (size_t)stored * lierne_dtype_size(m->c.dtype);
    unsigned char *right = malloc(bytes), *now = malloc(bytes);
    memcpy(right, m->data[1][rank], bytes);
    spoil(m, rank, kind, seed);
    memcpy(now, m->data[1][rank], bytes);
    fill(m, 1, rank, 5, now); /* where it differs now, an owned element was wrong */
    bool changed = memcmp(now, m->data[1][rank], bytes) != 0;
    cr_assert_eq(is_found(m, rank), changed, "rank %d, row %s: %s", rank, kinds[kind],
                 redistribute_text(&m->c));
    memcpy(m->data[1][rank], right, bytes);
    free(right);
    free(now);
    return changed;
}

Test(digest, finds_every_seeded_fault) {
    uint64_t seed = 0;
    int found[KINDS] = {0}, all = 0;
    for (uint64_t s = 0; all < FAULTS; s++) {
        moved m;
        if (!open_moved(&m, s, 5)) {
            continue;
        }
        for (int i = 0; i < 8 * KINDS; i++) {
            int rank = (int)(draw(&seed) % (uint64_t)m.c.world);
            bool changed = try_fault(&m, rank, i % KINDS, &seed);
            found[i % KINDS] += changed;
            all += changed;
        }
        close_moved(&m);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        cr_expect_gt(found[kind], FAULTS / 10, "%s: %d", kinds[kind], found[kind]);
    }
    printf("%d seeded faults, all found\n", all);
}

/* --- the collective check -----------------------------------------------------------------------
 */

/* What the threads share: tensors, and what each is to give or to see. */
typedef struct board {
    moved tensors[TENSORS];
    int odd;           /* this rank gives another key, or a NULL buffer */
    bool key, null_in; /* which of these */
    lierne_status wanted;
    char text[160];
    int wrong; /* ranks that saw something else */
} board;

static void check_on_a_rank(lierne_context *context, void *shared) {
    board *b = shared;
    int rank = lierne_context_get_rank(context);
    const lierne_layout *layouts[2][TENSORS];
    const void *data[2][TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        for (int side = 0; side < 2; side++) {
            layouts[side][t] = b->tensors[t].layouts[side];
            data[side][t] = b->tensors[t].data[side][rank];
        }
    }
    const lierne_digest_check_spec spec = {.size = sizeof spec,
                                           .ntensors = TENSORS,
                                           .src = layouts[0],
                                           .dst = layouts[1],
                                           .key = b->key && rank == b->odd ? 78 : 77};
    if (b->null_in && rank == b->odd) {
        data[0][1] = NULL;
    }
    lierne_status status = lierne_digest_check(context, &spec, data[1], data[0]);
    bool right = status == b->wanted && (!status || strstr(lierne_last_error(), b->text));
    if (!right) {
        printf("rank %d: %s: %s, wanted %s\n", rank, lierne_status_name(status),
               lierne_last_error(), b->text);
        __atomic_add_fetch(&b->wrong, 1, __ATOMIC_SEQ_CST);
    }
}

static void check_all(board *b, lierne_status wanted, const char *text) {
    lierne_sim *sim;
    b->wanted = wanted;
    snprintf(b->text, sizeof b->text, "%s", text);
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    rank_threads(sim, WORLD, check_on_a_rank, b);
    assert_ok(lierne_sim_destroy(sim));
    cr_expect_eq(b->wrong, 0);
    b->wrong = 0;
}

/* The lowest rank that holds an element at the source and shares something with a rank. */
static int first_source(const moved *m, int rank) {
    for (int a = 0; a < WORLD; a++) {
        int64_t n, counted;
        digest_of(m, 0, a, -1, 9, &counted);
        digest_of(m, 0, a, rank, 9, &n);
        if (n > 0 && counted > 0) {
            return a;
        }
    }
    return -1;
}

Test(digest, check_names_the_tensor_and_the_ranks) {
    static board b;
    size_t before = lierne_mem_live();
    int n = 0;
    for (uint64_t seed = 0; n < TENSORS; seed++) {
        bool usable = open_moved(&b.tensors[n], seed, (uint64_t)n) && b.tensors[n].c.world == WORLD;
        if (usable || b.tensors[n].layouts[0] == NULL) {
            n += usable;
        } else {
            close_moved(&b.tensors[n]);
        }
    }
    check_all(&b, LIERNE_OK, "");
    for (int t = 0; t < TENSORS; t++) {
        for (int rank = 0; rank < WORLD; rank++) {
            moved *m = &b.tensors[t];
            int source = first_source(m, rank);
            if (source < 0) {
                continue;
            }
            char text[160];
            int64_t stored;
            lierne_layout_get_elements(&stored, NULL, m->layouts[1], rank);
            size_t bytes = (size_t)stored * lierne_dtype_size(m->c.dtype);
            for (size_t i = 0; i < bytes; i++) {
                m->data[1][rank][i] ^= 0x10;
            }
            snprintf(text, sizeof text,
                     "tensor %d: out of rank %d differs from in of rank %d in "
                     "the ",
                     t, rank, source);
            check_all(&b, LIERNE_ERR_MISMATCH, text);
            for (size_t i = 0; i < bytes; i++) {
                m->data[1][rank][i] ^= 0x10;
            }
        }
    }
    check_all(&b, LIERNE_OK, "");
    b.odd = 3, b.key = true;
    check_all(&b, LIERNE_ERR_MISMATCH, "key");
    b.key = false, b.null_in = true;
    b.odd = -1;
    for (int rank = 0; rank < WORLD && b.odd < 0; rank++) {
        b.odd = first_source(&b.tensors[1], rank);
    }
    cr_assert_geq(b.odd, 0);
    check_all(&b, LIERNE_ERR_INVALID, "in[1] is NULL, must be a buffer: the digest is of ");
    for (int t = 0; t < TENSORS; t++) {
        close_moved(&b.tensors[t]);
    }
    cr_expect_eq(lierne_mem_live(), before);
}

/* --- bad arguments ------------------------------------------------------------------------------
 */

static void rejected(lierne_digest_spec spec, const void *data, lierne_status wanted,
                     const char *text) {
    uint64_t digest = 1;
    cr_expect_eq(lierne_digest_compute(&digest, NULL, &spec, data), wanted, "%s", text);
    expect_says(text);
    cr_expect_eq(digest, 0);
}

Test(digest, rejects_bad_arguments) {
    moved m = {.layouts = {NULL}};
    uint64_t seed = 0, digest;
    int64_t n = 0;
    while (!open_moved(&m, seed, 5) || !digest_of(&m, 0, 0, -1, 9, &n)) {
        close_moved(&m);
        seed++;
    }
    const lierne_digest_spec good = {.size = sizeof good, .layout = m.layouts[0]};
    lierne_digest_spec s = good;
    cr_expect_eq(lierne_digest_compute(NULL, NULL, &good, m.data[0][0]), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_digest_compute(&digest, NULL, NULL, m.data[0][0]), LIERNE_ERR_INVALID);
    rejected(good, NULL, LIERNE_ERR_INVALID, "data is NULL, must be a buffer: the digest is of ");
    s.layout = NULL;
    rejected(s, m.data[0][0], LIERNE_ERR_INVALID, "layout is NULL");
    s = good, s.rank = m.c.world;
    rejected(s, m.data[0][0], LIERNE_ERR_INVALID, "rank is ");
    s = good, s.rank = -1;
    rejected(s, m.data[0][0], LIERNE_ERR_INVALID, "rank is -1, must be 0 to ");
    s = good, s.peer_layout = m.layouts[1], s.peer = m.c.world;
    rejected(s, m.data[0][0], LIERNE_ERR_INVALID, "peer is ");
    moved other = {.layouts = {NULL}};
    while (!open_moved(&other, ++seed, 5) || other.c.dtype == m.c.dtype) {
        close_moved(&other);
    }
    s = good, s.peer_layout = other.layouts[1];
    rejected(s, m.data[0][0], LIERNE_ERR_INVALID, "the two layouts are not of one tensor");
    close_moved(&other);
    redistribute_case c;
    lierne_layout *partial = NULL;
    for (seed = 0; !partial; seed++) {
        random_redistribute(&c, seed, WORLD);
        lierne_layout *candidate = redistribute_layout(&c, CASE_SRC);
        for (int d = 0; d < c.layouts[0].ndims && !partial; d++) {
            partial = c.layouts[0].placements[d].kind == LIERNE_PLACEMENT_PARTIAL &&
                              c.layouts[0].sizes[d] > 1
                          ? candidate
                          : NULL;
        }
        if (!partial) {
            lierne_layout_destroy(candidate);
        }
    }
    s = good, s.layout = partial;
    rejected(s, m.data[0][0], LIERNE_ERR_UNSUPPORTED, "layout has a PARTIAL dim");
    close_moved(&m);
    lierne_layout_destroy(partial);
    lierne_context *context;
    assert_ok(lierne_context_create_self(&context, NULL));
    lierne_digest_check_spec check = {.size = sizeof check, .ntensors = -1};
    cr_expect_eq(lierne_digest_check(context, &check, NULL, NULL), LIERNE_ERR_INVALID);
    expect_says("ntensors is -1");
    check.ntensors = 1;
    cr_expect_eq(lierne_digest_check(context, &check, NULL, NULL), LIERNE_ERR_INVALID);
    expect_says("src is NULL");
    check.ntensors = 0;
    expect_ok(lierne_digest_check(context, &check, NULL, NULL));
    cr_expect_eq(lierne_digest_check(NULL, &check, NULL, NULL), LIERNE_ERR_INVALID);
    expect_ok(lierne_context_destroy(context));
}
