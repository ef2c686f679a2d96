/* Schedules from JSON. Each object is read through a table of its members, so that every unknown,
 * missing or mistyped member is an error at its line and column; then the recording functions check
 * the values as they check those of a caller. */
#include "step/schedule.h"
#include "json/json.h"

#include <limits.h>
#include <string.h>

typedef struct member {
    const char *name;
    int types;
    bool required;
} member;

#define MAX_MEMBERS 12

static lierne_status reject_node(const lierne_json_node *node, const char *what, const char *name,
                                 const char *must) {
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "%d:%d: %s '%s' %s", node->place.line,
                       node->place.column, what, name, must);
}

/* found[i]: the value of members[i], or NULL. */
static lierne_status read_object(const lierne_json *doc, const lierne_json_node *object,
                                 const member *members, int n, const lierne_json_node **found) {
    memset(found, 0, (size_t)n * sizeof *found);
    if (object->type != LIERNE_JSON_OBJECT) {
        return reject_node(object, "the value", lierne_json_type_name(object->type),
                           "must be an object");
    }
    for (const lierne_json_node *m = lierne_json_first(object); m; m = lierne_json_next(doc, m)) {
        int i = 0;
        while (i < n && strcmp(members[i].name, lierne_json_key(m)) != 0) {
            i++;
        }
        if (i == n) {
            return reject_node(m, "member", lierne_json_key(m), "is not known");
        }
        if (!((int)m->type & members[i].types) || (m->type == LIERNE_JSON_NUMBER && !m->integer)) {
            return reject_node(m, "member", lierne_json_key(m), "has another type than it must");
        }
        found[i] = m;
    }
    for (int i = 0; i < n; i++) {
        if (members[i].required && !found[i]) {
            return reject_node(object, "member", members[i].name, "is missing");
        }
    }
    return LIERNE_OK;
}

static lierne_status read_int(int *out, const lierne_json_node *node, int fallback) {
    *out = fallback;
    if (node && (node->type != LIERNE_JSON_NUMBER || !node->integer || node->value < INT_MIN ||
                 node->value > INT_MAX)) {
        return reject_node(node, "the value", lierne_json_type_name(node->type),
                           "must be an integer of 32 bits");
    }
    *out = node ? (int)node->value : fallback;
    return LIERNE_OK;
}

/* To be freed, also after a failure. */
static lierne_status read_ints(int **out, int *n, const lierne_json *doc,
                               const lierne_json_node *list) {
    *n = list ? list->count : 0;
    LIERNE_TRY(lierne_alloc(out, (size_t)*n, sizeof **out));
    const lierne_json_node *node = list ? lierne_json_first(list) : NULL;
    for (int i = 0; node; i++, node = lierne_json_next(doc, node)) {
        LIERNE_TRY(read_int(&(*out)[i], node, 0));
    }
    return LIERNE_OK;
}

static const char *string_of(const lierne_json_node *node) {
    return node ? lierne_json_string(node) : NULL;
}

static lierne_status read_priority(lierne_priority *out, const lierne_json_node *node) {
    const char *text = node ? lierne_json_string(node) : "normal";
    *out = strcmp(text, "high") == 0 ? LIERNE_PRIORITY_HIGH : LIERNE_PRIORITY_NORMAL;
    return *out == LIERNE_PRIORITY_HIGH || strcmp(text, "normal") == 0
               ? LIERNE_OK
               : reject_node(node, "priority", text, "must be normal or high");
}

/* A group that a pass made becomes one again: its uid is that of its source. */
static lierne_status add_group(lierne_schedule *s, const lierne_schedule_group_spec *spec,
                               const lierne_json_node *source, const lierne_json_node *purpose) {
    int index;
    lierne_schedule_group_spec own = *spec;
    if (!source && !purpose) {
        return lierne_schedule_add_group(&index, s, spec);
    }
    if (!source || !purpose || source->value < 1 ||
        !lierne_purpose_valid(lierne_json_string(purpose), false)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "group '%s' must have a source of at least 1 and a purpose, or neither",
                           spec->name);
    }
    own.uid = INT64_MAX - (int64_t)s->groups.count; /* any that no other group has */
    LIERNE_TRY(lierne_schedule_add_group(&index, s, &own));
    lierne_recorded_group *g = &s->groups.at[index];
    g->uid = spec->uid;
    g->source = source->value;
    strcpy(g->purpose, lierne_json_string(purpose));
    return LIERNE_OK;
}

static lierne_status read_group(lierne_schedule *s, const lierne_json *doc,
                                const lierne_json_node *node) {
    static const member members[] = {{"name", LIERNE_JSON_STRING, true},
                                     {"uid", LIERNE_JSON_NUMBER, true},
                                     {"ranks", LIERNE_JSON_ARRAY, true},
                                     {"priority", LIERNE_JSON_STRING, false},
                                     {"source", LIERNE_JSON_NUMBER, false},
                                     {"purpose", LIERNE_JSON_STRING, false}};
    const lierne_json_node *found[MAX_MEMBERS];
    lierne_schedule_group_spec spec = {.size = sizeof spec};
    int *ranks = NULL;
    LIERNE_TRY(read_object(doc, node, members, 6, found));
    spec.name = lierne_json_string(found[0]);
    spec.uid = found[1]->value;
    LIERNE_TRY(read_priority(&spec.priority, found[3]));
    lierne_status status = read_ints(&ranks, &spec.nranks, doc, found[2]);
    spec.ranks = ranks;
    if (status == LIERNE_OK) {
        status = add_group(s, &spec, found[4], found[5]);
    }
    lierne_mem_free(ranks);
    return status;
}

static lierne_status read_kind(lierne_operation_kind *out, const lierne_json_node *node) {
    const char *text = lierne_json_string(node);
    for (int k = LIERNE_OPERATION_ALL_GATHER; k <= LIERNE_OPERATION_LOCAL; k++) {
        if (strcmp(text, lierne_operation_name((lierne_operation_kind)k)) == 0) {
            *out = (lierne_operation_kind)k;
            return LIERNE_OK;
        }
    }
    return reject_node(node, "kind", text, "is not known");
}

static lierne_status find_group(int *out, const lierne_schedule *s, const lierne_json_node *node) {
    *out = -1;
    for (int i = 0; node && i < (int)s->groups.count; i++) {
        if (strcmp(s->groups.at[i].name, lierne_json_string(node)) == 0) {
            *out = i;
        }
    }
    return *out >= 0 || !node ? LIERNE_OK
                              : reject_node(node, "group", lierne_json_string(node),
                                            "is no group of the schedule");
}

static lierne_status fill_operation(lierne_operation_spec *spec, int *number,
                                    const lierne_schedule *s, const lierne_json_node *const *f) {
    int direction;
    LIERNE_TRY(read_kind(&spec->kind, f[0]));
    LIERNE_TRY(find_group(&spec->group, s, f[1]));
    spec->tag = string_of(f[2]);
    if (f[4]) {
        LIERNE_TRY(lierne_dtype_parse(&spec->dtype, lierne_json_string(f[4])));
    }
    spec->count = f[5] ? f[5]->value : 0;
    LIERNE_TRY(read_int(&spec->root, f[6], 0));
    LIERNE_TRY(read_int(&spec->peer, f[7], 0));
    LIERNE_TRY(read_int(number, f[8], -1));
    LIERNE_TRY(read_int(&direction, f[9], 0));
    spec->direction = (lierne_direction)direction;
    spec->held = f[10] && f[10]->value;
    spec->name = string_of(f[11]);
    return LIERNE_OK;
}

static lierne_status read_operation(lierne_schedule *s, const lierne_json *doc,
                                    const lierne_json_node *node) {
    static const member members[] = {
        {"kind", LIERNE_JSON_STRING, true},   {"group", LIERNE_JSON_STRING, false},
        {"tag", LIERNE_JSON_STRING, false},   {"after", LIERNE_JSON_ARRAY, false},
        {"dtype", LIERNE_JSON_STRING, false}, {"count", LIERNE_JSON_NUMBER, false},
        {"root", LIERNE_JSON_NUMBER, false},  {"peer", LIERNE_JSON_NUMBER, false},
        {"plan", LIERNE_JSON_NUMBER, false},  {"direction", LIERNE_JSON_NUMBER, false},
        {"held", LIERNE_JSON_BOOLEAN, false}, {"name", LIERNE_JSON_STRING, false}};
    const lierne_json_node *found[MAX_MEMBERS];
    lierne_operation_spec spec = LIERNE_OPERATION_SPEC_INIT;
    int *after = NULL, index, number;
    LIERNE_TRY(read_object(doc, node, members, 12, found));
    LIERNE_TRY(fill_operation(&spec, &number, s, found));
    lierne_status status = read_ints(&after, &spec.nafter, doc, found[3]);
    spec.after = after;
    if (status == LIERNE_OK) {
        status = lierne_schedule_add_operation(&index, s, &spec);
    }
    if (status == LIERNE_OK) {
        s->operations.at[index].number = number;
    }
    lierne_mem_free(after);
    return status;
}

static lierne_status fill_schedule(lierne_schedule *s, const lierne_json *doc,
                                   const lierne_json_node *const *found) {
    const lierne_json_node *node = lierne_json_first(found[1]);
    for (; node; node = lierne_json_next(doc, node)) {
        LIERNE_TRY(read_group(s, doc, node));
    }
    for (node = lierne_json_first(found[2]); node; node = lierne_json_next(doc, node)) {
        LIERNE_TRY(read_operation(s, doc, node));
    }
    return lierne_schedule_freeze(s);
}

static lierne_status read_schedule(lierne_schedule **out, const lierne_json *doc,
                                   const lierne_json_node *node) {
    static const member members[] = {{"rank", LIERNE_JSON_NUMBER, true},
                                     {"groups", LIERNE_JSON_ARRAY, true},
                                     {"operations", LIERNE_JSON_ARRAY, true}};
    const lierne_json_node *found[MAX_MEMBERS];
    int rank;
    LIERNE_TRY(read_object(doc, node, members, 3, found));
    LIERNE_TRY(read_int(&rank, found[0], 0));
    LIERNE_TRY(lierne_schedule_create(out, rank));
    return fill_schedule(*out, doc, found);
}

/* A text without "schedules" is one schedule. */
static bool is_single(const lierne_json *doc, const lierne_json_node *root) {
    const lierne_json_node *m = root->type == LIERNE_JSON_OBJECT ? lierne_json_first(root) : NULL;
    while (m && strcmp(lierne_json_key(m), "schedules") != 0) {
        m = lierne_json_next(doc, m);
    }
    return !m;
}

static lierne_status read_all(lierne_schedule ***out, int *n, const lierne_json *doc) {
    static const member members[] = {{"schedules", LIERNE_JSON_ARRAY, true}};
    const lierne_json_node *root = &doc->nodes.at[0], *found[MAX_MEMBERS] = {root};
    bool single = is_single(doc, root);
    if (!single) {
        LIERNE_TRY(read_object(doc, root, members, 1, found));
    }
    *n = single ? 1 : found[0]->count;
    LIERNE_TRY(lierne_alloc(out, (size_t)*n, sizeof **out));
    const lierne_json_node *node = single ? root : lierne_json_first(found[0]);
    for (int i = 0; i < *n; i++, node = lierne_json_next(doc, node)) {
        LIERNE_TRY(read_schedule(&(*out)[i], doc, node));
    }
    return LIERNE_OK;
}

void lierne_schedule_destroy_all(lierne_schedule **schedules, int n) {
    for (int i = 0; schedules && i < n; i++) {
        lierne_schedule_destroy(schedules[i]);
    }
    lierne_mem_free(schedules);
}

/* The reason of a text that is no JSON. */
static lierne_status fail_syntax(const lierne_json *doc) {
    if (doc->fault.number) {
        return LIERNE_FAIL(LIERNE_ERR_SYNTAX, "%d:%d: %s", doc->fault.place.line,
                           doc->fault.place.column, doc->fault.message);
    }
    const lierne_json_node *node = &doc->nodes.at[doc->duplicates.at[0].node];
    return LIERNE_FAIL(LIERNE_ERR_SYNTAX, "%d:%d: a member occurs twice", node->key_place.line,
                       node->key_place.column);
}

lierne_status lierne_schedule_deserialize(lierne_schedule ***out, int *n, const char *text,
                                          size_t length) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_json doc = {0};
    if (!out || !n || !text) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", !out ? "out" : !n ? "n" : "text");
    }
    *n = 0;
    lierne_status status = lierne_json_parse(&doc, text, length);
    if (status == LIERNE_ERR_SYNTAX) {
        status = fail_syntax(&doc);
    } else if (status == LIERNE_OK) {
        status = read_all(out, n, &doc);
    }
    lierne_json_destroy(&doc);
    if (status != LIERNE_OK) {
        lierne_schedule_destroy_all(*out, *n);
        *out = NULL;
        *n = 0;
    }
    return status;
}
