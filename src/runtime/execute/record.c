/* The work of an execution as a program: per phase what is packed and copied, what is delivered,
 * and the sums, each as launches of a device.
 *
 * It is recorded twice, because lierne_plan_reduce accumulates where other calls do not. Addresses
 * of the caller's buffers are not known while planning: a task names them by number. Every subroute
 * has three, the memory of the execution is one more, and its host memory another. Windows are all
 * counted from one place in one of them, because a call has few numbers, and peers are many. */
#include "runtime/execute/execution.h"

/* Of what varies, tasks that are reserved at first: the most that there may be are seldom there. */
#define FIRST_TASKS 1024

/* The buffers of a subroute, as a task counts them. */
static int base_of(const lierne_execution *e, const lierne_subroute *s, lierne_buffer buffer) {
    return LIERNE_BUFFER_COUNT * (int)(s - e->subroutes) + (int)buffer;
}

static int memory_base(const lierne_execution *e) {
    return LIERNE_BUFFER_COUNT * (int)e->nsubroutes;
}

static int host_base(const lierne_execution *e) {
    return memory_base(e) + 1;
}

static int window_base(const lierne_execution *e) {
    return memory_base(e) + 2;
}

/* Where in and out have as many elements, a call may give one buffer for both. */
static lierne_operand operand(const lierne_execution *e, const lierne_subroute *s,
                              lierne_buffer buffer, const lierne_block *block) {
    const int64_t *elements = s->route->elements;
    bool one =
        buffer == LIERNE_BUFFER_IN && elements[LIERNE_BUFFER_IN] == elements[LIERNE_BUFFER_OUT];
    return (lierne_operand){.base = base_of(e, s, buffer),
                            .region = base_of(e, s, one ? LIERNE_BUFFER_OUT : buffer),
                            .block = block};
}

static lierne_status add_copy(lierne_execution *e, size_t size, lierne_operand to,
                              lierne_operand from) {
    lierne_work work = {
        .kind = LIERNE_TASK_COPY, .size = size, .to = to, .from = &from, .nfrom = 1};
    return lierne_program_add(&e->stream.recorded->program, &work, false);
}

/* Where a message is packed: bytes from one of the bases. */
static int64_t place_of_packed(lierne_execution *e, const lierne_coalesced_message *m, int *base) {
    const lierne_execution_batch *batch = &e->batches[m->batch];
    *base = m->in_window ? window_base(e) : m->on_host ? host_base(e) : memory_base(e);
    if (!m->in_window) {
        return m->staging;
    }
    char *at = batch->transport->windows->at(batch->batch, m->slot);
    e->stream.recorded->window = e->stream.recorded->window ? e->stream.recorded->window : at;
    return (int64_t)((intptr_t)at - (intptr_t)e->stream.recorded->window);
}

/* Packs a message to where its transport takes it, or unpacks it. */
static lierne_status record_message(lierne_execution *e, const lierne_coalesced_message *m,
                                    bool unpack) {
    if ((m->staging < 0 && !m->in_window) || lierne_execution_exposes(e, m)) {
        return LIERNE_OK;
    }
    int base;
    int64_t staged = place_of_packed(e, m, &base);
    for (size_t i = m->first; i < m->first + m->count; i++) {
        const lierne_subroute *s = e->segments.at[i].subroute;
        const lierne_message *message = e->segments.at[i].message;
        for (size_t b = 0; b < message->blocks.count; b++) {
            const lierne_block *block = &message->blocks.at[b];
            lierne_block packed = lierne_block_packed(block, 0);
            lierne_operand slot = {base, base, staged, &packed};
            lierne_operand own = operand(e, s, message->buffer, block);
            LIERNE_TRY(unpack ? add_copy(e, s->size, own, slot) : add_copy(e, s->size, slot, own));
            staged += lierne_block_elements(block) * (int64_t)s->size;
        }
    }
    return LIERNE_OK;
}

static lierne_status record_messages(lierne_execution *e, size_t first, size_t n, bool unpack) {
    for (size_t i = first; i < first + n; i++) {
        LIERNE_TRY(record_message(e, &e->messages.at[i], unpack));
    }
    return LIERNE_OK;
}

static bool same_place(const lierne_place *from, const lierne_op *op) {
    return lierne_place_same(from, &op->to);
}

/* As run_ops of ops.c. from has space for the sources. */
static lierne_status record_op(lierne_execution *e, const lierne_subroute *s, const lierne_op *op,
                               bool accumulates, bool sums, lierne_operand *from) {
    lierne_operand to = operand(e, s, op->to.buffer, &op->to.block);
    size_t n = 0;
    if (op->accumulate && accumulates) {
        from[n++] = to;
    }
    for (size_t i = 0; i < op->from.count; i++) {
        const lierne_place *place = &op->from.at[i];
        from[n++] = same_place(place, op) ? to : operand(e, s, place->buffer, &place->block);
    }
    bool reduces = n > 1 || op->divisor > 1;
    if (!reduces && n == 1 && from[0].base == to.base && from[0].block == to.block) {
        return LIERNE_OK;
    }
    lierne_work work = {.kind = reduces ? LIERNE_TASK_REDUCE
                                : n     ? LIERNE_TASK_COPY
                                        : LIERNE_TASK_ZERO,
                        .size = s->size,
                        .dtype = s->route->dtype,
                        .reduction = op->reduction,
                        .divisor = op->divisor,
                        .to = to,
                        .from = from,
                        .nfrom = n};
    return lierne_program_add(&e->stream.recorded->program, &work, sums);
}

static lierne_status record_ops(lierne_execution *e, size_t phase, bool sums, bool reduction,
                                lierne_operand *from) {
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_subroute *s = &e->subroutes[p];
        bool accumulates = s->route->accumulates || reduction;
        if (phase >= s->route->stages.count) {
            continue;
        }
        const lierne_stage *stage = &s->route->stages.at[phase];
        const lierne_ops *ops = sums ? &stage->sums : &stage->copies;
        for (size_t o = 0; o < ops->count; o++) {
            LIERNE_TRY(record_op(e, s, &ops->at[o], accumulates, sums, from));
        }
    }
    return LIERNE_OK;
}

static lierne_status record_step(lierne_execution *e, size_t i, lierne_recorded_step step,
                                 bool reduction, lierne_operand *from) {
    const lierne_phase *phase = &e->phases.at[i];
    switch (step) {
    case LIERNE_RECORDED_SEND:
        LIERNE_TRY(record_messages(e, phase->first + phase->nrecvs, phase->nsends, false));
        return record_ops(e, i, false, reduction, from);
    case LIERNE_RECORDED_DELIVER:
        return record_messages(e, phase->first, phase->nrecvs, true);
    default:
        return record_ops(e, i, true, reduction, from);
    }
}

static size_t place_of(const lierne_execution *e, size_t phase, lierne_recorded_step step,
                       bool reduction) {
    return (phase + (reduction ? e->phases.count : 0)) * LIERNE_RECORDED_STEPS + step;
}

/* What varies has no rows, which lierne_plan_reduce asks for. */
static lierne_status record_all(lierne_execution *e, lierne_operand *from) {
    lierne_recorded *r = e->stream.recorded;
    for (int reduction = 0; reduction < (e->varying ? 1 : 2); reduction++) {
        for (size_t i = 0; i < e->phases.count; i++) {
            for (int step = 0; step < LIERNE_RECORDED_STEPS; step++) {
                LIERNE_TRY(lierne_program_open(&r->program));
                size_t first = r->program.launches.count - 1;
                LIERNE_TRY(record_step(e, i, (lierne_recorded_step)step, reduction, from));
                const lierne_task_launch *last =
                    &r->program.launches.at[r->program.launches.count - 1];
                size_t at = place_of(e, i, (lierne_recorded_step)step, reduction);
                r->launches[at].first = first;
                r->launches[at].count =
                    r->program.launches.count - first - (last->first == last->end);
            }
        }
    }
    return LIERNE_OK;
}

/* Sources of the longest sum, with the target where it accumulates. */
static size_t most_sources(const lierne_execution *e) {
    size_t most = lierne_varying_most_sources(e);
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_route *route = e->subroutes[p].route;
        for (size_t i = 0; i < route->stages.count; i++) {
            const lierne_stage *stage = &route->stages.at[i];
            const lierne_ops *lists[2] = {&stage->copies, &stage->sums};
            for (size_t o = 0; o < lists[0]->count + lists[1]->count; o++) {
                bool copy = o < lists[0]->count;
                size_t n = lists[!copy]->at[copy ? o : o - lists[0]->count].from.count;
                most = n > most ? n : most;
            }
        }
    }
    return most + 1;
}

static void free_copies(lierne_execution *e) {
    lierne_program *p = &e->stream.recorded->program;
    for (int i = 0; i < 2; i++) {
        if (p->copies[i]) {
            lierne_context_free_kept(e->context, p->copies[i], true, true);
            p->copies[i] = NULL;
        }
    }
}

/* Space for so many copies, whose last table no call reads any more. */
static lierne_status reserve_program(lierne_execution *e, size_t copies) {
    lierne_program *p = &e->stream.recorded->program;
    void *memory;
    free_copies(e);
    LIERNE_TRY(lierne_program_reserve(p, copies));
    for (int i = 0; i < 2 && e->context->memory->alloc_host; i++) {
        LIERNE_TRY(lierne_context_alloc_kept(&memory, e->context, p->reserved, true));
        p->copies[i] = memory;
    }
    return LIERNE_OK;
}

static lierne_status create_recorded(lierne_execution *e) {
    size_t steps = 2 * e->phases.count * LIERNE_RECORDED_STEPS;
    lierne_recorded *r;
    LIERNE_TRY(lierne_alloc(&e->stream.recorded, 1, sizeof *e->stream.recorded));
    r = e->stream.recorded;
    LIERNE_TRY(lierne_alloc(&r->launches, steps, sizeof *r->launches));
    if (!e->varying) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&r->from, most_sources(e), sizeof *r->from));
    size_t most = lierne_varying_most_tasks_of(e);
    return reserve_program(e, most < FIRST_TASKS ? most + 1 : FIRST_TASKS);
}

static lierne_status record_work(lierne_execution *e) {
    lierne_recorded *r = e->stream.recorded;
    lierne_operand *from = r->from;
    lierne_program_clear(&r->program);
    r->window = NULL;
    LIERNE_TRY(from ? LIERNE_OK : lierne_alloc(&from, most_sources(e), sizeof *from));
    lierne_status status = record_all(e, from);
    lierne_mem_free(r->from ? NULL : from);
    return status;
}

lierne_status lierne_execution_record(lierne_execution *e) {
    const lierne_memory *memory = e->context->memory;
    if (!memory->launch || !e->context->stream_driver) {
        return LIERNE_OK;
    }
    LIERNE_TRY(e->stream.recorded ? LIERNE_OK : create_recorded(e));
    LIERNE_TRY(record_work(e));
    return memory->prepare(&e->stream.recorded->program, e->context->own_stream);
}

/* A device gets what fits in the order of the next call's stream, which has passed the calls
 * before: they read what it replaces. */
lierne_status lierne_execution_record_again(lierne_execution *e) {
    lierne_recorded *r = e->stream.recorded;
    if (!r) {
        return LIERNE_OK;
    }
    LIERNE_TRY(record_work(e));
    r->changed = lierne_program_fits(&r->program);
    if (r->changed) {
        return e->context->memory->stage(&r->program);
    }
    size_t tasks = r->program.tasks.count, pairs = r->program.blocks.count / 2;
    LIERNE_TRY(lierne_execution_drain(e));
    LIERNE_TRY(reserve_program(e, 2 * (tasks > pairs ? tasks : pairs)));
    return e->context->memory->prepare(&r->program, e->context->own_stream);
}

void lierne_execution_destroy_recorded(lierne_execution *e) {
    if (e->stream.recorded) {
        free_copies(e);
        e->context->memory->discard(&e->stream.recorded->program, e->context->own_stream);
        lierne_program_destroy(&e->stream.recorded->program);
        lierne_mem_free(e->stream.recorded->launches);
        lierne_mem_free(e->stream.recorded->from);
        lierne_mem_free(e->stream.recorded);
    }
}

void lierne_execution_set_recorded(lierne_execution *e) {
    lierne_task_call *call = e->stream.recorded ? &e->stream.recorded->call : NULL;
    for (size_t p = 0; call && p < e->nsubroutes; p++) {
        const lierne_subroute *s = &e->subroutes[p];
        call->bases[base_of(e, s, LIERNE_BUFFER_IN)] = (char *)s->in;
        call->bases[base_of(e, s, LIERNE_BUFFER_OUT)] = s->base[LIERNE_BUFFER_OUT];
        call->bases[base_of(e, s, LIERNE_BUFFER_SCRATCH)] = s->base[LIERNE_BUFFER_SCRATCH];
    }
    if (call) {
        call->bases[memory_base(e)] = e->memory.at;
        call->bases[host_base(e)] = e->host.at;
        call->bases[window_base(e)] = e->stream.recorded->window;
        call->reduction = (int32_t)e->cursor.reduction;
        lierne_task_call_align(call, (size_t)window_base(e) + 1);
    }
}

bool lierne_execution_launches(const lierne_execution *e) {
    return e->stream.recorded && e->stream.used;
}

/* The postings of the current phase in a batch. */
static const lierne_posting *postings_of(const lierne_execution *e,
                                         const lierne_execution_batch *batch, size_t *n) {
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    size_t end = phase->first + phase->nrecvs + phase->nsends, at = batch->next;
    while (at > 0 && batch->messages.at[at - 1] >= phase->first) {
        at--;
    }
    for (*n = 0; at + *n < batch->messages.count && batch->messages.at[at + *n] < end;) {
        ++*n;
    }
    return &batch->postings[at];
}

/* Before what is sent is packed, or after what was received is unpacked. */
static lierne_status meet_windows(const lierne_execution *e, lierne_recorded_step step) {
    for (int b = 0; e->uses_windows && b < e->context->ncarriers; b++) {
        const lierne_execution_batch *batch = &e->batches[b];
        const lierne_transport_windows *w = batch->transport->windows;
        if (batch->batch && w) {
            size_t n;
            const lierne_posting *postings = postings_of(e, batch, &n);
            bool packs = step == LIERNE_RECORDED_SEND;
            LIERNE_TRY((packs ? w->before_packing
                              : w->after_unpacking)(batch->batch, e->flight.match, postings, n));
        }
    }
    return LIERNE_OK;
}

static lierne_status run_launches(const lierne_execution *e, lierne_recorded_step step) {
    const lierne_recorded *r = e->stream.recorded;
    size_t at = place_of(e, e->cursor.phase, step, e->cursor.reduction != LIERNE_REDUCTION_SUM);
    for (size_t i = 0; i < r->launches[at].count; i++) {
        LIERNE_TRY(e->context->memory->launch(&r->program, r->launches[at].first + i, &r->call,
                                              e->stream.at));
    }
    return LIERNE_OK;
}

lierne_status lierne_execution_launch(const lierne_execution *e, lierne_recorded_step step) {
    lierne_recorded *r = e->stream.recorded;
    if (r->changed) {
        LIERNE_TRY(e->context->memory->renew(&r->program, e->stream.at));
        r->changed = false;
    }
    LIERNE_TRY(step == LIERNE_RECORDED_SEND ? meet_windows(e, step) : LIERNE_OK);
    LIERNE_TRY(run_launches(e, step));
    return step == LIERNE_RECORDED_DELIVER ? meet_windows(e, step) : LIERNE_OK;
}
