#include "unit/sample_steps.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL = 6, SEGMENTS = 12, COSTS = 2, MOST_ROWS = 64, MOST_RETURNED = 48, TENSORS = 5 };
enum { ITEMS = LOCAL * SAMPLE_STEPS_RANKS, MOST_BYTES = MOST_ROWS * 48 };

typedef enum fault { NONE, COST, ROWS, TOO_MANY, SETTINGS, NO_ITEMS, FAULTS } fault;

/* Of all ranks. */
typedef struct step {
    int world;
    int64_t n, counts[SAMPLE_STEPS_RANKS];
    int64_t cost[ITEMS * COSTS];
    int32_t segments[ITEMS];
    int64_t first[ITEMS + 1]; /* segment of an item */
    int64_t rows[2][SEGMENTS * SAMPLE_STEPS_RANKS];
    int32_t given[2][ITEMS];
    int nodes[SAMPLE_STEPS_RANKS];
    lierne_balance_spec balance[2];
    int moves_on;      /* there is a destination */
    bool counts_first; /* there is no capacity of items */
    fault fault;
    int culprit;
    int32_t owner[3][ITEMS];
    int64_t loads[3][SAMPLE_STEPS_RANKS];
} step;

typedef struct trial {
    sample_steps *t;
    lierne_context *context;
    lierne_samples *samples;
    lierne_plan *plans[TENSORS];
    lierne_coalesced *together[2]; /* the plans of a way: of dispatch, of return; or NULL */
    uint64_t random;
    int rank, world, number;
    step now, next;
} trial;

static const lierne_samples_tensor tensors[TENSORS] = {
    {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, 3},
    {LIERNE_SAMPLES_RETURN, LIERNE_DTYPE_BITS8, 5},
    {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_BF16, 1},
    {LIERNE_SAMPLES_RETURN, LIERNE_DTYPE_BITS128, 3},
    {LIERNE_SAMPLES_SEGMENTS, LIERNE_DTYPE_F32, 2},
};
static const int owner_of[] = {0, 1, 1, 2}, rows_of[] = {0, 0, 1, 1}; /* of places */

static void note(trial *c, bool ok, const char *format, ...) {
    va_list list;
    if (ok || c->t->wrong++) {
        return;
    }
    va_start(list, format);
    int n = snprintf(c->t->what, sizeof c->t->what, "rank %d, step %d: ", c->rank, c->number);
    vsnprintf(c->t->what + n, sizeof c->t->what - (size_t)n, format, list);
    va_end(list);
}

static int64_t pick(trial *c, int64_t n) {
    uint64_t x = c->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (int64_t)((x ^ x >> 31) % (uint64_t)n);
}

static void draw_items(trial *c, step *s) {
    bool empty = pick(c, 10) == 0;
    s->n = 0;
    for (int p = 0; p < s->world; p++) {
        int64_t left = SEGMENTS;
        s->counts[p] = empty || pick(c, 4) == 0 ? 0 : pick(c, LOCAL + 1);
        for (int64_t i = 0; i < s->counts[p]; i++, s->n++) {
            int64_t many = pick(c, 6) == 0 ? 0 : 1 + pick(c, 3), j = s->n;
            s->segments[j] = (int32_t)(many < left ? many : left);
            left -= s->segments[j];
            s->first[j + 1] = s->first[j] + s->segments[j];
            for (int k = 0; k < COSTS; k++) {
                s->cost[j * COSTS + k] = pick(c, pick(c, 3) == 0 ? 1000 : 50);
                s->given[k][j] = (int32_t)pick(c, s->world);
            }
            for (int64_t k = s->first[j]; k < s->first[j + 1]; k++) {
                s->rows[0][k] = pick(c, 5) == 0 ? 0 : pick(c, 6);
                s->rows[1][k] = pick(c, 3) == 0 ? s->rows[0][k] : pick(c, 4);
            }
        }
    }
}

static void draw_balance(trial *c, step *s, int which) {
    lierne_balance_spec *b = &s->balance[which];
    *b = (lierne_balance_spec)LIERNE_BALANCE_SPEC_INIT;
    b->mode = (lierne_balance_mode)pick(c, 5);
    b->cost = (int)pick(c, COSTS);
    b->tolerance = (int)pick(c, 60);
    b->equal_items = pick(c, 5) == 0;
    if (b->mode != LIERNE_BALANCE_KK && pick(c, 4) == 0) {
        b->max_rows = 5 + pick(c, 40);
    }
    b->nodes = pick(c, 2) ? s->nodes : NULL;
    b->assignment = b->mode == LIERNE_BALANCE_CALLER ? s->given[which] : NULL;
}

static bool counts_first(const sample_steps *t) {
    return t->seed % 3 == 2;
}

static void draw_step(trial *c, step *s) {
    *s = (step){.world = c->world, .counts_first = counts_first(c->t)};
    draw_items(c, s);
    for (int p = 0; p < s->world; p++) {
        s->nodes[p] = (int)pick(c, 3);
    }
    draw_balance(c, s, 0);
    draw_balance(c, s, 1);
    s->moves_on = pick(c, 3) == 0;
    s->fault = pick(c, 6) == 0 ? (fault)pick(c, FAULTS) : NONE;
    s->culprit = (int)pick(c, s->world);
}

/* The items of ranks before the culprit. */
static int64_t first_of(const step *s, int rank) {
    int64_t first = 0;
    for (int p = 0; p < rank; p++) {
        first += s->counts[p];
    }
    return first;
}

static int64_t item_rows(const step *s, int which, int64_t item) {
    int64_t rows = 0;
    for (int64_t k = s->first[item]; k < s->first[item + 1]; k++) {
        rows += s->rows[which][k];
    }
    return rows;
}

static lierne_status assign(step *s, int which) {
    const lierne_items items = {.size = sizeof items,
                                .nitems = s->n,
                                .ncosts = COSTS,
                                .cost = s->cost,
                                .rows = s->rows[0],
                                .segments = s->segments};
    lierne_assignment *a = NULL;
    lierne_status status =
        lierne_assignment_create(&a, &items, s->counts, s->world, &s->balance[which]);
    for (int64_t i = 0; status == LIERNE_OK && i < s->n; i++) {
        s->owner[1 + which][i] = lierne_assignment_get_ranks(a)[i];
    }
    for (int p = 0; status == LIERNE_OK && p < s->world; p++) {
        s->loads[1 + which][p] = lierne_assignment_get_loads(a)[p];
    }
    lierne_assignment_destroy(a);
    return status;
}

static lierne_status check_rows(const step *s) {
    for (int place = 0; place < 4; place++) {
        int64_t rows[SAMPLE_STEPS_RANKS] = {0}, most = rows_of[place] ? MOST_RETURNED : MOST_ROWS;
        for (int64_t i = 0; i < s->n; i++) {
            rows[s->owner[owner_of[place]][i]] += item_rows(s, rows_of[place], i);
        }
        for (int p = 0; p < s->world; p++) {
            if (rows[p] > most) {
                return LIERNE_ERR_CAPACITY;
            }
        }
    }
    return LIERNE_OK;
}

/* What all ranks must get, and where items are then. */
static lierne_status expect(step *s) {
    int64_t item = first_of(s, s->culprit);
    bool has = s->counts[s->culprit] > 0;
    if (s->fault == TOO_MANY || s->fault == NO_ITEMS) {
        return s->fault == TOO_MANY && !s->counts_first ? LIERNE_ERR_CAPACITY : LIERNE_ERR_INVALID;
    }
    if (s->fault == ROWS && s->first[item + s->counts[s->culprit]] > s->first[item]) {
        return LIERNE_ERR_COUNT_RANGE;
    }
    if (s->fault == SETTINGS && s->world > 1) {
        return LIERNE_ERR_MISMATCH;
    }
    if (s->fault == COST && has) {
        s->cost[item * COSTS] = -5;
    }
    int64_t at = 0;
    for (int p = 0; p < s->world; p++) {
        for (int64_t i = 0; i < s->counts[p]; i++, at++) {
            s->owner[0][at] = s->owner[2][at] = p;
            s->loads[0][p] += s->cost[at * COSTS + s->balance[0].cost];
        }
    }
    memcpy(s->loads[2], s->loads[0], sizeof s->loads[2]);
    lierne_status status = assign(s, 0);
    status = status == LIERNE_OK && s->moves_on ? assign(s, 1) : status;
    return status == LIERNE_OK ? check_rows(s) : status;
}

/* This rank's part, with its fault. */
static lierne_status update(trial *c, step *s) {
    int64_t at = first_of(s, c->rank), segment = s->first[at], rows[SEGMENTS + 1];
    bool bad = c->rank == s->culprit && s->fault != NONE;
    lierne_balance_spec balance[2] = {s->balance[0], s->balance[1]};
    lierne_items items = {.size = sizeof items,
                          .nitems = s->counts[c->rank],
                          .ncosts = COSTS,
                          .cost = s->cost + at * COSTS,
                          .rows = s->rows[0] + segment,
                          .segments = s->segments + at,
                          .returned_rows = s->rows[1] + segment};
    for (int k = 0; k < 2; k++) {
        balance[k].assignment = balance[k].assignment ? s->given[k] + at : NULL;
    }
    if (bad && s->fault == ROWS) {
        memcpy(rows, items.rows, (size_t)(s->first[at + items.nitems] - segment) * sizeof *rows);
        rows[0] = c->number % 2 ? -1 : (int64_t)1 << 31;
        items.rows = c->number % 3 ? rows : items.rows;
        items.returned_rows = c->number % 3 ? items.returned_rows : rows;
    } else if (bad && s->fault == TOO_MANY) {
        items.nitems = s->counts_first ? -1 : LOCAL + 1;
    } else if (bad && s->fault == SETTINGS) {
        balance[0].tolerance += c->world > 1;
    }
    return lierne_samples_update(c->samples, bad && s->fault == NO_ITEMS ? NULL : &items,
                                 &balance[0], s->moves_on ? &balance[1] : NULL);
}

/* The bytes of a rank's buffer in a place; returns how many. */
static int64_t fill(const trial *c, char *buffer, int place, int tensor, int gradient) {
    const step *s = &c->now;
    int64_t width = (int64_t)lierne_dtype_size(tensors[tensor].dtype) * tensors[tensor].width;
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t rows = tensors[tensor].way == LIERNE_SAMPLES_SEGMENTS
                           ? s->segments[i]
                           : item_rows(s, rows_of[place], i);
        rows = s->owner[owner_of[place]][i] == c->rank ? rows : 0;
        for (int64_t b = 0; b < rows * width; b++) {
            uint64_t value = (uint64_t)(i * 7919 + b * 31 + tensor * 101 + gradient * 57 + 7);
            buffer[n++] = (char)(value * 2654435761u >> 11);
        }
    }
    return n;
}

static void move(trial *c, int tensor, int gradient) {
    char in[MOST_BYTES], out[MOST_BYTES + 1], wanted[sizeof out];
    int returns = tensors[tensor].way == LIERNE_SAMPLES_RETURN;
    int from = returns ? LIERNE_SAMPLES_COMPUTED : LIERNE_SAMPLES_HOME, to = from + 1;
    lierne_request *request = NULL;
    memset(out, 0x5a, sizeof out);
    memset(wanted, 0x5a, sizeof wanted);
    fill(c, in, gradient ? to : from, tensor, gradient);
    int64_t n = fill(c, wanted, gradient ? from : to, tensor, gradient);
    lierne_status status =
        (gradient ? lierne_plan_adjoint_begin
                  : lierne_plan_forward_begin)(&request, c->plans[tensor], out, in, c->t->stream);
    status = status == LIERNE_OK ? lierne_request_end(request) : status;
    note(c, status == LIERNE_OK, "tensor %d: %s", tensor, lierne_last_error());
    note(c, memcmp(out, wanted, (size_t)n + 1) == 0, "tensor %d: %s: wrong bytes", tensor,
         gradient ? "adjoint" : "forward");
}

/* Tensors of dispatch, or of return. */
static const int groups[2][4] = {{0, 2, 4, -1}, {1, 3, -1, -1}};

static void move_together(trial *c, int returns, int gradient) {
    static const lierne_direction directions[2] = {LIERNE_DIRECTION_FORWARD,
                                                   LIERNE_DIRECTION_ADJOINT};
    char in[3][MOST_BYTES], out[3][MOST_BYTES + 1], wanted[MOST_BYTES + 1];
    int from = returns ? LIERNE_SAMPLES_COMPUTED : LIERNE_SAMPLES_HOME, to = from + 1;
    void *outs[3] = {out[0], out[1], out[2]};
    const void *ins[3] = {in[0], in[1], in[2]};
    lierne_coalesced *x = c->together[returns];
    memset(out, 0x5a, sizeof out);
    for (int i = 0; groups[returns][i] >= 0; i++) {
        fill(c, in[i], gradient ? to : from, groups[returns][i], gradient);
    }
    lierne_status status = lierne_coalesced_begin(x, directions[gradient], outs, ins, c->t->stream);
    status = status == LIERNE_OK ? lierne_coalesced_end(x, directions[gradient]) : status;
    note(c, status == LIERNE_OK, "together: %s", lierne_last_error());
    for (int i = 0; groups[returns][i] >= 0; i++) {
        memset(wanted, 0x5a, sizeof wanted);
        int64_t n = fill(c, wanted, gradient ? from : to, groups[returns][i], gradient);
        note(c, memcmp(out[i], wanted, (size_t)n + 1) == 0, "tensor %d together: wrong bytes",
             groups[returns][i]);
    }
}

static void create_together(trial *c) {
    for (int returns = 0; returns < 2 && !c->t->wrong; returns++) {
        lierne_plan *plans[3];
        int n = 0;
        for (; groups[returns][n] >= 0; n++) {
            plans[n] = c->plans[groups[returns][n]];
        }
        note(c, lierne_coalesced_create(&c->together[returns], plans, n) == LIERNE_OK, "%s",
             lierne_last_error());
    }
}

static void check_cu_seqlens(trial *c, int place, const lierne_samples_lists *l) {
    const step *s = &c->now;
    const int32_t *narrow = NULL;
    int64_t n = 0, sum = 0;
    note(c,
         lierne_samples_get_cu_seqlens_i32(&narrow, c->samples, (lierne_samples_place)place) ==
             LIERNE_OK,
         "%s", lierne_last_error());
    for (int64_t i = 0; i < s->n && !c->t->wrong; i++) {
        for (int64_t k = s->first[i]; k < s->first[i + 1]; k++) {
            if (s->owner[owner_of[place]][i] == c->rank) {
                note(c, n < l->nsegments && l->cu_seqlens[n] == sum && narrow[n] == sum,
                     "place %d: segment %d", place, (int)n);
                sum += s->rows[rows_of[place]][k];
                n++;
            }
        }
    }
    note(c, n == l->nsegments && l->cu_seqlens[n] == sum, "place %d: %d segments, must be %d",
         place, (int)l->nsegments, (int)n);
}

static void check_lists(trial *c, int place) {
    const step *s = &c->now;
    const int32_t *owner = s->owner[owner_of[place]];
    lierne_samples_lists l = {.size = sizeof l};
    int64_t n = 0, all = 0;
    note(c, lierne_samples_get_lists(&l, c->samples, (lierne_samples_place)place) == LIERNE_OK,
         "%s", lierne_last_error());
    note(c, l.nitems_all == s->n, "%d items, must be %d", (int)l.nitems_all, (int)s->n);
    for (int p = 0; p < s->world && !c->t->wrong; p++) {
        note(c, l.first[p] == all && l.loads[p] == s->loads[owner_of[place]][p],
             "place %d: rank %d: load %d, must be %d", place, p, (int)l.loads[p],
             (int)s->loads[owner_of[place]][p]);
        for (int64_t i = 0; i < s->n; i++) {
            if (owner[i] == p) {
                note(c, l.permutation[all++] == i && l.ranks[i] == p, "place %d: item %d", place,
                     (int)i);
                note(c, p != c->rank || l.items[n] == i, "place %d: own item %d", place, (int)n);
                n += p == c->rank;
            }
        }
    }
    note(c, l.first[s->world] == all && l.nitems == n, "place %d: %d items, must be %d", place,
         (int)l.nitems, (int)n);
    check_cu_seqlens(c, place, &l);
}

static void create(trial *c) {
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = counts_first(c->t) ? 0 : LOCAL,
                                      .max_local_segments = counts_first(c->t) ? 0 : SEGMENTS,
                                      .ncosts = COSTS,
                                      .caller = 1,
                                      .max_rows = MOST_ROWS,
                                      .max_returned_rows = MOST_RETURNED,
                                      .ntensors = TENSORS,
                                      .tensors = tensors,
                                      .max_inflight = 1 + (int)(c->t->seed % 2)};
    note(c, lierne_samples_create(&c->samples, c->context, &spec) == LIERNE_OK, "%s",
         lierne_last_error());
    for (int i = 0; i < TENSORS && !c->t->wrong; i++) {
        note(c, lierne_samples_get_plan(&c->plans[i], c->samples, i) == LIERNE_OK, "%s",
             lierne_last_error());
    }
    if (!counts_first(c->t)) {
        create_together(c);
    }
}

static void run_step(trial *c) {
    draw_step(c, &c->next);
    lierne_status wanted = expect(&c->next), status = update(c, &c->next);
    note(c, status == wanted, "fault %d: %s, must be %s: %s", (int)c->next.fault,
         lierne_status_name(status), lierne_status_name(wanted), lierne_last_error());
    if (status == LIERNE_OK) {
        c->now = c->next;
        c->t->moved++;
    } else {
        c->t->rejected++;
    }
    for (int place = 0; place < 4; place++) {
        check_lists(c, place);
    }
    bool together = c->together[0] && pick(c, 3) > 0;
    for (int i = 0; i < (together ? 2 : TENSORS); i++) {
        (together ? move_together : move)(c, i, 0);
        (together ? move_together : move)(c, i, 1);
    }
}

/* Ranks are numbered as the members are. */
static void find_place(trial *c) {
    int own = lierne_context_get_rank(c->context);
    c->rank = c->t->nmembers ? 0 : own;
    c->world = c->t->nmembers ? c->t->nmembers : lierne_context_get_world_size(c->context);
    while (c->rank < c->t->nmembers && c->t->members[c->rank] != own) {
        c->rank++;
    }
}

void sample_steps_run(sample_steps *t, lierne_context *context) {
    trial *c = calloc(1, sizeof *c);
    c->t = t;
    c->context = context;
    c->random = t->seed * 0x2545f4914f6cdd1du + 1;
    find_place(c);
    c->now.world = c->world;
    create(c);
    for (c->number = 0; c->number < t->steps && c->samples; c->number++) {
        run_step(c);
    }
    lierne_coalesced_destroy(c->together[0]);
    lierne_coalesced_destroy(c->together[1]);
    note(c, lierne_samples_destroy(c->samples) == LIERNE_OK, "%s", lierne_last_error());
    free(c);
}
