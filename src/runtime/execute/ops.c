/* The copies and sums of a stage. They run on this rank alone, in the documented
 * order, whatever transports brought their sources. */
#include "runtime/execute/execution.h"

const char *lierne_execution_readable(const lierne_subroute *subroute, lierne_buffer buffer) {
    return buffer == LIERNE_BUFFER_IN ? subroute->in : subroute->base[buffer];
}

/* Whether a source is the target itself; in and out may be the same buffer. */
static bool in_place(const lierne_subroute *subroute, const lierne_place *from,
                     const lierne_op *op) {
    lierne_place place = *from;
    if (place.buffer == LIERNE_BUFFER_IN && subroute->in == subroute->base[LIERNE_BUFFER_OUT]) {
        place.buffer = LIERNE_BUFFER_OUT;
    }
    return lierne_place_same(&place, &op->to);
}

static lierne_reduction reduction_of(const lierne_execution *e, const lierne_op *op) {
    return e->cursor.reduction == LIERNE_REDUCTION_SUM ? op->reduction : e->cursor.reduction;
}

static void reduce(const lierne_execution *e, const lierne_subroute *subroute, const lierne_op *op,
                   bool accumulate) {
    size_t n = 0;
    if (accumulate) {
        e->contributions[n++] = (lierne_contribution){subroute->base[op->to.buffer], &op->to.block};
    }
    for (size_t s = 0; s < op->from.count; s++) {
        const lierne_place *from = &op->from.at[s];
        e->contributions[n++] =
            (lierne_contribution){lierne_execution_readable(subroute, from->buffer),
                                  in_place(subroute, from, op) ? &op->to.block : &from->block};
    }
    e->context->memory->reduce(subroute->route->dtype, reduction_of(e, op), op->divisor,
                               subroute->base[op->to.buffer], &op->to.block, e->contributions, n);
}

static void copy_op(const lierne_execution *e, const lierne_subroute *subroute,
                    const lierne_op *op) {
    const lierne_place *from = &op->from.at[0];
    if (!in_place(subroute, from, op)) {
        e->context->memory->copy(subroute->size, subroute->base[op->to.buffer], &op->to.block,
                                 lierne_execution_readable(subroute, from->buffer), &from->block);
    }
}

void lierne_execution_run_sum(const lierne_execution *e, const lierne_subroute *subroute,
                              const lierne_op *op, const lierne_block *blocks,
                              const void *const *bases) {
    const lierne_memory *memory = e->context->memory;
    lierne_contribution *c = e->contributions;
    char *to = subroute->base[op->to.buffer];
    size_t n = 0;
    if (op->accumulate && subroute->accumulates) {
        c[n++] = (lierne_contribution){to, &blocks[0]};
    }
    for (size_t s = 0; s < op->from.count; s++) {
        const lierne_place *from = &op->from.at[s];
        bool same = !bases[s] && in_place(subroute, from, op);
        c[n++] = (lierne_contribution){bases[s] ? bases[s]
                                                : lierne_execution_readable(subroute, from->buffer),
                                       same ? &blocks[0] : &blocks[s + 1]};
    }
    if (n > 1 || op->divisor > 1) {
        memory->reduce(subroute->route->dtype, reduction_of(e, op), op->divisor, to, &blocks[0], c,
                       n);
    } else if (n == 1 && c[0].block != &blocks[0]) {
        memory->copy(subroute->size, to, &blocks[0], c[0].base, c[0].block);
    } else if (n == 0) {
        memory->zero(subroute->size, to, &blocks[0]);
    }
}

static void run_ops(const lierne_execution *e, const lierne_subroute *subroute,
                    const lierne_ops *ops, size_t first, size_t end) {
    for (size_t o = first; o < end; o++) {
        const lierne_op *op = &ops->at[o];
        bool accumulate = op->accumulate && subroute->accumulates;
        if (subroute->no_out && op->to.buffer == LIERNE_BUFFER_OUT) {
            continue;
        }
        if (op->from.count + accumulate > 1 || op->divisor > 1) {
            reduce(e, subroute, op, accumulate);
        } else if (op->from.count == 1) {
            copy_op(e, subroute, op);
        } else if (!accumulate) {
            e->context->memory->zero(subroute->size, subroute->base[op->to.buffer], &op->to.block);
        }
    }
}

void lierne_execution_run_copies(const lierne_execution *e) {
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_subroute *subroute = &e->subroutes[p];
        if (e->cursor.phase < subroute->route->stages.count) {
            const lierne_ops *ops = &subroute->route->stages.at[e->cursor.phase].copies;
            run_ops(e, subroute, ops, 0, ops->count);
        }
    }
}

void lierne_execution_run_sums(const lierne_execution *e, bool early) {
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_subroute *subroute = &e->subroutes[p];
        if (e->cursor.phase < subroute->route->stages.count) {
            const lierne_ops *ops = &subroute->route->stages.at[e->cursor.phase].sums;
            size_t n = lierne_early_sums_count(e, p);
            run_ops(e, subroute, ops, early ? 0 : n, early ? n : ops->count);
        }
    }
}
