/* What stays when segments change: who exchanges with whom if tokens are there, and which boxes of
 * the other axes. It follows from the coordinates, as in redistribute_route.c. */
#include "plan/redistribute/varying_plan.h"

/* The two sides of a direction, and the half at work. */
typedef struct builder {
    lierne_planner *p;
    lierne_varying_plan *v;
    lierne_varying_half *half;
    bool receives;
    bool lands;
    int own; /* side */
    lierne_ranks peers;
} builder;

static const lierne_locator *other_locator(const builder *u) {
    return &u->v->states[0].locators[!u->own];
}

static int64_t column_elements(const lierne_varying_half *h, const lierne_varying_link *link) {
    int64_t n = 0;
    for (size_t c = link->first_column; c < link->first_column + link->ncolumns; c++) {
        int64_t box = 1;
        for (int a = 0; a < LIERNE_MAX_AXES && h->columns.at[c].size[a] > 0; a++) {
            box *= h->columns.at[c].size[a];
        }
        n += box;
    }
    return n;
}

static lierne_status add_link(builder *u, const lierne_cell *other, int peer) {
    lierne_varying_half *h = u->half;
    const lierne_cell *own = &u->v->sides[u->own].cell;
    lierne_varying_link link = {.peer = peer, .first_column = h->columns.count};
    LIERNE_TRY(lierne_tokens_columns(&h->columns, u->v->axis, u->p->from, u->p->to,
                                     u->receives ? other : own, u->receives ? own : other));
    link.ncolumns = h->columns.count - link.first_column;
    link.width = column_elements(h, &link);
    return LIERNE_VEC_PUSH(&h->links, link);
}

/* The sender of one contribution that this rank receives, or those to which it sends. */
static lierne_status link_partial(builder *u, lierne_cell_overlap *x, int partial) {
    const lierne_cell *other = u->receives ? &x->from : &x->to;
    LIERNE_TRY(lierne_cell_overlap_assign(u->p, x, partial));
    for (size_t k = 0; k < x->receivers.count; k++) {
        int to = x->receivers.at[k], from = x->senders.at[k];
        if (u->receives && to == u->p->rank) {
            LIERNE_TRY(add_link(u, other, from));
        } else if (!u->receives && from == u->p->rank && to != from) {
            LIERNE_TRY(add_link(u, other, to));
        }
    }
    return LIERNE_OK;
}

/* The links of all contributions that a receiver adds up follow one another. */
static lierne_status link_overlap(builder *u, lierne_cell_overlap *x) {
    const lierne_layout *from = u->p->from;
    int first = u->receives ? 0 : lierne_layout_partial(from, u->p->rank);
    int end = u->receives ? from->partials : first + 1;
    LIERNE_TRY(lierne_cell_overlap_choose(u->p, x));
    for (int partial = first; partial < end; partial++) {
        LIERNE_TRY(link_partial(u, x, partial));
    }
    return LIERNE_OK;
}

static lierne_status link_cell(builder *u, const lierne_cell *other) {
    const lierne_cell *own = &u->v->sides[u->own].cell;
    lierne_cell_overlap x = {.from = u->receives ? *other : *own,
                             .to = u->receives ? *own : *other};
    lierne_status status = link_overlap(u, &x);
    lierne_cell_overlap_clear(&x);
    return status;
}

/* All cells of the other side that have something of this rank's columns, part by part. */
static lierne_status link_parts(builder *u) {
    lierne_cells cells = {0};
    const lierne_locator *l = other_locator(u);
    lierne_status status =
        lierne_tokens_cells(&cells, u->v->axis, l->layout, u->v->states[0].layouts[u->own],
                            &u->v->sides[u->own].cell);
    if (status == LIERNE_OK) {
        status = lierne_alloc(&u->half->first, l->nparts + 1, sizeof *u->half->first);
    }
    for (size_t part = 0; part < l->nparts && status == LIERNE_OK; part++) {
        for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
            lierne_cell cell = cells.at[i];
            lierne_locator_cell(l, part, &cell);
            status = link_cell(u, &cell);
        }
        u->half->first[part + 1] = u->half->links.count;
    }
    lierne_mem_free(cells.at);
    return status;
}

/* The place of a peer in the ascending list, in which it is, or is put. */
static lierne_status find_peer(lierne_ranks *peers, int peer, size_t *place) {
    size_t at = 0;
    while (at < peers->count && peers->at[at] < peer) {
        at++;
    }
    *place = at;
    if (at < peers->count && peers->at[at] == peer) {
        return LIERNE_OK;
    }
    LIERNE_TRY(LIERNE_VEC_PUSH(peers, peer));
    for (size_t i = peers->count - 1; i > at; i--) {
        peers->at[i] = peers->at[i - 1];
    }
    peers->at[at] = peer;
    return LIERNE_OK;
}

/* A message per peer. */
static lierne_status number_messages(builder *u, lierne_messages *messages) {
    lierne_varying_half *h = u->half;
    lierne_message *message;
    size_t at;
    for (size_t k = 0; k < h->links.count; k++) {
        if (h->links.at[k].peer != u->p->rank) {
            LIERNE_TRY(find_peer(&u->peers, h->links.at[k].peer, &at));
        }
    }
    for (size_t k = 0; k < h->links.count; k++) {
        if (h->links.at[k].peer != u->p->rank) {
            LIERNE_TRY(find_peer(&u->peers, h->links.at[k].peer, &at));
            h->links.at[k].message = (int)at;
        }
    }
    for (size_t m = 0; m < u->peers.count; m++) {
        LIERNE_TRY(lierne_messages_add(messages, u->peers.at[m],
                                       !u->receives ? LIERNE_BUFFER_IN
                                       : u->lands   ? LIERNE_BUFFER_SCRATCH
                                                    : LIERNE_BUFFER_OUT,
                                       &message));
    }
    return lierne_alloc(&h->cursors, u->peers.count, sizeof *h->cursors);
}

/* The most boxes, and elements of a row, that any part has. */
static int64_t find_most(lierne_varying_half *h, size_t nparts) {
    int64_t most = 0;
    for (size_t part = 0; part < nparts; part++) {
        int64_t elements = 0;
        size_t boxes = 0;
        for (size_t k = h->first[part]; k < h->first[part + 1]; k++) {
            boxes += h->links.at[k].ncolumns;
            elements += h->links.at[k].width;
        }
        h->most = boxes > h->most ? boxes : h->most;
        most = elements > most ? elements : most;
    }
    return most;
}

/* Finds the parts whose pieces are a run of one message. */
static lierne_status find_runs(builder *u) {
    lierne_varying_half *h = u->half;
    size_t nparts = other_locator(u)->nparts;
    LIERNE_TRY(lierne_alloc(&h->message, nparts, sizeof *h->message));
    for (size_t part = 0; part < nparts; part++) {
        const lierne_varying_link *link = &h->links.at[h->first[part]];
        bool one = h->first[part + 1] - h->first[part] == 1 && link->peer != u->p->rank &&
                   link->ncolumns == 1 && !u->v->rules.repeat && !u->lands;
        h->message[part] =
            one && lierne_varying_is_run(u->v, u->own, h->columns.at[link->first_column].size)
                ? link->message
                : -1;
    }
    return LIERNE_OK;
}

static lierne_status link_half(builder *u, lierne_messages *messages) {
    LIERNE_TRY(link_parts(u));
    LIERNE_TRY(number_messages(u, messages));
    LIERNE_TRY(find_runs(u));
    return u->v->rules.repeat && !u->receives && u->own == 0
               ? lierne_alloc(&u->half->covered, other_locator(u)->nparts, sizeof *u->half->covered)
               : LIERNE_OK;
}

static lierne_status build_half(builder *u, lierne_messages *messages, int64_t *elements) {
    const lierne_varying_side *own = &u->v->sides[u->own];
    *elements = 0;
    if (!own->holds) {
        return lierne_alloc(&u->half->first, other_locator(u)->nparts + 1, sizeof *u->half->first);
    }
    LIERNE_TRY(link_half(u, messages));
    LIERNE_TRY(lierne_varying_count(elements, u->v, find_most(u->half, other_locator(u)->nparts)));
    return lierne_alloc_unset(&u->half->blocks, own->most_pieces * u->half->most,
                              sizeof *u->half->blocks);
}

/* What the copies and zeros of a way need. */
static lierne_status alloc_copies(lierne_varying_plan *v, int d) {
    lierne_varying_way *way = &v->ways[d];
    const lierne_varying_side *to = &v->sides[d == LIERNE_DIRECTION_FORWARD];
    size_t copies = to->most_pieces * way->halves[1].most,
           zeros = to->zeros.capacity * to->columns.count;
    LIERNE_TRY(lierne_alloc_unset(&way->copies, copies + zeros, sizeof *way->copies));
    return lierne_alloc_unset(&way->sources, copies, sizeof *way->sources);
}

static lierne_status build_way(lierne_varying_plan *v, lierne_planner *p, int d,
                               lierne_plan_side *side) {
    lierne_varying_way *way = &v->ways[d];
    int from = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    lierne_stage *stage;
    p->from = v->states[0].layouts[from];
    p->to = v->states[0].layouts[!from];
    way->lands = v->rules.repeat || v->partials[d] > 1;
    LIERNE_TRY(lierne_route_create(&side->route, p->rank, 0, 0));
    lierne_route_lend(side->route);
    LIERNE_TRY(lierne_route_add_stage(side->route, &stage));
    if (v->relayed) {
        LIERNE_TRY(lierne_route_add_stage(side->route, &stage));
        LIERNE_TRY(lierne_alloc(&way->relay, 1, sizeof *way->relay));
    }
    stage = lierne_varying_stage(v, d, side);
    for (int receives = 0; receives < 2; receives++) {
        builder u = {.p = p,
                     .v = v,
                     .half = &way->halves[receives],
                     .receives = receives,
                     .lands = way->lands,
                     .own = receives ? !from : from};
        lierne_status status = build_half(&u, receives ? &stage->recvs : &stage->sends,
                                          receives ? &way->engine.received : &way->engine.sent);
        lierne_mem_free(u.peers.at);
        LIERNE_TRY(status);
    }
    LIERNE_TRY(alloc_copies(v, d));
    LIERNE_TRY(way->lands ? lierne_varying_sums_create(v, d) : LIERNE_OK);
    stage->copies.at = way->copies;
    stage->sums.at = way->sums;
    side->route->elements[LIERNE_BUFFER_SCRATCH] = way->engine.scratch;
    side->route->dtype = p->from->dtype;
    side->naxes = p->from->naxes;
    return LIERNE_OK;
}

/* The most runs that a side can have of all ranks: where a piece of another side may end. */
static size_t count_chunks(const lierne_varying_plan *v, int side) {
    const lierne_locator *l = &v->states[0].locators[side];
    size_t bands = l->nshares > 1 ? l->nparts * LIERNE_MAX_PIECES : 0, chunks = 1;
    if (l->packed) {
        chunks = (size_t)l->packed->ncuts * (l->packed->zigzag ? 2 : 1);
    }
    return chunks * (size_t)v->max_segments + bands;
}

static bool has_steps(const lierne_varying_plan *v, int side) {
    const lierne_packed *p = v->states[0].locators[side].packed;
    return p && p->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR;
}

/* A span has a row at least, and a piece one token. Of a segment a rank has two chunks at most,
 * which shares cut once more; padding lies on both sides of tokens. Runs cut spans, and where rows
 * repeat, each run may be cut wherever another one is. */
static void find_capacity(lierne_varying_plan *v, int side) {
    size_t rows = (size_t)v->max_rows, spans = 4 * (size_t)v->max_segments + 8;
    size_t pieces = spans + (size_t)v->max_runs + count_chunks(v, side) + count_chunks(v, !side);
    bool by_row = has_steps(v, 0) || has_steps(v, 1) || v->rules.repeat;
    v->sides[side].most_spans = has_steps(v, side) || spans > rows ? rows + 8 : spans;
    v->sides[side].most_pieces = by_row || pieces > rows ? rows : pieces;
}

static lierne_status reserve_spans(lierne_span_list *list, size_t n) {
    list->capacity = n;
    return lierne_alloc_unset(&list->at, n, sizeof *list->at);
}

/* The buffer of this rank in the axes that stay. */
static lierne_status find_columns(lierne_varying_plan *v, int side) {
    lierne_varying_side *own = &v->sides[side];
    const lierne_layout *layout = v->states[0].layouts[side];
    own->holds = lierne_layout_cell(layout, v->rank, &own->cell);
    if (!own->holds) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_tokens_cell_columns(&own->columns, own->shape, v->axis, layout, &own->cell));
    own->width = 1;
    for (int a = 0; a < layout->naxes; a++) {
        own->width *= a == v->axis ? 1 : own->shape[a];
    }
    return LIERNE_OK;
}

static lierne_status build_side(lierne_varying_plan *v, int side) {
    lierne_varying_side *own = &v->sides[side];
    find_capacity(v, side);
    LIERNE_TRY(find_columns(v, side));
    size_t left = v->joined ? own->most_spans + (size_t)v->max_runs : 0;
    LIERNE_TRY(v->joined ? reserve_spans(&own->own, own->most_spans) : LIERNE_OK);
    LIERNE_TRY(reserve_spans(&own->tokens, v->joined ? own->most_pieces : own->most_spans));
    LIERNE_TRY(reserve_spans(&own->zeros, own->most_spans + left));
    own->pieces.capacity = own->most_pieces;
    size_t nparts = v->states[0].locators[!side].nparts;
    LIERNE_TRY(lierne_alloc(&own->pieces.counts, nparts, sizeof *own->pieces.counts));
    LIERNE_TRY(lierne_alloc(&own->merged, nparts, sizeof *own->merged));
    own->pieces.merged = own->merged;
    return lierne_alloc_unset(&own->pieces.at, own->most_pieces, sizeof *own->pieces.at);
}

/* The next link of a part to another rank, from k on. */
static size_t skip_own(const lierne_varying_plan *v, const lierne_varying_half *h, size_t k,
                       size_t end) {
    while (k < end && h->links.at[k].peer == v->rank) {
        k++;
    }
    return k;
}

/* Whether two links have the same blocks on this rank, as sends and as receives, whoever the peers
 * are. */
static bool same_link(const lierne_varying_plan *v, const lierne_varying_half *sends,
                      const lierne_varying_link *a, const lierne_varying_half *receives,
                      const lierne_varying_link *b) {
    bool same = a->message == b->message && a->ncolumns == b->ncolumns;
    for (size_t c = 0; same && c < a->ncolumns; c++) {
        const lierne_overlap *x = &sends->columns.at[a->first_column + c],
                             *y = &receives->columns.at[b->first_column + c];
        for (int axis = 0; axis < v->states[0].layouts[0]->naxes; axis++) {
            same = same && (axis == v->axis || (x->size[axis] == y->size[axis] &&
                                                x->local_a[axis] == y->local_b[axis]));
        }
    }
    return same;
}

/* Where nothing is replicated, what one direction sends the other one receives, by the same
 * blocks: they are filled in once. */
static void compare_halves(lierne_varying_plan *v, int side) {
    lierne_varying_half *sends = &v->ways[side].halves[0], *receives = &v->ways[!side].halves[1];
    size_t nparts = v->states[0].locators[!side].nparts;
    bool same = v->sides[side].holds && !v->rules.repeat && !v->ways[0].lands && !v->ways[1].lands;
    for (size_t part = 0; same && part < nparts; part++) {
        size_t i = sends->first[part], k = receives->first[part];
        size_t ends = sends->first[part + 1], endr = receives->first[part + 1];
        for (i = skip_own(v, sends, i, ends), k = skip_own(v, receives, k, endr);
             same && i < ends && k < endr;
             i = skip_own(v, sends, i + 1, ends), k = skip_own(v, receives, k + 1, endr)) {
            same = same_link(v, sends, &sends->links.at[i], receives, &receives->links.at[k]);
        }
        same = same && i == ends && k == endr;
    }
    /* Of either side, the half of the adjoint takes those of the forward. */
    (side == 0 ? receives : sends)->same = same;
}

/* Rows of a part that are runs of a message in both directions need no tokens. */
static void find_merged(lierne_varying_plan *v, int side) {
    const lierne_varying_half *sends = &v->ways[side].halves[0],
                              *receives = &v->ways[!side].halves[1];
    size_t nparts = v->sides[side].holds ? v->states[0].locators[!side].nparts : 0;
    for (size_t part = 0; part < nparts; part++) {
        v->sides[side].merged[part] = sends->message[part] >= 0 && receives->message[part] >= 0;
    }
}

/* Of another rank only what it sends is counted. */
static lierne_status link_neighbour(lierne_varying_plan *n, lierne_planner *p, int d) {
    lierne_varying_way *way = &n->ways[d];
    int from = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    builder u = {.p = p, .v = n, .half = &way->halves[0], .own = from};
    p->from = n->states[0].layouts[from];
    p->to = n->states[0].layouts[!from];
    if (!n->sides[from].holds) {
        return LIERNE_OK;
    }
    lierne_status status = link_half(&u, &way->counted);
    lierne_mem_free(u.peers.at);
    return status;
}

lierne_status lierne_varying_neighbour_create(lierne_varying_plan **out, lierne_varying_plan *v,
                                              const lierne_planner *planner, int rank) {
    lierne_planner p = *planner;
    lierne_varying_plan *n;
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    n = *out;
    *n = (lierne_varying_plan){.axis = v->axis,
                               .rank = rank,
                               .joined = v->joined,
                               .rules = v->rules,
                               .partials = {v->partials[0], v->partials[1]},
                               .spare = v->spare,
                               .states = v->states};
    p.rank = rank;
    for (int side = 0; side < 2; side++) {
        LIERNE_TRY(find_columns(n, side));
        n->sides[side].own = v->sides[side].own;
        n->sides[side].tokens = v->sides[side].tokens;
        n->sides[side].zeros = v->sides[side].zeros;
        n->sides[side].pieces = v->sides[side].pieces;
        n->sides[side].pieces.merged = NULL;
    }
    LIERNE_TRY(link_neighbour(n, &p, 0));
    return link_neighbour(n, &p, 1);
}

lierne_status lierne_varying_tables_create(lierne_varying_plan *v, lierne_plan_parts *parts,
                                           lierne_planner *p) {
    LIERNE_TRY(build_side(v, 0));
    LIERNE_TRY(build_side(v, 1));
    LIERNE_TRY(lierne_varying_spare_create(v));
    LIERNE_TRY(build_way(v, p, 0, &parts->side[0]));
    LIERNE_TRY(build_way(v, p, 1, &parts->side[1]));
    for (int side = 0; side < 2; side++) {
        compare_halves(v, side);
        find_merged(v, side);
    }
    return LIERNE_OK;
}

size_t lierne_varying_most_tasks(const lierne_varying_plan *v, int d) {
    const lierne_varying_way *way = &v->ways[d];
    const lierne_varying_side *from = &v->sides[d != LIERNE_DIRECTION_FORWARD],
                              *to = &v->sides[d == LIERNE_DIRECTION_FORWARD];
    size_t passing = way->relay ? way->relay->passing.count : 0;
    size_t packed = from->most_pieces * way->halves[0].most,
           unpacked = to->most_pieces * way->halves[1].most;
    /* A piece that arrives is unpacked, and is a copy or a term of a sum. */
    return packed + 3 * unpacked + to->zeros.capacity * to->columns.count + 2 * passing;
}

static void destroy_half(lierne_varying_half *h) {
    lierne_mem_free(h->first);
    lierne_mem_free(h->message);
    lierne_mem_free(h->links.at);
    lierne_mem_free(h->columns.at);
    lierne_mem_free(h->blocks);
    lierne_mem_free(h->cursors);
    lierne_mem_free(h->covered);
    lierne_mem_free(h->before);
}

void lierne_varying_neighbour_destroy(lierne_varying_plan *n) {
    for (int k = 0; n && k < 2; k++) {
        destroy_half(&n->ways[k].halves[0]);
        lierne_mem_free(n->ways[k].counted.at);
        lierne_mem_free(n->sides[k].columns.at);
    }
    lierne_mem_free(n);
}

void lierne_varying_tables_destroy(lierne_varying_plan *v) {
    lierne_varying_spare_destroy(v);
    for (int k = 0; k < 2; k++) {
        destroy_half(&v->ways[k].halves[0]);
        destroy_half(&v->ways[k].halves[1]);
        lierne_mem_free(v->ways[k].copies);
        lierne_mem_free(v->ways[k].sources);
        lierne_mem_free(v->ways[k].sums);
        lierne_mem_free(v->ways[k].terms);
        lierne_mem_free(v->sides[k].columns.at);
        lierne_mem_free(v->sides[k].own.at);
        lierne_mem_free(v->sides[k].tokens.at);
        lierne_mem_free(v->sides[k].zeros.at);
        lierne_mem_free(v->sides[k].pieces.at);
        lierne_mem_free(v->sides[k].pieces.counts);
        lierne_mem_free(v->sides[k].merged);
    }
}
