/* Swaps of a box cut into bricks.
 *
 * The rule is that of LAMMPS' brick communicator, so that lists, counts and order of ghosts are the
 * same: axis by axis, so that ghosts of earlier axes are passed on to the corners; a pair of swaps
 * per hop, to the low side and to the high side; the first pair of an axis selects from all rows
 * present before it, later pairs only from the rows that the pair before brought. Positions are
 * sent with the swaps in control messages, because a receiver does not know how many rows it gets.
 * A rank that fails keeps taking part, with empty messages. */
#include "base/base.h"
#include "lierne/halo.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_HOPS 65536 /* a cutoff that needs more of them is a mistake */

struct lierne_brick {
    int64_t nlocal;
    int nswap;
    int *procs;                /* sendproc, then recvproc */
    int64_t *nums;             /* sendnum, then recvnum */
    LIERNE_VEC(double) points; /* 3 coordinates of each row, owned ones first */
    LIERNE_VEC(int64_t) rows;  /* lists, one after the other */
    const int64_t **lists;
};

/* The box along one axis. */
typedef struct axis {
    int bricks;
    int at; /* this rank's brick */
    bool periodic;
    double box;
    double cutoff;
    const double *splits; /* or NULL */
    int hops;             /* the most that any rank needs on either side */
    double low, high;     /* borders of this rank's brick */
    int neighbors[2];     /* ranks on the low and the high side, periodic */
} axis;

typedef struct planner {
    lierne_context *context;
    lierne_brick *brick;
    axis axes[3];
    int naxes; /* with swaps */
} planner;

static double border(const axis *a, int i) {
    return a->box * (a->splits ? a->splits[i] : (double)i / a->bricks);
}

/* The number of bricks beyond brick `at` that a rank needs rows of, on a side (0 low, 1 high). */
static int reach(const axis *a, int at, int side) {
    int edge = side ? a->bricks - 1 - at : at;
    int hops = (int)(a->cutoff * a->bricks / a->box) + 1;
    if (a->splits) {
        double covered = 0;
        for (hops = 0; covered < a->cutoff / a->box && (a->periodic || hops < edge); hops++) {
            at = (at + (side ? 1 : a->bricks - 1)) % a->bricks;
            covered += a->splits[at + 1] - a->splits[at];
        }
    }
    return a->periodic || hops < edge ? hops : edge;
}

/* In how many pairs of swaps this rank sends to a side: as often as the neighbor there needs rows.
 */
static int sends(const axis *a, int side) {
    int neighbor = (a->at + (side ? 1 : a->bricks - 1)) % a->bricks;
    return reach(a, neighbor, !side);
}

static int most_hops(const axis *a) {
    int most = 0;
    for (int at = 0; at < a->bricks; at++) {
        for (int side = 0; side < 2; side++) {
            int hops = reach(a, at, side);
            most = hops > most ? hops : most;
        }
    }
    return most;
}

static lierne_status check_splits(const double *splits, int bricks, int d, int rank) {
    for (int i = 0; splits && i < bricks; i++) {
        if (!(splits[i] < splits[i + 1]) || splits[0] != 0 || splits[bricks] != 1) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: splits[%d] go from %g to %g, entry %d is %g and the "
                               "next %g: must ascend from 0 to 1",
                               rank, d, splits[0], splits[bricks], i, splits[i], splits[i + 1]);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_axis(const lierne_brick_spec *spec, int d, int rank) {
    double box = spec->box[d], cutoff = spec->cutoff;
    if (!(box > 0 && isfinite(box)) || !(cutoff > 0 && isfinite(cutoff))) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: box[%d] is %g and cutoff %g, must be positive and "
                           "finite",
                           rank, d, box, cutoff);
    }
    if (!(cutoff * spec->grid[d] / box < MOST_HOPS)) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: cutoff %g reaches over %g bricks of axis %d, must be "
                           "below %d",
                           rank, cutoff, cutoff * spec->grid[d] / box, d, MOST_HOPS);
    }
    return check_splits(spec->splits[d], spec->grid[d], d, rank);
}

static lierne_status check_grid(const lierne_brick_spec *spec, int rank, int nranks) {
    int64_t bricks = 1;
    for (int d = 0; d < 3; d++) {
        if (spec->grid[d] < 1 || !lierne_mul_i64(bricks, spec->grid[d], &bricks)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: grid[%d] is %d, must be at least 1",
                               rank, d, spec->grid[d]);
        }
    }
    if (bricks != nranks) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the grid %d x %d x %d has %lld bricks, the context %d "
                           "ranks: there must be a brick for each",
                           rank, spec->grid[0], spec->grid[1], spec->grid[2], (long long)bricks,
                           nranks);
    }
    if ((spec->dims != 0 && spec->dims != 2 && spec->dims != 3) ||
        (spec->dims == 2 && spec->grid[2] != 1)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: dims is %d and grid[2] %d, must be 0, 3, or 2 with one "
                           "brick along z",
                           rank, spec->dims, spec->grid[2]);
    }
    return LIERNE_OK;
}

static lierne_status check_brick(const lierne_brick_spec *spec, int rank, int nranks) {
    int64_t bytes;
    LIERNE_TRY(check_grid(spec, rank, nranks));
    for (int d = 0; d < 3; d++) {
        LIERNE_TRY(check_axis(spec, d, rank));
    }
    if (spec->nlocal < 0 || !lierne_mul_i64(spec->nlocal, 3 * sizeof(double), &bytes)) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: nlocal is %lld: negative, or the bytes do not fit", rank,
                           (long long)spec->nlocal);
    }
    if (!spec->positions && spec->nlocal > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: positions is NULL, but nlocal is %lld",
                           rank, (long long)spec->nlocal);
    }
    return LIERNE_OK;
}

static void place(planner *b, const lierne_brick_spec *spec) {
    int index = b->context->index, step = 1;
    b->naxes = spec->dims == 2 ? 2 : 3;
    for (int d = 2; d >= 0; d--) {
        axis *a = &b->axes[d];
        *a = (axis){.bricks = spec->grid[d],
                    .periodic = spec->periodic[d] != 0,
                    .box = spec->box[d],
                    .cutoff = spec->cutoff,
                    .splits = spec->splits[d]};
        a->at = index / step % a->bricks;
        a->low = border(a, a->at);
        a->high = border(a, a->at + 1);
        a->hops = most_hops(a);
        for (int side = 0; side < 2; side++) {
            int next = (a->at + (side ? 1 : a->bricks - 1)) % a->bricks;
            a->neighbors[side] =
                lierne_members_rank(&b->context->members, index + (next - a->at) * step);
        }
        step *= a->bricks;
    }
}

static lierne_status check_points(const planner *b, const lierne_brick_spec *spec) {
    for (int64_t i = 0; i < spec->nlocal; i++) {
        for (int d = 0; d < 3; d++) {
            const axis *a = &b->axes[d];
            double x = spec->positions[3 * i + d];
            if (!(x >= a->low && x < a->high)) {
                return LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE,
                                   "rank %d: point %lld has coordinate %d %.17g, "
                                   "outside its brick, which goes from %.17g to %.17g",
                                   b->context->rank, (long long)i, d, x, a->low, a->high);
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status reserve_planner(planner *b, const lierne_brick_spec *spec) {
    lierne_brick *brick = b->brick;
    for (int d = 0; d < b->naxes; d++) {
        brick->nswap += 2 * b->axes[d].hops;
    }
    brick->nlocal = spec->nlocal;
    LIERNE_TRY(lierne_alloc(&brick->procs, 2 * (size_t)brick->nswap, sizeof *brick->procs));
    LIERNE_TRY(lierne_alloc(&brick->nums, 2 * (size_t)brick->nswap, sizeof *brick->nums));
    LIERNE_TRY(lierne_alloc(&brick->lists, (size_t)brick->nswap, sizeof *brick->lists));
    for (int64_t i = 0; i < 3 * spec->nlocal; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&brick->points, spec->positions[i]));
    }
    return LIERNE_OK;
}

typedef LIERNE_VEC(int64_t) word_vec;

/* The bits of a row's position, shifted if the swap crosses a periodic border. */
static lierne_status add_position(word_vec *words, const double *point, int d, double shift) {
    for (int e = 0; e < 3; e++) {
        double x = e == d ? point[e] + shift : point[e];
        int64_t bits;
        memcpy(&bits, &x, sizeof bits);
        LIERNE_TRY(LIERNE_VEC_PUSH(words, bits));
    }
    return LIERNE_OK;
}

/* A swap to a side along axis d, the hop-th of the axis, of rows from first on, below last. */
typedef struct swap {
    int d, side, hop;
    int64_t first, last;
    int number;
} swap;

static bool is_sent(const axis *a, const swap *s, double x) {
    double middle = 0.5 * (a->low + a->high);
    if (s->side == 0) {
        return x <= a->low + a->cutoff && (s->hop == 0 || x >= middle);
    }
    return x >= a->high - a->cutoff && (s->hop == 0 || x <= middle);
}

static lierne_status choose_rows(const planner *b, const swap *s, word_vec *words) {
    const axis *a = &b->axes[s->d];
    lierne_brick *brick = b->brick;
    bool crosses = a->at == (s->side ? a->bricks - 1 : 0);
    double shift = crosses ? (s->side ? -a->box : a->box) : 0;
    if (s->hop >= sends(a, s->side)) {
        return LIERNE_OK;
    }
    for (int64_t i = s->first; i < s->last; i++) {
        const double *point = &brick->points.at[3 * i];
        if (is_sent(a, s, point[s->d])) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&brick->rows, i));
            LIERNE_TRY(add_position(words, point, s->d, shift));
            brick->nums[s->number]++;
        }
    }
    return LIERNE_OK;
}

static lierne_status take_swap(const planner *b, const swap *s,
                               const lierne_control_messages *received) {
    lierne_brick *brick = b->brick;
    if (received->count == 0) {
        return LIERNE_OK;
    }
    const lierne_control_message *message = &received->at[0];
    for (size_t i = 0; i < message->count; i++) {
        double x;
        memcpy(&x, &message->words[i], sizeof x);
        LIERNE_TRY(LIERNE_VEC_PUSH(&brick->points, x));
    }
    brick->nums[brick->nswap + s->number] = (int64_t)message->count / 3;
    return LIERNE_OK;
}

/* Collective, also after a failure. */
static lierne_status run_swap(const planner *b, const swap *s, lierne_status status) {
    lierne_brick *brick = b->brick;
    const axis *a = &b->axes[s->d];
    word_vec words = {0};
    lierne_control_messages received = {0};
    brick->procs[s->number] = a->neighbors[s->side];
    brick->procs[brick->nswap + s->number] = a->neighbors[!s->side];
    if (status == LIERNE_OK) {
        status = choose_rows(b, s, &words);
    }
    lierne_control_message message = {a->neighbors[s->side], words.count, words.at};
    bool sent = status == LIERNE_OK && words.count > 0;
    lierne_status posted = lierne_context_sparse_exchange(b->context, &message, sent, &received);
    if (status == LIERNE_OK) {
        status = posted == LIERNE_OK ? take_swap(b, s, &received) : posted;
    }
    lierne_control_messages_destroy(&received);
    lierne_context_free_message_memory(b->context, words.at);
    return status;
}

static lierne_status run_axis(const planner *b, int d, int *number, lierne_status status) {
    swap s = {.d = d};
    for (s.hop = 0; s.hop < b->axes[d].hops; s.hop++) {
        s.first = s.last;
        s.last = (int64_t)b->brick->points.count / 3;
        for (s.side = 0; s.side < 2 && b->context->dead == LIERNE_OK; s.side++) {
            s.number = (*number)++;
            status = run_swap(b, &s, status);
        }
    }
    return status;
}

static void point_lists(lierne_brick *brick) {
    size_t first = 0;
    for (int s = 0; s < brick->nswap; s++) {
        brick->lists[s] = brick->nums[s] > 0 ? brick->rows.at + first : NULL;
        first += (size_t)brick->nums[s];
    }
}

/* What must be the same on every rank. */
typedef struct fingerprint {
    lierne_brick_spec spec; /* fields point to its numbers */
    lierne_field fields[24];
    size_t n;
} fingerprint;

static void put(fingerprint *f, const char *name, int d, int64_t value) {
    lierne_field *field = &f->fields[f->n++];
    snprintf(field->name, sizeof field->name, "%s[%d]", name, d);
    field->value = value;
}

static void put_reals(fingerprint *f, const char *name, int d, const double *reals, int n) {
    char full[16];
    snprintf(full, sizeof full, d < 0 ? "%s" : "%s[%d]", name, d);
    f->fields[f->n++] = lierne_field_list(full, LIERNE_ITEM_F64, reals, (size_t)n);
}

static void put_spec(fingerprint *f, const lierne_brick_spec *spec) {
    put_reals(f, "cutoff", -1, &spec->cutoff, 1);
    put_reals(f, "box", -1, spec->box, 3);
    put(f, "dims", 0, spec->dims == 2 ? 2 : 3);
    for (int d = 0; d < 3; d++) {
        put(f, "grid", d, spec->grid[d]);
        put(f, "periodic", d, spec->periodic[d] != 0);
        put_reals(f, "splits", d, spec->splits[d], spec->grid[d] + 1);
    }
}

static lierne_status prepare_planner(planner *b, const lierne_brick_spec *given, fingerprint *f) {
    lierne_brick_spec *spec = &f->spec;
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, b->context->rank));
    LIERNE_TRY(check_brick(spec, b->context->rank, b->context->members.count));
    put_spec(f, spec);
    place(b, spec);
    LIERNE_TRY(check_points(b, spec));
    LIERNE_TRY(lierne_alloc(&b->brick, 1, sizeof *b->brick));
    return reserve_planner(b, spec);
}

lierne_status lierne_brick_create(lierne_brick **out, lierne_context *context,
                                  const lierne_brick_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    planner b = {.context = context};
    fingerprint f = {.fields = {{.name = "lierne_brick_create"}}, .n = 1};
    int number = 0;
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? prepare_planner(&b, spec, &f)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    status = lierne_context_agree_all(context, status, f.fields, f.n, NULL);
    if (status == LIERNE_OK) {
        for (int d = 0; d < b.naxes; d++) {
            status = run_axis(&b, d, &number, status);
        }
        status = context->dead == LIERNE_OK
                     ? lierne_context_agree_all(context, status, NULL, 0, NULL)
                     : lierne_context_alive(context);
    }
    if (status != LIERNE_OK) {
        lierne_brick_destroy(b.brick);
        return status;
    }
    point_lists(b.brick);
    *out = b.brick;
    return LIERNE_OK;
}

void lierne_brick_destroy(lierne_brick *brick) {
    if (brick) {
        lierne_mem_free(brick->procs);
        lierne_mem_free(brick->nums);
        lierne_mem_free(brick->lists);
        lierne_mem_free(brick->points.at);
        lierne_mem_free(brick->rows.at);
        lierne_mem_free(brick);
    }
}

lierne_status lierne_brick_get_swaps(lierne_halo_spec *given, const lierne_brick *brick) {
    LIERNE_PUBLIC_CALL();
    lierne_halo_spec own, *spec = &own;
    LIERNE_TRY(lierne_check_set(brick, "brick"));
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    spec->nlocal = brick->nlocal;
    spec->nghost = (int64_t)brick->points.count / 3 - brick->nlocal;
    spec->nswap = brick->nswap;
    spec->sendproc = brick->procs;
    spec->recvproc = brick->procs + brick->nswap;
    spec->sendnum = brick->nums;
    spec->recvnum = brick->nums + brick->nswap;
    spec->sendlist = brick->lists;
    return lierne_spec_give(given, spec, sizeof *spec, "spec");
}

const double *lierne_brick_get_ghosts(const lierne_brick *brick) {
    size_t owned = brick ? 3 * (size_t)brick->nlocal : 0;
    return brick && brick->points.count > owned ? brick->points.at + owned : NULL;
}
