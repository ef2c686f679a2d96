/* Values are of the element, so that each place of an output has one right value. */
#include "survive.h"
#include "layouts.h"
#include "node_jobs.h"

#include <string.h>

enum { EACH = 20000, KEPT = 0x5a };
static int64_t in[MOST * EACH], out[MOST * EACH];

static int64_t value_of(int64_t element) {
    return 3 * element + 1;
}

static void fill(int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        in[i] = value_of(first + i);
    }
    memset(out, KEPT, sizeof out);
}

static lierne_status recreate(lierne_plan **plan, lierne_context *context, int world, int64_t n) {
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {world}};
    const lierne_placement from = {.kind = LIERNE_PLACEMENT_SHARD}, to = {0};
    lierne_plan *old = *plan;
    if (!old) {
        return plan_between(plan, context, &dp, LIERNE_DTYPE_I64, 1, &n, &from, &to, 0);
    }
    lierne_grid *grid = mesh_grid(&dp, world);
    const lierne_recreate_spec spec = {.size = sizeof spec, .src = grid, .dst = grid};
    lierne_status status = lierne_plan_recreate(plan, context, old, &spec);
    lierne_plan_destroy(old);
    lierne_grid_destroy(grid);
    return status;
}

lierne_status survive_plan(lierne_plan **plan, lierne_context *smaller, int64_t n) {
    int rank = lierne_context_get_rank(smaller), world = lierne_context_get_world_size(smaller);
    int64_t each = n / world, more = n % world;
    lierne_status status = recreate(plan, smaller, world, n);
    fill(rank * each + (rank < more ? rank : more), each + (rank < more));
    status = status == LIERNE_OK ? lierne_plan_forward(*plan, out, in, NULL) : status;
    for (int64_t e = 0; status == LIERNE_OK && e < n; e++) {
        status = out[e] == value_of(e) ? LIERNE_OK : LIERNE_ERR_IO;
    }
    return status;
}

/* The layouts that the ranks had and have; what a shrunk context says of former ranks. */
typedef struct tensors {
    int before, now;
    int former[MOST];
    lierne_layout *shares, *left, *all;
} tensors;

static void open_tensors(tensors *t, const lierne_context *dead, const lierne_context *smaller) {
    const lierne_placement shard = {.kind = LIERNE_PLACEMENT_SHARD}, all = {0};
    t->before = lierne_context_get_world_size(dead);
    t->now = lierne_context_get_world_size(smaller);
    const mesh before = {.ndims = 1, .names = {"dp"}, .sizes = {t->before}},
               now = {.ndims = 1, .names = {"dp"}, .sizes = {t->now}};
    const int64_t n = (int64_t)t->before * EACH;
    for (int r = 0; r < t->now; r++) {
        t->former[r] = lierne_context_get_former_rank(smaller, r);
    }
    t->shares = layout_over(&before, t->before, LIERNE_DTYPE_I64, 1, &n, &shard);
    t->all = layout_over(&now, t->now, LIERNE_DTYPE_I64, 1, &n, &all);
    lierne_layout_create_surviving(&t->left, t->shares, t->former, t->now);
}

static void close_tensors(tensors *t) {
    lierne_layout_destroy(t->shares);
    lierne_layout_destroy(t->left);
    lierne_layout_destroy(t->all);
}

/* Outputs have what survives and, where it does not, what they had; the boxes say where. */
static lierne_status check(const tensors *t) {
    int64_t kept, loads = 0, lost = 0;
    lierne_box boxes[MOST];
    size_t count = 0;
    memset(&kept, KEPT, sizeof kept);
    for (int r = 0, k = 0; r < t->before; r++) {
        bool left = k < t->now && t->former[k] == r;
        k += left;
        lost += left ? 0 : EACH;
        for (int64_t e = (int64_t)r * EACH; e < (int64_t)(r + 1) * EACH; e++) {
            if (out[e] != (left ? value_of(e) : kept)) {
                return LIERNE_ERR_IO;
            }
        }
    }
    lierne_redistribute_find_lost(boxes, MOST, &count, t->left, t->all, 0);
    for (size_t b = 0; b < count; b++) {
        loads += boxes[b].size[0];
    }
    return loads == lost ? LIERNE_OK : LIERNE_ERR_IO;
}

lierne_status survive_move(const lierne_context *dead, lierne_context *smaller) {
    tensors t;
    lierne_plan *plan;
    open_tensors(&t, dead, smaller);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = t.left, .dst = t.all};
    lierne_status status = lierne_plan_create_redistribute(&plan, smaller, &spec);
    fill((int64_t)lierne_context_get_rank(dead) * EACH, EACH);
    status = status == LIERNE_OK ? lierne_plan_forward(plan, out, in, NULL) : status;
    status = status == LIERNE_OK ? check(&t) : status;
    lierne_plan_destroy(plan);
    close_tensors(&t);
    return status;
}
