/* A schedule from inside: recorded groups and operations; how they are told from one another. */
#ifndef LIERNE_SCHEDULE_INTERNAL_H
#define LIERNE_SCHEDULE_INTERNAL_H

#include "base/base.h"
#include "lierne/schedule.h"

typedef struct lierne_recorded_group {
    char name[LIERNE_MAX_GROUP_NAME + 1];
    int64_t uid; /* 0: made by a pass, not created */
    int64_t source;
    char purpose[LIERNE_MAX_PURPOSE + 1]; /* "" unless a pass made it */
    int n;
    int *ranks;
    lierne_priority priority;
    int queue; /* the first group of the same identity */
} lierne_recorded_group;

typedef struct lierne_recorded_operation {
    lierne_operation_kind kind;
    int group;
    char tag[LIERNE_MAX_PURPOSE + 1];
    int *after;
    int nafter;
    lierne_dtype dtype;
    int64_t count;
    int root;
    int peer;
    lierne_plan *plan;
    int number; /* of the plan, the same on every rank; -1: none */
    lierne_direction direction;
    bool held;
    char name[LIERNE_MAX_OPERATION_NAME + 1];
} lierne_recorded_operation;

struct lierne_schedule {
    int rank;
    bool frozen;
    LIERNE_VEC(lierne_recorded_group) groups;
    LIERNE_VEC(lierne_recorded_operation) operations;
};

/* "all_gather" */
const char *lierne_operation_name(lierne_operation_kind kind);
/* What identifies a group on all ranks: with its purpose, its uid, or that of its source. */
static inline int64_t lierne_recorded_group_key(const lierne_recorded_group *g) {
    return g->source ? g->source : g->uid;
}
bool lierne_recorded_group_same(const lierne_recorded_group *a, const lierne_recorded_group *b);
bool lierne_recorded_group_has(const lierne_recorded_group *g, int rank);
/* Its name, and that of the group that it was isolated from where s has it: "ep@4 (llm)". */
#define LIERNE_RECORDED_GROUP_TEXT (2 * LIERNE_MAX_GROUP_NAME + 4)
void lierne_recorded_group_print(char text[LIERNE_RECORDED_GROUP_TEXT], const lierne_schedule *s,
                                 const lierne_recorded_group *g);
/* Names a group that a pass makes: "ep@4". */
void lierne_recorded_group_name(lierne_recorded_group *g);
/* What the public getters say of a group. */
lierne_status lierne_recorded_group_give(lierne_schedule_group *out,
                                         const lierne_recorded_group *g);
/* Whether the characters of a purpose or tag are allowed. */
bool lierne_purpose_valid(const char *purpose, bool may_be_empty);

/* Writes " 'name'" of an operation, or "". */
void lierne_recorded_operation_print_name(char text[LIERNE_MAX_OPERATION_NAME + 4],
                                          const lierne_recorded_operation *o);

/* Adds a copy of a group, and sets its queue. */
lierne_status lierne_schedule_append_group(lierne_schedule *s, const lierne_recorded_group *group);
lierne_status lierne_schedule_copy(lierne_schedule **out, const lierne_schedule *s);
/* INVALID for NULL and for one that is not frozen. */
lierne_status lierne_schedule_check_frozen(const lierne_schedule *s);

/* events.c: what the ranks do together. An event is an operation of all ranks of a group, a message
 * between two ranks, or a local operation. */
typedef struct lierne_event_part {
    const lierne_schedule *schedule;
    const lierne_recorded_group *group; /* NULL: local */
    int operation;
    int from; /* of a message, else -1 */
    int to;
    int sequence; /* among those of the same group, from and to */
    int event;    /* number of its event */
    size_t place; /* of all operations, schedule by schedule */
} lierne_event_part;

typedef struct lierne_events {
    LIERNE_VEC(lierne_event_part) parts; /* sorted by event, and then by rank */
    int count;
} lierne_events;

/* Collects and compares the operations of all ranks. events is zero before, and to be cleared
 * afterwards in every case. Errors: as lierne_schedule_check. */
lierne_status lierne_events_collect(lierne_events *events, const lierne_schedule *const *schedules,
                                    int n);
void lierne_events_clear(lierne_events *events);

/* Whether the launch orders close no cycle. concurrent: only the order within a queue and
 * dependencies count. Otherwise the shortest cycle is written to text of size bytes. */
lierne_status lierne_events_order(bool *safe, char *text, size_t size, const lierne_events *events,
                                  bool concurrent);

#endif
