/* Agreeing on schedules, and creating their groups.
 *
 * Only all schedules together show a cycle or a group that one rank isolates and another does not.
 * So the first rank gets them as text, checks them, and answers every rank with the groups to
 * create and the plans to copy (run_plans.c); ranks that are no members of a group need to know it
 * too, because creating is agreed on by all. A rank that has failed by itself still takes part,
 * with empty messages, and its error becomes everybody's in the agreement at the end. */
#include "step/schedule_run.h"

#include <stdlib.h>
#include <string.h>

#define PURPOSE_WORDS 2 /* of 8 characters, LIERNE_MAX_PURPOSE and a zero */
#define GROUP_WORDS   5 /* of an answer, before the ranks of a group */
#define COPY_WORDS    (sizeof(lierne_run_copy) / sizeof(int64_t))

/* A group to create. */
typedef struct wanted {
    const lierne_schedule *schedule; /* of the lowest rank that has it */
    const lierne_recorded_group *group;
} wanted;
typedef LIERNE_VEC(wanted) wanted_groups;
typedef LIERNE_VEC(int64_t) words;

static bool carries(const lierne_schedule *s, const lierne_recorded_group *g) {
    for (size_t i = 0; i < s->operations.count; i++) {
        int group = s->operations.at[i].group;
        if (group >= 0 && lierne_recorded_group_same(&s->groups.at[group], g)) {
            return true;
        }
    }
    return false;
}

static int smallest(const lierne_recorded_group *g) {
    int least = g->ranks[0];
    for (int i = 1; i < g->n; i++) {
        least = g->ranks[i] < least ? g->ranks[i] : least;
    }
    return least;
}

/* By smallest rank, ordered ranks, purpose and source: the same on every rank. */
static int compare_wanted(const void *a, const void *b) {
    const lierne_recorded_group *x = ((const wanted *)a)->group, *y = ((const wanted *)b)->group;
    int order = (smallest(x) > smallest(y)) - (smallest(x) < smallest(y));
    for (int i = 0; order == 0 && i < x->n && i < y->n; i++) {
        order = (x->ranks[i] > y->ranks[i]) - (x->ranks[i] < y->ranks[i]);
    }
    order = order ? order : (x->n > y->n) - (x->n < y->n);
    order = order ? order : strcmp(x->purpose, y->purpose);
    return order ? order : (x->source > y->source) - (x->source < y->source);
}

/* Adds a group that a pass made. All ranks that have it hold the same one of an earlier run, or
 * none. */
static lierne_status want(wanted_groups *all, const lierne_schedule *s,
                          const lierne_recorded_group *g) {
    for (size_t i = 0; i < all->count; i++) {
        const wanted *w = &all->at[i];
        if (lierne_recorded_group_same(w->group, g) && w->group->uid != g->uid) {
            return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                               "rank %d: group '%s' is uid %lld of an earlier run (0: none), "
                               "expected %lld as on rank %d: destroy runs in the same order on all "
                               "ranks",
                               s->rank, g->name, (long long)g->uid, (long long)w->group->uid,
                               w->schedule->rank);
        }
        if (lierne_recorded_group_same(w->group, g)) {
            return LIERNE_OK;
        }
    }
    return LIERNE_VEC_PUSH(all, ((wanted){s, g}));
}

static lierne_status collect_wanted(wanted_groups *all, lierne_schedule *const *schedules, int n) {
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < schedules[i]->groups.count; k++) {
            const lierne_recorded_group *g = &schedules[i]->groups.at[k];
            if (g->source && carries(schedules[i], g)) {
                LIERNE_TRY(want(all, schedules[i], g));
            }
        }
    }
    if (all->count > 0) {
        qsort(all->at, all->count, sizeof *all->at, compare_wanted);
    }
    return LIERNE_OK;
}

static lierne_status write_answer(words *answer, const wanted_groups *all) {
    LIERNE_TRY(LIERNE_VEC_PUSH(answer, 0)); /* an empty message says that a rank has failed */
    for (size_t i = 0; i < all->count; i++) {
        const lierne_recorded_group *g = all->at[i].group;
        int64_t purpose[PURPOSE_WORDS] = {0};
        if (g->uid != 0) {
            continue;
        }
        answer->at[0]++;
        memcpy(purpose, g->purpose, strlen(g->purpose));
        LIERNE_TRY(LIERNE_VEC_PUSH(answer, g->source));
        LIERNE_TRY(LIERNE_VEC_PUSH(answer, (int64_t)g->priority));
        LIERNE_TRY(LIERNE_VEC_PUSH(answer, purpose[0]));
        LIERNE_TRY(LIERNE_VEC_PUSH(answer, purpose[1]));
        LIERNE_TRY(LIERNE_VEC_PUSH(answer, g->n));
        for (int k = 0; k < g->n; k++) {
            LIERNE_TRY(LIERNE_VEC_PUSH(answer, g->ranks[k]));
        }
    }
    return LIERNE_OK;
}

/* Behind the groups: how many plans, and these. */
static lierne_status write_copies(words *answer, lierne_schedule *const *schedules, int n) {
    lierne_run_copies copies = {0};
    lierne_status status = lierne_run_list_copies(&copies, schedules, n);
    status = status == LIERNE_OK ? LIERNE_VEC_PUSH(answer, (int64_t)copies.count) : status;
    for (size_t i = 0; status == LIERNE_OK && i < copies.count * COPY_WORDS; i++) {
        status = LIERNE_VEC_PUSH(answer, ((const int64_t *)copies.at)[i]);
    }
    lierne_mem_free(copies.at);
    return status;
}

static lierne_status check_all(words *answer, lierne_schedule *const *schedules, int n,
                               bool concurrent) {
    lierne_schedule_order order = {.size = sizeof order};
    wanted_groups all = {0};
    char cycle[LIERNE_MESSAGE_SIZE];
    LIERNE_TRY(lierne_schedule_check(&order, cycle, sizeof cycle,
                                     (const lierne_schedule *const *)schedules, n));
    if (!(concurrent ? order.safe_concurrent : order.safe_serialised)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "the launch order closes a cycle%s: %s",
                           order.safe_concurrent ? " where operations are launched one by one" : "",
                           cycle);
    }
    lierne_status status = collect_wanted(&all, schedules, n);
    status = status == LIERNE_OK ? write_answer(answer, &all) : status;
    status = status == LIERNE_OK ? write_copies(answer, schedules, n) : status;
    lierne_mem_free(all.at);
    return status;
}

/* What the first rank does with the texts of all. Nothing where a rank has failed. */
static lierne_status judge(words *answer, const lierne_control_messages *texts, bool concurrent) {
    lierne_schedule **schedules;
    lierne_status status = LIERNE_OK;
    int n = (int)texts->count;
    bool complete = true;
    LIERNE_TRY(lierne_alloc(&schedules, (size_t)n, sizeof *schedules));
    for (int i = 0; i < n && status == LIERNE_OK; i++) {
        lierne_schedule **one = NULL;
        int count = 0;
        const lierne_control_message *m = &texts->at[i];
        complete &= m->count > 0;
        if (m->count > 0) {
            status = lierne_schedule_deserialize(&one, &count, (const char *)&m->words[1],
                                                 (size_t)m->words[0]);
        }
        schedules[i] = one ? one[0] : NULL;
        lierne_mem_free(one);
    }
    if (status == LIERNE_OK && complete) {
        status = check_all(answer, schedules, n, concurrent);
    }
    lierne_schedule_destroy_all(schedules, n);
    return status;
}

/* *message: the text of this rank's schedule, to be freed as memory of messages. */
static lierne_status write_text(lierne_control_message *message, const lierne_schedule *s) {
    char *text;
    LIERNE_TRY(lierne_schedule_serialize(&text, s));
    size_t length = strlen(text), count = 1 + (length + 7) / 8;
    lierne_status status = lierne_alloc(&message->words, count, sizeof *message->words);
    if (status == LIERNE_OK) {
        message->count = count;
        message->words[0] = (int64_t)length;
        memcpy(&message->words[1], text, length);
    }
    lierne_text_destroy(text);
    return status;
}

static bool fatal(lierne_status status, const lierne_context *context) {
    return status != LIERNE_OK && context->dead != LIERNE_OK;
}

/* Sends this rank's text to the first rank. texts: what arrived there. */
static lierne_status send_text(lierne_control_messages *texts, const lierne_run *run,
                               lierne_context *context, lierne_status status) {
    lierne_control_message message = {.peer = lierne_context_get_member(context, 0)};
    if (status == LIERNE_OK) {
        status = write_text(&message, run->schedule);
    }
    lierne_status sent = lierne_context_sparse_exchange(context, &message, 1, texts);
    lierne_context_free_message_memory(context, message.words);
    return status == LIERNE_OK || fatal(sent, context) ? sent : status;
}

/* Sends the first rank's answer to all. mine: what arrived here. */
static lierne_status send_answer(lierne_control_messages *mine, lierne_context *context,
                                 words *answer, lierne_status status) {
    size_t n = context->index == 0 ? (size_t)context->members.count : 0;
    lierne_control_message *messages = NULL;
    lierne_status allocated = lierne_alloc(&messages, n, sizeof *messages);
    status = status == LIERNE_OK ? allocated : status;
    for (size_t i = 0; messages && i < n; i++) {
        messages[i] = (lierne_control_message){lierne_context_get_member(context, (int)i),
                                               answer->count, answer->at};
    }
    lierne_status sent = lierne_context_sparse_exchange(context, messages, messages ? n : 0, mine);
    lierne_mem_free(messages);
    return status == LIERNE_OK || fatal(sent, context) ? sent : status;
}

/* The next group of the answer, which is to be created. */
static lierne_status add_created(lierne_run *run, const int64_t *at) {
    lierne_recorded_group g = {.source = at[0],
                               .priority = (lierne_priority)at[1],
                               .n = (int)at[4]};
    memcpy(g.purpose, &at[2], sizeof g.purpose);
    lierne_recorded_group_name(&g);
    LIERNE_TRY(lierne_alloc(&g.ranks, (size_t)g.n, sizeof *g.ranks));
    for (int k = 0; k < g.n; k++) {
        g.ranks[k] = (int)at[GROUP_WORDS + k];
    }
    lierne_status status = LIERNE_VEC_PUSH(&run->created, g);
    if (status != LIERNE_OK) {
        lierne_mem_free(g.ranks);
    }
    return status;
}

static lierne_status read_groups(lierne_run *run, const int64_t *answer) {
    const int64_t *at = answer + 1;
    for (int64_t i = 0; i < answer[0]; i++) {
        LIERNE_TRY(add_created(run, at));
        at += GROUP_WORDS + at[4];
    }
    return LIERNE_OK;
}

/* The copies of an answer: how many, and behind that each of them. */
static const int64_t *find_copies(const int64_t *answer) {
    const int64_t *at = answer + 1;
    for (int64_t i = 0; i < answer[0]; i++) {
        at += GROUP_WORDS + at[4];
    }
    return at;
}

/* Takes a group that was created, or one of an earlier run, into the run. */
static void take_group(lierne_run *run, lierne_group *group) {
    for (size_t i = 0; i < run->schedule->groups.count; i++) {
        lierne_recorded_group *g = &run->schedule->groups.at[i];
        if (!run->groups[i] && g->source && g->source == group->source &&
            strcmp(g->purpose, group->purpose) == 0) {
            g->uid = group->uid;
            run->groups[i] = group;
            group->references++;
        }
    }
}

/* Ranks that are no members of a group know its uid as well: all count alike. */
static void take_created(lierne_run *run, const lierne_context *context, lierne_group **made) {
    size_t n = run->created.count;
    for (size_t i = 0; i < n; i++) {
        lierne_recorded_group *g = &run->created.at[i];
        g->uid = context->last_group_uid - (int64_t)(n - 1 - i);
        if (made[i]) {
            made[i]->source = g->source;
            take_group(run, made[i]);
        }
    }
}

static void fill_specs(lierne_group_spec *specs, const lierne_group_spec **list,
                       const lierne_run *run) {
    for (size_t i = 0; i < run->created.count; i++) {
        const lierne_recorded_group *g = &run->created.at[i];
        specs[i] = (lierne_group_spec){.size = sizeof *specs,
                                       .purpose = g->purpose,
                                       .priority = g->priority,
                                       .ngroups = 1,
                                       .group_size = g->n,
                                       .ranks = g->ranks};
        list[i] = &specs[i];
    }
}

static lierne_status create_groups(lierne_run *run, lierne_context *context,
                                   const int64_t *answer) {
    size_t n = (size_t)answer[0];
    lierne_group **made = NULL;
    lierne_group_spec *specs = NULL;
    const lierne_group_spec **list = NULL;
    lierne_status status = lierne_alloc(&made, n, sizeof *made);
    status = status == LIERNE_OK ? lierne_alloc(&specs, n, sizeof *specs) : status;
    status = status == LIERNE_OK ? lierne_alloc(&list, n, sizeof *list) : status;
    status = status == LIERNE_OK ? read_groups(run, answer) : status;
    if (status == LIERNE_OK) {
        fill_specs(specs, list, run);
    }
    const lierne_field field = {.name = "groups of a run", .value = (int64_t)n};
    status = lierne_context_agree_all(context, status, &field, 1, NULL);
    if (status == LIERNE_OK) {
        status = lierne_group_create_all(made, context, list, (int)n);
    }
    if (status == LIERNE_OK) {
        take_created(run, context, made);
    }
    lierne_mem_free(made);
    lierne_mem_free(specs);
    lierne_mem_free(list);
    return status;
}

lierne_group *lierne_run_find_group(const lierne_context *context, const lierne_recorded_group *g) {
    for (size_t i = 0; i < context->groups.count; i++) {
        lierne_group *group = context->groups.at[i];
        if (g->source && group->source == g->source && strcmp(group->purpose, g->purpose) == 0) {
            return group;
        }
    }
    return NULL;
}

static void take_existing(lierne_run *run, const lierne_context *context) {
    for (size_t i = 0; i < run->schedule->groups.count; i++) {
        lierne_group *group = lierne_run_find_group(context, &run->schedule->groups.at[i]);
        if (group) {
            take_group(run, group);
        }
    }
}

static lierne_status agree_on_run(lierne_run *run, lierne_context *context, lierne_status status,
                                  bool concurrent, const lierne_control_messages *mine) {
    const lierne_field fields[] = {{.name = "lierne_run_create"},
                                   {.name = "concurrent", .value = concurrent},
                                   {.name = "external", .value = run && run->external}};
    LIERNE_TRY(lierne_context_agree_all(context, status, fields, 3, NULL));
    take_existing(run, context);
    const int64_t *answer = mine->at[0].words, *copies = find_copies(answer);
    LIERNE_TRY(answer[0] > 0 ? create_groups(run, context, answer) : LIERNE_OK);
    return copies[0] > 0 && !run->external && lierne_run_is_ordered(context)
               ? lierne_run_copy_plans(run, (const lierne_run_copy *)(copies + 1),
                                       (size_t)copies[0])
               : LIERNE_OK;
}

lierne_status lierne_run_agree(lierne_run *run, lierne_context *context, lierne_status status,
                               bool concurrent) {
    lierne_control_messages texts = {0}, mine = {0};
    words answer = {0};
    status = send_text(&texts, run, context, status);
    if (!fatal(status, context) && context->index == 0) {
        lierne_status judged = judge(&answer, &texts, concurrent);
        status = status == LIERNE_OK ? judged : status;
    }
    if (!fatal(status, context)) {
        status = send_answer(&mine, context, &answer, status);
    }
    if (!fatal(status, context)) {
        status = agree_on_run(run, context, status, concurrent, &mine);
    }
    lierne_control_messages_destroy(&texts);
    lierne_control_messages_destroy(&mine);
    lierne_context_free_message_memory(context, answer.at);
    return status;
}
