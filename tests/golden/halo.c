/* halo.json, cases: every rank plans its own swaps and executes them, staged and flattened, in each
 * dtype. The expected results follow from the roots in the file (halo_case.c), which are compared
 * with its numbers first; where sums are inexact, staged swaps must give the file's bits. */
#include "halo_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_F32, LIERNE_DTYPE_I64,
                                      LIERNE_DTYPE_I32, LIERNE_DTYPE_F16, LIERNE_DTYPE_BF16};
enum { NDTYPES = sizeof dtypes / sizeof dtypes[0] };

/* The plan of the swaps; made of it: one round with whole arrays, one with ghosts apart. */
typedef enum kind { SWAPS, FLAT, SEPARATE, NKINDS } kind;

typedef struct variant {
    const golden_halo_case *halo;
    golden_world *world;
    golden_type type;
    kind kind;
    bool keep;
    bool full; /* also everything that is the same for all dtypes */
} variant;

/* Sums whose bits depend on the order, which is that of the swaps. */
static bool ordered(const variant *v) {
    return v->halo->inexact &&
           (v->type.dtype == LIERNE_DTYPE_F64 || v->type.dtype == LIERNE_DTYPE_F32);
}

static void read_bits(golden_case *c, golden_row_case *row_case, const cJSON *list) {
    const cJSON *row, *bits;
    int64_t i = 0, n = row_case->nx * row_case->type.width;
    golden_expect(c, cJSON_IsArray(list), "the case has no bits");
    cJSON_ArrayForEach(row, list) {
        cJSON_ArrayForEach(bits, row) {
            const char *text = cJSON_GetStringValue(bits);
            uint64_t wide = strtoull(text ? text : "", NULL, 16);
            uint32_t single = (uint32_t)wide;
            float f;
            memcpy(&f, &single, sizeof f);
            if (golden_expect(c, text && i < n, "too many bits, or not in hex")) {
                memcpy(&row_case->fty[i], &wide, sizeof wide);
                row_case->fty[i] =
                    row_case->type.dtype == LIERNE_DTYPE_F32 ? (double)f : row_case->fty[i];
            }
            i++;
        }
    }
}

/* Ranks agree on the width of a row, not on where the next one starts. */
static golden_type type_of(const variant *v, int rank) {
    golden_type type = v->type;
    type.stride += type.stride > type.width ? rank % 2 : 0;
    return type;
}

static golden_row_case duty_of(golden_case *c, const variant *v, int rank) {
    if (v->kind == SEPARATE) {
        return golden_halo_separate(v->halo, rank, type_of(v, rank));
    }
    golden_row_case row_case = golden_halo_duty(v->halo, rank, type_of(v, rank));
    if (ordered(v)) {
        read_bits(c, &row_case,
                  golden_get(golden_halo_rank(c->item, rank), v->type.dtype == LIERNE_DTYPE_F32
                                                                  ? "backward_local_bits_f32"
                                                                  : "backward_local_bits_f64"));
    }
    if (v->keep && v->halo->nswap > 0) {
        golden_halo_keep(v->halo, rank, &row_case, v->kind == FLAT);
    }
    return row_case;
}

/* The definition against the file's numbers. */
static void check_oracle(golden_case *c, const variant *v, int rank) {
    const cJSON *item = golden_halo_rank(c->item, rank);
    golden_row_case row_case = golden_halo_duty(v->halo, rank, v->type);
    int64_t nowned = v->halo->forest.nowned[rank] * v->type.width;
    int64_t nghost = v->halo->forest.nghosts[rank] * v->type.width;
    golden_expect_list(c, "forward by definition", golden_get(item, "forward_ghost"),
                       row_case.fx + nowned, nghost);
    if (!v->halo->inexact) {
        golden_expect_list(c, "backward by definition", golden_get(item, "backward_local"),
                           row_case.fty, nowned);
    }
    if (golden_get(item, "backward_ghost")) {
        golden_expect_list(c, "ghosts by definition", golden_get(item, "backward_ghost"),
                           row_case.fty + nowned, nghost);
    }
    golden_row_case_free(&row_case);
}

static void check_roots(golden_case *c, const lierne_plan *plan, const variant *v, int rank) {
    const golden_forest *f = &v->halo->forest;
    int64_t n = f->nghosts[rank];
    int32_t *ranks = golden_alloc(n, sizeof *ranks);
    int64_t *rows = golden_alloc(n, sizeof *rows);
    lierne_status status = lierne_plan_get_halo_roots(ranks, rows, plan);
    bool rootless = n > 0 && v->halo->nswap == 0;
    golden_expect_status(c, "lierne_plan_get_halo_roots", status,
                         rootless ? LIERNE_ERR_INVALID : LIERNE_OK);
    for (int64_t k = 0; status == LIERNE_OK && k < n; k++) {
        golden_expect(c, ranks[k] == f->rank[rank][k] && rows[k] == f->row[rank][k],
                      "ghost %lld is of rank %d, row %lld, expected rank %d, row %lld",
                      (long long)k, ranks[k], (long long)rows[k], f->rank[rank][k],
                      (long long)f->row[rank][k]);
    }
    free(ranks);
    free(rows);
}

/* Which rows stay: not those that the case drops. */
static uint8_t *mask_of(const golden_case *c, const variant *v, int rank) {
    const golden_swaps *before = &v->halo->before[rank];
    int64_t n = before->nlocal + before->nghost, nnull;
    int64_t *null = golden_read_ints(golden_get(c->item, "null"), &nnull);
    uint8_t *keep = golden_alloc(n, 1);
    for (int64_t i = 0; i < n; i++) {
        keep[i] = 1;
        for (int64_t k = 0; k < nnull; k++) {
            keep[i] = keep[i] && v->halo->gid_before[rank][i] != null[k];
        }
    }
    free(null);
    return keep;
}

static int first_with_ghosts(const golden_halo_case *halo) {
    int rank = 0;
    while (rank < halo->world && halo->before[rank].nghost == 0) {
        rank++;
    }
    return halo->nswap > 0 ? rank : halo->world;
}

/* A rank drops a ghost that its sender keeps, or keeps one that it drops. */
static void check_mismatch(golden_case *c, const lierne_plan *plan, const variant *v, int rank,
                           uint8_t *keep) {
    int wrong = first_with_ghosts(v->halo);
    char name[24];
    lierne_plan *rejected = NULL;
    snprintf(name, sizeof name, "rank %d", wrong);
    if (wrong < v->halo->world) {
        keep[v->halo->before[rank].nlocal] ^= rank == wrong;
        lierne_status status = lierne_plan_create_restricted(&rejected, plan, keep);
        golden_expect_status(c, "masks that differ", status, LIERNE_ERR_MISMATCH);
        golden_expect(c, strstr(lierne_last_error(), name) != NULL, "'%s' does not name %s",
                      lierne_last_error(), name);
        golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(rejected), LIERNE_OK);
    }
}

/* The plan before rows were dropped becomes the one after. */
static void check_restrict(golden_case *c, lierne_context *context, const variant *v,
                           const golden_row_case *row_case) {
    int rank = lierne_context_get_rank(context);
    lierne_halo_spec spec = golden_swaps_spec(&v->halo->before[rank], row_case->type);
    lierne_halo_spec after = {.size = sizeof after};
    lierne_plan *plan = NULL, *cut = NULL;
    uint8_t *keep = mask_of(c, v, rank);
    lierne_status status = lierne_plan_create_halo(&plan, context, &spec);
    status = status ? status : lierne_plan_create_restricted(&cut, plan, keep);
    if (golden_expect_status(c, "lierne_plan_create_restricted", status, LIERNE_OK)) {
        check_mismatch(c, plan, v, rank, keep);
        status = lierne_plan_get_halo_spec(&after, cut);
        if (golden_expect_status(c, "lierne_plan_get_halo_spec", status, LIERNE_OK)) {
            golden_swaps_expect(c, "after rows were dropped", &after, &v->halo->plain[rank]);
        }
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(plan), LIERNE_OK);
    if (cut && !v->halo->phantom) {
        golden_row_case_expect(c, "without the rows dropped", cut, row_case);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(cut), LIERNE_OK);
    free(keep);
}

static void check_swaps(golden_case *c, lierne_context *context, const variant *v,
                        const lierne_plan *plan, const golden_row_case *row_case) {
    int rank = lierne_context_get_rank(context);
    lierne_halo_spec spec = {.size = sizeof spec};
    lierne_status status = lierne_plan_get_halo_spec(&spec, plan);
    if (golden_expect_status(c, "lierne_plan_get_halo_spec", status, LIERNE_OK)) {
        golden_swaps_expect(c, "swaps", &spec, &v->halo->swaps[rank]);
        golden_expect(c, spec.dtype == v->type.dtype && spec.width == v->type.width,
                      "the spec has another dtype or width");
    }
    check_oracle(c, v, rank);
    check_roots(c, plan, v, rank);
    check_restrict(c, context, v, row_case);
    golden_halo_bricks(c, context, v->halo);
}

/* Makes the plan that the variant is about; NULL where there is none to be. */
static lierne_plan *plan_of(golden_case *c, lierne_context *context, const variant *v) {
    int rank = lierne_context_get_rank(context);
    lierne_halo_spec spec = golden_swaps_spec(&v->halo->swaps[rank], type_of(v, rank));
    lierne_plan *swaps = NULL, *flat = NULL;
    spec.keep_ghosts = v->keep;
    lierne_status status = lierne_plan_create_halo(&swaps, context, &spec);
    golden_expect_status(c, "lierne_plan_create_halo", status, LIERNE_OK);
    if (v->kind == SWAPS || status != LIERNE_OK) {
        return swaps;
    }
    bool ownerless = v->kind == SEPARATE && v->halo->nswap == 0;
    status = lierne_plan_create_flattened(&flat, swaps, v->kind == SEPARATE);
    golden_expect_status(c, "lierne_plan_create_flattened", status,
                         ownerless ? LIERNE_ERR_INVALID : LIERNE_OK);
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(swaps), LIERNE_OK);
    return flat;
}

/* What one rank does. A check that fails does not keep it from calls that the others wait in. */
static void work(lierne_context *context, void *shared) {
    const variant *v = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &v->world->cases[rank];
    golden_row_case row_case = duty_of(c, v, rank);
    lierne_plan *plan = v->world->plans[rank] = plan_of(c, context, v);
    if (plan) {
        golden_row_case_expect(c, "the plan", plan, &row_case);
        if (!v->keep && !ordered(v)) {
            golden_row_case_dots(c, plan, &row_case, v->world->dots[rank]);
        }
        if (v->full) {
            golden_row_case_algebra(c, context, plan, &row_case);
            golden_row_case_reduce(c, plan, &row_case);
        }
        if (v->full && v->kind == SWAPS) {
            check_swaps(c, context, v, plan, &row_case);
        }
    }
    golden_row_case_free(&row_case);
}

/* What is sent, over all ranks. */
static void expect_totals(golden_case *c, const variant *v) {
    const cJSON *stats = golden_get(c->item, "stats");
    int64_t row = v->type.width * (int64_t)lierne_dtype_size(v->type.dtype);
    bool swaps = v->kind == SWAPS;
    int64_t rows = golden_int(stats, swaps ? "swap_rows_remote" : "unique_rows_remote", -1);
    int64_t messages = golden_int(stats, swaps ? "swap_msgs" : "direct_msgs", -1);
    int64_t least = golden_int(stats, "unique_rows_remote", -1);
    int64_t local = golden_int(stats, "swap_rows_self", -1); /* and the owned rows */
    for (int r = 0; r < v->halo->world; r++) {
        local += v->halo->swaps[r].nlocal;
    }
    for (int d = 0; d < 2; d++) {
        lierne_report all = golden_world_report(c, v->world, (lierne_direction)d);
        golden_expect(c, all.sent_bytes == rows * row && all.received_bytes == rows * row,
                      "%lld bytes sent and %lld received, expected %lld", (long long)all.sent_bytes,
                      (long long)all.received_bytes, (long long)(rows * row));
        golden_expect(c, all.sent_messages == messages && all.received_messages == messages,
                      "%lld messages sent and %lld received, expected %lld",
                      (long long)all.sent_messages, (long long)all.received_messages,
                      (long long)messages);
        golden_expect(c, !swaps || d || v->halo->nswap == 0 || all.local_bytes == local * row,
                      "%lld bytes copied, expected %lld", (long long)all.local_bytes,
                      (long long)(local * row));
        golden_expect(c, all.min_bytes == least * row, "%lld bytes are the least, expected %lld",
                      (long long)all.min_bytes, (long long)(least * row));
        if (v->halo->nswap > 0) {
            golden_expect(c, strcmp(all.algorithm, swaps ? "swaps" : "direct") == 0,
                          "the algorithm is '%s'", all.algorithm);
            int64_t depth = swaps ? golden_int(stats, "depth", -1) : 1;
            bool sums_first =
                !swaps && d == LIERNE_DIRECTION_ADJOINT; /* a stage without messages */
            golden_expect(c, all.stages == depth || (sums_first && all.stages == depth + 1),
                          "%lld stages, expected %lld", (long long)all.stages, (long long)depth);
        }
    }
}

static void run_variant(golden_case *c, variant *v) {
    static const char *const kinds[NKINDS] = {"swaps", "flattened", "flattened, separate"};
    char what[80];
    golden_world world = golden_world_new(c, v->halo->world);
    v->world = &world;
    snprintf(what, sizeof what, "%s of %s, stride %d%s", kinds[v->kind],
             lierne_dtype_name(v->type.dtype), (int)v->type.stride, v->keep ? ", ghosts kept" : "");
    if (golden_world_run(&world, work, v)) {
        golden_world_check(c, &world);
        golden_world_expect_adjoint(c, &world);
        expect_totals(c, v);
    }
    golden_world_end(c, &world, what);
}

void golden_halo(golden_case *c) {
    enum { W = GOLDEN_HALO_WIDTH };
    golden_halo_case halo = golden_halo_read(c->item);
    for (int i = 0; i < 2 * NKINDS * NDTYPES && !c->failed; i++) {
        int dtype = i % NDTYPES, k = i / NDTYPES % NKINDS;
        variant v = {.halo = &halo,
                     .type = {dtypes[dtype], W, W + ((i + i / NDTYPES) % 2 ? 3 : 0)},
                     .kind = (kind)k,
                     .keep = i / NDTYPES / NKINDS > 0,
                     .full = i / NDTYPES < NKINDS && (dtype == 2 * k || (dtype < 2 && k == SWAPS))};
        bool undefined =
            ((v.kind != SWAPS || v.keep) && ordered(&v)) || (v.kind == SEPARATE && v.keep);
        if (!undefined) {
            run_variant(c, &v);
        }
    }
    golden_halo_free(&halo);
}
