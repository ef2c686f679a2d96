/* Samples: an all-gather, and a redistribution per tensor whose segments are the items.
 *
 * An item is a segment of a packed axis, and an assignment the owner of its packing. So dispatch
 * and return are redistributions that take new segments in every step, and moving, its adjoint and
 * what finds ranks that disagree are theirs. */
#include "layout/layout.h"
#include "lierne/redistribute.h"
#include "plan/fields.h"
#include "plan/samples/sample_routing.h"
#include "plan/spec_table.h"
#include "runtime/execute/execute.h"

#include <string.h>

#define MOST ((int64_t)1 << 60)

static const lierne_spec_entry numbers[] = {
    LIERNE_SPEC_NUMBER(lierne_samples_spec, max_local_items, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_samples_spec, max_local_segments, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_samples_spec, ncosts, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_samples_spec, caller, BOOL, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_samples_spec, max_rows, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_samples_spec, max_returned_rows, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_samples_spec, ntensors, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_samples_spec, max_inflight, INFLIGHT, COMPARED),
};
static const lierne_spec_table table = LIERNE_SPEC_TABLE(numbers);

static lierne_status check_range(int rank, const char *name, int64_t value, int64_t low,
                                 int64_t high) {
    return value >= low && value <= high
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s is %lld, must be %lld to %lld", rank,
                             name, (long long)value, (long long)low, (long long)high);
}

static lierne_status check_tensors(int rank, const lierne_samples_spec *spec) {
    LIERNE_TRY(check_range(rank, "ntensors", spec->ntensors, 1, LIERNE_MAX_SAMPLES_TENSORS));
    LIERNE_TRY(lierne_check_set(spec->tensors, "tensors"));
    for (int i = 0; i < spec->ntensors; i++) {
        const lierne_samples_tensor *t = &spec->tensors[i];
        LIERNE_TRY(check_range(rank, "way of a tensor", (int64_t)t->way, LIERNE_SAMPLES_DISPATCH,
                               LIERNE_SAMPLES_SEGMENTS));
        LIERNE_TRY(lierne_check_dtype(t->dtype, rank));
        LIERNE_TRY(check_range(rank, "width of a tensor", t->width, 1, INT32_MAX));
    }
    return LIERNE_OK;
}

static lierne_status take_spec(lierne_samples_spec *spec, int rank,
                               const lierne_samples_spec *given) {
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, rank));
    LIERNE_TRY(check_range(rank, "max_local_items", spec->max_local_items, 0, INT32_MAX));
    LIERNE_TRY(check_range(rank, "max_local_segments", spec->max_local_segments, 0,
                           spec->max_local_items > 0 ? INT32_MAX : 0));
    LIERNE_TRY(check_range(rank, "ncosts", spec->ncosts, 1, LIERNE_MAX_COSTS));
    LIERNE_TRY(check_range(rank, "max_rows", spec->max_rows, 1, MOST));
    LIERNE_TRY(check_range(rank, "max_returned_rows", spec->max_returned_rows, 0, MOST));
    LIERNE_TRY(lierne_plan_check_inflight(spec->max_inflight));
    if (spec->max_returned_rows == 0) {
        spec->max_returned_rows = spec->max_rows;
    }
    return check_tensors(rank, spec);
}

lierne_status lierne_samples_check_bytes(const lierne_samples *s, int64_t words) {
    const lierne_samples_spec *spec = &s->spec;
    int64_t most =
        spec->max_rows > spec->max_returned_rows ? spec->max_rows : spec->max_returned_rows;
    most = most > s->most.segments ? most : s->most.segments;
    bool fits = most <= MOST / s->nranks;
    for (int i = 0; fits && i < spec->ntensors; i++) {
        fits = most * s->nranks <= MOST / 16 / s->tensors[i].width;
    }
    return fits && words <= MOST / 8
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                             "rank %d: %d ranks of %lld rows, and blocks of %lld words, have more "
                             "than 2^60 bytes",
                             s->context->rank, s->nranks, (long long)most, (long long)words);
}

static void drop_routing(lierne_sample_routing *r) {
    for (int k = 0; k < 3; k++) {
        lierne_mem_free(r->boundaries[k]);
    }
    for (int k = 0; k < LIERNE_OWNERS; k++) {
        lierne_mem_free(r->owner[k]);
        lierne_mem_free(r->load[k]);
        lierne_mem_free(r->permutation[k]);
        lierne_mem_free(r->first[k]);
    }
    for (int k = 0; k < LIERNE_PLACES; k++) {
        lierne_mem_free(r->cu_seqlens[k]);
        lierne_mem_free(r->cu_seqlens_i32[k]);
    }
    *r = (lierne_sample_routing){.n = 0};
}

lierne_status lierne_samples_reserve_routing(const lierne_samples *s, lierne_sample_routing *r) {
    size_t n = (size_t)s->most.items, ranks = (size_t)s->nranks;
    drop_routing(r);
    r->most = s->most;
    for (int k = 0; k < 3; k++) {
        LIERNE_TRY(lierne_alloc(&r->boundaries[k], n + 1, sizeof *r->boundaries[k]));
    }
    for (int k = 0; k < LIERNE_OWNERS; k++) {
        LIERNE_TRY(lierne_alloc(&r->owner[k], n, sizeof *r->owner[k]));
        LIERNE_TRY(lierne_alloc(&r->load[k], ranks, sizeof *r->load[k]));
        LIERNE_TRY(lierne_alloc(&r->permutation[k], n, sizeof *r->permutation[k]));
        LIERNE_TRY(lierne_alloc(&r->first[k], ranks + 2, sizeof *r->first[k]));
    }
    for (int k = 0; k < LIERNE_PLACES; k++) {
        size_t most = (size_t)s->most.segments + 1;
        LIERNE_TRY(lierne_alloc(&r->cu_seqlens[k], most, sizeof *r->cu_seqlens[k]));
        LIERNE_TRY(lierne_alloc(&r->cu_seqlens_i32[k], most, sizeof *r->cu_seqlens_i32[k]));
    }
    return LIERNE_OK;
}

/* Of an assignment that sheds and follows LPT: what it takes per item and per rank, and a half
 * more, for lists that grow. */
static size_t balance_bytes(const lierne_samples *s) {
    return (size_t)s->most.items * 240 + (size_t)s->nranks * 640 + 4096;
}

static void drop_items(lierne_samples *s) {
    lierne_mem_free(s->cost);
    lierne_mem_free(s->rows);
    lierne_mem_free(s->given[0]);
    lierne_mem_free(s->given[1]);
    s->cost = s->rows = NULL;
    s->given[0] = s->given[1] = NULL;
}

lierne_status lierne_samples_reserve_items(lierne_samples *s) {
    size_t n = (size_t)s->most.items;
    drop_items(s);
    LIERNE_TRY(lierne_alloc(&s->cost, n * (size_t)s->spec.ncosts, sizeof *s->cost));
    LIERNE_TRY(lierne_alloc(&s->rows, n, sizeof *s->rows));
    for (int k = 0; s->spec.caller && k < 2; k++) {
        LIERNE_TRY(lierne_alloc(&s->given[k], n, sizeof *s->given[k]));
    }
    return LIERNE_OK;
}

/* Without a capacity, one item of each rank, until there are more. */
static lierne_status reserve(lierne_samples *s) {
    const lierne_sample_size most = lierne_samples_count_first(s)
                                        ? (lierne_sample_size){1, 1}
                                        : lierne_sample_size_most(&s->spec);
    int64_t words = lierne_sample_block_words(&s->spec, most);
    s->most = (lierne_sample_size){most.items * s->nranks, most.segments * s->nranks};
    LIERNE_TRY(lierne_samples_check_bytes(s, words <= MOST / s->nranks ? words * s->nranks : MOST));
    LIERNE_TRY(lierne_host_gather_open(&s->gather, s->context, (size_t)words));
    LIERNE_TRY(lierne_host_gather_open(&s->counter, s->context, 1));
    LIERNE_TRY(lierne_alloc(&s->first_word, (size_t)s->nranks, sizeof *s->first_word));
    LIERNE_TRY(lierne_alloc(&s->sizes, (size_t)s->nranks, sizeof *s->sizes));
    for (int p = 0; p < s->nranks; p++) {
        s->first_word[p] = p * words;
        s->sizes[p] = most;
    }
    LIERNE_TRY(lierne_alloc(&s->counts, (size_t)s->nranks, sizeof *s->counts));
    LIERNE_TRY(lierne_samples_reserve_items(s));
    LIERNE_TRY(lierne_balance_reserve(&s->memory, balance_bytes(s)));
    LIERNE_TRY(lierne_samples_reserve_routing(s, &s->routings[0]));
    return lierne_samples_reserve_routing(s, &s->routings[1]);
}

/* Of a tensor without items. */
static lierne_status create_layout(lierne_layout **out, const lierne_grid *grid,
                                   const lierne_samples_tensor *tensor) {
    static const int64_t boundary = 0;
    static const int32_t owner = 0;
    const lierne_placement placement = {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS, .axis = 0};
    const lierne_segments segments = {.size = sizeof segments, .cu_seqlens = &boundary};
    const lierne_packing packing = {.size = sizeof packing, .owner = &owner};
    const int64_t shape[2] = {0, tensor->width};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = tensor->dtype,
                                     .placements = &placement,
                                     .segments = &segments,
                                     .packing = &packing};
    return lierne_layout_create(out, &spec);
}

static lierne_status create_layouts(lierne_samples *s) {
    const lierne_members *m = &s->context->members;
    const char *const name = "rank";
    const int64_t size = s->nranks;
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = 1,
                                   .names = &name,
                                   .sizes = &size,
                                   .rank_offset = lierne_members_rank(m, 0),
                                   .world_size = m->world};
    lierne_grid *grid;
    LIERNE_TRY(lierne_grid_create(&grid, &spec));
    lierne_status status = LIERNE_OK;
    for (int i = 0; i < s->spec.ntensors && status == LIERNE_OK; i++) {
        status = create_layout(&s->layouts[i], grid, &s->tensors[i]);
        if (status == LIERNE_OK) {
            s->layouts[i]->ranks = m->ranks; /* where members do not follow one another */
        }
    }
    lierne_grid_destroy(grid);
    return status;
}

/* All that one rank does alone, before any plan. */
static lierne_status prepare(lierne_samples **out, lierne_context *context,
                             const lierne_samples_spec *given) {
    lierne_samples *s;
    lierne_samples_spec spec;
    LIERNE_TRY(take_spec(&spec, context->rank, given));
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    s = *out;
    s->context = context;
    s->spec = spec;
    s->nranks = context->members.count;
    memcpy(s->tensors, spec.tensors, (size_t)spec.ntensors * sizeof *s->tensors);
    s->spec.tensors = s->tensors;
    LIERNE_TRY(reserve(s));
    return create_layouts(s);
}

/* Where planning does not wait for all ranks, one of them may fail it later than others. So the
 * ranks agree after each plan. */
static lierne_status agree(const lierne_samples *s, lierne_status status) {
    const lierne_field field = {.name = "lierne_samples_create"};
    return lierne_context_agree_all(s->context, status, &field, 1, NULL);
}

lierne_status lierne_samples_create_plan(lierne_plan **out, lierne_samples *s, int i) {
    lierne_samples_way way = s->tensors[i].way;
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = s->layouts[i],
                                           .dst = s->layouts[i],
                                           .max_inflight = s->spec.max_inflight,
                                           .name = s->spec.name,
                                           .max_segments = s->most.items,
                                           .max_rows = way == LIERNE_SAMPLES_DISPATCH
                                                           ? s->spec.max_rows
                                                       : way == LIERNE_SAMPLES_RETURN
                                                           ? s->spec.max_returned_rows
                                                           : s->most.segments};
    lierne_status status = lierne_plan_create_redistribute(out, s->context, &spec);
    if (*out) {
        lierne_plan_own(*out);
    }
    if (*out && lierne_samples_count_first(s)) {
        lierne_plan_set_grows(*out);
    }
    status = agree(s, status);
    if (status != LIERNE_OK) {
        (void)lierne_plan_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* What was checked leaves no error to a plan's update, but those of a context that checks calls. */
lierne_status lierne_samples_update_plan(lierne_samples *s, const lierne_sample_routing *r, int i) {
    bool returns = s->tensors[i].way == LIERNE_SAMPLES_RETURN;
    const lierne_segments segments = {.size = sizeof segments,
                                      .nsegments = r->n,
                                      .cu_seqlens = r->boundaries[s->tensors[i].way]};
    const lierne_packing src = {.size = sizeof src, .owner = r->owner[returns ? 1 : 0]};
    const lierne_packing dst = {.size = sizeof dst, .owner = r->owner[returns ? 2 : 1]};
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &segments,
                                           .src = &src,
                                           .dst = &dst};
    lierne_plan_hold(s->plans[i], -1);
    lierne_status status = lierne_plan_update_segments(s->plans[i], &update);
    lierne_plan_hold(s->plans[i], 1);
    lierne_plan_set_compared(s->plans[i]);
    return status;
}

/* A plan that is held cannot be destroyed or updated by the caller. */
static lierne_status create_plans(lierne_samples *s) {
    lierne_host_gather *gather = lierne_samples_count_first(s) ? &s->counter : &s->gather;
    LIERNE_TRY(agree(s, lierne_host_gather_plan(gather, s->spec.name)));
    for (int i = 0; i < s->spec.ntensors; i++) {
        LIERNE_TRY(lierne_samples_create_plan(&s->plans[i], s, i));
        lierne_plan_hold(s->plans[i], 1);
        s->ntensors = i + 1;
    }
    s->planned = s->most;
    return LIERNE_OK;
}

static void add_fields(lierne_plan_fields *fields, const lierne_samples *s) {
    lierne_plan_fields_add(fields, "lierne_samples_create", 0);
    lierne_spec_table_compare(&table, &s->spec, fields);
    for (int i = 0; i < s->spec.ntensors; i++) {
        lierne_plan_fields_add_at(fields, "way", i, (int64_t)s->tensors[i].way);
        lierne_plan_fields_add_at(fields, "dtype", i, (int64_t)s->tensors[i].dtype);
        lierne_plan_fields_add_at(fields, "width", i, s->tensors[i].width);
    }
}

static void drop_layouts(lierne_samples *s) {
    for (int i = 0; i < LIERNE_MAX_SAMPLES_TENSORS; i++) {
        lierne_layout_destroy(s->layouts[i]);
        s->layouts[i] = NULL;
    }
}

static void drop_samples(lierne_samples *s) {
    for (int i = 0; i < s->ntensors; i++) {
        lierne_plan_hold(s->plans[i], -1);
        (void)lierne_plan_destroy(s->plans[i]);
    }
    (void)lierne_host_gather_close(&s->gather);
    (void)lierne_host_gather_close(&s->counter);
    lierne_mem_free(s->first_word);
    lierne_mem_free(s->sizes);
    drop_layouts(s);
    drop_routing(&s->routings[0]);
    drop_routing(&s->routings[1]);
    lierne_balance_clear(&s->memory);
    drop_items(s);
    lierne_mem_free(s->counts);
    lierne_mem_free(s);
}

static lierne_status check_plans(const lierne_samples *s,
                                 lierne_status (*check)(const lierne_plan *plan)) {
    lierne_status status = LIERNE_OK;
    for (int i = 0; i < s->ntensors && status == LIERNE_OK; i++) {
        lierne_plan_hold(s->plans[i], -1);
        status = check(s->plans[i]);
        lierne_plan_hold(s->plans[i], 1);
    }
    return status;
}

lierne_status lierne_samples_check_idle(const lierne_samples *s) {
    return check_plans(s, lierne_plan_check_idle);
}

lierne_status lierne_samples_check_changeable(const lierne_samples *s) {
    return check_plans(s, lierne_plan_check_changeable);
}

static bool dependent_busy(const lierne_dependent *dependent) {
    const lierne_samples *s = (const lierne_samples *)dependent;
    bool busy = false;
    for (int i = 0; i < s->ntensors; i++) {
        busy |= lierne_plan_in_flight(s->plans[i]);
    }
    return busy;
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_samples *s = (lierne_samples *)dependent;
    s->context->nplans -= lierne_context_remove_dependent(s->context, dependent);
    drop_samples(s);
    return LIERNE_OK;
}

lierne_status lierne_samples_create(lierne_samples **out, lierne_context *context,
                                    const lierne_samples_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_samples *s = NULL;
    lierne_plan_fields fields = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = out ? prepare(&s, context, spec) : lierne_check_set(out, "out");
    if (status == LIERNE_OK) {
        add_fields(&fields, s);
    }
    status = lierne_context_agree_all(context, status, fields.at, fields.count, NULL);
    status = status == LIERNE_OK ? create_plans(s) : status;
    if (status != LIERNE_OK) {
        if (s) {
            drop_samples(s);
        }
        return status;
    }
    if (!lierne_samples_count_first(s)) {
        drop_layouts(s);
    }
    s->dependent = (lierne_dependent){.busy = dependent_busy, .destroy = destroy_dependent};
    lierne_context_add_dependent(context, &s->dependent);
    context->nplans++;
    *out = s;
    return LIERNE_OK;
}

lierne_status lierne_samples_destroy(lierne_samples *samples) {
    LIERNE_PUBLIC_CALL();
    if (!samples) {
        return LIERNE_OK;
    }
    if (samples->context->dead == LIERNE_OK) {
        LIERNE_TRY(lierne_samples_check_idle(samples));
    }
    return destroy_dependent(&samples->dependent);
}

lierne_status lierne_samples_get_plan(lierne_plan **plan, const lierne_samples *samples,
                                      int tensor) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(plan);
    LIERNE_TRY(lierne_check_set(samples, "samples"));
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    if (tensor < 0 || tensor >= samples->ntensors) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "tensor is %d, must be 0 to %d", tensor,
                           samples->ntensors - 1);
    }
    *plan = samples->plans[tensor];
    return LIERNE_OK;
}
