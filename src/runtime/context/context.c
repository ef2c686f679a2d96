/* What all contexts have in common: their options, what is in flight, what depends on them, and in
 * which order all that ends. */
#include "runtime/context/summary.h"
#include "runtime/context/watchdog.h"
#include "runtime/recorder/trace_file.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TIMEOUT 60.0 /* seconds */

/* Megatron-LM creates 35 kinds of groups, and a rank is a member of one of each: twice that,
 * rounded down. NCCL takes about half a gigabyte for each, so many more are rarely meant. */
#define DEFAULT_MAX_GROUPS 64

/* A number from the environment; *value is unchanged if the variable is not set. */
static lierne_status env_number(const char *name, double low, double *value) {
    const char *text = getenv(name);
    char *end;
    if (!text) {
        return LIERNE_OK;
    }
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= low) || number > 1e9) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is '%s', must be a number from %g to 1e9", name,
                           text, low);
    }
    *value = number;
    return LIERNE_OK;
}

/* Whether a variable is 1; *set is unchanged if it is not set. */
static lierne_status env_switch(const char *name, bool *set) {
    const char *text = getenv(name);
    if (!text) {
        return LIERNE_OK;
    }
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is '%s', must be 0 or 1", name, text);
    }
    *set = *text == '1';
    return LIERNE_OK;
}

lierne_status lierne_context_take_spec(lierne_context_spec *spec,
                                       const lierne_context_spec *given) {
    static const lierne_context_spec none = {.size = sizeof none};
    return lierne_spec_take(spec, sizeof *spec, given ? given : &none, "spec");
}

static lierne_status find_timeout(const lierne_context_spec *spec, double *seconds) {
    double milliseconds = DEFAULT_TIMEOUT * 1e3;
    if (!(spec->timeout >= 0 && spec->timeout <= 1e6)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "timeout is %g s, must be 0 to 1e6", spec->timeout);
    }
    LIERNE_TRY(env_number("LIERNE_TIMEOUT_MS", 1, &milliseconds));
    *seconds = spec->timeout > 0 ? spec->timeout : milliseconds / 1e3;
    return LIERNE_OK;
}

double lierne_context_timeout(const lierne_context_spec *spec) {
    double seconds = DEFAULT_TIMEOUT;
    return find_timeout(spec, &seconds) == LIERNE_OK ? seconds : DEFAULT_TIMEOUT;
}

/* Numbers of links, by name. */
static lierne_status check_links(const lierne_links *l) {
    enum { MOST = 1000000000 };
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"same_node.latency_ns", l->same_node.latency_ns},
                   {"same_node.megabytes_per_second", l->same_node.megabytes_per_second},
                   {"other_node.latency_ns", l->other_node.latency_ns},
                   {"other_node.megabytes_per_second", l->other_node.megabytes_per_second},
                   {"node_megabytes_per_second", l->node_megabytes_per_second}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value < 0 || numbers[i].value > MOST) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "links.%s is %lld, must be 0 to 1000000000",
                               numbers[i].name, (long long)numbers[i].value);
        }
    }
    return LIERNE_OK;
}

/* By default a stage between nodes costs what a link of 400 Gb/s moves in 20 us: 1 MB. */
static lierne_status take_links(lierne_context *context, const lierne_context_spec *spec) {
    static const lierne_links usual = {
        .other_node = {.latency_ns = 20000, .megabytes_per_second = 50000}};
    context->links = spec->links ? *spec->links : usual;
    return check_links(&context->links);
}

/* Of the first device whose driver is loaded. */
static void find_device_memory(lierne_context *context) {
    for (const lierne_back_end *b = lierne_back_ends; b->name && !context->device_driver; b++) {
        context->device_memory = b->device_memory;
        context->device_driver = b->device_memory ? b->device_memory->find_driver() : NULL;
    }
}

lierne_status lierne_context_fill(lierne_context *context, const lierne_context_spec *spec) {
    context->memory = &lierne_host_memory;
    context->match_ids = INT_MAX;
    find_device_memory(context);
    LIERNE_TRY(find_timeout(spec, &context->timeout));
    LIERNE_TRY(lierne_context_take_members(context, spec));
    LIERNE_TRY(lierne_check_name(spec->name));
    LIERNE_TRY(spec->name ? lierne_strdup(&context->name, spec->name) : LIERNE_OK);
    LIERNE_TRY(env_switch("LIERNE_SUMMARY", &context->summary));
    LIERNE_TRY(lierne_log_open(context, spec));
    LIERNE_TRY(take_links(context, spec));
    context->check = spec->check != 0;
    LIERNE_TRY(env_switch("LIERNE_CHECK", &context->check));
    if (spec->max_groups < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "max_groups is %d, must be at least 0 (0: %d)",
                           spec->max_groups, DEFAULT_MAX_GROUPS);
    }
    context->max_groups = spec->max_groups ? spec->max_groups : DEFAULT_MAX_GROUPS;
    if (spec->nodes) {
        size_t n = (size_t)context->members.count;
        LIERNE_TRY(lierne_alloc(&context->nodes, n, sizeof *context->nodes));
        memcpy(context->nodes, spec->nodes, n * sizeof *context->nodes);
    }
    LIERNE_TRY(lierne_trace_find_folder(&context->traces));
    if (context->owner) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_counters_reserve(context));
    LIERNE_TRY(lierne_context_open_recorder(context, LIERNE_RECORDER_ENTRIES));
    return lierne_metrics_open(context);
}

static void destroy_abandoned(lierne_context *context) {
    for (lierne_activity *a = context->abandoned, *next; a; a = next) {
        next = a->next;
        a->destroy(a);
    }
    context->abandoned = NULL;
}

void lierne_context_clear(lierne_context *context) {
    destroy_abandoned(context);
    lierne_watchdog_destroy(context->watchdog);
    context->watchdog = NULL;
    lierne_context_drop_memory(context);
    for (int i = 0; i < context->ncarriers; i++) {
        context->carriers[i].transport->close(context->carriers[i].self);
    }
    lierne_context_drop_kept(context);
    if (context->own_stream && context->destroy_own_stream) {
        context->destroy_own_stream(context->own_stream);
    }
    lierne_metrics_close(&context->metrics);
    lierne_counters_drop(context);
    lierne_mem_free(context->name);
    lierne_mem_free(context->nodes);
    lierne_mem_free(context->former);
    lierne_mem_free(context->members.ranks);
    lierne_mem_free(context->dead_dump);
    lierne_mem_free(context->groups.at);
    lierne_recorder_close(&context->recorder);
    lierne_log_close(&context->log);
}

void lierne_context_drop(lierne_context *context) {
    if (context) {
        lierne_context_clear(context);
        lierne_mem_free(context);
    }
}

bool lierne_context_poll(const lierne_context *context) {
    bool moved = false;
    for (lierne_activity *a = context->in_flight; a; a = a->next) {
        moved |= a->progress(a);
    }
    return moved;
}

/* The transport that everything in flight waits for, or NULL. */
static const lierne_carrier *only_carrier(const lierne_context *context) {
    const lierne_activity *first = context->in_flight;
    for (const lierne_activity *a = first; a; a = a->next) {
        if (a->carrier != first->carrier) {
            return NULL;
        }
    }
    return first && first->carrier >= 0 ? &context->carriers[first->carrier] : NULL;
}

bool lierne_context_awaits_stream(const lierne_context *context) {
    bool awaits = false;
    for (const lierne_activity *a = context->in_flight; a; a = a->next) {
        awaits |= a->awaits_stream;
    }
    return awaits;
}

bool lierne_context_idle(const lierne_context *context) {
    if (lierne_context_awaits_stream(context)) {
        sched_yield();
        return false;
    }
    const lierne_carrier *carrier = only_carrier(context);
    const lierne_control *control = context->control;
    if (!carrier || !carrier->transport->wait) {
        return control->idle(context->control_self);
    }
    bool slept = carrier->transport->wait(carrier->self);
    if (slept && control->progress) {
        control->progress(context->control_self);
    }
    return slept;
}

void lierne_context_add_activity(lierne_context *context, lierne_activity *activity) {
    activity->next = context->in_flight;
    context->in_flight = activity;
}

void lierne_context_remove_activity(lierne_context *context, const lierne_activity *activity) {
    for (lierne_activity **at = &context->in_flight; *at; at = &(*at)->next) {
        if (*at == activity) {
            *at = activity->next;
            return;
        }
    }
}

void lierne_context_add_dependent(lierne_context *context, lierne_dependent *dependent) {
    dependent->next = context->dependents;
    context->dependents = dependent;
}

bool lierne_context_remove_dependent(lierne_context *context, const lierne_dependent *dependent) {
    for (lierne_dependent **at = &context->dependents; *at; at = &(*at)->next) {
        if (*at == dependent) {
            *at = dependent->next;
            return true;
        }
    }
    return false;
}

lierne_status lierne_context_check_dependents(const lierne_context *context) {
    for (lierne_dependent *d = context->dependents; d && context->dead == LIERNE_OK; d = d->next) {
        if (d->busy(d)) {
            return LIERNE_FAIL(
                LIERNE_ERR_BUSY,
                "rank %d: an execution of a plan is in flight: call lierne_request_end for "
                "every request first",
                context->rank);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_context_destroy_dependents(lierne_context *context) {
    lierne_status first = LIERNE_OK;
    while (context->dependents) {
        lierne_status status = context->dependents->destroy(context->dependents);
        first = first == LIERNE_OK ? status : first;
    }
    return first;
}

int64_t lierne_context_begin_call(lierne_context *context, const char *name, int64_t number,
                                  int plan) {
    int64_t call = context->ncalls++;
    context->calls[call % LIERNE_CALLS] =
        (lierne_call){.name = name,
                      .number = number,
                      .plan = plan,
                      .start = lierne_recorder_now(&context->recorder)};
    return call;
}

/* A call that took a tenth of the time it may take is worth a warning. */
static void log_call(const lierne_context *context, const lierne_call *c) {
    double seconds = lierne_recorder_seconds(&context->recorder, c->end - c->start);
    bool slow = seconds > context->timeout / 10;
    char name[LIERNE_CALL_TEXT];
    if (!slow && context->log.level < LIERNE_LOG_LEVEL_DEBUG) {
        return;
    }
    lierne_context_print_call(name, context, c);
    LIERNE_LOG(context, slow ? LIERNE_LOG_LEVEL_WARN : LIERNE_LOG_LEVEL_DEBUG,
               "%s%s: %s after %.6f s", slow ? "slow: " : "", name, lierne_status_name(c->status),
               seconds);
}

void lierne_context_end_call(lierne_context *context, int64_t call, lierne_status status) {
    lierne_call *c = &context->calls[call % LIERNE_CALLS];
    if (call + LIERNE_CALLS >= context->ncalls) {
        c->end = lierne_recorder_now(&context->recorder);
        c->status = status;
        if (context->log.level >= LIERNE_LOG_LEVEL_WARN) {
            log_call(context, c);
        }
        LIERNE_METRICS_UPDATE(context);
    }
}

lierne_status lierne_context_get_borrowed(lierne_borrowed *list, size_t capacity, size_t *count,
                                          lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_check_set(count, "count"));
    if (!list && capacity > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "list is NULL, but capacity is %zu", capacity);
    }
    if (context->nplans > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%zu plans of the context are alive, destroy them first",
                           context->nplans);
    }
    *count = 0;
    for (lierne_activity *a = context->abandoned; a; a = a->next) {
        size_t used = *count < capacity ? *count : capacity;
        *count += a->withdraw(a, list ? list + used : NULL, capacity - used);
    }
    return LIERNE_OK;
}

lierne_status lierne_context_progress(lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(context, "context"));
    lierne_guard *guard = context->guard;
    lierne_guard_enter(guard);
    lierne_status status = lierne_context_alive(context);
    if (status == LIERNE_OK) {
        lierne_context_enter(context);
        lierne_context_poll(context);
        lierne_context_leave(context);
    }
    lierne_guard_leave(guard);
    return status;
}

const char *lierne_context_get_name(const lierne_context *context) {
    return context ? context->name : NULL;
}

int lierne_context_get_rank(const lierne_context *context) {
    return context ? context->rank : -1;
}

int lierne_context_get_world_size(const lierne_context *context) {
    return context ? context->members.world : -1;
}

int lierne_context_get_ngroups(const lierne_context *context) {
    return context ? (int)context->groups.count : -1;
}

int lierne_context_get_max_groups(const lierne_context *context) {
    return context ? context->max_groups : -1;
}

double lierne_context_get_timeout(const lierne_context *context) {
    return context ? context->timeout : -1;
}

static void destroy(lierne_context *context) {
    lierne_context_trace_calls(context);
    lierne_summary_end(context);
    lierne_metrics_write(context);
    destroy_abandoned(context);
    for (int i = 0; i < context->ncarriers && context->dead == LIERNE_OK; i++) {
        if (context->carriers[i].transport->leave) {
            context->carriers[i].transport->leave(context->carriers[i].self);
        }
    }
    context->control->close(context->control_self, context->dead != LIERNE_OK);
    lierne_context_drop(context);
}

lierne_status lierne_context_destroy(lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    if (!context) {
        return LIERNE_OK;
    }
    if (context->owner) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "the context belongs to %s: use %s",
                           context->owner->name, context->owner->destroy);
    }
    if (context->nplans > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%zu plans of the context are alive, must be 0: destroy them first, or "
                           "use lierne_context_destroy_all",
                           context->nplans);
    }
    if (context->groups.count > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%zu groups of the context are alive, must be 0: destroy them first, or "
                           "use lierne_context_destroy_all",
                           context->groups.count);
    }
    LIERNE_TRY(lierne_context_check_memory(context));
    destroy(context);
    return LIERNE_OK;
}

lierne_status lierne_context_destroy_all(lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    if (!context) {
        return LIERNE_OK;
    }
    if (context->owner) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "the context belongs to %s: use %s",
                           context->owner->name, context->owner->destroy_all);
    }
    LIERNE_TRY(lierne_context_check_dependents(context));
    lierne_status status = lierne_context_destroy_dependents(context);
    destroy(context);
    return status;
}
