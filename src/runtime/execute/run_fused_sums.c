/* Runs sums whose contributions are exposed: fused_sums.c. */
#include "runtime/execute/fused_sums.h"

/* Copies a landing into scratch after all. */
static void land(const lierne_execution *e, lierne_landing *l) {
    lierne_execution_copy_segment(e, &e->segments.at[l->segment], l->part);
    l->part = NULL;
}

/* The landing of source i where it is exposed in this call, else NULL. */
static lierne_landing *exposed_landing(const lierne_fused_sums *f, const lierne_fused_op *fused,
                                       size_t i) {
    int64_t landing = f->op_landings.at[fused->landings + i];
    return landing >= 0 && f->landings.at[landing].part ? &f->landings.at[landing] : NULL;
}

/* Writes the blocks of a sum, which all get the same loops, to f->blocks. Returns NULL, or a
 * landing whose sender has no such block. */
static lierne_landing *list_blocks(lierne_fused_sums *f, const lierne_fused_op *fused) {
    const lierne_op *op = fused->op;
    lierne_landing *l = NULL;
    lierne_block *to = &f->blocks[0], loops;
    *to = lierne_block_part(&op->to.block, fused->first, fused->count);
    loops = *to;
    for (size_t i = 0; i < op->from.count; i++) {
        lierne_block source = lierne_block_part(&op->from.at[i].block, fused->first, fused->count);
        f->blocks[i + 1] = source;
        if ((l = exposed_landing(f, fused, i)) &&
            (!lierne_part_find(&f->blocks[i + 1], l->part, &l->cursor, l->range.first, &source) ||
             !lierne_block_refine(&loops, &f->blocks[i + 1]))) {
            return l;
        }
    }
    bool divides = lierne_block_divide(to, &loops);
    for (size_t i = 0; i < op->from.count; i++) {
        divides &= lierne_block_divide(&f->blocks[i + 1], &loops);
    }
    for (size_t i = 0; !divides && i < op->from.count; i++) {
        l = exposed_landing(f, fused, i);
        if (l) {
            return l;
        }
    }
    return NULL;
}

static void sum_rows(const lierne_execution *e, const lierne_subroute *subroute,
                     const lierne_fused_op *fused) {
    lierne_fused_sums *f = e->fused;
    if (lierne_block_elements(&fused->op->to.block) == 0) {
        return;
    }
    for (lierne_landing *l; (l = list_blocks(f, fused));) {
        land(e, l);
    }
    for (size_t i = 0; i < fused->op->from.count; i++) {
        const lierne_landing *l = exposed_landing(f, fused, i);
        f->bases[i] = l ? l->part->base : NULL;
    }
    lierne_execution_run_sum(e, subroute, fused->op, f->blocks, f->bases);
}

static void run_stage(const lierne_execution *e, size_t p) {
    const lierne_fused_stage *s = &e->fused->stages[e->cursor.phase * e->nsubroutes + p];
    const lierne_fused_op *ops = &e->fused->ops.at[s->first_op];
    const lierne_op *end = s->nops > 0 ? ops[0].op + lierne_early_sums_count(e, p) : NULL;
    for (size_t o = 0; o < s->nops && ops[o].op < end; o++) {
        sum_rows(e, &e->subroutes[p], &ops[o]);
    }
}

void lierne_fused_sums_run(const lierne_execution *e) {
    if (e->fused->nheld == 0) {
        lierne_execution_run_sums(e, true);
        return;
    }
    for (size_t p = 0; p < e->nsubroutes; p++) {
        run_stage(e, p);
    }
}

void lierne_fused_sums_release(const lierne_execution *e) {
    lierne_fused_sums *f = e->fused;
    for (; f->nheld > 0; f->nheld--) {
        const lierne_coalesced_message *m = f->held[f->nheld - 1];
        const lierne_execution_batch *batch = &e->batches[m->batch];
        for (size_t k = m->first; k < m->first + m->count; k++) {
            if (f->landing_of[k] >= 0) {
                f->landings.at[f->landing_of[k]].part = NULL;
            }
        }
        batch->transport->exposes->release(batch->batch, m->slot);
    }
}
