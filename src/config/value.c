/* Reading single values: objects by a table of their keys, integers in a range, words out of a
 * list, names. With the tables, each object's format is in one place, and one function finds all
 * unknown, missing and mistyped keys. */
#include "config/read.h"
#include "grid/grid.h"

#include <string.h>

static bool is_comment(const char *key) {
    return strcmp(key, "comment") == 0 || strcmp(key, "source") == 0 || strcmp(key, "$schema") == 0;
}

static const lierne_json_node *skip_comments(const lierne_reader *r, const lierne_json_node *node) {
    while (node && node->key && is_comment(lierne_json_key(node))) {
        node = lierne_json_next(r->doc, node);
    }
    return node;
}

const lierne_json_node *lierne_config_first(const lierne_reader *r, const lierne_json_node *node) {
    return skip_comments(r, lierne_json_first(node));
}

const lierne_json_node *lierne_config_next(const lierne_reader *r, const lierne_json_node *node) {
    return skip_comments(r, lierne_json_next(r->doc, node));
}

/* "a number or an array" */
static void list_types(int types, lierne_text *text) {
    for (int bit = 1; bit <= LIERNE_JSON_NULL; bit *= 2) {
        if (types & bit) {
            lierne_text_add(text, "%s%s", text->length ? " or " : "",
                            lierne_json_type_name((lierne_json_type)bit));
        }
    }
}

bool lierne_config_typed(lierne_reader *r, const lierne_json_node *node, int types) {
    if (!node || ((int)node->type & types)) {
        return node;
    }
    lierne_text wanted = {0};
    list_types(types, &wanted);
    r->failed |= wanted.failed;
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_TYPE, node, "", "%s is %s, must be %s",
                          lierne_label(node).text, lierne_json_type_name(node->type),
                          wanted.data ? wanted.data : "");
    lierne_text_clear(&wanted);
    return false;
}

static void add_unknown_key(lierne_reader *r, const lierne_json_node *member,
                            const lierne_config_key *keys, int nkeys) {
    lierne_text hint = {0};
    lierne_config_words words = {.n = nkeys};
    for (int i = 0; i < nkeys; i++) {
        words.at[i] = keys[i].name;
    }
    lierne_config_suggest(&hint, lierne_json_key(member), "known keys here: ", &words);
    r->failed |= hint.failed;
    lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_UNKNOWN_KEY, member, hint.data ? hint.data : "",
                              "key %s is not known", lierne_label(member).text);
    lierne_text_clear(&hint);
}

bool lierne_config_object(lierne_reader *r, const lierne_json_node *node,
                          const lierne_config_key *keys, int nkeys,
                          const lierne_json_node **found) {
    uint32_t seen = 0;
    memset(found, 0, (size_t)nkeys * sizeof *found);
    if (!lierne_config_typed(r, node, LIERNE_JSON_OBJECT)) {
        return false;
    }
    for (const lierne_json_node *m = lierne_config_first(r, node); m;
         m = lierne_config_next(r, m)) {
        int i = 0;
        while (i < nkeys && strcmp(keys[i].name, lierne_json_key(m)) != 0) {
            i++;
        }
        if (i == nkeys) {
            add_unknown_key(r, m, keys, nkeys);
        } else {
            seen |= (uint32_t)1 << i;
            found[i] = lierne_config_typed(r, m, keys[i].types) ? m : NULL;
        }
    }
    for (int i = 0; i < nkeys; i++) {
        if (keys[i].required && !(seen & (uint32_t)1 << i)) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_MISSING_KEY, node, "add it",
                                  "key '%s' is missing in %s", keys[i].name,
                                  lierne_label(node).text);
        }
    }
    return true;
}

bool lierne_config_integer(lierne_reader *r, const lierne_json_node *node, int64_t low,
                           int64_t high, int64_t *out) {
    if (!lierne_config_typed(r, node, LIERNE_JSON_NUMBER)) {
        return false;
    }
    if (!node->integer) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_INTEGER, node,
                              "write it without point and exponent, within 64 bits",
                              "%s is not an integer", lierne_label(node).text);
        return false;
    }
    if (node->value >= low && node->value <= high) {
        *out = node->value;
        return true;
    }
    if (high == INT64_MAX) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_RANGE, node, "",
                              "%s is %lld, must be at least %lld", lierne_label(node).text,
                              (long long)node->value, (long long)low);
    } else {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_RANGE, node, "",
                              "%s is %lld, must be %lld to %lld", lierne_label(node).text,
                              (long long)node->value, (long long)low, (long long)high);
    }
    return false;
}

int64_t *lierne_config_integers(lierne_reader *r, const lierne_json_node *list) {
    int64_t *values = NULL;
    int i = 0;
    if (!lierne_reader_ok(r, lierne_alloc(&values, (size_t)list->count, sizeof *values))) {
        return NULL;
    }
    for (const lierne_json_node *n = lierne_json_first(list); n; n = lierne_json_next(r->doc, n)) {
        lierne_config_integer(r, n, INT64_MIN, INT64_MAX, &values[i++]);
    }
    return values;
}

int32_t *lierne_config_coordinates(lierne_reader *r, const lierne_json_node *list) {
    int32_t *values = NULL;
    int64_t value = 0;
    int i = 0;
    if (!lierne_reader_ok(r, lierne_alloc(&values, (size_t)list->count, sizeof *values))) {
        return NULL;
    }
    for (const lierne_json_node *n = lierne_json_first(list); n; n = lierne_json_next(r->doc, n)) {
        lierne_config_integer(r, n, 0, LIERNE_MAX_RANKS, &value);
        values[i++] = (int32_t)value;
    }
    return values;
}

bool lierne_config_word(lierne_reader *r, const lierne_json_node *node, const char *const *words,
                        int nwords, int *out) {
    if (!lierne_config_typed(r, node, LIERNE_JSON_STRING)) {
        return false;
    }
    for (*out = 0; *out < nwords; ++*out) {
        if (strcmp(words[*out], lierne_json_string(node)) == 0) {
            return true;
        }
    }
    lierne_text hint = {0};
    lierne_config_words known = {.n = nwords};
    memcpy(known.at, words, (size_t)nwords * sizeof *words);
    lierne_config_suggest(&hint, lierne_json_string(node), "one of: ", &known);
    r->failed |= hint.failed;
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_CHOICE, node, hint.data ? hint.data : "",
                          "%s is %s, which is not known", lierne_label(node).text,
                          lierne_quote(lierne_json_string(node)).text);
    lierne_text_clear(&hint);
    return false;
}

/* What is wrong with a name; NULL if nothing is. */
static const char *name_error(const char *name, lierne_config_name_kind kind) {
    if (strlen(name) > LIERNE_CONFIG_MAX_NAME) {
        return "is longer than 128 bytes";
    }
    if (kind == LIERNE_CONFIG_KEY_NAME) {
        return lierne_name_valid(name) == LIERNE_OK
                   ? NULL
                   : "is empty or has one of '-', ',', ':' or a control character";
    }
    if (!*name) {
        return "is empty";
    }
    for (; *name; name++) {
        if ((unsigned char)*name < 0x20 || *name == 0x7F) {
            return "has a control character";
        }
    }
    return NULL;
}

bool lierne_config_name(lierne_reader *r, const lierne_json_node *node, bool at_key,
                        lierne_config_name_kind kind) {
    if (!at_key && !lierne_config_typed(r, node, LIERNE_JSON_STRING)) {
        return false;
    }
    const char *name = at_key ? lierne_json_key(node) : lierne_json_string(node);
    const char *error = name_error(name, kind);
    if (!error) {
        return true;
    }
    if (at_key) {
        lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_NAME, node, "choose another name",
                                  "name %s %s", lierne_quote(name).text, error);
    } else {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_NAME, node, "choose another name", "name %s %s",
                              lierne_quote(name).text, error);
    }
    return false;
}

bool lierne_config_true(const lierne_json_node *node) {
    return node && node->value;
}
