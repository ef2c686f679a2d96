/* The copy engine. Strict where CUDA's documentation is: a copy from pageable memory has read it
 * when the call returns, and one to pageable memory has been made. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* The driver copies between devices that do not reach each other, but not into mappings of
 * theirs. */
static bool is_reached(const emulator_memory *memory, const emulator_work *w) {
    return !memory || !memory->reserved || emulator_memory_reached(memory, w->stream->device);
}

static void run_copy(const emulator_work *w) {
    const emulator_memory *target = emulator_memory_find(w->to);
    const emulator_memory *source = w->staged ? NULL : emulator_memory_find(w->from);
    bool overlaps = w->to < w->from + w->bytes && w->from < w->to + w->bytes;
    if (!emulator_memory_has(w->to, w->bytes) ||
        (!w->staged && !emulator_memory_has(w->from, w->bytes)) || overlaps) {
        emulator_say("copy of %zu bytes from %#llx to %#llx is out of bounds or overlaps", w->bytes,
                     (unsigned long long)w->from, (unsigned long long)w->to);
        emulator_break(cudaErrorIllegalAddress);
    } else if (!is_reached(target, w) || !is_reached(source, w)) {
        emulator_say("copy from or to a mapping that device %d may not access", w->stream->device);
        emulator_break(cudaErrorIllegalAddress);
    } else if (!emulator_check_copy(w->stream, w->to, w->staged ? 0 : w->from, w->bytes)) {
        emulator_break(cudaErrorIllegalAddress);
    } else {
        memcpy(emulator_memory_at(target, w->to),
               w->staged ? w->staged : emulator_memory_at(source, w->from), w->bytes);
    }
}

static void run_set(const emulator_work *w) {
    const emulator_memory *target = emulator_memory_find(w->to);
    if (!target || !emulator_memory_has(w->to, w->bytes) ||
        !emulator_check_copy(w->stream, w->to, 0, w->bytes)) {
        emulator_say("memset of %zu bytes at %#llx is wrong", w->bytes, (unsigned long long)w->to);
        emulator_break(cudaErrorIllegalAddress);
    } else {
        memset(emulator_memory_at(target, w->to), w->value, w->bytes);
    }
}

void emulator_run_copy(const emulator_work *work) {
    if (work->kind == EMULATOR_COPY) {
        run_copy(work);
    } else {
        run_set(work);
    }
}

static cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    uint64_t target = (uintptr_t)to, source = (uintptr_t)from;
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (!emulator_memory_has(target, bytes) || !emulator_memory_has(source, bytes)) {
        emulator_say("cudaMemcpy of %zu bytes from %p to %p is out of bounds", bytes, from, to);
        return cudaErrorInvalidValue;
    }
    emulator_work *work = emulator_work_create(EMULATOR_COPY);
    *work = (emulator_work){.kind = EMULATOR_COPY, .to = target, .from = source, .bytes = bytes};
    if (!emulator_memory_find(source) && !stream->capture) {
        work->staged = malloc(bytes);
        memcpy(work->staged, from, bytes);
    }
    cudaError_t error = emulator_enqueue(stream, work);
    if (error == cudaSuccess && !emulator_memory_find(target) && !stream->capture) {
        emulator_wait_stream(stream);
    }
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind;
    EMULATOR_TRY(emulator_ready());
    return emulator_result(copy(to, from, bytes, emulator_stream(stream)));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    EMULATOR_TRY(emulator_ready_outside_captures());
    EMULATOR_TRY(copy(to, from, bytes, emulator_stream(NULL)));
    emulator_wait_stream(emulator_stream(NULL));
    return emulator_result(emulator_broken());
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    EMULATOR_TRY(emulator_ready());
    if (bytes == 0) {
        return cudaSuccess;
    }
    emulator_work *work = emulator_work_create(EMULATOR_SET);
    work->to = (uintptr_t)memory;
    work->value = value;
    work->bytes = bytes;
    return emulator_result(emulator_enqueue(emulator_stream(stream), work));
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes) {
    EMULATOR_TRY(emulator_ready_outside_captures());
    return cudaMemsetAsync(memory, value, bytes, NULL);
}
