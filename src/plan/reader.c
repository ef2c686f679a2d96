/* Reading the members of a plan's text. */
#include "plan/reader.h"

#include <limits.h>
#include <string.h>

lierne_status lierne_plan_reader_reject(const lierne_json_node *node, const char *key,
                                        const char *wanted) {
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "%d:%d: %s must be %s", node->place.line,
                       node->place.column, key, wanted);
}

lierne_status lierne_plan_reader_find(const lierne_plan_reader *r, const char *key,
                                      lierne_json_type type, const lierne_json_node **out) {
    const lierne_json_node *node = lierne_json_first(r->root);
    while (node && strcmp(lierne_json_key(node), key) != 0) {
        node = lierne_json_next(&r->doc, node);
    }
    *out = node;
    if (!node) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%d:%d: there is no '%s'", r->root->place.line,
                           r->root->place.column, key);
    }
    return node->type == type ? LIERNE_OK
                              : lierne_plan_reader_reject(node, key, lierne_json_type_name(type));
}

lierne_status lierne_plan_reader_integer(const lierne_json_node *node, const char *key,
                                         int64_t *out) {
    if (node->type != LIERNE_JSON_NUMBER || !node->integer) {
        return lierne_plan_reader_reject(node, key, "an integer");
    }
    *out = node->value;
    return LIERNE_OK;
}

lierne_status lierne_plan_reader_int(const lierne_json_node *node, const char *key, int *out) {
    int64_t value = 0;
    LIERNE_TRY(lierne_plan_reader_integer(node, key, &value));
    if (value < INT_MIN || value > INT_MAX) {
        return lierne_plan_reader_reject(node, key, "a number that fits 32 bits");
    }
    *out = (int)value;
    return LIERNE_OK;
}

lierne_status lierne_plan_reader_integers(const lierne_plan_reader *r, const lierne_json_node *list,
                                          const char *key, int64_t *out) {
    const lierne_json_node *node = lierne_json_first(list);
    for (int i = 0; node; i++, node = lierne_json_next(&r->doc, node)) {
        LIERNE_TRY(lierne_plan_reader_integer(node, key, &out[i]));
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_reader_get_integer(const lierne_plan_reader *r, const char *key,
                                             int64_t *out) {
    const lierne_json_node *node;
    LIERNE_TRY(lierne_plan_reader_find(r, key, LIERNE_JSON_NUMBER, &node));
    return lierne_plan_reader_integer(node, key, out);
}

lierne_status lierne_plan_reader_get_int(const lierne_plan_reader *r, const char *key, int *out) {
    const lierne_json_node *node;
    LIERNE_TRY(lierne_plan_reader_find(r, key, LIERNE_JSON_NUMBER, &node));
    return lierne_plan_reader_int(node, key, out);
}

lierne_status lierne_plan_reader_get_bool(const lierne_plan_reader *r, const char *key, int *out) {
    const lierne_json_node *node;
    LIERNE_TRY(lierne_plan_reader_find(r, key, LIERNE_JSON_BOOLEAN, &node));
    *out = node->value != 0;
    return LIERNE_OK;
}

lierne_status lierne_plan_reader_get_word(const lierne_plan_reader *r, const char *key,
                                          const char *const *words, int n, int *out) {
    const lierne_json_node *node;
    LIERNE_TRY(lierne_plan_reader_find(r, key, LIERNE_JSON_STRING, &node));
    for (int i = 0; i < n; i++) {
        if (strcmp(lierne_json_string(node), words[i]) == 0) {
            *out = i;
            return LIERNE_OK;
        }
    }
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "%d:%d: %s is '%s'", node->place.line,
                       node->place.column, key, lierne_json_string(node));
}

lierne_status lierne_plan_reader_get_dtype(const lierne_plan_reader *r, lierne_dtype *out) {
    const lierne_json_node *node;
    LIERNE_TRY(lierne_plan_reader_find(r, "dtype", LIERNE_JSON_STRING, &node));
    return lierne_dtype_parse(out, lierne_json_string(node));
}

/* What is negative, planning rejects. */
lierne_status lierne_plan_reader_check_rows(const lierne_plan_reader *r, int64_t rows,
                                            int64_t width, lierne_dtype dtype, int max_inflight) {
    int64_t most = (int64_t)r->length, bytes = 0, inflight = max_inflight ? max_inflight : 1;
    most = most > INT64_MAX / LIERNE_PLAN_BYTES_PER_BYTE ? INT64_MAX
                                                         : most * LIERNE_PLAN_BYTES_PER_BYTE;
    most = most > LIERNE_PLAN_LEAST_BYTES ? most : LIERNE_PLAN_LEAST_BYTES;
    bool fits = lierne_mul_i64(rows, width, &bytes) && lierne_mul_i64(bytes, inflight, &bytes) &&
                lierne_mul_i64(bytes, (int64_t)lierne_dtype_size(dtype), &bytes);
    if (rows < 0 || width < 0 || inflight < 0 || (fits && bytes <= most)) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                       "%lld rows of width %lld and max_inflight %d take %lld bytes%s, more than "
                       "%lld, the limit for a text of %zu bytes",
                       (long long)rows, (long long)width, max_inflight,
                       (long long)(fits ? bytes : INT64_MAX), fits ? "" : " or more",
                       (long long)most, r->length);
}

lierne_status lierne_plan_reader_find_list(const lierne_plan_reader *r, const char *key, int64_t n,
                                           const lierne_json_node **list) {
    LIERNE_TRY(lierne_plan_reader_find(r, key, LIERNE_JSON_ARRAY, list));
    if ((*list)->count != n) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%d:%d: %s has %d entries, must have %lld",
                           (*list)->place.line, (*list)->place.column, key, (*list)->count,
                           (long long)n);
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_reader_get_list(const lierne_plan_reader *r, const char *key, int64_t n,
                                          int64_t **out) {
    const lierne_json_node *list;
    LIERNE_TRY(lierne_plan_reader_find_list(r, key, n, &list));
    LIERNE_TRY(lierne_alloc_unset(out, (size_t)n, sizeof **out));
    return lierne_plan_reader_integers(r, list, key, *out);
}

lierne_status lierne_plan_reader_open(lierne_plan_reader *r, const char *text, size_t length) {
    LIERNE_TRY(lierne_check_set(text, "text"));
    r->length = length;
    lierne_status status = lierne_json_parse(&r->doc, text, length);
    if (status == LIERNE_ERR_SYNTAX) {
        const lierne_json_fault *fault = &r->doc.fault;
        return LIERNE_FAIL(LIERNE_ERR_SYNTAX, "%d:%d: %s", fault->place.line, fault->place.column,
                           fault->number ? fault->message : "a key occurs twice");
    }
    LIERNE_TRY(status);
    r->root = r->doc.nodes.at;
    return r->root->type == LIERNE_JSON_OBJECT
               ? LIERNE_OK
               : lierne_plan_reader_reject(r->root, "a plan", "an object");
}

void lierne_plan_reader_close(lierne_plan_reader *r) {
    lierne_json_destroy(&r->doc);
}
