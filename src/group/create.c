/* lierne_groups_create and lierne_group_destroy.
 *
 * Everything that can fail on one rank alone (specs, budget, memory) comes before the ranks agree.
 * They compare all that they were given, entry by entry, so that a difference is named. Uids are
 * numbers of a counter that every rank advances alike, by all groups of a call, also by those that
 * it is no member of. So they need no message, and cannot collide as hashes could. */
#include "group/group.h"

#include <stdio.h>
#include <string.h>

/* Compared between ranks in the field "call": none of those of plan/plan.h. */
#define CALL_GROUPS 64

static int size_of(const lierne_group_spec *spec, int group) {
    return spec->sizes ? spec->sizes[group] : spec->group_size;
}

/* Of all groups of a spec. */
static int count_ranks(const lierne_group_spec *spec) {
    int count = 0;
    for (int g = 0; g < spec->ngroups; g++) {
        count += size_of(spec, g);
    }
    return count;
}

static lierne_status check_purpose(int rank, const lierne_group_spec *spec, int i) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (!spec->purpose) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: purpose of spec %d is NULL", rank, i);
    }
    size_t length = strlen(spec->purpose);
    if (length < 1 || length > LIERNE_MAX_PURPOSE ||
        spec->purpose[strspn(spec->purpose, allowed)]) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: purpose of spec %d is '%.40s', must be 1 to %d characters of "
                           "a-z A-Z 0-9 _ - .",
                           rank, i, spec->purpose, LIERNE_MAX_PURPOSE);
    }
    return LIERNE_OK;
}

/* There are at most as many ranks as the context has, because groups of a spec have none in common.
 */
static lierne_status check_sizes(const lierne_context *context, const lierne_group_spec *spec,
                                 int i) {
    int rank = context->rank, left = context->members.count;
    if (spec->ngroups < 1 || spec->ngroups > context->members.count) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: ngroups of spec %d is %d, must be 1 to %d",
                           rank, i, spec->ngroups, context->members.count);
    }
    for (int g = 0; g < spec->ngroups; g++) {
        int size = size_of(spec, g);
        if (size < 1 || size > left) {
            return LIERNE_FAIL(LIERNE_INVALID,
                               "rank %d: group %d of spec %d has %d ranks, must be 1 to %d, what "
                               "the groups before leave of %d",
                               rank, g, i, size, left, context->members.count);
        }
        left -= size;
    }
    return LIERNE_OK;
}

static lierne_status check_ranks(const lierne_context *context, const lierne_group_spec *spec,
                                 int i) {
    unsigned char *seen;
    lierne_status status = LIERNE_OK;
    int count = count_ranks(spec);
    LIERNE_TRY(lierne_alloc(&seen, (size_t)context->members.count, 1));
    for (int k = 0; k < count && status == LIERNE_OK; k++) {
        int r = spec->ranks[k], index = lierne_context_index(context, r);
        if (index < 0) {
            char members[LIERNE_MEMBERS_TEXT];
            lierne_members_print(members, sizeof members, &context->members);
            status = LIERNE_FAIL(LIERNE_INVALID, "rank %d: ranks[%d] of spec %d is %d, must be %s",
                                 context->rank, k, i, r, members);
        } else if (seen[index]++) {
            status = LIERNE_FAIL(LIERNE_INVALID,
                                 "rank %d: ranks[%d] of spec %d is %d again: "
                                 "groups with a rank in common need a spec each",
                                 context->rank, k, i, r);
        }
    }
    lierne_mem_free(seen);
    return status;
}

static lierne_status check_spec(const lierne_context *context, const lierne_group_spec *spec,
                                int i) {
    int rank = context->rank;
    if (!spec || spec->size != sizeof *spec) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: spec %d is NULL, or its size not %zu", rank, i,
                           sizeof *spec);
    }
    LIERNE_TRY(check_purpose(rank, spec, i));
    if (spec->priority != LIERNE_PRIORITY_NORMAL && spec->priority != LIERNE_PRIORITY_HIGH) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: priority of spec %d is %d, must be LIERNE_PRIORITY_NORMAL or "
                           "LIERNE_PRIORITY_HIGH",
                           rank, i, (int)spec->priority);
    }
    LIERNE_TRY(check_sizes(context, spec, i));
    if (!spec->ranks) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: ranks of spec %d is NULL", rank, i);
    }
    return check_ranks(context, spec, i);
}

/* Adds this rank's group of a spec, if it has one. uid counts the groups of all specs. */
static lierne_status add_own(lierne_group **out, lierne_context *context,
                             const lierne_group_spec *spec, int64_t *uid) {
    const int *ranks = spec->ranks;
    for (int g = 0; g < spec->ngroups; g++) {
        int n = size_of(spec, g);
        ++*uid;
        for (int i = 0; i < n; i++) {
            if (ranks[i] == context->rank) {
                LIERNE_TRY(lierne_group_add(out, context, spec->purpose, ranks, n));
                (*out)->uid = *uid;
                (*out)->priority = spec->priority;
            }
        }
        ranks += n;
    }
    return LIERNE_OK;
}

/* What must be equal on all ranks. */
typedef LIERNE_VEC(lierne_field) group_fields;

static lierne_status add_field(group_fields *fields, int spec, int n, const char *name, int index,
                               int64_t value) {
    lierne_field field = {.value = value};
    size_t used = 0;
    if (n > 1) {
        used = (size_t)snprintf(field.name, sizeof field.name, "specs[%d].", spec);
    }
    if (index < 0) {
        snprintf(field.name + used, sizeof field.name - used, "%s", name);
    } else {
        snprintf(field.name + used, sizeof field.name - used, "%s[%d]", name, index);
    }
    return LIERNE_VEC_PUSH(fields, field);
}

static lierne_status add_fields(group_fields *fields, const lierne_group_spec *spec, int i, int n) {
    int64_t purpose = (int64_t)(lierne_hash(0, spec->purpose, strlen(spec->purpose)) >> 1);
    int count = count_ranks(spec);
    LIERNE_TRY(add_field(fields, i, n, "purpose", -1, purpose));
    LIERNE_TRY(add_field(fields, i, n, "priority", -1, (int64_t)spec->priority));
    LIERNE_TRY(add_field(fields, i, n, "ngroups", -1, spec->ngroups));
    for (int g = 0; g < spec->ngroups; g++) {
        LIERNE_TRY(add_field(fields, i, n, "sizes", g, size_of(spec, g)));
    }
    for (int k = 0; k < count; k++) {
        LIERNE_TRY(add_field(fields, i, n, "ranks", k, spec->ranks[k]));
    }
    return LIERNE_OK;
}

static lierne_status check_specs(lierne_group *const *out, const lierne_context *context,
                                 const lierne_group_spec *const *specs, int n) {
    if (!out || !specs || n < 1) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: %s", context->rank,
                           !out     ? "out is NULL"
                           : !specs ? "specs is NULL"
                                    : "n is below 1");
    }
    for (int i = 0; i < n; i++) {
        LIERNE_TRY(check_spec(context, specs[i], i));
    }
    return LIERNE_OK;
}

/* Everything that can fail on this rank alone. */
static lierne_status prepare(lierne_group **out, lierne_context *context,
                             const lierne_group_spec *const *specs, int n, int64_t *uid,
                             group_fields *fields) {
    LIERNE_TRY(check_specs(out, context, specs, n));
    LIERNE_TRY(add_field(fields, 0, 1, "call", -1, CALL_GROUPS));
    LIERNE_TRY(add_field(fields, 0, 1, "transports with communicators", -1,
                         lierne_groups_count_transports(context)));
    LIERNE_TRY(add_field(fields, 0, 1, "specs", -1, n));
    for (int i = 0; i < n; i++) {
        LIERNE_TRY(add_fields(fields, specs[i], i, n));
        LIERNE_TRY(add_own(&out[i], context, specs[i], uid));
    }
    return LIERNE_OK;
}

static void drop(lierne_group **out, lierne_context *context, int n) {
    for (int i = 0; out && i < n; i++) {
        lierne_group_remove(context, out[i]);
        out[i] = NULL;
    }
}

static lierne_status create(lierne_group **out, lierne_context *context,
                            const lierne_group_spec *const *specs, int n, const char *func) {
    int64_t uid = context->last_group_uid;
    group_fields fields = {0};
    for (int i = 0; out && i < n; i++) {
        out[i] = NULL;
    }
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = prepare(out, context, specs, n, &uid, &fields);
    lierne_fail_in(status, func);
    int64_t call = lierne_context_begin_call(context, "creating groups", -1);
    status = lierne_context_agree_all(context, status, fields.at, fields.count, NULL);
    if (status == LIERNE_OK) {
        context->last_group_uid = uid;
        status = lierne_groups_create_communicators(context, out, n);
    }
    lierne_context_end_call(context, call, status);
    lierne_mem_free(fields.at);
    if (status != LIERNE_OK) {
        drop(out, context, n);
    }
    return lierne_fail_in(status, func);
}

lierne_status lierne_groups_create(lierne_group **out, lierne_context *context,
                                   const lierne_group_spec *const *specs, int n) {
    return context ? create(out, context, specs, n, __func__)
                   : LIERNE_FAIL(LIERNE_INVALID, "context is NULL");
}

lierne_status lierne_group_create(lierne_group **out, lierne_context *context,
                                  const lierne_group_spec *spec) {
    return context ? create(out, context, &spec, 1, __func__)
                   : LIERNE_FAIL(LIERNE_INVALID, "context is NULL");
}

lierne_status lierne_group_destroy(lierne_group **group) {
    if (!group || !*group) {
        return LIERNE_OK;
    }
    lierne_group *old = *group;
    *group = NULL;
    lierne_status status = lierne_group_destroy_communicators(old);
    lierne_group_remove(old->context, old);
    return lierne_fail_in(status, __func__);
}
