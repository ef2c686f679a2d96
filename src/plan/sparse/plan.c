/* From pairs to a plan, together.
 *
 * A rank knows whose rows it needs, not who needs its own. So it asks: one letter to each rank that
 * owns something, with the rows; what a rank is asked for is what it sends. Between two collective
 * steps a rank may fail alone (a row that it does not have, no memory): it keeps the failure and
 * goes on with the steps, so that nobody waits for it, until the last one makes it everybody's. */
#include "plan/sparse/saved_spec.h"

#include <math.h>
#include <stdio.h>

static lierne_status check_layout(const lierne_star_forest_spec *spec, int rank) {
    const lierne_references_spec *p = &spec->pairs;
    int64_t stride = p->stride ? p->stride : p->width, rows, bytes;
    if (p->width < 1 || stride < p->width) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: width is %lld and stride %lld, must be at least 1 "
                           "and at least width",
                           rank, (long long)p->width, (long long)p->stride);
    }
    if (lierne_dtype_size(p->dtype) == 0 || p->max_inflight < 0 ||
        p->max_inflight > LIERNE_MAX_INFLIGHT) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: dtype is %d, or max_inflight %d, must be in 0 to "
                           "%d",
                           rank, (int)p->dtype, p->max_inflight, LIERNE_MAX_INFLIGHT);
    }
    if (p->algorithm != LIERNE_GRAPH_AUTO && p->algorithm != LIERNE_GRAPH_DIRECT &&
        p->algorithm != LIERNE_GRAPH_ALL_GATHER) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: algorithm is %d", rank, (int)p->algorithm);
    }
    if (p->nowned < 0 || p->nghosts < 0 || !lierne_add_i64(p->nowned, p->nghosts, &rows) ||
        !lierne_mul_i64(rows, stride, &rows) ||
        !lierne_mul_i64(rows, (int64_t)lierne_dtype_size(p->dtype), &bytes)) {
        return LIERNE_FAIL(LIERNE_COUNT_RANGE,
                           "rank %d: %lld owned rows and %lld ghosts, %lld elements "
                           "apart, are negative or do not fit",
                           rank, (long long)p->nowned, (long long)p->nghosts, (long long)stride);
    }
    return LIERNE_OK;
}

static lierne_status check_pairs(const lierne_references_spec *p, const lierne_context *context) {
    if (p->nghosts > 0 && (!p->rank || !p->row)) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: %s is NULL", context->rank,
                           p->rank ? "row" : "rank");
    }
    for (int64_t k = 0; k < p->nghosts; k++) {
        if (p->rank[k] < 0 || p->rank[k] >= context->world) {
            return LIERNE_FAIL(LIERNE_PEER_RANGE,
                               "rank %d: ghost %lld is of rank %d, must be in 0 to "
                               "%d",
                               context->rank, (long long)k, (int)p->rank[k], context->world - 1);
        }
    }
    return LIERNE_OK;
}

/* A round of planning on this rank. */
typedef struct planning {
    lierne_context *context;
    const lierne_star_forest_spec *spec;
    lierne_status status;
    char message[LIERNE_MESSAGE_SIZE];
    bool gathers;
    int64_t *nowned_of; /* of all ranks, for an all-gather */
    lierne_star_forest_saved_spec *recipe;
    lierne_plan_parts parts;
} planning;

/* The first failure of this rank is the one that counts. */
static void note(planning *p, lierne_status status) {
    if (p->status == LIERNE_OK && status != LIERNE_OK) {
        p->status = status;
        snprintf(p->message, sizeof p->message, "%s", lierne_last_error());
    }
}

/* A post that found no memory for what came disturbed nobody else: it is this rank's own failure.
 */
static lierne_status note_memory(planning *p, lierne_status status) {
    if (status != LIERNE_NO_MEMORY) {
        return status;
    }
    note(p, status);
    return LIERNE_OK;
}

static lierne_status prepare(planning *p) {
    const lierne_references_spec *pairs = &p->spec->pairs;
    lierne_star_forest_saved_spec *recipe = NULL;
    lierne_status status = check_layout(p->spec, p->context->rank);
    if (status == LIERNE_OK) {
        status = check_pairs(pairs, p->context);
    }
    if (status == LIERNE_OK) {
        status = lierne_star_forest_saved_spec_create(&recipe, p->spec, p->context);
    }
    LIERNE_TRY(status);
    p->recipe = recipe;
    p->parts.recipe = &recipe->base;
    return lierne_star_forest_sort(&recipe->forest, pairs->rank, pairs->row);
}

static lierne_status settle(planning *p) {
    const lierne_star_forest_spec *s = p->spec;
    const lierne_field fields[] = {{"call", LIERNE_CALL_STAR_FOREST},
                                   {"dtype", (int64_t)s->pairs.dtype},
                                   {"width", s->pairs.width},
                                   {"algorithm", (int64_t)s->pairs.algorithm},
                                   {"accumulate", s->pairs.accumulate != 0},
                                   {"max_inflight", s->pairs.max_inflight},
                                   {"whole", s->whole},
                                   {"keep_ghosts", s->keep_ghosts},
                                   {"nrows", s->nrows},
                                   {"owners of rows", s->owners}};
    return lierne_context_agree_all(p->context, p->status, fields, sizeof fields / sizeof fields[0],
                                    NULL);
}

/* Letters with the rows asked of each source; they point into the forest. */
static lierne_status write_letters(const lierne_star_forest *f, lierne_control_messages *letters) {
    for (size_t s = 0; s < f->sources.count; s++) {
        const lierne_peer_rows *source = &f->sources.at[s];
        lierne_control_message letter = {source->rank, (size_t)source->count,
                                         f->row + source->first};
        LIERNE_TRY(LIERNE_VEC_PUSH(letters, letter));
    }
    return LIERNE_OK;
}

static lierne_status check_letter(const lierne_star_forest *f,
                                  const lierne_control_message *letter) {
    for (size_t i = 0; i < letter->count; i++) {
        if (letter->words[i] < 0 || letter->words[i] >= f->nowned) {
            return LIERNE_FAIL(LIERNE_INDEX_RANGE,
                               "rank %d wants row %lld of rank %d, must be in 0 to "
                               "%lld",
                               letter->peer, (long long)letter->words[i], f->rank,
                               (long long)f->nowned - 1);
        }
    }
    return LIERNE_OK;
}

/* What other ranks ask for becomes what is sent to them; own letters are only checked. */
static lierne_status take_letters(lierne_star_forest *f, const lierne_control_messages *letters) {
    int64_t n = 0;
    for (size_t i = 0; i < letters->count; i++) {
        n += (int64_t)letters->at[i].count;
    }
    LIERNE_TRY(lierne_alloc(&f->wanted, (size_t)n, sizeof *f->wanted));
    for (size_t i = 0; i < letters->count; i++) {
        const lierne_control_message *letter = &letters->at[i];
        LIERNE_TRY(check_letter(f, letter));
        if (letter->peer != f->rank) {
            lierne_peer_rows target = {letter->peer, f->ntargets, (int64_t)letter->count};
            LIERNE_TRY(LIERNE_VEC_PUSH(&f->targets, target));
            memcpy(f->wanted + f->ntargets, letter->words, letter->count * sizeof *letter->words);
            f->ntargets += target.count;
        }
    }
    return LIERNE_OK;
}

/* Collective. Returns a failure of the wire only; this rank's own is noted. */
static lierne_status ask(planning *p) {
    lierne_control_messages letters = {0}, received = {0};
    lierne_star_forest *f = p->recipe ? &p->recipe->forest : NULL;
    if (p->status == LIERNE_OK) {
        note(p, write_letters(f, &letters));
    }
    size_t n = p->status == LIERNE_OK ? letters.count : 0;
    lierne_status status = lierne_context_sparse_exchange(p->context, letters.at, n, &received);
    lierne_mem_free(letters.at);
    if (status == LIERNE_OK && p->status == LIERNE_OK) {
        note(p, take_letters(f, &received));
    }
    lierne_control_messages_destroy(&received);
    status = note_memory(p, status);
    if (status != LIERNE_OK && f) {
        lierne_context_free_message_memory(p->context, f->row); /* which the letters are */
        f->row = NULL;
    }
    return status;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Cost of an execution on this rank in picoseconds: of messages to and from others, the larger
 * side. */
static int64_t cost(int64_t messages, double rows, const lierne_references_spec *pairs) {
    double bytes = rows * (double)pairs->width * (double)lierne_dtype_size(pairs->dtype);
    double seconds = (double)messages * LIERNE_MESSAGE_COST + bytes * LIERNE_BYTE_COST;
    return (int64_t)fmin(seconds * 1e12, 9e18);
}

static int64_t own_roots(const lierne_star_forest *f) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    return own ? own->count : 0;
}

static int64_t direct_cost(const lierne_star_forest *f, const lierne_references_spec *pairs) {
    int64_t received = f->nroots - own_roots(f);
    int64_t sources = (int64_t)f->sources.count - (own_roots(f) > 0);
    return cost(most(sources, (int64_t)f->targets.count), (double)most(received, f->ntargets),
                pairs);
}

static int64_t gather_steps(int world) {
    int64_t steps = 0;
    for (int64_t here = 1; here < world; here *= 2) {
        steps++;
    }
    return steps;
}

/* Collective where the choice is open: the rank where each algorithm costs most decides. Of two
 * ranks neither has fewer messages or rows to gather than to ask for. */
static lierne_status choose(planning *p) {
    const lierne_references_spec *pairs = &p->spec->pairs;
    int world = p->context->world;
    if (pairs->algorithm != LIERNE_GRAPH_AUTO || p->spec->whole || world <= 2) {
        p->gathers = pairs->algorithm == LIERNE_GRAPH_ALL_GATHER && !p->spec->whole && world > 1;
        return LIERNE_OK;
    }
    bool fine = p->status == LIERNE_OK;
    int64_t values[2] = {fine ? direct_cost(&p->recipe->forest, pairs) : 0,
                         fine ? pairs->nowned : 0};
    LIERNE_TRY(lierne_context_allreduce_max(p->context, values, 2));
    double rows = (double)values[1] * (world - 1);
    p->gathers = cost(gather_steps(world), rows, pairs) < values[0];
    return LIERNE_OK;
}

/* Collective, for an all-gather: how many rows each rank has. */
static lierne_status ask_sizes(planning *p) {
    lierne_control_message *letters = NULL;
    lierne_control_messages received = {0};
    int64_t *nowned = NULL;
    size_t world = (size_t)p->context->world;
    if (!p->gathers) {
        return LIERNE_OK;
    }
    note(p, lierne_alloc(&letters, world, sizeof *letters));
    note(p, lierne_alloc(&nowned, 1, sizeof *nowned));
    note(p, lierne_alloc(&p->nowned_of, world, sizeof *p->nowned_of));
    bool able = letters && nowned;
    for (size_t r = 0; able && r < world; r++) {
        *nowned = p->spec->pairs.nowned;
        letters[r] = (lierne_control_message){(int)r, 1, nowned};
    }
    lierne_status status =
        lierne_context_sparse_exchange(p->context, letters, able ? world : 0, &received);
    for (size_t i = 0; p->nowned_of && i < received.count; i++) {
        p->nowned_of[received.at[i].peer] = received.at[i].words[0];
    }
    lierne_control_messages_destroy(&received);
    lierne_mem_free(letters);
    lierne_context_free_message_memory(p->context, nowned);
    return note_memory(p, status);
}

/* written: every row of out is. */
static lierne_status start_side(const lierne_star_forest *f, lierne_plan_side *side, int64_t in,
                                int64_t out, bool written) {
    side->naxes = 2;
    side->in[0] = in;
    side->out[0] = out;
    side->in[1] = side->out[1] = f->width;
    LIERNE_TRY(lierne_route_create(&side->route, f->rank, lierne_star_forest_elements(f, in),
                                   lierne_star_forest_elements(f, out)));
    lierne_block all = lierne_block_rows(0, out, f->width, f->stride);
    return out > 0 && written ? LIERNE_VEC_PUSH(&side->owned, all) : LIERNE_OK;
}

/* Whether all that this rank sends, receives, stages and adds up has a size in bytes. */
static lierne_status check_volume(const planning *p) {
    const lierne_star_forest *f = &p->recipe->forest;
    int64_t rows = f->nghosts, size = (int64_t)lierne_dtype_size(p->spec->pairs.dtype), bytes;
    bool fits = lierne_add_i64(rows, f->ntargets, &rows);
    for (int r = 0; p->gathers && fits && r < p->context->world; r++) {
        fits = lierne_add_i64(rows, p->nowned_of[r], &rows);
    }
    if (!fits || !lierne_mul_i64(rows, f->width, &bytes) || bytes > INT64_MAX / 4 / size) {
        return LIERNE_FAIL(
            LIERNE_COUNT_RANGE,
            "rank %d: bytes of %lld rows of width %lld, which it and others need, do "
            "not fit",
            f->rank, (long long)rows, (long long)f->width);
    }
    return LIERNE_OK;
}

static lierne_status fill_routes(planning *p) {
    const lierne_star_forest *f = &p->recipe->forest;
    lierne_plan_side *forward = &p->parts.side[LIERNE_FORWARD];
    lierne_plan_side *adjoint = &p->parts.side[LIERNE_ADJOINT];
    int64_t owned = f->nowned, ghosts = f->nghosts, whole = owned + ghosts;
    LIERNE_TRY(check_volume(p));
    LIERNE_TRY(start_side(f, forward, f->whole ? whole : owned, f->whole ? whole : ghosts, true));
    LIERNE_TRY(start_side(f, adjoint, f->whole ? whole : ghosts, f->whole ? whole : owned,
                          !f->accumulate));
    forward->min_elements = (f->nroots - own_roots(f)) * f->width;
    adjoint->min_elements = f->ntargets * f->width;
    LIERNE_TRY(p->gathers ? lierne_star_forest_all_gather(f, forward->route, p->context->world,
                                                          p->nowned_of)
                          : lierne_star_forest_forward(f, forward->route));
    return lierne_star_forest_adjoint(f, adjoint->route);
}

static void fill_parts(planning *p) {
    const lierne_references_spec *pairs = &p->spec->pairs;
    p->parts.dtype = pairs->dtype;
    p->parts.max_inflight = pairs->max_inflight;
    p->parts.algorithm[LIERNE_FORWARD] = p->gathers ? "gather" : "direct";
    p->parts.algorithm[LIERNE_ADJOINT] = "direct";
    p->parts.in_place = p->spec->whole;
    p->parts.rows = true;
    p->parts.waits = true;
    p->parts.accumulate = pairs->accumulate != 0;
    note(p, lierne_star_forest_saved_spec_list(p->recipe));
    note(p, p->status == LIERNE_OK ? fill_routes(p) : LIERNE_OK);
}

/* All steps but the last, with which the plan begins to exist: p->status is this rank's part in it.
 */
static lierne_status plan_together(planning *p) {
    if (p->status == LIERNE_OK) {
        note(p, prepare(p));
    } else {
        lierne_set_error(p->message);
    }
    LIERNE_TRY(settle(p));
    LIERNE_TRY(ask(p));
    LIERNE_TRY(choose(p));
    LIERNE_TRY(ask_sizes(p));
    if (p->status == LIERNE_OK) {
        fill_parts(p);
    }
    if (p->status != LIERNE_OK) {
        lierne_set_error(p->message);
    }
    return LIERNE_OK;
}

static lierne_status plan_all(planning *p, lierne_context *context, lierne_status status,
                              const lierne_star_forest_spec *spec) {
    lierne_star_forest_spec plain = *spec;
    plain.pairs.max_inflight += plain.pairs.max_inflight == 0; /* 0 means 1 */
    p->context = context;
    p->spec = &plain;
    note(p, status);
    status = plan_together(p);
    lierne_mem_free(p->nowned_of);
    if (status != LIERNE_OK) {
        lierne_plan_parts_free(context, &p->parts);
    }
    return status;
}

lierne_status lierne_plan_star_forest(lierne_plan **out, lierne_context *context,
                                      lierne_status status, const lierne_star_forest_spec *spec) {
    const lierne_field field = {"call", LIERNE_CALL_STAR_FOREST_NEW};
    planning p = {0};
    LIERNE_TRY(plan_all(&p, context, status, spec));
    return lierne_plan_new(out, context, p.status, &p.parts, &field, 1);
}

lierne_status lierne_plan_update_star_forest(lierne_plan *plan, lierne_status status,
                                             const lierne_star_forest_spec *spec) {
    const lierne_field fields[] = {{"call", LIERNE_CALL_STAR_FOREST_UPDATE},
                                   {"plan", lierne_plan_number(plan)}};
    planning p = {0};
    LIERNE_TRY(plan_all(&p, lierne_plan_context(plan), status, spec));
    return lierne_plan_replace(plan, p.status, &p.parts, fields, 2);
}
