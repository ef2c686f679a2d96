/* The life of a window.
 *
 * A flag per rank and turn has the number of a round, and a rank waits for equality. That is right
 * because flags take turns as buffers do: a rank sets the same flag again two rounds later, after a
 * round that it cannot pass before this rank has passed the one before. So no number is overwritten
 * before it was seen, and numbers may wrap. */
#include "runtime/window/window.h"

#include "runtime/memory/host.h"

#include <limits.h>
#include <string.h>

#define PAGE ((size_t)4096)

static size_t round_up(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static lierne_status take_spec(lierne_window *w, const lierne_window_spec *given) {
    lierne_window_spec spec;
    LIERNE_TRY(lierne_spec_take_at(&spec, sizeof spec, given, w->context->rank));
    if (spec.bytes < 1 || spec.bytes > LIERNE_MAX_WINDOW_BYTES) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: bytes is %lld, must be 1 to %lld",
                           w->context->rank, (long long)spec.bytes,
                           (long long)LIERNE_MAX_WINDOW_BYTES);
    }
    w->bytes = spec.bytes;
    return LIERNE_OK;
}

static lierne_status list_ranks(lierne_window *w) {
    const lierne_context *c = w->context;
    LIERNE_TRY(lierne_alloc(&w->ranks, (size_t)c->members.count, sizeof *w->ranks));
    for (int i = 0; i < c->members.count; i++) {
        if (!c->nodes || c->nodes[i] == c->nodes[c->index]) {
            w->place = i == c->index ? w->n : w->place;
            w->ranks[w->n++] = lierne_members_rank(&c->members, i);
        }
    }
    w->layout = (lierne_window_layout){round_up((size_t)w->n * LIERNE_WINDOW_LINE),
                                       round_up((size_t)w->bytes)};
    return lierne_alloc(&w->at, (size_t)w->n, sizeof *w->at);
}

/* Everything that can fail on this rank alone. */
static lierne_status prepare_window(lierne_window **out, lierne_window *w,
                                    const lierne_window_spec *spec) {
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(take_spec(w, spec));
    LIERNE_TRY(list_ranks(w));
    w->memory = w->context->memory == &lierne_host_memory ? &lierne_window_on_host
                                                          : &lierne_window_on_device;
    return w->memory->reserve(w);
}

static void free_window(lierne_window *w, bool quiet) {
    if (w && w->memory) {
        w->memory->destroy(w, quiet);
    }
    if (w) {
        lierne_mem_free(w->ranks);
        lierne_mem_free(w->at);
    }
    lierne_mem_free(w);
}

static lierne_status agree_call(lierne_context *context, const char *call, lierne_status mine,
                                int64_t bytes, int *number) {
    lierne_field fields[2] = {{.value = 0}, {.name = "bytes", .value = bytes}};
    memcpy(fields[0].name, call, strlen(call));
    return lierne_context_agree_all(context, mine, fields, 2, number);
}

static void record_end(const lierne_window *w, lierne_status status) {
    lierne_window_record(w, (lierne_entry){.kind = LIERNE_RECORD_END, .peer = -1, .bytes = status});
}

/* An error that kills the context. */
static lierne_status end_call(lierne_window *w, int64_t call, lierne_status status) {
    if (status != LIERNE_OK) {
        record_end(w, status);
    }
    lierne_context_end_call(w->context, call, status);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(w->context, status);
}

static bool is_busy(const lierne_dependent *dependent) {
    (void)dependent;
    return false;
}

/* All ranks have ended their rounds before one of them frees memory. */
static lierne_status destroy_window(lierne_dependent *dependent) {
    lierne_window *w = (lierne_window *)dependent;
    lierne_context *context = w->context;
    lierne_context_remove_dependent(context, dependent);
    context->nwindows--;
    lierne_status drained = w->memory->drain(w), agreed = LIERNE_OK;
    if (drained != LIERNE_OK) {
        lierne_context_kill(context, drained);
    } else if (context->dead == LIERNE_OK) {
        agreed = agree_call(context, "lierne_window_destroy", LIERNE_OK, w->bytes, NULL);
    }
    free_window(w, drained == LIERNE_OK);
    return drained == LIERNE_OK ? agreed : drained;
}

lierne_status lierne_window_create(lierne_window **out, lierne_context *context,
                                   const lierne_window_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_window *w = NULL;
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    int64_t call = lierne_context_begin_call(context, "creating a window", -1, -1);
    lierne_status status = lierne_alloc(&w, 1, sizeof *w);
    if (status == LIERNE_OK) {
        w->context = context;
        status = prepare_window(out, w, spec);
    }
    int number = -1;
    status = agree_call(context, "lierne_window_create", status, w ? w->bytes : 0, &number);
    if (status == LIERNE_OK) {
        w->number = number;
        status = w->memory->connect(w);
    }
    lierne_context_end_call(context, call, status);
    if (status != LIERNE_OK) {
        free_window(w, true);
        return status;
    }
    w->dependent = (lierne_dependent){.busy = is_busy, .destroy = destroy_window};
    lierne_context_add_dependent(context, &w->dependent);
    context->nwindows++;
    *out = w;
    return LIERNE_OK;
}

lierne_status lierne_window_destroy(lierne_window *window) {
    LIERNE_PUBLIC_CALL();
    return window ? destroy_window(&window->dependent) : LIERNE_OK;
}

int lierne_window_get_size(const lierne_window *window) {
    return window ? window->n : -1;
}

int lierne_window_get_rank(const lierne_window *window) {
    return window ? window->place : -1;
}

const int *lierne_window_get_ranks(const lierne_window *window) {
    return window ? window->ranks : NULL;
}

int64_t lierne_window_get_bytes(const lierne_window *window) {
    return window ? window->bytes : -1;
}

static bool has_place(const lierne_window *w, int place) {
    return w && !w->notified && place >= 0 && place < w->n;
}

void *lierne_window_get_writable(const lierne_window *window, int place) {
    return has_place(window, place) ? lierne_window_buffer(window, place, window->round + 1) : NULL;
}

const void *lierne_window_get_readable(const lierne_window *window, int place) {
    return has_place(window, place) && window->any
               ? lierne_window_buffer(window, place, window->round)
               : NULL;
}

/* notified: what must have come before. */
static lierne_status check_call(lierne_window *w, const void *stream, bool notified) {
    LIERNE_TRY(lierne_check_set(w, "window"));
    LIERNE_TRY(lierne_context_alive(w->context));
    if (w->notified != notified) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s", w->context->rank,
                           notified ? "this round was not notified: call lierne_window_notify first"
                                    : "the last round was not waited for: call lierne_window_wait "
                                      "first");
    }
    return w->memory->check_stream(w, stream);
}

lierne_status lierne_window_notify(lierne_window *window, void *stream) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(check_call(window, stream, false));
    int64_t call = lierne_context_begin_call(window->context, "notifying a window",
                                             (int64_t)window->round + 1, -1);
    lierne_recorder *r = &window->context->recorder;
    window->round++;
    window->notified = true;
    const int place = (int)(r->calls++ & INT_MAX);
    lierne_window_record(window, (lierne_entry){.kind = LIERNE_RECORD_CALL, .peer = place});
    LIERNE_TRY(end_call(window, call, window->memory->notify(window, stream)));
    lierne_recorder_flush(r);
    return LIERNE_OK;
}

lierne_status lierne_window_wait(lierne_window *window, void *stream) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(check_call(window, stream, true));
    int64_t call =
        lierne_context_begin_call(window->context, "waiting in a window", window->round, -1);
    LIERNE_TRY(end_call(window, call, window->memory->wait(window, stream)));
    record_end(window, LIERNE_OK);
    window->notified = false;
    window->any = true;
    return LIERNE_OK;
}
