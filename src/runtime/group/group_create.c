/* lierne_group_create_all and lierne_group_destroy.
 *
 * Everything that can fail on one rank alone (specs, budget, memory) comes before the ranks agree.
 * They compare all that they were given, entry by entry, so that a difference is named. Uids are
 * numbers of a counter that every rank advances alike, by all groups of a call, also by those that
 * it is no member of. So they need no message, and cannot collide as hashes could. */
#include "runtime/group/group.h"

#include <stdio.h>
#include <string.h>

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
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: purpose of spec %d is NULL", rank, i);
    }
    size_t length = strlen(spec->purpose);
    if (length < 1 || length > LIERNE_MAX_PURPOSE ||
        spec->purpose[strspn(spec->purpose, allowed)]) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
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
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: ngroups of spec %d is %d, must be 1 to %d",
                           rank, i, spec->ngroups, context->members.count);
    }
    for (int g = 0; g < spec->ngroups; g++) {
        int size = size_of(spec, g);
        if (size < 1 || size > left) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
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
            status =
                LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: ranks[%d] of spec %d is %d, must be %s",
                            context->rank, k, i, r, members);
        } else if (seen[index]++) {
            status = LIERNE_FAIL(LIERNE_ERR_INVALID,
                                 "rank %d: ranks[%d] of spec %d is %d again: "
                                 "groups with a rank in common need a spec each",
                                 context->rank, k, i, r);
        }
    }
    lierne_mem_free(seen);
    return status;
}

static lierne_status take_spec(lierne_group_spec *spec, const lierne_context *context,
                               const lierne_group_spec *given, int i) {
    int rank = context->rank;
    char name[48];
    snprintf(name, sizeof name, "rank %d: specs[%d]", rank, i);
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, name));
    LIERNE_TRY(check_purpose(rank, spec, i));
    if (spec->priority != LIERNE_PRIORITY_NORMAL && spec->priority != LIERNE_PRIORITY_HIGH) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: priority of spec %d is %d, must be LIERNE_PRIORITY_NORMAL or "
                           "LIERNE_PRIORITY_HIGH",
                           rank, i, (int)spec->priority);
    }
    LIERNE_TRY(check_sizes(context, spec, i));
    if (!spec->ranks) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: ranks of spec %d is NULL", rank, i);
    }
    return check_ranks(context, spec, i);
}

/* Adds this rank's group of a spec, if it has one. uid counts the groups of all specs. */
static lierne_status add_own(lierne_group **out, lierne_context *context,
                             const lierne_group_spec *spec, int64_t *uid) {
    const int *ranks = spec->ranks;
    int64_t first = *uid + 1;
    for (int g = 0; g < spec->ngroups; g++) {
        int n = size_of(spec, g);
        ++*uid;
        for (int i = 0; i < n; i++) {
            if (ranks[i] == context->rank) {
                LIERNE_TRY(lierne_group_add(out, context, spec->purpose, ranks, n));
                (*out)->uid = *uid;
                (*out)->set = first;
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
    lierne_field purpose = lierne_field_text("", spec->purpose);
    int count = count_ranks(spec);
    snprintf(purpose.name, sizeof purpose.name, n > 1 ? "specs[%d].purpose" : "purpose", i);
    LIERNE_TRY(LIERNE_VEC_PUSH(fields, purpose));
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

static lierne_status check_arguments(lierne_group *const *out, const lierne_context *context,
                                     const lierne_group_spec *const *specs, int n) {
    if (!out || !specs || n < 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s", context->rank,
                           !out     ? "out is NULL"
                           : !specs ? "specs is NULL"
                                    : "n is below 1");
    }
    return LIERNE_OK;
}

/* Everything that can fail on this rank alone. */
static lierne_status prepare_groups(lierne_group **out, lierne_context *context,
                                    const lierne_group_spec *const *specs, int n, int64_t *uid,
                                    group_fields *fields) {
    LIERNE_TRY(check_arguments(out, context, specs, n));
    LIERNE_TRY(add_field(fields, 0, 1, "lierne_group_create_all", -1, 0));
    LIERNE_TRY(add_field(fields, 0, 1, "transports with communicators", -1,
                         lierne_groups_count_transports(context)));
    LIERNE_TRY(add_field(fields, 0, 1, "specs", -1, n));
    for (int i = 0; i < n; i++) {
        lierne_group_spec spec;
        LIERNE_TRY(take_spec(&spec, context, specs[i], i));
        LIERNE_TRY(add_fields(fields, &spec, i, n));
        LIERNE_TRY(add_own(&out[i], context, &spec, uid));
    }
    return LIERNE_OK;
}

static void drop_groups(lierne_group **out, lierne_context *context, int n) {
    for (int i = 0; out && i < n; i++) {
        lierne_group_remove(context, out[i]);
        out[i] = NULL;
    }
}

static bool dependent_busy(const lierne_dependent *dependent) {
    (void)dependent;
    return false;
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_group *group = (lierne_group *)dependent;
    lierne_context_remove_dependent(group->context, dependent);
    lierne_status status = lierne_group_destroy_communicators(group);
    lierne_group_remove(group->context, group);
    return status;
}

static void add_dependents(lierne_group *const *groups, lierne_context *context, int n) {
    for (int i = 0; i < n; i++) {
        if (groups[i]) {
            groups[i]->dependent =
                (lierne_dependent){.busy = dependent_busy, .destroy = destroy_dependent};
            lierne_context_add_dependent(context, &groups[i]->dependent);
        }
    }
}

static lierne_status create_groups(lierne_group **out, lierne_context *context,
                                   const lierne_group_spec *const *specs, int n) {
    group_fields fields = {0};
    for (int i = 0; out && i < n; i++) {
        out[i] = NULL;
    }
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    int64_t uid = context->last_group_uid;
    lierne_status status = prepare_groups(out, context, specs, n, &uid, &fields);
    int64_t call = lierne_context_begin_call(context, "creating groups", -1, -1);
    status = lierne_context_agree_all(context, status, fields.at, fields.count, NULL);
    if (status == LIERNE_OK) {
        context->last_group_uid = uid;
        status = lierne_groups_create_communicators(context, out, n);
    }
    lierne_context_end_call(context, call, status);
    lierne_mem_free(fields.at);
    if (status == LIERNE_OK) {
        add_dependents(out, context, n);
    } else {
        drop_groups(out, context, n);
    }
    return status;
}

lierne_status lierne_group_create_all(lierne_group **out, lierne_context *context,
                                      const lierne_group_spec *const *specs, int n) {
    LIERNE_PUBLIC_CALL();
    return create_groups(out, context, specs, n);
}

lierne_status lierne_group_create(lierne_group **out, lierne_context *context,
                                  const lierne_group_spec *spec) {
    LIERNE_PUBLIC_CALL();
    return create_groups(out, context, &spec, 1);
}

lierne_status lierne_group_destroy(lierne_group *group) {
    LIERNE_PUBLIC_CALL();
    if (group && group->nplans > 0) {
        return LIERNE_FAIL(
            LIERNE_ERR_BUSY,
            "rank %d: %zu plans are in the group '%s' (uid %lld): destroy them first",
            group->context->rank, group->nplans, group->purpose, (long long)group->uid);
    }
    return group ? destroy_dependent(&group->dependent) : LIERNE_OK;
}
