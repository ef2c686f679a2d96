/* dense_halo.json, order, invalid and helpers: the bits of sums of 16-bit gradients, descriptions
 * that are rejected, and the numbers of convolutions. */
#include "dense_halo.h"
#include "row_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check {
    golden_side sides[2];
    lierne_layout *layouts[2];
    lierne_layout *other_dst; /* that of rank 1, or NULL */
    lierne_dtype dtype;
    golden_world *world;
} check;

static void make_layouts(golden_case *c, check *k) {
    static const char *const names[] = {"src", "dst"};
    for (int s = 0; s < 2; s++) {
        if (golden_side_read(c, &k->sides[s], names[s], k->dtype)) {
            golden_expect_status(c, "lierne_layout_create",
                                 lierne_layout_create(&k->layouts[s], &k->sides[s].spec),
                                 LIERNE_OK);
        }
    }
}

static void free_layouts(check *k) {
    for (int s = 0; s < 2; s++) {
        lierne_layout_destroy(k->layouts[s]);
        golden_side_free(&k->sides[s]);
    }
    lierne_layout_destroy(k->other_dst);
}

/* Elements of 2 or 4 bytes. */
static void *read_bits(const cJSON *list, size_t size) {
    char *bits = golden_alloc(cJSON_GetArraySize(list), size);
    for (int i = 0; i < cJSON_GetArraySize(list); i++) {
        unsigned long long all = strtoull(cJSON_GetArrayItem(list, i)->valuestring, NULL, 16);
        const uint16_t half = (uint16_t)all;
        const uint32_t word = (uint32_t)all;
        memcpy(bits + (size_t)i * size, size == 2 ? (const void *)&half : &word, size);
    }
    return bits;
}

static void compare_bits(lierne_context *context, void *shared) {
    const check *k = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &k->world->cases[rank];
    const cJSON *upstream = cJSON_GetArrayItem(golden_get(c->item, "upstream_bits"), rank),
                *wanted = cJSON_GetArrayItem(golden_get(c->item, "adjoint_bits"), rank);
    int n = cJSON_GetArraySize(wanted);
    size_t size = lierne_dtype_size(k->dtype);
    void *in = read_bits(upstream, size), *must = read_bits(wanted, size);
    char *out = golden_alloc(n, size);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = k->layouts[0],
                                           .dst = k->layouts[1]};
    lierne_plan **plan = &k->world->plans[rank];
    if (golden_expect_status(c, "lierne_plan_create_redistribute",
                             lierne_plan_create_redistribute(plan, context, &spec), LIERNE_OK)) {
        golden_expect_status(c, "lierne_plan_adjoint", lierne_plan_adjoint(*plan, out, in, NULL),
                             LIERNE_OK);
        golden_expect(c, memcmp(out, must, (size_t)n * size) == 0, "rank %d: other bits", rank);
    }
    free(in), free(out), free(must);
}

void golden_dense_halo_order(golden_case *c) {
    check k = {.layouts = {NULL}};
    golden_expect_status(c, "lierne_dtype_parse",
                         lierne_dtype_parse(&k.dtype, golden_string(c->item, "dtype")), LIERNE_OK);
    make_layouts(c, &k);
    golden_world world = golden_world_new(c, (int)golden_int(c->item, "world", 0));
    k.world = &world;
    if (!c->failed && golden_world_run(&world, compare_bits, &k)) {
        golden_world_check(c, &world);
    }
    golden_world_end(c, &world, "order");
    free_layouts(&k);
}

static lierne_status wanted_of(const cJSON *item) {
    static const struct {
        const char *name;
        lierne_status status;
    } statuses[] = {{"INVALID", LIERNE_ERR_INVALID},
                    {"UNSUPPORTED", LIERNE_ERR_UNSUPPORTED},
                    {"OVERFLOW", LIERNE_ERR_OVERFLOW},
                    {"MISMATCH", LIERNE_ERR_MISMATCH}};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (strcmp(golden_string(item, "expect"), statuses[i].name) == 0) {
            return statuses[i].status;
        }
    }
    return LIERNE_OK;
}

/* Rank 1's description where it differs. */
static lierne_status make_other(check *k, const cJSON *rank_1) {
    lierne_dense_halo *halo = &k->sides[1].halos[0];
    halo->lo = golden_int(rank_1, "lo", halo->lo);
    halo->hi = golden_int(rank_1, "hi", halo->hi);
    return rank_1 ? lierne_layout_create(&k->other_dst, &k->sides[1].spec) : LIERNE_OK;
}

/* A call that must fail although planning succeeds. */
static lierne_status call(golden_case *c, lierne_plan *plan) {
    static int64_t buffer[64];
    const char *what = golden_string(c->item, "call");
    return strcmp(what, "adjoint") == 0 ? lierne_plan_adjoint(plan, buffer, buffer + 32, NULL)
                                        : lierne_plan_forward(plan, buffer, buffer, NULL);
}

static void expect_rejected(lierne_context *context, void *shared) {
    const check *k = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &k->world->cases[rank];
    bool stated = cJSON_IsTrue(golden_get(c->item, "adjoint_layouts"));
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = k->layouts[0],
                                           .dst = rank == 1 && k->other_dst ? k->other_dst
                                                                            : k->layouts[1],
                                           .adjoint_src = stated ? k->layouts[0] : NULL,
                                           .adjoint_dst = stated ? k->layouts[0] : NULL};
    lierne_plan **plan = &k->world->plans[rank];
    lierne_status status = lierne_plan_create_redistribute(plan, context, &spec);
    if (golden_get(c->item, "call")) {
        golden_expect_status(c, "lierne_plan_create_redistribute", status, LIERNE_OK);
        status = call(c, *plan);
    }
    /* In a simulated world ranks that plan before the others get a plan. */
    if (k->other_dst && k->world->sim && status == LIERNE_OK) {
        return;
    }
    golden_expect_status(c, "the call", status, wanted_of(c->item));
    golden_expect(c, strstr(lierne_last_error(), golden_string(c->item, "field")) != NULL,
                  "'%s' does not name the field", lierne_last_error());
}

void golden_dense_halo_invalid(golden_case *c) {
    static const char *const names[] = {"src", "dst"};
    check k = {.dtype = strcmp(golden_string(c->item, "dtype"), "bits8") == 0 ? LIERNE_DTYPE_BITS8
                                                                              : LIERNE_DTYPE_I64};
    lierne_status status = LIERNE_OK;
    for (int s = 0; s < 2 && status == LIERNE_OK; s++) {
        golden_side_read(c, &k.sides[s], names[s], k.dtype);
        status = lierne_layout_create(&k.layouts[s], &k.sides[s].spec);
    }
    if (status != LIERNE_OK) { /* a description that is wrong by itself */
        golden_expect(c, status == wanted_of(c->item), "%s, expected %s: %s",
                      lierne_status_name(status), golden_string(c->item, "expect"),
                      lierne_last_error());
        free_layouts(&k);
        return;
    }
    golden_expect_status(c, "lierne_layout_create", make_other(&k, golden_get(c->item, "rank_1")),
                         LIERNE_OK);
    golden_world world = golden_world_new(c, (int)golden_int(c->item, "world", 0));
    k.world = &world;
    bool all = golden_world_run(&world, expect_rejected, &k);
    golden_expect(c, !all || golden_get(c->item, "call"), "all ranks have planned");
    golden_world_end(c, &world, "invalid");
    free_layouts(&k);
}

void golden_dense_halo_helper(golden_case *c) {
    const cJSON *expect = golden_get(c->item, "expect");
    const lierne_convolution_spec spec = {.size = sizeof spec,
                                          .elements = golden_int(c->item, "size", 0),
                                          .kernel = golden_int(c->item, "kernel", 0),
                                          .stride = golden_int(c->item, "stride", 0),
                                          .dilation = golden_int(c->item, "dilation", 0),
                                          .pad_lo = golden_int(c->item, "pad_lo", 0),
                                          .pad_hi = golden_int(c->item, "pad_hi", 0)};
    lierne_dense_halo halo = {.axis = 3};
    golden_expect_status(c, "lierne_halo_from_convolution",
                         lierne_halo_from_convolution(&halo, &spec),
                         expect ? LIERNE_OK : LIERNE_ERR_INVALID);
    golden_expect(c,
                  !expect || (halo.lo == golden_int(expect, "lo", 0) &&
                              halo.hi == golden_int(expect, "hi", 0) &&
                              halo.outputs == golden_int(expect, "outputs", 0) &&
                              halo.stride == spec.stride && halo.axis == 3),
                  "lo %lld, hi %lld, outputs %lld", (long long)halo.lo, (long long)halo.hi,
                  (long long)halo.outputs);
}
