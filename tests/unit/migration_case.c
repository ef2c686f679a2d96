#include "unit/migration_case.h"

#include "lierne/sparse.h"
#include "plan/object.h"
#include "unit/halo_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 3, GAP = 0x5a, MOST_BORN = 6 };

/* The numbers of the rows of every rank. */
typedef struct rows {
    int64_t n[MIGRATION_RANKS];
    int64_t id[MIGRATION_RANKS][MIGRATION_ROWS];
} rows;

typedef struct field {
    lierne_dtype dtype;
    int64_t width, in, out; /* strides */
} field;

typedef struct run {
    migration_steps *m;
    lierne_context *context;
    int n, rank, step;
    rows before, after;
    int32_t owner[MIGRATION_ROWS];
    int64_t born; /* the next number */
    field fields[FIELDS];
    lierne_plan *plans[FIELDS];
    lierne_coalesced *all; /* where all fields are updated at once */
} run;

#define EXPECT(t, condition)                                                                       \
    if (!(condition) && !(t)->m->wrong) {                                                          \
        (t)->m->wrong = __LINE__;                                                                  \
        (t)->m->step = (t)->step;                                                                  \
        snprintf((t)->m->what, sizeof(t)->m->what, "%s", lierne_last_error());                     \
    }

static uint64_t pick(const run *t, uint64_t a, uint64_t b, uint64_t n) {
    return halo_case_pick(t->m->seed * 1000 + (uint64_t)t->step, a, b, n);
}

/* Some steps move all rows, some hardly any, some to one rank. */
static int32_t owner_of(const run *t, int rank, int64_t id) {
    uint64_t kind = pick(t, 1, 0, 5), of = pick(t, 2, (uint64_t)id, 100);
    if (of < 5 + 20 * (kind == 4)) {
        return -1;
    }
    if (kind == 0 || of < 15) {
        return (int32_t)pick(t, 3, (uint64_t)id, (uint64_t)t->n);
    }
    return kind == 1 ? (int32_t)pick(t, 4, 0, (uint64_t)t->n) : rank;
}

/* Rows that are born stand behind the others. */
static void bear(run *t) {
    for (int r = 0; r < t->n; r++) {
        int64_t born = (int64_t)pick(t, 5, (uint64_t)r, MOST_BORN + (t->step ? 0 : 40));
        for (int64_t i = 0; i < born; i++) {
            t->before.id[r][t->before.n[r]++] = t->born++;
        }
    }
}

static void follow(run *t) {
    memset(t->after.n, 0, sizeof t->after.n);
    for (int r = 0; r < t->n; r++) {
        for (int64_t i = 0; i < t->before.n[r]; i++) {
            int64_t id = t->before.id[r][i];
            int32_t owner = owner_of(t, r, id);
            if (owner >= 0) {
                t->after.id[owner][t->after.n[owner]++] = id;
            }
            if (r == t->rank) {
                t->owner[i] = owner;
                t->m->moved += owner != r && owner >= 0;
            }
        }
    }
}

/* Bytes of a buffer of a field; every byte of a row follows from its number, whatever it means as a
 * float. A row that ended is zero in `zeroed`. */
typedef struct buffer {
    size_t bytes;
    unsigned char *at;
} buffer;

static buffer buffer_new(const field *f, int64_t n, int64_t stride) {
    buffer b = {.bytes = (size_t)(n * stride) * lierne_dtype_size(f->dtype) + 16};
    b.at = malloc(b.bytes);
    memset(b.at, GAP, b.bytes);
    return b;
}

static void buffer_fill(const run *t, const field *f, const buffer *b, const int64_t *id, int64_t n,
                        int64_t stride, const int32_t *zeroed) {
    size_t size = lierne_dtype_size(f->dtype), width = (size_t)f->width * size;
    for (int64_t i = 0; i < n; i++) {
        unsigned char *at = b->at + (size_t)(i * stride) * size;
        for (size_t k = 0; k < width; k++) {
            bool ended = zeroed && zeroed[i] < 0;
            at[k] = ended ? 0 : (unsigned char)pick(t, 1000 + (uint64_t)id[i], k, 256);
        }
    }
}

/* One field in a direction: what goes in, what must come out, and space for it. */
typedef struct move {
    buffer in, out, want;
} move;

static move move_new(const run *t, const field *f, int direction) {
    const rows *from = direction ? &t->after : &t->before, *to = direction ? &t->before : &t->after;
    int64_t in = direction ? f->out : f->in, out = direction ? f->in : f->out;
    int64_t nin = from->n[t->rank], nout = to->n[t->rank];
    move v = {buffer_new(f, nin, in), buffer_new(f, nout, out), buffer_new(f, nout, out)};
    buffer_fill(t, f, &v.in, from->id[t->rank], nin, in, NULL);
    buffer_fill(t, f, &v.want, to->id[t->rank], nout, out, direction ? t->owner : NULL);
    return v;
}

static void move_check(run *t, move *v) {
    EXPECT(t, memcmp(v->out.at, v->want.at, v->want.bytes) == 0);
    free(v->in.at), free(v->out.at), free(v->want.at);
}

static void check_coalesced(run *t, int direction) {
    move moves[FIELDS];
    void *out[FIELDS];
    const void *in[FIELDS];
    lierne_coalesced *all = t->all;
    int64_t sent = 0;
    lierne_report report = {.size = sizeof report};
    for (int i = 0; i < FIELDS; i++) {
        moves[i] = move_new(t, &t->fields[i], direction);
        out[i] = moves[i].out.at;
        in[i] = moves[i].in.at;
    }
    EXPECT(t, all || lierne_coalesced_create(&all, t->plans, FIELDS) == LIERNE_OK);
    EXPECT(t, all && lierne_coalesced_begin(all, (lierne_direction)direction, out, in, NULL) ==
                         LIERNE_OK);
    EXPECT(t, all && lierne_coalesced_end(all, (lierne_direction)direction) == LIERNE_OK);
    lierne_plan_get_report(&report, t->plans[0], (lierne_direction)direction);
    EXPECT(t, all && lierne_coalesced_get_messages(&sent, NULL, all, (lierne_direction)direction) ==
                         LIERNE_OK);
    EXPECT(t, sent == report.sent_messages);
    lierne_coalesced_destroy(t->all ? NULL : all);
    for (int i = 0; i < FIELDS; i++) {
        move_check(t, &moves[i]);
    }
}

static void check_alone(run *t, int field_number, int direction) {
    move v = move_new(t, &t->fields[field_number], direction);
    lierne_plan *plan = t->plans[field_number];
    EXPECT(t, (direction ? lierne_plan_adjoint : lierne_plan_forward)(plan, v.out.at, v.in.at,
                                                                      NULL) == LIERNE_OK);
    EXPECT(t, lierne_plan_check((const lierne_plan *const *)&plan, 1) == LIERNE_OK);
    move_check(t, &v);
}

/* What left, by the lists, in the order of the receivers. */
static void check_lists(run *t) {
    lierne_graph_lists lists = {.size = sizeof lists};
    int64_t at = 0, arrived = 0, wrong = 0, own = 0;
    EXPECT(t, lierne_plan_get_graph_lists(&lists, t->plans[0]) == LIERNE_OK);
    for (int64_t i = 0; i < lists.nreceivers; i++) {
        for (int64_t k = 0; k < lists.receiver_counts[i]; k++) {
            wrong += t->owner[lists.receiver_rows[at++]] != lists.receiver_ranks[i];
        }
    }
    for (int64_t i = 0; i < lists.nsenders; i++) {
        arrived += lists.sender_counts[i];
    }
    for (int64_t i = 0; i < t->before.n[t->rank]; i++) {
        own += t->owner[i] == t->rank;
    }
    EXPECT(t, wrong == 0 && arrived + own == lists.nghosts);
    EXPECT(t, lists.nowned == t->before.n[t->rank] && lists.nghosts == t->after.n[t->rank]);
}

static void plan_step(run *t) {
    const field *f = &t->fields[0];
    const lierne_migration_spec spec = {.size = sizeof spec,
                                        .nrows = t->before.n[t->rank],
                                        .owner = t->owner,
                                        .dtype = f->dtype,
                                        .width = f->width,
                                        .stride = f->in};
    if (t->all) {
        int series = t->plans[1]->series;
        EXPECT(t, lierne_coalesced_update_migration(t->all, &spec) == LIERNE_OK);
        EXPECT(t, series >= 0 && t->plans[1]->series == series); /* of its messages' match ids */
        return;
    }
    if (t->step > 0) {
        EXPECT(t, lierne_plan_update_migration(t->plans[0], &spec) == LIERNE_OK);
    } else {
        EXPECT(t, lierne_plan_create_migration(&t->plans[0], t->context, &spec) == LIERNE_OK);
    }
    for (int i = 1; i < FIELDS; i++) {
        f = &t->fields[i];
        const lierne_retyped_spec retyped = {.size = sizeof retyped,
                                             .dtype = f->dtype,
                                             .width = f->width,
                                             .in_stride = f->in,
                                             .out_stride = f->out};
        if (t->step > 0) {
            EXPECT(t, lierne_plan_update_retyped(t->plans[i], t->plans[0]) == LIERNE_OK);
        } else {
            EXPECT(t, lierne_plan_create_retyped(&t->plans[i], t->plans[0], &retyped) == LIERNE_OK);
        }
    }
    if (t->m->seed % 2 && t->step == 1) {
        EXPECT(t, lierne_coalesced_create(&t->all, t->plans, FIELDS) == LIERNE_OK);
    }
}

/* The plan's own rows have one stride. */
static void draw_fields(run *t) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_BITS8, LIERNE_DTYPE_I32,
                                          LIERNE_DTYPE_BITS64, LIERNE_DTYPE_BF16};
    for (uint64_t i = 0; i < FIELDS; i++) {
        field *f = &t->fields[i];
        f->dtype = dtypes[pick(t, 10, i, 5)];
        f->width = 1 + (int64_t)pick(t, 11, i, 4);
        f->in = f->width + (int64_t)pick(t, 12, i, 3);
        f->out = i ? f->width + (int64_t)pick(t, 13, i, 3) : f->in;
    }
}

static void run_step(run *t) {
    bear(t);
    follow(t);
    plan_step(t);
    check_lists(t);
    if (t->step % 3 == 0) {
        check_coalesced(t, 0);
        check_coalesced(t, 1);
    }
    for (int i = 0; t->step % 3 && i < FIELDS; i++) {
        check_alone(t, i, 0);
        check_alone(t, i, 1);
    }
    t->before = t->after;
}

void migration_steps_run(migration_steps *m, lierne_context *context) {
    run *t = calloc(1, sizeof *t);
    t->m = m;
    t->context = context;
    t->n = lierne_context_get_world_size(context);
    t->rank = lierne_context_get_rank(context);
    draw_fields(t);
    for (; t->step < m->steps && !m->wrong; t->step++) {
        run_step(t);
    }
    EXPECT(t, lierne_coalesced_destroy(t->all) == LIERNE_OK);
    for (int i = FIELDS; i-- > 0;) {
        EXPECT(t, lierne_plan_destroy(t->plans[i]) == LIERNE_OK);
    }
    free(t);
}
